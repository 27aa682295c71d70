"""Expensive similarities: which pairs of objects are compared, where few of all can be.

In: objects, their targets, a number of pairs. Out: `SimilarityFeatures`, and the objects that take part. A pilot of a
few hundred objects is compared whole. Its similarities are part of what follows, which is one of two.

*A sample.* The pilot is extended to the largest sample whose pairs can all be compared, and the machine is exact on it.
The other objects take no part.

*Neighbours.* All objects take part, by their similarities to landmarks and within small blocks of like objects. That is
better where objects come in families. It is taken if memory suffices and these similarities predict held-out objects of
the pilot better than all similarities of the pilot do. A tie goes to the sample, which is what an exact machine would
learn from at the same cost.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from krein.arrays import Array, Indices, stream
from krein.errors import InputError
from krein.estimators.choose_correction import preferred
from krein.estimators.kernel_matrix import fill_symmetric
from krein.estimators.similarity_features import (
    SCORE_ALPHAS,
    LandmarkScore,
    SimilarityFeatures,
    block_rows,
    landmark_score,
    neighbour_blocks,
    row_scores,
    similarity_features,
)
from krein.estimators.similarity_ridge import ridge_errors
from krein.kernels import Evaluator, Kernel, take

__all__ = ["Shares", "expensive_features"]

# A quarter of the pairs are the pilot's: those of FEWEST_OBJECTS to PILOT_OBJECTS objects.
PILOT_SHARE = 0.25
FEWEST_OBJECTS = 50
PILOT_OBJECTS = 1000
# The pilot has blocks of no fewer than FEWEST_ROWS rows.
FEWEST_ROWS = 4
# Each class has CLASS_OBJECTS objects in the pilot, if it has so many at all.
CLASS_OBJECTS = 2


class Shares:
    """What ``n_pairs`` similarities of n objects are spent on."""

    def __init__(self, n: int, n_pairs: float) -> None:
        self.pilot = min(n, max(FEWEST_OBJECTS, min(PILOT_OBJECTS, int(math.sqrt(2.0 * PILOT_SHARE * n_pairs)))))
        rest = n_pairs - self.pilot**2 / 2 - n * block_rows(n) / 2
        self.landmarks = max(1, min(self.pilot, int(rest / max(1, n - self.pilot))))  # the pilot's are known
        self.sample = max(self.pilot, min(n, int((math.sqrt(8.0 * n_pairs + 1.0) - 1.0) / 2.0)))


def expensive_features(
    kernel: Kernel, objects: Any, n_pairs: int, neighbours: bool, targets: Array, task: str, seed: int, verbose: int = 0
) -> tuple[SimilarityFeatures, Indices | None, str]:
    """Return the features, the places of the sample if there is one, and why; without ``neighbours`` it is a sample."""
    evaluator = Evaluator(kernel)
    own = np.asarray(evaluator.diag(objects), dtype=np.float64)
    n, shares = len(own), Shares(len(own), n_pairs)
    unit = float(np.abs(own).max(initial=0.0)) or 1.0
    order, p = _order(targets, task, seed), shares.pilot
    first = take(objects, order[:p])
    K = fill_symmetric(kernel, first, unit, verbose=verbose, names=order)
    pilot = SimilarityFeatures(kernel, first, np.arange(p), K, own[order[:p]] / unit, unit, None, seed)
    labels = _labels(targets) if task == "classification" else None
    too_many = labels is not None and shares.sample < min(n, CLASS_OBJECTS * len(np.unique(labels)))
    if too_many and not neighbours:
        raise InputError(
            f"{n} objects with expensive similarities are learned from a sample of {shares.sample}, which is too small "
            "for so many classes. Raise Policy.matrix_memory, or join classes."
        )
    if not neighbours:
        families, why = False, "blocks of like objects would take more than policy.matrix_memory"
    elif too_many:
        families, why = True, "there are too many classes for a sample"
    else:
        families, why = _families(pilot, targets[order[:p]], task, shares, n)
    if families:
        features = similarity_features(
            kernel, objects, shares.landmarks, neighbours=True, known=(order, unit * K), seed=seed, verbose=verbose
        )
        m = len(features.landmarks)
        scores = [
            landmark_score(features.far[:, :count], features.own, features.landmarks, targets, task, seed)
            for count in sorted({max(1, m // 2), m})
        ]
        return replace(features, scores=tuple(scores)), None, f"{why}, so {m} objects are landmarks"
    rows = order[: shares.sample]
    sample = take(objects, rows)
    K = fill_symmetric(kernel, sample, unit, verbose=verbose, known=K, names=rows)
    features = SimilarityFeatures(kernel, sample, np.arange(len(rows)), K, own[rows] / unit, unit, None, seed)
    why += f", so {len(rows)} of {n} objects are compared with each other and no others are used"
    return replace(features, scores=_sample_scores(features, targets[rows], task)), rows, why


def _order(targets: Array, task: str, seed: int) -> Indices:
    """All objects in random order, the first few of each class before all others."""
    order = stream(seed, 51).permutation(len(targets))
    if task == "regression":
        return order
    classes = _labels(targets[order])
    by_class = np.argsort(classes, kind="stable")
    counts = np.bincount(classes)
    place = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.zeros(len(classes), dtype=bool)
    first[by_class[place < CLASS_OBJECTS]] = True
    return np.concatenate([order[first], order[~first]])


def _labels(targets: Array) -> Indices:
    """The class of each row, from its codes."""
    return np.asarray(targets.argmax(1) if targets.shape[1] > 1 else targets[:, 0] > 0.0, dtype=np.intp)


def _families(pilot: SimilarityFeatures, y: Array, task: str, shares: Shares, n: int) -> tuple[bool, str]:
    """Whether landmarks and blocks predict the pilot's held-out objects better than all pairs do; and why."""
    p, K = len(pilot.own), pilot.far
    m = min(shares.landmarks, p // 2)
    if m < 1:
        return False, "there are too few objects to look for families"
    size = max(FEWEST_ROWS, block_rows(n) * p / n)
    near = neighbour_blocks(K[:, :m], size, lambda some: K[np.ix_(some, some)], pilot.seed)
    labels = _labels(y) if task == "classification" else None
    with_blocks = replace(pilot, landmarks=np.arange(m), far=np.ascontiguousarray(K[:, :m]), near=near)
    scores = []
    for features in (pilot, with_blocks):
        held, errors = ridge_errors(features, y, np.ones(p), pilot.unit * np.array(SCORE_ALPHAS), labels)
        values = np.array([row_scores(y[held] - e, y[held], task) for e in errors])[:, np.argsort(held)]
        scores.append(values[values.mean(1).argmax()])
    why = f"on {p} objects landmarks and blocks score {scores[1].mean():.4f}, all pairs {scores[0].mean():.4f}"
    return preferred(np.stack(scores)) == 1, why


def _sample_scores(features: SimilarityFeatures, y: Array, task: str) -> tuple[LandmarkScore, ...]:
    """The score of ridge on a quarter of the sample, learned on half of the others and on all."""
    held = np.arange(len(y) - len(y) // 4, len(y))
    scores = []
    for count in sorted({max(1, held[0] // 2), held[0]} if len(held) else ()):
        begun, learn = time.perf_counter(), np.arange(count)
        G, R = features.squared_matrices(learn, held)
        guesses = [
            R @ np.linalg.solve(G + features.unit * a * np.eye(count), y[learn]) for a in SCORE_ALPHAS
        ]  # fmt: skip
        values = max((row_scores(g, y[held], task, y[learn].mean(0)) for g in guesses), key=lambda v: float(v.mean()))
        error = float(values.std()) / math.sqrt(len(held))
        scores.append(
            LandmarkScore(count, float(values.mean()), error, time.perf_counter() - begun, len(held))
        )  # fmt: skip
    return tuple(scores)

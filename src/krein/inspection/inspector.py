"""`krein.inspect`: objects and a kernel in; they are checked, sampled and measured, and an `Inspection` comes out."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target

from krein.arrays import Array, seed_from, stream
from krein.errors import InputError, is_number, one_of
from krein.estimators.choose_correction import compared, preferred
from krein.inspection import measures
from krein.inspection.findings import CorrectionScore, Inspection, RankScore
from krein.inspection.ranks import baseline, rank_scores
from krein.inspection.sampling import Sample
from krein.kernels import Kernel, Linear, Precomputed, as_kernel, count_objects, counting
from krein.kernels.names import kernel_for
from krein.kernels.validation import check_objects
from krein.kernels.vectors import warn_of_no_contrast
from krein.policy import DEFAULT
from krein.progress import progress_bar
from krein.threads import using

__all__ = ["inspect"]

# The histogram of similarities has this many bins.
BINS = 60
# The corrections that are compared. A shift has the effect of a larger alpha in ridge.
CORRECTIONS = {
    "svm": ("none", "shift", "clip", "flip", "square"),
    "ridge": ("none", "clip", "flip", "square"),
}
# This correction is recommended unless another is clearly better (docs/corrections.md).
IN_DOUBT = "flip"


@using(None)
def inspect(
    X: Any,
    kernel: Any = None,
    y: Any = None,
    *,
    max_evaluations: int | None = None,
    task: str = "auto",
    learner: str = "svm",
    strength: float = 1.0,
    random_state: Any = None,
    verbose: int = 0,
) -> Inspection:
    """Look at a similarity through a sample of its objects: how indefinite, how clustered, which correction helps.

    Parameters
    ----------
    X : array or CSR matrix (n, d), or a sequence of objects; without a kernel a square matrix of similarities
        A matrix may be dense, sparse or memory-mapped, the path of an .npy file, or a `Precomputed` (with what is made
        of it); only the blocks that are looked at are read.
    kernel : Kernel, name, callable k(A, B) or f(a, b), or None
        What compares them. Parameters left None are bound to X.
    y : array of shape (n,), optional
        Labels or numbers: with them every correction is tried by cross-validation on the sample, and ridge at every
        rank, to see whether a low rank is enough.
    max_evaluations : int, optional
        Similarities that may be evaluated. By default 1000 objects are sampled, or all if there are no more, and the
        others seen 4 times in either order: at most 10⁶ + 8 n.
    task : "auto", "classification" or "regression"
        What y is; "auto": numbers with a fractional part are regression.
    learner : "svm" or "ridge"
        Which one corrections are judged by.
    strength : float
        Its C or alpha.
    random_state : int, RandomState, Generator or None
    verbose : int
        Above 0: progress bars.

    Returns
    -------
    Inspection
        Printed it is a summary; ``plot()`` draws it.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> found = krein.inspect(X, krein.Sigmoid(gamma=0.5, coef0=-1.0), random_state=0)
    >>> found.psd
    False
    >>> found.negative_share.value > 0.01
    True
    """
    start = time.perf_counter()
    one_of("task", task, ("auto", "classification", "regression"))
    one_of("learner", learner, ("svm", "ridge"))
    if not (is_number(strength) and strength > 0):
        raise InputError(f"strength must be a number above 0, C of the SVM or alpha of ridge; got {strength!r}.")
    with counting() as spent:
        objects, bound = _checked(X, kernel)
    if bound.compares == "vectors":
        warn_of_no_contrast(objects, bound)
    n, seed = count_objects(objects), seed_from(random_state)
    targets, task = _targets(y, n, task)
    sample = Sample(objects, bound, max_evaluations, seed, verbose, spent.n_evaluations)
    K, precision = sample.matrix, sample.precision
    m, rng = len(K), stream(seed, 52)
    subsets = measures.Subsets(m, n, stream(seed, 51))
    stages = [("similarities", time.perf_counter() - start)]
    with progress_bar(total=7, what="measures", verbose=verbose) as bar:

        def done(stage: str) -> None:
            stages.append((stage, time.perf_counter() - start - sum(t for _, t in stages)))
            bar.update()

        spectrum = measures.spectrum(K, precision, subsets, rng)
        psd = spectrum.inertia[2] == 0
        done("spectrum")
        squares, rounding = measures.squares_of(K, precision)
        negative_entries = subsets.share(K < 0.0)
        negative_squares = subsets.share(squares < -rounding)
        done("signs")
        violations = measures.triangle_violations(K, precision, subsets, rng)
        done("triangles")
        blocks = measures.block_shares(K, sample.objects, subsets, seed)
        done("blocks")
        forecasts = measures.forecasts(K, sample.objects, n, seed)
        done("memory and error")
        scores: tuple[CorrectionScore, ...] = ()
        best = "none" if psd else None
        if targets is not None:
            scores, best = _corrections(K, targets[sample.rows], task, learner, strength, n, psd, seed)
        done("corrections")
        ranks: tuple[RankScore, ...] = ()
        if targets is not None:
            ranks = rank_scores(K, targets[sample.rows], task, stream(seed, 54))
        done("ranks")
    counts, edges = np.histogram(K[~np.eye(m, dtype=bool)], bins=BINS)
    own = np.diagonal(K)
    spread = float(own.max() - own.min())
    found = Inspection(
        kernel=repr(bound), n_objects=n, n_sampled=m, rows=sample.rows,
        n_evaluations=spent.n_evaluations + sample.evaluator.n_evaluations,
        seconds=time.perf_counter() - start, eigenvalues=spectrum.values, inertia=spectrum.inertia,
        negative_share=spectrum.negative_share, trend=spectrum.trend, negative_share_of_all=spectrum.of_all,
        low=sample.low, high=sample.high, negative_entries=negative_entries,
        diagonal=(float(own.min()), float(own.max())), constant_diagonal=spread <= 16.0 * precision * sample.largest,
        asymmetry=sample.asymmetry, counts=counts, edges=edges, negative_squares=negative_squares,
        triangle_violations=violations, blocks=blocks, forecasts=forecasts, target=DEFAULT.default_error,
        corrections=scores,
        task=None if targets is None else task, learner=learner, recommended=best, rank_scores=ranks,
        baseline=None if targets is None else baseline(targets[sample.rows], task), notes=(),
        stages=tuple(stages),
    )  # fmt: skip
    return replace(found, notes=_notes(found, bound))


def _checked(X: Any, kernel: Any) -> tuple[Any, Kernel]:
    """Return the objects and the kernel bound to them. A matrix, or the path of one, is a kernel by itself."""
    if kernel is None and isinstance(X, Kernel):
        return check_objects(None, X)
    if kernel is None and isinstance(X, str | os.PathLike):
        return check_objects(None, Precomputed(X))
    if kernel is None or (isinstance(kernel, str) and kernel == "precomputed"):
        shape = getattr(X, "shape", None) or np.shape(X)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise InputError(
                f"Without a kernel X must be a square matrix of similarities; got shape {tuple(shape)}. Pass what "
                "compares the objects: krein.inspect(X, krein.RBF())."
            )
        kernel = Precomputed(X)
        return check_objects(np.arange(kernel.n_objects), kernel)
    if isinstance(kernel, str):
        vectors, _ = check_objects(X, Linear())  # kernels given by name compare vectors
        return check_objects(vectors, kernel_for(kernel, vectors, gamma="scale"))
    return check_objects(X, as_kernel(kernel))


def _targets(y: Any, n: int, task: str) -> tuple[Array | None, str]:
    if y is None:
        return None, task
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.shape != (n,):
        raise InputError(f"y must have one label or number per object, shape ({n},); got shape {targets.shape}.")
    kind = targets.dtype.kind
    bad = [v is None or v != v for v in targets] if kind == "O" else kind == "f" and ~np.isfinite(targets)
    if np.any(bad):
        raise InputError(f"y holds {np.sum(bad)} NaN, infinite or missing values. Drop those objects first.")
    try:
        if task == "auto":
            task = "regression" if type_of_target(targets) == "continuous" else "classification"
        if task == "regression":
            targets = targets.astype(np.float64)
        np.unique(targets)  # raises where labels cannot be sorted
    except (TypeError, ValueError) as error:
        wanted = "numbers" if task == "regression" else "numbers, or labels of one type"
        raise InputError(f"y must hold {wanted}; got values of dtype {targets.dtype} that are not: {error}.") from None
    return targets, task


def _corrections(
    K: Array, y: Array, task: str, learner: str, strength: float, n: int, psd: bool, seed: int
) -> tuple[tuple[CorrectionScore, ...], str | None]:
    """Return the validated score of every correction, and the correction that an estimator would choose."""
    if len(np.unique(y)) < 2:
        raise InputError(
            f"y has a single value among the {len(y)} objects that were sampled: there is nothing to tell corrections "
            "by. Leave y out, or allow more evaluations."
        )
    names = ("none",) if psd else CORRECTIONS[learner]
    met = compared(K, y, names, task=task, learner=learner, strength=strength, n=n, rng=stream(seed, 53))
    scale, offset = (1.0, 0.0) if task == "classification" else (1.0 / float(np.var(y)), 1.0)
    scores = []
    for name, rows in zip(names, met, strict=True):
        score = offset + scale * float(rows.mean())
        error = scale * float(rows.std(ddof=1)) / np.sqrt(len(rows))
        scores.append(CorrectionScore(name, measures.between(score, error, high=1.0)))
    if psd:
        return tuple(scores), "none"
    kept = [names.index(IN_DOUBT), *(i for i, name in enumerate(names) if name not in ("none", IN_DOUBT))]
    return tuple(scores), names[kept[preferred(met[kept])]]


def _notes(found: Inspection, kernel: Kernel) -> tuple[str, ...]:
    """Return notes on what the numbers mean, and on traits of the kernel that they contradict."""
    notes, traits, whole = [], kernel.traits, found.n_sampled == found.n_objects
    if traits.psd and not found.psd and not traits.sphere:
        notes.append(f"the kernel declares that it is psd, and is not: smallest eigenvalue {found.smallest:.3g}")
    slack = 1e-6 * max(abs(found.low), abs(found.high))
    if (traits.low is not None and found.low < traits.low - slack) or (
        traits.high is not None and found.high > traits.high + slack
    ):
        notes.append(f"the kernel declares values from {traits.low} to {traits.high}, and leaves that range")
    if traits.constant_diagonal and not found.constant_diagonal:
        notes.append("the kernel declares that all objects are equally similar to themselves, and they are not")
    before = found.trend[-1]
    if found.psd and not whole:
        falling = found.smallest < 0.9 * before.smallest and found.smallest > 0.0
        fell = f"; it fell from {before.smallest:.3g} as their number doubled, and may go on" if falling else ""
        notes.append(f"no eigenvalue of the sample is negative, the smallest is {found.smallest:.3g}{fell}")
    if found.recommended is None:
        notes.append("indefinite: pass y to see which correction helps, or leave correction='auto' to the estimators")
    if found.rank_scores and not whole:
        notes.append(
            f"the sufficient rank is that of the sample; all {found.n_objects:,} objects may take a higher one"
        )
    if found.n_objects <= DEFAULT.exact_rows:
        notes.append(
            f"up to {DEFAULT.exact_rows} objects krein keeps the matrix exactly, unless blocks or rank are given"
        )
    return tuple(notes)

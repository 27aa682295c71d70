"""The paper's error bounds: each term against its formula worked out apart, and the bound against real errors."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import krein
from krein.factorization.bounds import Parts, corrected_bound, meka_bound


def problem(kernel, seed=0, n=240):
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], n // 3)
    X = rng.standard_normal((n, 3)) + 4.0 * labels[:, None]
    return X, labels, kernel(X)


def test_parts_are_what_they_say():
    _, labels, K = problem(krein.RBF(gamma=0.2))
    parts = Parts.from_matrix(K, labels, 10)
    u, s, vt = np.linalg.svd(K)
    assert parts.tail == pytest.approx(np.linalg.norm(K - (u[:, :10] * s[:10]) @ vt[:10]))
    assert parts.largest == pytest.approx(1.0)
    worst = max(math.sqrt(max(0.0, K[i, i] + K[j, j] - 2 * K[i, j])) for i in range(240) for j in range(240))
    assert parts.distance == pytest.approx(worst)
    squares = sum(K[i, j] ** 2 for i in range(240) for j in range(240) if labels[i] != labels[j])
    assert parts.outside == pytest.approx(math.sqrt(squares))


def test_each_term_is_its_formula():
    parts = Parts(n=1000, tail=3.0, largest=2.0, distance=1.5, outside=0.25)
    bound = meka_bound(parts, rank=16, n_landmarks=32, failure=0.1)
    beta = 1 - 1 / (2 * max(32, 968))
    theta = math.sqrt(968 / 999.5 / beta * math.log(10)) * 1.5 / math.sqrt(2.0)
    assert bound.terms == pytest.approx(
        {"tail": 3.0, "sampling": (64 * 16 / 32) ** 0.25 * 1000 * 2.0 * math.sqrt(1 + theta), "outside": 0.5}
    )
    assert bound.total == pytest.approx(sum(bound.terms.values()))
    assert "0.9" in str(bound)


EXAMPLE = Parts(n=1000, tail=3.0, largest=2.0, distance=1.5, outside=0.25)


def falls(values):
    return all(a > b for a, b in pairwise(values))


def test_the_bound_falls_with_more_landmarks():
    bounds = [meka_bound(EXAMPLE, 16, count) for count in (16, 32, 100, 500, 900, 1000)]
    assert falls([b.total for b in bounds])
    assert falls([b.terms["sampling"] for b in bounds])
    assert falls([corrected_bound(EXAMPLE, EXAMPLE, 16, count, 0.1).total for count in (16, 32, 100, 500, 900, 1000)])


def test_the_bound_rises_as_the_failure_allowed_shrinks():
    failures = (1e-12, 1e-6, 0.001, 0.05, 0.5, 0.99)
    assert falls([meka_bound(EXAMPLE, 16, 32, failure).total for failure in failures])
    assert falls([corrected_bound(EXAMPLE, EXAMPLE, 16, 32, 0.1, failure).total for failure in failures])


@pytest.mark.parametrize("name", ["tail", "largest", "distance", "outside"])
def test_the_bound_rises_with_each_part(name):
    larger = [replace(EXAMPLE, **{name: factor * getattr(EXAMPLE, name)}) for factor in (8.0, 4.0, 2.0, 1.0, 0.5, 0.0)]
    assert falls([meka_bound(parts, 16, 32).total for parts in larger])
    assert falls([corrected_bound(EXAMPLE, parts, 16, 32, 0.1).total for parts in larger])


def test_the_bound_rises_with_rank_and_with_the_size_of_the_shift():
    assert falls([meka_bound(EXAMPLE, rank, 32).total for rank in (32, 16, 4, 1)])  # at the same tail
    assert falls([corrected_bound(EXAMPLE, EXAMPLE, 16, 32, s).total for s in (-4.0, 2.0, -1.0, 0.5, 0.0)])


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_holds_for_the_approximation_it_is_about(seed):
    X, _, K = problem(krein.RBF(gamma=0.2), seed)
    a = krein.approximate(
        X, krein.RBF(gamma=0.2), n_blocks=3, rank=8, coupling="pairwise", landmarks="uniform", random_state=seed
    )
    parts = Parts.from_matrix(K, a.partition.labels, a.factorization.rank)
    bound = meka_bound(parts, a.factorization.rank, sum(len(m.rows) for m in a.maps))
    assert np.linalg.norm(K - a.factorization.to_dense()) <= bound.total


def test_the_corrected_bound_adds_both_parts_and_the_shift():
    X, labels, K = problem(krein.TL1(rho=2.0))
    values, vectors = np.linalg.eigh(K)
    assert values[0] < -0.01
    plus = (vectors * np.maximum(values, 0.0)) @ vectors.T
    minus = (vectors * np.maximum(-values, 0.0)) @ vectors.T
    parts = [Parts.from_matrix(part, labels, 24) for part in (plus, minus)]
    bound = corrected_bound(*parts, rank=24, n_landmarks=48, shift=-0.5)
    for sign, part in zip("+-", parts, strict=True):
        alone = meka_bound(part, 24, 48, failure=0.025).terms
        assert {name + sign: value for name, value in alone.items()}.items() <= bound.terms.items()
    assert bound.terms["shift"] == pytest.approx(math.sqrt(240) * 0.5)
    a = krein.approximate(X, krein.TL1(rho=2.0), n_blocks=3, rank=8, coupling="pairwise", random_state=0).corrected(
        "shift"
    )
    shift = a.factorization.shift
    assert np.linalg.norm(K - a.factorization.to_dense()) <= corrected_bound(*parts, 24, 48, shift).total


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": 60}, "n_landmarks"),
        ({"n_landmarks": 2000}, "n_landmarks"),
        ({"failure": 0.0}, "probability"),
        ({"failure": 1.5}, "probability"),
    ],
)
def test_impossible_numbers_are_refused(changes, words):
    given = {"rank": 16, "n_landmarks": 32, "failure": 0.05} | changes
    with pytest.raises(krein.InputError, match=words):
        meka_bound(Parts(1000, 1.0, 1.0, 1.0, 1.0), **given)


def test_parts_of_different_sizes_are_refused():
    with pytest.raises(krein.InputError, match="same number of rows"):
        corrected_bound(Parts(10, 1, 1, 1, 1), Parts(11, 1, 1, 1, 1), 2, 4, 0.1)
    with pytest.raises(krein.InputError, match="label per row"):
        Parts.from_matrix(np.eye(3), [0, 1], 1)

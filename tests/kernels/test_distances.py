"""Similarities made of distances: named transformations, and double centring without an n x n matrix."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import krein
from krein.kernels import DoubleCentred, Evaluator, FromDistances, Precomputed, check_kernel

X = np.random.default_rng(0).normal(size=(60, 3))
D = np.linalg.norm(X[:, None] - X, axis=2)
every = np.arange(60)


def euclidean(A, B):
    return np.linalg.norm(np.asarray(A)[:, None] - np.asarray(B), axis=2)


@pytest.mark.parametrize(
    ("transform", "formula"),
    [
        ("exponential", lambda d: np.exp(-d)),
        ("gaussian", lambda d: np.exp(-(d**2))),
        ("inverse", lambda d: 1 / (1 + d)),
        ("linear", lambda d: 1 - d),
    ],
)
def test_a_transformation_is_its_formula(transform, formula):
    kernel = FromDistances(Precomputed(D), transform, scale=2.5)
    np.testing.assert_allclose(kernel(every, every[:7]), formula(D[:, :7] / 2.5))
    np.testing.assert_array_equal(kernel.diag(every), np.ones(60))
    assert check_kernel(kernel, every).ok


def test_the_scale_is_bound_to_what_distances_are():
    few = D[np.triu_indices(60, 1)]
    assert FromDistances(Precomputed(D)).bind(every).scale == pytest.approx(np.median(few))
    linear = FromDistances(Precomputed(D), "linear").bind(every)
    assert linear.scale == pytest.approx(few.max())
    assert linear(every).min() == pytest.approx(0.0, abs=1e-12)
    assert FromDistances(Precomputed(np.zeros((5, 5)))).bind(np.arange(5)).scale == 1.0
    with pytest.raises(krein.InputError, match="scale"):
        FromDistances(Precomputed(D))(every)


def test_centring_by_all_objects_is_classical_scaling():
    J = np.eye(60) - 1 / 60
    kernel = DoubleCentred(Precomputed(D), n_references=60).bind(every)
    np.testing.assert_allclose(kernel(every), -0.5 * J @ D**2 @ J, atol=1e-10)
    np.testing.assert_allclose(kernel(every), (X - X.mean(0)) @ (X - X.mean(0)).T, atol=1e-10)
    np.testing.assert_allclose(kernel.diag(every), np.diag(kernel(every)), atol=1e-10)
    assert check_kernel(kernel, every).ok


def test_centring_by_a_few_only_moves_the_origin():
    kernel = DoubleCentred(Precomputed(D), n_references=8).bind(every)
    K = kernel(every)
    d2 = np.diag(K)[:, None] + np.diag(K) - 2 * K
    np.testing.assert_allclose(d2, D**2, atol=1e-9)
    assert np.linalg.matrix_rank(K, tol=1e-8) == 3
    assert np.linalg.eigvalsh(K)[0] > -1e-9


def test_centring_counts_what_it_costs_and_keeps_the_landmarks_own():
    kernel = DoubleCentred(euclidean, n_references=8).bind(X)
    evaluator = Evaluator(kernel)
    evaluator.block(X[:20], X[20:25])
    assert evaluator.n_evaluations == 20 * 5 + 8 * (20 + 5)
    own, before = kernel.own(X[20:25]), evaluator.n_evaluations
    np.testing.assert_allclose(evaluator.cross(X[:20], X[20:25], own), kernel(X[:20], X[20:25]))
    assert evaluator.n_evaluations - before == 20 * 5 + 8 * 20


def test_new_objects_are_centred_alike():
    strings = krein.datasets.families(300, n_families=4, random_state=0).X
    kernel = DoubleCentred(krein.EditDistance())
    a = krein.approximate(strings[:250], kernel, n_blocks=3, rank=40, random_state=0)
    exact = a.kernel_rows(strings[250:], exact=True)
    assert np.linalg.norm(a.kernel_rows(strings[250:]) - exact) < 0.2 * np.linalg.norm(exact)
    assert a.kernel.references is not None
    assert a.kernel == krein.approximate(strings[:250], kernel, n_blocks=1, rank=4, random_state=0).kernel


def test_edit_distances_are_not_euclidean_and_that_shows():
    strings = krein.datasets.families(150, n_families=4, random_state=0).X
    K = DoubleCentred(krein.EditDistance(), n_references=150).bind(strings)(strings)
    assert np.linalg.eigvalsh(K)[0] < -1.0


@pytest.mark.parametrize("kind", [FromDistances, DoubleCentred])
def test_what_is_no_distance_is_refused_with_its_place(kind):
    negative, selfish, crooked, hole = (D.copy() for _ in range(4))
    negative[4, 9] = negative[9, 4] = -1.0
    selfish[np.diag_indices(60)] = 0.5
    crooked[4, 9] += 1.0
    hole[4, 9] = np.nan
    for values, said in [(negative, "-1 between"), (selfish, r"d\(x, x\) = 0; object 0"), (crooked, "4 and 9 are"),
                         (hole, "nan between")]:  # fmt: skip
        with pytest.raises(krein.KernelError, match=said):
            kind(lambda A, B, values=values: values[np.ix_(A, B)]).bind(every)


def test_unbound_and_unknown_are_said():
    with pytest.raises(krein.InputError, match="no references"):
        DoubleCentred(Precomputed(D))(every)
    with pytest.raises(krein.InputError, match="'exponential', 'gaussian', 'inverse', 'linear'"):
        FromDistances(Precomputed(D), "sigmoid")


@pytest.mark.parametrize("kind", [FromDistances, DoubleCentred])
def test_a_sparse_matrix_without_every_pair_is_refused(kind):
    known = sparse.csr_matrix([[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])  # 0 and 2 were not compared
    for distance in (Precomputed(known), 2.0 * Precomputed(known), Precomputed(known) + Precomputed(known)):
        with pytest.raises(krein.InputError, match="2 of 6 off the diagonal are not stored"):
            kind(distance)
    everything = kind(Precomputed(sparse.csr_matrix(D))).bind(every)  # but for the diagonal
    np.testing.assert_allclose(everything(every), kind(Precomputed(D)).bind(every)(every))


def test_a_pair_stored_twice_does_not_stand_for_one_that_is_missing():
    rows, columns = [0, 0, 1, 1, 1, 2], [1, 1, 0, 0, 2, 1]
    twice = sparse.csr_matrix((np.ones(6), columns, np.searchsorted(rows, range(4))), shape=(3, 3))
    assert twice.nnz == 6
    with pytest.raises(krein.InputError, match="2 of 6"):
        FromDistances(Precomputed(twice), scale=1.0)

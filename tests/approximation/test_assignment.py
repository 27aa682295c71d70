"""The block of a new object, by the nearest centre or the nearest landmark."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein.approximation.assignment import COMPARED_BLOCKS, nearest_block
from krein.errors import InputError
from krein.kernels import Evaluator

KERNEL = krein.RBF(gamma=0.5)


def built(X, n_blocks, assignment="landmark", **given):
    given = {"rank": 6, "drop": 1.0, "random_state": 0} | given
    return krein.approximate(X, given.pop("kernel", KERNEL), n_blocks=n_blocks, assignment=assignment, **given)


def brute_force(a, X, excluded=None):
    """The owner of the nearest landmark by all distances, one at a time."""
    out = []
    for p, x in enumerate(X):
        best = (np.inf, -1)
        for i, m in enumerate(a.maps):
            for z, row in zip(m.landmarks, m.rows, strict=True):
                if excluded is None or excluded[p] != row:
                    best = min(best, (float(np.sum((x - z) ** 2)), i))
        out.append(best[1])
    return np.array(out)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_new_rows_belong_to_the_block_of_their_nearest_landmark(kind, offset):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(400, 3)) + (offset if kind == np.float64 else 0.0)).astype(kind)
    new = X[:90] + rng.normal(size=(90, 3)).astype(kind) / 3
    a = built(X, COMPARED_BLOCKS)  # all blocks are compared, so that it is exact
    labels = nearest_block("landmark", a.partition, a.maps, Evaluator(KERNEL), new)
    assert np.array_equal(labels, brute_force(a, new))
    assert (labels != a.partition.assign(Evaluator(KERNEL), new)).any()  # it makes a difference


def test_of_many_blocks_those_of_near_centres_are_compared():
    rng = np.random.default_rng(1)
    X, new = rng.normal(size=(3000, 2)), rng.normal(size=(200, 2))
    a = built(X, 200)
    labels = nearest_block("landmark", a.partition, a.maps, Evaluator(KERNEL), new)
    assert np.mean(labels == brute_force(a, new)) > 0.98


def test_a_training_row_is_not_its_own_landmark():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 3))
    a = built(X, 10)
    rows = np.arange(60)
    labels = nearest_block("landmark", a.partition, a.maps, Evaluator(KERNEL), X[rows], rows=rows)
    assert np.array_equal(labels, brute_force(a, X[rows], excluded=rows))


def test_extension_and_kernel_rows_follow_the_assignment():
    rng = np.random.default_rng(3)
    X, new = rng.normal(size=(300, 3)), rng.normal(size=(40, 3))
    a = built(X, 12)
    labels = brute_force(a, new)
    u = a.extend(new).toarray()
    for x, label, row in zip(new, labels, u, strict=True):
        columns = a.factorization.spans[label][1]
        expected = KERNEL(x[None], a.maps[label].landmarks) @ a.maps[label].transform
        assert np.allclose(row[columns], expected[0])
        assert not np.delete(row, np.r_[columns]).any()
    f = a.factorization
    assert np.allclose(a.kernel_rows(new), f.lift(f.core @ u.T).T)


def test_sparse_rows_and_objects_without_coordinates():
    rng = np.random.default_rng(4)
    X = np.where(rng.random((300, 12)) < 0.3, rng.random((300, 12)), 0.0)
    dense, sparse = built(X, 8), built(sp.csr_matrix(X), 8)
    new = X[:50] + 0.01
    assert np.allclose(dense.extend(new).toarray(), sparse.extend(sp.csr_matrix(new)).toarray(), atol=1e-8)
    words = ["".join(rng.choice(list("abc"), 6)) for _ in range(120)]
    a = built(words, 4, kernel=krein.Spectrum(2), drop=0.0)
    assert a.extend(words[:10]).shape == (10, a.factorization.rank)


def test_one_block_and_wrong_names():
    X = np.random.default_rng(5).normal(size=(80, 2))
    assert built(X, 1, drop=0.0).extend(X[:3]).shape[0] == 3
    with pytest.raises(InputError, match=r"assignment.*'centre', 'landmark'"):
        built(X, 2, assignment="nearest")


def near_copies(n_groups=240, seed=0):
    """Long thin groups of near copies, each of one class: centres of clusters lie between groups."""
    rng = np.random.default_rng(seed)
    start, along = rng.uniform(-3, 3, size=(n_groups, 8)), rng.normal(size=(n_groups, 8))
    steps = np.linspace(0, 1.5, 12)[:, None]
    X = np.concatenate([s + steps * d for s, d in zip(start, along, strict=True)])
    return X + 0.02 * rng.normal(size=X.shape), np.repeat(rng.integers(0, 3, n_groups), len(steps))


def test_the_validated_score_takes_it_where_it_helps_and_the_model_file_keeps_it(tmp_path):
    X, y = near_copies()
    rows = np.random.default_rng(1).permutation(len(X))
    train, test = rows[:2400], rows[2400:]
    given = {"max_memory": 2e5, "random_state": 0, "gamma": 0.5}
    machine = krein.KernelRidgeClassifier(**given).fit(X[train], y[train])
    assert machine.selection_.chosen.assignment == machine.approximation_.assignment == "landmark"
    assert "landmark" in str(machine.selection_)
    a = machine.approximation_
    centre = krein.KernelRidgeClassifier(
        gamma=0.5, approximation=krein.approximate(
            X[train], a.kernel, n_blocks=a.n_blocks, rank=machine.selection_.rank, drop=1.0, random_state=0
        )
    ).fit(X[train], y[train])  # fmt: skip
    assert machine.score(X[test], y[test]) > centre.score(X[test], y[test])
    krein.save(machine, tmp_path / "m.krein")
    again = krein.load(tmp_path / "m.krein")
    assert again.approximation_.assignment == "landmark"
    assert np.array_equal(again.predict(X[test]), machine.predict(X[test]))


def test_the_score_of_landmarks_is_that_of_rows_left_out_one_by_one():
    """A row that moves to another block is predicted by it; the closed form is compared with refitted machines."""
    from krein.choosing.by_score import Chooser, _Trials, codes

    X, y = near_copies(30)
    want = Chooser(codes(y), "classification")
    trials = _Trials(
        X, KERNEL, want, {"n_blocks": "auto", "rank": "auto", "dtype": "auto", "max_memory": 1e5}, 0, 0
    )  # fmt: skip
    a, sample = trials.build(trials.candidate(20, 10, coupled=False))
    labels = nearest_block("landmark", a.partition, a.maps, Evaluator(KERNEL), X, rows=np.arange(len(X)))
    which, rows = trials._predicted(a, "landmark", sample, sample, sample[:0])
    assert np.array_equal(which, np.flatnonzero(labels != a.partition.labels))
    assert len(which)
    for p, row in zip(which[:20], rows[:20].toarray(), strict=False):
        block = labels[p]
        expected = KERNEL(X[p][None], a.maps[block].landmarks) @ a.maps[block].transform
        assert np.allclose(row[a.factorization.spans[block][1]], expected[0])

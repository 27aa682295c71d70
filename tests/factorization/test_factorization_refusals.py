"""What a factorization refuses, and what does not depend on the order of questions or the side of a product."""

from __future__ import annotations

import numpy as np
import pytest

import krein
from krein import BlockSparse, Factorization, InputError


def small(seed=0, shift=0.0):
    """Three blocks of rank 2 on 24 rows, in a shuffled order."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((6, 6))
    return Factorization.from_links(
        [rng.standard_normal((8, 2)) for _ in range(3)], (L + L.T) / 2, rng.permutation(24), shift
    )


def test_a_factorization_refuses_a_core_that_is_not_symmetric_or_not_finite():
    f = small()
    crooked, gone = f.core.copy(), f.core.copy()
    crooked[0, 3] += 1.0
    gone[1, 1] = np.nan
    with pytest.raises(InputError, match="symmetric"):
        Factorization.from_blocks(f.bases, crooked, f.order)
    with pytest.raises(InputError, match=r"NaN|finite"):
        Factorization.from_blocks(f.bases, gone, f.order)
    good = {(i, i): np.eye(2) for i in range(3)}
    for key, bad in [
        ((1, 1), np.triu(np.ones((2, 2)))),
        ((1, 1), np.full((2, 2), np.nan)),
        ((0, 1), np.full((2, 2), np.nan)),
    ]:
        held = BlockSparse.from_blocks([2, 2, 2], good | {key: bad})
        with pytest.raises(InputError, match=r"symmetric|NaN|finite"):
            Factorization.from_blocks(f.bases, held, f.order)


def test_certify_refuses_bases_that_are_not_orthonormal():
    f = small()
    with pytest.raises(InputError, match="orthonormal"):
        krein.certify(Factorization.from_blocks(tuple(10.0 * U for U in f.bases), f.core, f.order))


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_ends_and_certificate_do_not_depend_on_what_was_asked_before(monkeypatch, shift):
    monkeypatch.setattr(krein.factorization.core, "SMALL", 0)
    rng = np.random.default_rng(0)
    ranks = [4] * 30
    blocks = {(i, i): np.diag(rng.standard_normal(4)) for i in range(30)}
    blocks |= {(i, i + 1): 0.3 * rng.standard_normal((4, 4)) for i in range(29)}
    bases = [rng.standard_normal((6, 4)) for _ in ranks]

    def fresh():
        return Factorization.from_links(bases, BlockSparse.from_blocks(ranks, blocks), shift=shift)

    asked = fresh()
    asked.eigenvalues()
    assert asked.ends() == fresh().ends()
    assert krein.certify(asked) == krein.certify(fresh())
    late = fresh()
    before = late.ends(), krein.certify(late)
    late.eigenvalues()
    assert (late.ends(), krein.certify(late)) == before


@pytest.mark.parametrize("shape", [(24,), (24, 3)])
def test_complex_input_is_refused(shape):
    f = small(shift=1.0)
    v = np.ones(shape) + 1j
    with pytest.raises(InputError, match=r"real|complex"):
        f @ v
    with pytest.raises(InputError, match=r"real|complex"):
        f.solve(v, ridge=1.0)


@pytest.mark.parametrize("tol", [np.nan, -1, -1.0])
def test_a_tolerance_that_is_nan_or_negative_is_refused(tol):
    with pytest.raises(InputError, match="tol"):
        small().n_negative(tol=tol)


def test_a_ridge_of_none_is_refused():
    with pytest.raises(InputError, match="ridge"):
        small(shift=1.0).solve(np.ones(24), ridge=None)


@pytest.mark.parametrize("how", ["none", "clip", "flip", "square"])
def test_a_factor_without_a_shift_is_refused(how):
    with pytest.raises(InputError, match="factor"):
        krein.correct(small(), how, factor=2)


def test_links_may_be_a_nested_list():
    Q = np.random.default_rng(0).standard_normal((7, 2))
    L = [[1.0, 2.0], [2.0, -1.0]]
    assert Factorization.from_links([Q], L).to_dense() == pytest.approx(Q @ np.array(L) @ Q.T)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_a_product_from_the_left_is_the_one_from_the_right(shift):
    f = small(shift=shift)
    rng = np.random.default_rng(1)
    v, V = rng.standard_normal(24), rng.standard_normal((5, 24))
    K = f.to_dense()
    for found, wanted, dense in [(v @ f, f @ v, v @ K), (V @ f, (f @ V.T).T, V @ K)]:
        assert isinstance(found, np.ndarray)
        assert found.shape == dense.shape
        assert found.dtype == np.float64
        assert found == pytest.approx(wanted)
        assert found == pytest.approx(dense)


@pytest.mark.parametrize("shape", [(23,), (5, 23), (24, 5), (2, 5, 24)])
def test_a_product_from_the_left_of_a_wrong_shape_is_refused(shape):
    with pytest.raises(InputError):
        np.ones(shape) @ small()


@pytest.mark.parametrize(
    "function",
    [krein.psd_shift, lambda f: krein.correct(f, "clip"), lambda f: krein.truncation.truncate(f, 0, 1),
     lambda f: krein.truncation.out_of_range(f, 0, 1)],
)  # fmt: skip
def test_what_is_no_factorization_is_refused(function):
    with pytest.raises(InputError, match="needs a Factorization; got ndarray"):
        function(np.eye(3))

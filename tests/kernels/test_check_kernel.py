"""The public check: honest kernels pass, every kind of broken promise is reported, and nothing is raised for it."""

import numpy as np
import pytest
from scipy import sparse

from krein.errors import InputError, KernelError
from krein.kernels import RBF, TL1, FromCallable, Linear, Precomputed, SpherePolynomial, Traits, check_kernel

X = np.random.default_rng(0).normal(size=(50, 3))
UNKNOWN = {"stationary": False, "psd": None}


def declared(function, **traits):
    return FromCallable(function, Traits(**(UNKNOWN | traits)))


def distances(A, B):
    return np.linalg.norm(A[:, None] - B[None], axis=2)


LIES = [
    (lambda A, B: np.zeros((len(A), len(B) + 1)), {}, "shape"),
    (lambda A, B: np.full((len(A), len(B)), "x"), {}, "real numbers"),
    (lambda A, B: np.full((len(A), len(B)), np.nan), {}, "finite"),
    (lambda A, B: 1 / 0, {}, "ZeroDivisionError"),
    (lambda A, B: A[:, :1] - B[:, 0], {}, "transpose"),
    (lambda A, B: A @ B.T / len(B), {}, "other objects"),
    (lambda A, B: -distances(A, B), {"psd": True}, "psd is declared.*smallest eigenvalue is -"),
    (lambda A, B: A @ B.T, {"low": 0.0}, r"low=0 is declared, but -"),
    (lambda A, B: A @ B.T, {"high": 1.0}, "high=1 is declared"),
    (lambda A, B: A @ B.T, {"constant_diagonal": True}, "constant_diagonal"),
    (lambda A, B: A @ B.T, {"stationary": True}, "shifted"),
    (lambda A, B: A[:, :1] * B[:, 0], {"unitary_invariant": True}, "rotated"),
    (lambda A, B: np.exp(-(distances(A, B) ** 0.001)), {"stationary": True, "compact": True}, "compact"),
]


@pytest.mark.parametrize(("function", "traits", "words"), LIES)
def test_every_broken_promise_is_reported(function, traits, words):
    check = check_kernel(declared(function, **traits), X, random_state=0)
    assert not check.ok
    with pytest.raises(KernelError, match=words):
        check.raise_if_failed()
    assert "failed:" in str(check)


@pytest.mark.parametrize(("function", "traits", "words"), LIES[6:])
def test_what_is_not_declared_is_not_held_against_a_kernel(function, traits, words):
    assert check_kernel(declared(function), X, random_state=0).ok


def test_a_wrong_diagonal_is_reported():
    class Off(Linear):
        def diag(self, A):
            return np.ones(len(A))

    check = check_kernel(Off(), X)
    assert any("diagonal of k(A, A)" in failure for failure in check.failures)
    assert check.diagonal_difference > 1


def test_different_values_for_sparse_rows_are_reported():
    class Dense(Linear):
        def __call__(self, A, B=None):
            return super().__call__(A, B) * (2 if sparse.issparse(A) else 1)

    assert any("sparse and dense" in failure for failure in check_kernel(Dense(), X).failures)


def test_the_measurements_are_those_of_the_matrix():
    check = check_kernel(RBF(0.3), X, random_state=0)
    K = RBF(0.3)(X)
    eigenvalues = np.linalg.eigvalsh(K)
    assert check.smallest_eigenvalue == pytest.approx(eigenvalues[0], abs=1e-12)
    assert check.largest_eigenvalue == pytest.approx(eigenvalues[-1])
    assert (check.low, check.high) == pytest.approx((K.min(), K.max()))
    assert check.asymmetry < 1e-14
    assert check.n_objects == 50
    assert repr(check) == str(check)
    assert "ok" in str(check)
    assert "RBF(gamma=0.3)" in str(check)


def test_unbound_parameters_are_bound_and_rows_projected_for_sphere_kernels():
    assert "rho=2.1" in check_kernel(TL1(), X).kernel
    check = check_kernel(SpherePolynomial(2, 2.0), 100 * X)
    assert check.ok
    assert check.high <= 1 + 1e-9


def test_what_cannot_be_checked_is_said():
    assert any("differentiable" in reason for reason in check_kernel(RBF(1.0), X).skipped)
    words = declared(lambda A, B: np.ones((len(A), len(B))), stationary=True, unitary_invariant=True)
    skipped = check_kernel(words, ["a", "b", "c"]).skipped
    assert len([reason for reason in skipped if "no vectors" in reason]) == 2
    assert any("psd=False" in reason for reason in check_kernel(SpherePolynomial(3, 1.41), X[:3]).skipped)
    broken = check_kernel(LIES[3][0], X)
    assert any("everything else" in reason for reason in broken.skipped)
    compact = declared(lambda A, B: np.zeros((len(A), len(B))), compact=True)
    assert any("compact" in reason for reason in check_kernel(compact, X).skipped)


def test_a_large_sparse_sample_is_not_made_dense():
    columns = np.random.default_rng(0).integers(300_000, size=(60, 30))
    wide = sparse.csr_matrix((np.ones(1800), columns.ravel(), np.arange(0, 1801, 30)), shape=(60, 300_000))
    check = check_kernel(Linear(), wide, random_state=0)
    assert check.ok, check
    assert any("too large" in reason for reason in check.skipped)
    assert check_kernel(RBF(), sparse.csr_matrix(X)).ok


def test_the_check_samples_and_repeats_itself():
    first, again = (check_kernel(RBF(0.3), X, n_samples=20, random_state=3) for _ in range(2))
    assert first == again
    assert first.n_objects == 20


def test_matrices_and_zero_kernels_can_be_checked():
    assert check_kernel(Precomputed(X @ X.T), np.arange(50)).ok
    assert check_kernel(lambda A, B: np.zeros((len(A), len(B))), X).ok
    assert check_kernel(Linear(), X * 1e150).ok


def test_bad_data_raises():
    with pytest.raises(InputError, match="at least 2"):
        check_kernel(RBF(1.0), X[:1])
    with pytest.raises(InputError, match="n_samples=1"):
        check_kernel(RBF(1.0), X, n_samples=1)
    with pytest.raises(InputError, match="NaN"):
        check_kernel(RBF(1.0), np.full((3, 2), np.nan))
    with pytest.raises(InputError, match="ndarray"):
        check_kernel(RBF(1.0), 3)
    with pytest.raises(InputError, match="vectors"):
        check_kernel(RBF(), ["a", "b"])
    with pytest.raises(InputError, match="kernel must be"):
        check_kernel("rbf", X)

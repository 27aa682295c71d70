"""scikit-learn's kernel objects and krein's kernels in each other's language; evidence beside a dense matrix's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

import krein
from krein.estimators.gaussian_process.kernels import (
    AsSklearn,
    FromSklearn,
    declared_psd,
    noise_place,
    scale_places,
    scales,
    signal,
    translate,
)
from krein.estimators.gaussian_process.posterior import Scales, posterior
from krein.factorization.eigensystem import eigensystem
from krein.kernels import Scaled

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(20, 3)), RNG.normal(size=(15, 3))
ARD = sk.RBF([0.5, 1.0, 4.0])
KERNELS = [
    sk.RBF(2.0),
    ARD,
    sk.ConstantKernel(3.0) * ARD,
    sk.ConstantKernel(3.0) * sk.Matern([0.5, 1.0, 4.0], nu=1.5) + sk.ConstantKernel(0.3) * sk.DotProduct(2.0),
    sk.RBF(1.0) * sk.RationalQuadratic(2.0) + sk.ConstantKernel(0.5),
    (sk.RBF(1.0) + sk.DotProduct(1.0)) ** 2,
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_translated_kernel_has_the_same_values_in_units_of_its_length_scales(kernel):
    units = scales(kernel, A)
    ours = translate(kernel, units)
    a, b = (A, B) if units is None else (A / units, B / units)
    np.testing.assert_allclose(ours(a, b), kernel(A, B), atol=1e-12)
    np.testing.assert_allclose(ours(a), kernel(A, A), atol=1e-7)
    np.testing.assert_allclose(ours.diag(a), kernel.diag(A), atol=1e-12)
    assert ours.traits.psd is True
    assert ours == translate(clone(kernel), units)
    assert hash(ours) == hash(translate(clone(kernel), units))
    assert ours != translate(kernel.clone_with_theta(kernel.theta + 0.1), units)


def test_length_scales_become_units_and_gaussians_become_kreins():
    np.testing.assert_allclose(scales(sk.ConstantKernel(2.0) * ARD, A), [0.5, 1.0, 4.0])
    assert scales(sk.RBF(1.0), A) is None
    assert isinstance(translate(sk.ConstantKernel(2.0) * ARD, scales(ARD, A)), Scaled)
    assert isinstance(translate(ARD, None), FromSklearn)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_signal_and_noise_are_the_kernel(kernel):
    white = sk.WhiteKernel(0.2)
    for noisy in (kernel + white, white + kernel, kernel + kernel * white, (kernel + white) ** 2):
        clean = signal(noisy)
        K = noisy(A)
        np.testing.assert_allclose(clean(A, A) - np.diag(np.diag(clean(A, A))), K - np.diag(np.diag(K)), atol=1e-9)
        np.testing.assert_allclose(clean(A, B), noisy(A, B), atol=1e-12)
        assert (noisy.diag(A) - clean.diag(A) > 0.0).all()
        np.testing.assert_allclose(clean.diag(A), np.diag(clean(A, A)), atol=1e-9)


def test_where_theta_holds_amplitude_and_noise():
    one, two, white = sk.ConstantKernel(2.0) * ARD, sk.DotProduct() * sk.ConstantKernel(0.5), sk.WhiteKernel(0.1)
    assert scale_places(one + white) == [0]
    assert noise_place(one + white) == 4
    assert scale_places(white + one + two) == [1, 6]
    assert noise_place(white + one + two) == 0
    assert scale_places(one + sk.RBF()) is None
    assert noise_place(one + white + white) is None
    assert scale_places(sk.ConstantKernel(1.0, "fixed") * ARD) is None
    assert noise_place(one + sk.WhiteKernel(0.1, "fixed")) is None
    kernel = white + one + two
    larger = kernel.theta
    larger[[1, 6]] += np.log(3.0)
    np.testing.assert_allclose(signal(kernel.clone_with_theta(larger))(A, B), 3.0 * signal(kernel)(A, B))


@pytest.mark.parametrize(
    "kernel",
    [krein.RBF(gamma=0.3), krein.Laplacian(gamma=0.3), krein.RBF(gamma=0.3) + 2.0 * krein.TL1(rho=2.0)],
    ids=repr,
)
def test_a_krein_kernel_in_scikit_learns_language(kernel):
    theirs = AsSklearn(kernel)
    K, slopes = theirs(A, eval_gradient=True)
    np.testing.assert_array_equal(K, kernel(A, A))
    np.testing.assert_array_equal(theirs.diag(A), kernel.diag(A))
    for i, step in enumerate(1e-6 * np.eye(theirs.n_dims)):
        up, down = (theirs.clone_with_theta(theirs.theta + sign * step)(A) for sign in (1, -1))
        np.testing.assert_allclose(slopes[..., i], (up - down) / 2e-6, atol=1e-6)
    moved = theirs.clone_with_theta(theirs.theta + 1.0)
    np.testing.assert_allclose(moved.bounds, theirs.bounds)  # limits stay where they were
    np.testing.assert_allclose(clone(moved).theta, moved.theta)
    assert theirs.theta == pytest.approx(AsSklearn(kernel).theta)  # the first is as it was
    assert AsSklearn(kernel, "fixed").n_dims == 0
    assert translate(sk.ConstantKernel(2.0) * theirs, None) == Scaled(kernel, 2.0)


def test_which_kernels_are_psd_whatever_the_data():
    assert declared_psd(ARD + sk.WhiteKernel())
    assert declared_psd(AsSklearn(krein.RBF(gamma=1.0)) * sk.ConstantKernel())
    for unknown in (sk.ExpSineSquared(), sk.PairwiseKernel(metric="sigmoid"), AsSklearn(krein.TL1(rho=1.0))):
        assert not declared_psd(sk.ConstantKernel() * unknown)


@pytest.mark.parametrize("drop", [0.0, 1.0])
def test_evidence_of_a_factorization_is_that_of_its_dense_matrix(drop):
    X = RNG.normal(size=(150, 3))
    Y = RNG.normal(size=(150, 2))
    a = krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=5, rank=12, drop=drop, random_state=0)
    f = a.factorization.with_core(a.factorization.core, 0.07)
    system = eigensystem(f.core, f.ranks)
    for noise in (0.3, RNG.uniform(0.1, 1.0, 150)):
        found = posterior(f, noise, Y, system)
        H = f.to_dense() + np.diag(np.broadcast_to(noise, 150))
        solved = np.linalg.solve(H, Y)
        evidence = -0.5 * np.sum(Y * solved) - np.linalg.slogdet(H)[1] - 150 * np.log(2 * np.pi)
        assert found.evidence == pytest.approx(evidence, rel=1e-10)
        np.testing.assert_allclose(found.dual, solved, atol=1e-10)
        u = a.extend(X[:40])
        cross = u @ (f.core @ f.project(np.eye(150)))
        before, after = found.explained(u)
        np.testing.assert_allclose(u @ found.inner, cross @ solved, atol=1e-10)
        np.testing.assert_allclose(before - after, np.einsum("ij,ji->i", cross, np.linalg.solve(H, cross.T)), atol=1e-9)
        np.testing.assert_allclose(np.diag(found.covariance(u)[1]), after, atol=1e-12)
        assert (after >= 0.0).all()


def test_evidence_as_a_function_of_amplitude_and_noise():
    X, y = RNG.normal(size=(120, 2)), RNG.normal(size=(120, 1))
    f = krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=3, rank=10, random_state=0).factorization
    f = f.with_core(f.core, 0.02)
    curve = Scales.of(f, y, eigensystem(f.core, f.ranks))
    H = 1.7 * f.to_dense() + 0.4 * np.eye(120)
    dense = -0.5 * y[:, 0] @ np.linalg.solve(H, y[:, 0]) - 0.5 * np.linalg.slogdet(H)[1] - 60 * np.log(2 * np.pi)
    value, slopes = curve.evidence(1.7, 0.4)
    assert value == pytest.approx(dense, rel=1e-10)
    h = 1e-6
    numeric = [
        (curve.evidence(1.7 * np.exp(h), 0.4)[0] - curve.evidence(1.7 * np.exp(-h), 0.4)[0]) / (2 * h),
        (curve.evidence(1.7, 0.4 * np.exp(h))[0] - curve.evidence(1.7, 0.4 * np.exp(-h))[0]) / (2 * h),
    ]
    np.testing.assert_allclose(slopes, numeric, rtol=1e-5, atol=1e-6)
    bounds = np.array([[-9.0, 9.0], [-9.0, 9.0]])
    c, t = curve.best(0.4, 0.01, bounds, (True, True))
    top = curve.evidence(c, t + 0.01)[0]
    for factor in (0.9, 1.1):
        assert curve.evidence(factor * c, t + 0.01)[0] <= top
        assert curve.evidence(c, factor * t + 0.01)[0] <= top
    assert curve.best(0.4, 0.0, bounds, (True, False))[1] == 0.4
    assert curve.best(0.4, 0.0, bounds, (False, True))[0] == 1.0

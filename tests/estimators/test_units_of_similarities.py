"""Similarities in other units: s k with alpha s, or C / s, is the same machine, exact and on blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import krein

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(300, 3)), RNG.normal(size=(60, 3))
NUMBERS = np.sin(2.0 * X[:, 0]) + X[:, 1]
CLASSES = NUMBERS > 0.0
KERNEL = krein.RBF(0.3)
TIGHT = {"tol": 1e-9}

# name -> (machine of s and of the shape, targets, what is compared)
MACHINES: dict[str, tuple[Any, Any, str]] = {
    "ridge": (lambda s, shape: krein.KernelRidge(alpha=0.1 * s, kernel=s * KERNEL, **shape), NUMBERS, "predict"),
    "ridge loo": (lambda s, shape: krein.KernelRidge(alpha="loo", kernel=s * KERNEL, **shape), NUMBERS, "predict"),
    "ridge classifier": (
        lambda s, shape: krein.KernelRidgeClassifier(kernel=s * KERNEL, **shape), CLASSES, "decision_function"
    ),
    "svc": (lambda s, shape: krein.SVC(C=1 / s, kernel=s * KERNEL, **TIGHT, **shape), CLASSES, "decision_function"),
    "svr": (lambda s, shape: krein.SVR(C=1 / s, kernel=s * KERNEL, **TIGHT, **shape), NUMBERS, "predict"),
    "nu svc": (lambda s, shape: krein.NuSVC(nu=0.3, kernel=s * KERNEL, **TIGHT, **shape), CLASSES, "decision_function"),
    "nu svr": (lambda s, shape: krein.NuSVR(C=1 / s, kernel=s * KERNEL, **TIGHT, **shape), NUMBERS, "predict"),
    "logistic": (
        lambda s, shape: krein.KernelLogisticRegression(C=1 / s, kernel=s * KERNEL, **TIGHT, **shape), CLASSES,
        "predict_proba",
    ),
    "k-means": (
        lambda s, shape: krein.KernelKMeans(3, kernel=s * KERNEL, **{"random_state": 0} | shape), None, "predict"
    ),
    "proxy": (
        lambda s, shape: krein.ProxySVC(C=1 / s, kernel=s * krein.TL1(rho=2.0), rho=0.5 / s**3, **shape), CLASSES,
        "decision_function",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*indefinite:krein.errors.KreinWarning")
@pytest.mark.parametrize("shape", [{}, {"n_blocks": 3, "rank": 20, "random_state": 0}], ids=["exact", "blocks"])
@pytest.mark.parametrize("name", MACHINES)
def test_the_unit_of_similarities_changes_nothing(name: str, shape: dict[str, Any]) -> None:
    machine, targets, method = MACHINES[name]
    usual, small, large = (
        getattr(machine(s, shape).fit(X, targets), method)(NEW).astype(float) for s in (1.0, 1e-14, 1e14)
    )
    for other in (small, large):
        np.testing.assert_allclose(other, usual, rtol=0, atol=1e-6 * np.abs(usual).max())

"""What a Gaussian process is asked for and given: refused where it makes no sense, targets brought to one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel, Product

from krein.arrays import Array
from krein.errors import InputError, one_of
from krein.estimators.gaussian_process.kernels import amplitude_of, signal
from krein.kernels.names import changed, check_beside
from krein.kernels.precomputed import GivenRows
from krein.policy import Policy

__all__ = ["check_correction", "check_policy", "check_unused", "drawn", "given_rows", "normalised"]

OF_NAMES = ("gamma", "degree", "coef0", "kernel_params")


def check_correction(how: str, known: tuple[str, ...]) -> None:
    """Refuse a correction the process does not have, and say why there is no shift."""
    if how == "shift":
        raise InputError(
            "correction='shift' is none for a Gaussian process: what it adds to the diagonal is noise, which is there "
            "already, and new objects get nothing of it, so their variances would stay negative. Use 'clip' or 'flip'."
        )
    one_of("correction", how, known)


def check_policy(policy: Any) -> None:
    """Refuse what is no policy."""
    if not (policy is None or isinstance(policy, Policy)):
        raise InputError(f"policy must be a krein.Policy, or None for the default one; got {policy!r}.")


def check_unused(machine: Any) -> None:
    """Refuse parameters of named kernels beside a kernel object, which has its own."""
    check_beside(machine, machine.kernel)
    if not (machine.kernel is None or isinstance(machine.kernel, Kernel)):
        return
    given = changed(machine, OF_NAMES)
    if given:
        told = "kernel=None, 1.0 * RBF(1.0)," if machine.kernel is None else f"The kernel {machine.kernel!r}"
        raise InputError(
            f"{told} has parameters of its own and takes no {', '.join(given)}. Give them to the kernel object, or "
            'name a kernel: kernel="rbf" has a gamma.'
        )


def normalised(y: Array, n_targets: int | None, normalize: bool) -> tuple[Array, Array, Array]:
    """Return (y, its mean, its spread): y of mean 0 and variance 1 in each column if ``normalize``, else as it is."""
    seen = y.shape[1] if y.ndim > 1 else 1
    if n_targets is not None and seen != n_targets:
        raise InputError(
            f"The number of targets seen in `y` is different from the parameter `n_targets`. Got {seen} != {n_targets}."
        )
    shape = (y.shape[1],) if y.ndim == 2 else 1
    mean, spread = np.zeros(shape), np.ones(shape)
    if normalize:
        mean, spread = np.mean(y, axis=0), np.std(y, axis=0)
        tiny = 10 * np.finfo(np.float64).eps * np.maximum(np.abs(mean), 1e-300)
        spread = np.where(spread <= tiny, 1.0, spread)
    return np.asarray((y - mean) / spread), mean, spread


def given_rows(kernel: Any, X: Any) -> GivenRows:
    """The fit's precomputed matrix with rows of new objects beside it, in the units that were learned."""
    clean = signal(kernel)
    own = clean.k2 if isinstance(clean, Product) else clean
    return GivenRows(own.kernel.S, np.asarray(X) * amplitude_of(kernel))


def drawn(mean: Array, cov: Array, n_samples: int, rng: Any, check: str) -> Array:
    """Draw functions with this mean and covariance, (n, n_samples) or for several targets (n, n_targets, n_samples)."""
    if mean.ndim == 1:
        return np.asarray(rng.multivariate_normal(mean, cov, n_samples, check_valid=check).T)
    each = [
        rng.multivariate_normal(mean[:, i], cov[..., i], n_samples, check_valid=check).T[:, None]
        for i in range(mean.shape[1])
    ]
    return np.hstack(each)

"""The kernel parameter of estimators: a name, a krein kernel or a function in, a kernel bound to the data out.

Names and parameters mean what they mean in scikit-learn: ``gamma="scale"`` is 1 / (n_features * X.var()), "auto" and
None are 1 / n_features, and ``degree`` and ``coef0`` are used by kernels that have them. A kernel whose gamma has a
default of its own ("chi2") keeps it unless a number is given. A krein kernel has its own parameters and computes from
the data those that are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from krein import kernels
from krein.arrays import Array
from krein.errors import InputError, is_number
from krein.kernels import FromCallable, Kernel, Polynomial, Sigmoid, as_kernel
from krein.kernels.pair_function import takes
from krein.kernels.vectors import has_open_gamma, resolved_gamma

__all__ = ["NAMES", "changed", "check_beside", "kernel_for", "takes"]

NAMES: dict[str, type[Kernel]] = {
    "rbf": kernels.RBF,
    "poly": kernels.Polynomial,
    "polynomial": kernels.Polynomial,
    "sigmoid": kernels.Sigmoid,
    "laplacian": kernels.Laplacian,
    "linear": kernels.Linear,
    "cosine": kernels.Cosine,
    "tl1": kernels.TL1,
    "elm": kernels.ELM,
    "arccosine": kernels.ArcCosine,
    "ntk": kernels.NTK,
    "sphere-polynomial": kernels.SpherePolynomial,
    "matern": kernels.Matern,
    "rational-quadratic": kernels.RationalQuadratic,
    "periodic": kernels.Periodic,
    "tanimoto": kernels.Tanimoto,
    "minmax": kernels.MinMax,
    "jaccard": kernels.Jaccard,
    "hamming": kernels.Hamming,
    "chi2": kernels.ChiSquared,
    "histogram-intersection": kernels.HistogramIntersection,
    "haversine": kernels.Haversine,
}


def kernel_for(
    kernel: Any,
    X: Any,
    *,
    gamma: Any = None,
    degree: float = 3,
    coef0: float = 1.0,
    params: dict[str, Any] | None = None,
    weights: Array | None = None,
) -> Kernel:
    """Return the kernel that ``kernel`` names, every parameter bound to X; ``weights`` count rows of X repeatedly."""
    if params is not None and not isinstance(params, dict):
        raise InputError(f"kernel_params must be a dict of parameters, or None; got {params!r}.")
    if isinstance(kernel, str):
        if kernel not in NAMES:
            known = ", ".join(map(repr, [*NAMES, "precomputed"]))
            raise InputError(f"kernel must be one of {known}, a krein kernel or a callable k(A, B); got {kernel!r}.")
        kind = NAMES[kernel]
        given = dict(params or {})
        own = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        for name, value in (("degree", degree), ("coef0", coef0)):
            if name in own and kind in (Polynomial, Sigmoid):
                given.setdefault(name, value)
        if unknown := sorted(set(given) - own):
            raise InputError(f"The {kernel!r} kernel takes {', '.join(sorted(own)) or 'no parameters'}; got {unknown}.")
        made = kind(**{name: value for name, value in given.items() if name != "gamma" or value is not None})
        if "gamma" in own and given.get("gamma") is None and (has_open_gamma(made) or not _is_rule(gamma)):
            made = replace(made, gamma=resolved_gamma(gamma, X, weights, made))  # type: ignore[type-var]
        return made.bind(X)
    if isinstance(kernel, Kernel):
        return _filled(kernel, gamma, X, weights).bind(X)
    if callable(kernel) and not isinstance(kernel, type):
        function = partial(kernel, **params) if params else kernel
        return FromCallable(function).bind(X)  # which asks whether it compares objects or collections
    return as_kernel(kernel)  # says what is wrong with it


def check_beside(machine: Any, kernel: Any) -> None:
    """Refuse degree, coef0 and kernel_params beside a krein kernel, which would ignore them."""
    if not isinstance(kernel, Kernel):
        return
    given = changed(machine, ("degree", "coef0", "kernel_params"))
    if given:
        passed = ", ".join(f"{name}={getattr(machine, name)!r}" for name in given)
        raise InputError(
            f"{passed} was given beside {kernel!r}, which has parameters of its own. Give them to the kernel object, "
            'or name a kernel: kernel="poly" has a degree.'
        )


def changed(machine: Any, names: Sequence[str]) -> list[str]:
    """Return which of the named parameters of an estimator are not at their defaults."""
    defaults = {field.name: field.default for field in fields(machine)}
    return [name for name in names if not _same(getattr(machine, name), defaults[name])]


def _same(value: Any, default: Any) -> bool:
    return (
        value is default or (np.ndim(value) == 0 and bool(value == default)) or (isinstance(value, dict) and not value)
    )


def _filled(kernel: Kernel, gamma: Any, X: Any, weights: Array | None) -> Kernel:
    """The kernel with the estimator's gamma where its own is None; an error if both are given."""
    if not is_number(gamma):
        if gamma is None or not has_open_gamma(kernel):
            return kernel
        return replace(kernel, gamma=resolved_gamma(gamma, X, weights, kernel))  # type: ignore[type-var]
    if has_open_gamma(kernel):
        return replace(kernel, gamma=float(gamma))  # type: ignore[type-var]
    raise InputError(
        f"gamma={gamma!r} was given beside {kernel!r}, which has {'its own' if hasattr(kernel, 'gamma') else 'none'}. "
        "Give it in one place: leave gamma at its default, or pass the kernel without it."
    )


def _is_rule(gamma: Any) -> bool:
    return gamma is None or (isinstance(gamma, str) and gamma in ("scale", "auto"))

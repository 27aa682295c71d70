"""Making it psd, exactly: a function of the spectrum applied to the core.

In: K ~ U M Uᵀ + s I. Out: the factorization of f(K), f one of none, shift, clip, flip, square (paper, Sec. 4). Because
U is orthonormal, f acts on the core's eigenvalues alone: M <- V (f(lambda + s) - f(s)) Vᵀ, s <- f(s). Clipping the
paper's L instead is not the nearest psd matrix, since its Q is not orthonormal; clipping M is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, one_of
from krein.factorization.core import is_dense
from krein.factorization.eigensystem import eigensystem
from krein.factorization.factorization import Factorization
from krein.factorization.spectrum import lanczos

__all__ = ["CORRECTIONS", "changed", "correct", "psd_shift"]

CORRECTIONS = ("none", "shift", "clip", "flip", "square")


def psd_shift(f: Factorization) -> float:
    """Return the smallest s >= 0 that makes ``f + s I`` psd; an estimate for a large block-sparse core.

    U is orthonormal, so f has the eigenvalues of its core, plus its shift, and the shift itself besides: O(r³),
    whatever n. For a block-sparse core it is a Ritz value with its residual added, or the Gershgorin bound if smaller.
    """
    ends = f.ends()
    if ends.exact:
        return max(0.0, -ends.smallest)
    return max(0.0, min(ends.residual - ends.smallest, -ends.lower_bound))


def correct(
    f: Factorization, how: str, *, estimate: str = "exact", factor: float = 1.0, random_state: Any = None
) -> Factorization:
    """Return the factorization of f(K): "none", "shift", "clip" (nearest psd matrix), "flip" (|K|), "square" (K²).

    "shift" adds what is missing to be psd, times ``factor`` (the paper's experiments used 2): by default |lambda_min|
    exactly from the core; ``estimate="lanczos"`` takes the paper's estimate on n-vectors with its residual added.
    """
    if not isinstance(f, Factorization):
        raise InputError(
            f"correct needs a Factorization; got {type(f).__name__} (an approximation has .factorization)."
        )
    one_of("how", how, CORRECTIONS)
    one_of("estimate", estimate, ("exact", "lanczos"))
    if not (math.isfinite(factor) and factor >= 1.0):
        raise InputError(f"factor must be at least 1, or the shifted matrix is not psd; got {factor!r}.")
    if how != "shift" and (factor != 1.0 or estimate != "exact"):
        raise InputError(f"factor and estimate belong to 'shift'; {how!r} takes neither.")
    if how == "none":
        return f
    if how == "shift":
        s = psd_shift(f) if estimate == "exact" else lanczos(f, random_state=random_state).shift
        return f.with_core(f.core, f.shift + factor * s)
    if how == "square" and max(abs(f.ends().lower_bound), abs(f.ends().upper_bound), abs(f.shift)) > 1e150:
        raise InputError(f"The square of {f!r} overflows. Divide the kernel by its largest value first.")
    return _on_spectrum(f, how)


def changed(how: str, values: Array, shift: float) -> tuple[Array, float]:
    """The eigenvalues of a core and the shift after "clip", "flip" or "square": f(lambda + s) - f(s) and f(s)."""
    changes: dict[str, Callable[[Array], Array]] = {
        "clip": lambda x: np.maximum(x, 0.0),
        "flip": np.abs,
        "square": lambda x: x * x,
    }
    s = float(changes[how](np.float64(shift)))  # type: ignore[arg-type]
    if how == "square":
        return values * (values + 2.0 * shift), s  # nothing is lost to rounding
    return changes[how](values + shift) - s, s


def _on_spectrum(f: Factorization, how: str) -> Factorization:
    core = f.core
    if not is_dense(core) and not core.has_spectrum:
        raise InputError(
            f"{how!r} would fill a block-sparse core: its {core.n_kept} numbers would become {core.shape[0] ** 2}. "
            "Use 'shift', which keeps it sparse, or build with fewer blocks for a dense core."
        )
    system = eigensystem(core, f.ranks)
    values, shift = changed(how, system.values, f.shift)
    return f.with_core(system.core(values), shift)

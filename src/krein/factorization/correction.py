"""Corrections of an indefinite matrix: a function of the spectrum, applied exactly to the core.

In: K ~ U M Uᵀ + s I. Out: the factorization of f(K), where f is shift, clip, flip or square (paper, Sec. 4), or weighs
the negative part. U is orthonormal, so f acts on the eigenvalues of the core alone: M <- V (f(lambda + s) - f(s)) Vᵀ,
s <- f(s). Clipping M gives the nearest psd matrix. Clipping the paper's L does not, since Q is not orthonormal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, one_of
from krein.factorization.core import is_dense
from krein.factorization.eigensystem import Eigensystem, eigensystem
from krein.factorization.factorization import Factorization, check_factorization
from krein.factorization.spectrum import lanczos
from krein.policy import check_correction

__all__ = ["CORRECTIONS", "changed", "correct", "psd_shift", "split"]

CORRECTIONS = ("none", "shift", "clip", "flip", "square")


def psd_shift(f: Factorization) -> float:
    """Return the smallest s >= 0 that makes f + s I psd.

    U is orthonormal, so the eigenvalues of f are those of its core plus its shift, and the shift itself. This costs
    O(r³) operations for any n. For a large block-sparse core it is an estimate: a Ritz value with its residual added,
    or the Gershgorin bound if that is smaller.

    Parameters
    ----------
    f : Factorization
        The matrix.

    Returns
    -------
    float
        The shift.

    Examples
    --------
    >>> import krein
    >>> X = krein.datasets.mixture(200, n_features=4, random_state=0).X
    >>> kernel = krein.Sigmoid(gamma=0.5, coef0=-1.0)
    >>> f = krein.approximate(X, kernel, n_blocks=2, rank=10, random_state=0).factorization
    >>> krein.certify(f).psd, krein.certify(krein.correct(f, "shift")).psd
    (False, True)
    >>> krein.correct(f, "shift").shift == krein.psd_shift(f)
    True
    """
    check_factorization(f, "psd_shift")
    ends = f.ends()
    if ends.exact:
        return max(0.0, -ends.smallest)
    return max(0.0, min(ends.residual - ends.smallest, -ends.lower_bound))


def split(f: Factorization) -> tuple[Factorization, Factorization]:
    """Split a factorization into two psd ones, K = plus - minus, whose product is 0.

    They are the parts of K with positive and with negative eigenvalues. A learner in the Krein space of K has one norm
    for each.

    Parameters
    ----------
    f : Factorization
        The matrix K.

    Returns
    -------
    plus, minus : Factorization
        The two parts, with the bases of ``f``.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> f = krein.Factorization.from_blocks([np.eye(2)], np.diag([3.0, -1.0]), order=np.arange(2))
    >>> plus, minus = krein.split(f)
    >>> plus.eigenvalues(), minus.eigenvalues()
    (array([0., 3.]), array([0., 1.]))
    """
    check_factorization(f, "split")
    system = _decomposed(f, "split")
    parts = (changed("clip", sign * system.values, sign * f.shift) for sign in (1.0, -1.0))
    plus, minus = (f.with_core(system.core(values), shift) for values, shift in parts)
    return plus, minus


def correct(
    f: Factorization, how: str | float, *, estimate: str = "exact", factor: float = 1.0, random_state: Any = None
) -> Factorization:
    """Make a factorization psd.

    Parameters
    ----------
    f : Factorization
        The matrix K.
    how : {"none", "shift", "clip", "flip", "square"} or float
        Return K itself, K + s I with the smallest s that makes it psd, the nearest psd matrix (negative eigenvalues
        become 0), |K| (negative eigenvalues change their sign), or K². A number w >= 0 is the weight of the negative
        part: negative eigenvalues are multiplied by -w, so that 0 is "clip" and 1 is "flip".
    estimate : {"exact", "lanczos"}, default="exact"
        For "shift": compute s from the core, or estimate it by Lanczos on K as in the paper, with the residual added.
    factor : float, default=1.0
        For "shift": s is multiplied by it. At least 1; the paper's experiments used 2.
    random_state : int, RandomState, Generator or None, default=None
        Starts Lanczos.

    Returns
    -------
    Factorization
        The corrected matrix, with the bases of ``f``.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> f = krein.Factorization.from_blocks([np.eye(2)], np.diag([3.0, -1.0]), order=np.arange(2))
    >>> krein.correct(f, "clip").eigenvalues()
    array([0., 3.])
    """
    check_factorization(f, "correct")
    check_correction("how", how, CORRECTIONS)
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
    system = _decomposed(f, how)
    values, shift = changed(how, system.values, f.shift)
    return f.with_core(system.core(values), shift)


def changed(how: str | float, values: Array, shift: float) -> tuple[Array, float]:
    """Return f(lambda + s) - f(s) and f(s), f being a function of the spectrum: the new eigenvalues and shift.

    ``how`` is "clip", "flip", "square" or the weight of the negative part.
    """
    if how == "square":
        return values * (values + 2.0 * shift), shift * shift  # nothing is lost to rounding
    weight = {"clip": 0.0, "flip": 1.0}[how] if isinstance(how, str) else float(how)

    def f(x: Any) -> Any:
        return np.maximum(x, 0.0) + weight * np.maximum(-x, 0.0)

    s = float(f(shift))
    return np.asarray(f(values + shift) - s), s


def _decomposed(f: Factorization, how: str | float) -> Eigensystem:
    core = f.core
    if not is_dense(core) and not core.has_spectrum:
        raise InputError(
            f"{how!r} would fill a block-sparse core: its {core.n_kept} numbers would become {core.shape[0] ** 2}. "
            "Use 'shift', which keeps it sparse, or build with fewer blocks for a dense core."
        )
    return eigensystem(core, f.ranks)

"""The dense way with an indefinite matrix, written apart from krein: an eigendecomposition and LIBSVM.

A correction maps the spectrum, w -> g(w); rows of new objects are mapped alike, k(x, X) V (g(w) / w) Vᵀ, where that is
defined. A shift changes self-similarities alone. The Krein-space SVM is trained on |w| and mapped back by the signs,
which is what mapping new rows by |w| / w comes to. "none" gives LIBSVM the indefinite matrix as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.svm import SVC

Spectrum = tuple[Any, Any]


def spectrum(K: Any) -> Spectrum:
    values, vectors = np.linalg.eigh(K)
    return values, vectors


def _values(w: Any, how: str) -> Any:
    return {
        "none": w,
        "flip": np.abs(w),
        "krein": np.abs(w),
        "clip": np.maximum(w, 0.0),
        "square": w**2,
        "shift": w - min(w[0], 0.0),
    }[how]


def corrected(of: Spectrum, how: str) -> Any:
    """The matrix with its spectrum mapped."""
    w, V = of
    return (V * _values(w, how)) @ V.T


def mapped(of: Spectrum, rows: Any, how: str) -> Any:
    """Similarities of new objects after the correction."""
    w, V = of
    if how in ("none", "shift"):
        return rows
    kept = np.abs(w) > len(w) * np.finfo(float).eps * np.abs(w).max()
    return (rows @ V * np.where(kept, _values(w, how) / np.where(kept, w, 1.0), 0.0)) @ V.T


def decide(of: Spectrum, rows: Any, y: Any, Cs: tuple[float, ...], how: str, tol: float = 1e-3) -> list[Any]:
    """Decision values of new rows, for each C: (m,) for two classes, else (m, pairs)."""
    K, rows = corrected(of, how), mapped(of, rows, how)
    machines = [SVC(kernel="precomputed", C=C, tol=tol, decision_function_shape="ovo").fit(K, y) for C in Cs]
    return [machine.decision_function(rows) for machine in machines]


def winners(values: Any, classes: Any) -> Any:
    """The class with most votes of all pairs; the first of those that tie."""
    if len(classes) == 2:
        return classes[(values.ravel() > 0).astype(int)]
    votes, column = np.zeros((len(values), len(classes))), 0
    for i in range(len(classes)):
        for j in range(i + 1, len(classes)):
            first = values[:, column] > 0
            votes[:, i] += first
            votes[:, j] += ~first
            column += 1
    return classes[votes.argmax(1)]

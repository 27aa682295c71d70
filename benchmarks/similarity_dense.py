"""The dense way with an indefinite matrix, written apart from krein: an eigendecomposition and LIBSVM.

A correction maps the spectrum, w -> g(w); rows of new objects are mapped alike, k(x, X) V (g(w) / w) Vᵀ, where that is
defined. A shift changes self-similarities alone. The Krein-space SVM is trained on |w| and mapped back by the signs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.svm import SVC

Spectrum = tuple[Any, Any]


def spectrum(K: Any) -> Spectrum:
    values, vectors = np.linalg.eigh(K)
    return values, vectors


def decide(of: Spectrum, rows: Any, y: Any, Cs: tuple[float, ...], how: str, tol: float = 1e-3) -> list[Any]:
    """Decision values of new rows, for each C: (m,) for two classes, else (m, pairs)."""
    w, V = of
    mapped = {
        "flip": np.abs(w),
        "krein": np.abs(w),
        "clip": np.maximum(w, 0.0),
        "square": w**2,
        "shift": w - min(w[0], 0.0),
    }[how]
    K = (V * mapped) @ V.T
    machines = [SVC(kernel="precomputed", C=C, tol=tol, decision_function_shape="ovo").fit(K, y) for C in Cs]
    if how != "shift":
        kept = np.abs(w) > len(w) * np.finfo(float).eps * np.abs(w).max()
        ratio = np.where(kept, (np.sign(w) if how == "krein" else mapped / np.where(kept, w, 1.0)), 0.0)
        rows = (rows @ V * ratio) @ V.T
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

"""Weights of rows and of classes, checked. In: what a user passed. Out: one number per row, or per class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from krein.arrays import Array, Indices
from krein.errors import InputError

__all__ = ["as_weights", "check_weights", "class_weights"]


def as_weights(sample_weight: Any) -> Array:
    """Return the weights as float64, or refuse what is no real number; numpy drops masks and imaginary parts."""
    values = np.asarray(sample_weight)
    try:
        if np.ma.is_masked(sample_weight) or values.dtype.kind not in "biufO":
            raise TypeError
        return values.astype(np.float64)
    except OverflowError:
        raise InputError("sample_weight holds an integer that float64 cannot hold. Divide all weights by it.") from None
    except (TypeError, ValueError):
        kind = "masked values" if np.ma.is_masked(sample_weight) else f"values of type {values.dtype}"
        raise InputError(f"sample_weight must hold one real number per row; got {kind}.") from None


def check_weights(sample_weight: Any, n: int) -> Array:
    """Return one weight >= 0 per row, ones if none are given."""
    if sample_weight is None:
        return np.ones(n)
    weights = as_weights(sample_weight)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise InputError(f"sample_weight must have shape ({n},), one number per row; got shape {weights.shape}.")
    if not np.isfinite(weights).all():
        raise InputError(f"sample_weight holds {int((~np.isfinite(weights)).sum())} NaN or infinite values.")
    if weights.min() < 0.0 or weights.max() == 0.0:
        raise InputError(
            f"sample_weight must be at least 0 and not zero everywhere; got values from {weights.min():g} to "
            f"{weights.max():g}."
        )
    return weights


def class_weights(class_weight: Any, classes: Array, labels: Indices, weights: Array | None = None) -> Array:
    """Return the weight of each class, (n_classes,), or refuse what gives none; ``labels`` are places among them.

    "balanced" gives all classes the same total of ``weights``, or of rows.
    """
    n = len(classes)
    if class_weight is None:
        return np.ones(n)
    if isinstance(class_weight, str) and class_weight == "balanced":
        share = np.bincount(labels, weights=weights, minlength=n)
        return np.asarray(share.sum() / (n * share))
    if not isinstance(class_weight, Mapping):
        raise InputError(f'class_weight must be a dict of numbers by class, "balanced" or None; got {class_weight!r}.')
    try:
        found = np.asarray(compute_class_weight(class_weight, classes=classes, y=classes[labels]), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        known = ", ".join(map(repr, classes.tolist()[:10]))
        raise InputError(
            f"class_weight must give a number for classes of y, which are {known}; got {class_weight!r}: {error}"
        ) from None
    if not (np.isfinite(found).all() and (found > 0.0).all()):
        raise InputError(f"class_weight must be above 0 and finite for every class; got {class_weight!r}.")
    return found

"""What the machines that give features share: scikit-learn's names for columns, tags, and the type of the output."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from krein.estimators.base import KernelMachine

__all__ = ["KernelTransformer"]


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):  # type: ignore[misc]
    """A kernel machine with `transform`."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _precision(self, X: Any) -> Any:
        """float32 rows have float32 features."""
        return np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64

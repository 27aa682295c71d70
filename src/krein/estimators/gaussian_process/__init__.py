"""Gaussian processes on a kernel matrix or its factorization.

`regressor` and `classifier` are the estimators, and `process` is their base class. `kernels` turns scikit-learn's
kernels into krein's and back. `evidence` is the marginal likelihood of a dense covariance, and `learning` maximises it.
`posterior` has mean, variance and evidence of a factored covariance, `laplace` the approximation for two classes, and
`similarity_matrix` a similarity without parameters that is evaluated once.
"""

from __future__ import annotations

from krein.estimators.gaussian_process.classifier import GaussianProcessClassifier
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor

__all__ = ["GaussianProcessClassifier", "GaussianProcessRegressor"]

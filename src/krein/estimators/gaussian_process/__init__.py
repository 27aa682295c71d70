"""Gaussian processes on a kernel matrix or its factorization.

`regressor` and `classifier` are the estimators, `process` what they share, `laplace` the
approximation by which the latter learns. `kernels` turns scikit-learn's kernels into krein's and back, `evidence` is
the marginal likelihood and its gradient, `posterior` the mean, the variance and samples, `similarity_matrix` a
similarity without parameters that is evaluated once.
"""

from __future__ import annotations

from krein.estimators.gaussian_process.classifier import GaussianProcessClassifier
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor

__all__ = ["GaussianProcessClassifier", "GaussianProcessRegressor"]

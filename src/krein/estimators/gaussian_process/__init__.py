"""Gaussian process regression on a kernel matrix or its factorization.

`regressor` is the estimator, `kernels` turns scikit-learn's kernels into krein's and back, `evidence` is the marginal
likelihood and its gradient, `posterior` the mean, the variance and samples, `similarity_matrix` a similarity without
parameters that is evaluated once.
"""

from __future__ import annotations

from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor

__all__ = ["GaussianProcessRegressor"]

"""Gaussian process regression on a kernel matrix or its factorization.

`regressor` is the estimator, `kernels` turns scikit-learn's kernels into krein's and back, `evidence` is the marginal
likelihood and its gradient, `posterior` the mean, the variance and samples, `known` conditions on all rows where the
hyperparameters were learned on some, `checks` are those of its arguments.
"""

from __future__ import annotations

from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor

__all__ = ["GaussianProcessRegressor"]

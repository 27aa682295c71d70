"""Kernel machines with scikit-learn's names and contract, on the factored matrix. Thin: each fit reads as its method.

Knows `approximation` and `solvers` and what lies below; nothing below knows it.
"""

from __future__ import annotations

from krein.estimators.cache import clear_cache
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor
from krein.estimators.kernel_pca import KernelPCA
from krein.estimators.meka import MEKA
from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier
from krein.estimators.spectral_clustering import SpectralClustering
from krein.estimators.svm import SVC, SVR, OneClassSVM

__all__ = [
    "MEKA",
    "SVC",
    "SVR",
    "GaussianProcessRegressor",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "OneClassSVM",
    "SpectralClustering",
    "clear_cache",
]

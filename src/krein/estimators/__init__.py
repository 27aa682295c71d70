"""Kernel machines with scikit-learn's names and contract, on the factored matrix. Thin: each fit reads as its method.

Knows `approximation` and `solvers` and what lies below; nothing below knows it.
"""

from __future__ import annotations

from krein.estimators.cache import clear_cache
from krein.estimators.cluster import SpectralClustering
from krein.estimators.embedding import KernelPCA
from krein.estimators.features import MEKA
from krein.estimators.gp import GaussianProcessRegressor
from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier
from krein.estimators.svm import SVC
from krein.estimators.svr import SVR, OneClassSVM

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

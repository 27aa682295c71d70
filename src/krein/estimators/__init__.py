"""Kernel machines with the names and the contract of scikit-learn.

In: objects, targets and parameters. Out: fitted machines.

- `base` has the parameters and steps that all machines share, `route` the one decision how a fit goes, `cache` the
  approximations of recent fits.
- `svm`, `nu_svm`, `proxy_svm`, `ridge`, `logistic_regression`, `gaussian_process`, `kernel_pca`, `kernel_kmeans`,
  `spectral_clustering`, `spectral_embedding` and `meka` are the machines. `random_features` has features that do not
  depend on the data.
- `decision` computes predictions from dual coefficients.
- `choose_correction` makes the choice of correction="auto". `similarity_features` and `similarity_ridge` use
  similarities to landmarks as features.
- `kernel_matrix`, `eigenpairs`, `ridge_system` and `normalized_cut` are the linear algebra of the kernel's own matrix.
"""

from __future__ import annotations

from krein.estimators.cache import clear_cache
from krein.estimators.gaussian_process.classifier import GaussianProcessClassifier
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor
from krein.estimators.kernel_kmeans import KernelKMeans
from krein.estimators.kernel_pca import KernelPCA
from krein.estimators.logistic_regression import KernelLogisticRegression
from krein.estimators.meka import MEKA
from krein.estimators.nu_svm import NuSVC, NuSVR
from krein.estimators.proxy_svm import ProxySVC
from krein.estimators.random_features import RandomFourierFeatures
from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier
from krein.estimators.spectral_clustering import SpectralClustering
from krein.estimators.spectral_embedding import SpectralEmbedding
from krein.estimators.svm import SVC, SVR, OneClassSVM

__all__ = [
    "MEKA",
    "SVC",
    "SVR",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "KernelKMeans",
    "KernelLogisticRegression",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "NuSVC",
    "NuSVR",
    "OneClassSVM",
    "ProxySVC",
    "RandomFourierFeatures",
    "SpectralClustering",
    "SpectralEmbedding",
    "clear_cache",
]

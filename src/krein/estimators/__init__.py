"""Kernel machines with the names and the contract of scikit-learn.

In: objects, targets and parameters. Out: fitted machines.

- `base` has the parameters and steps that all machines share, `route` the one decision how a fit goes, `cache` the
  approximations of recent fits, `weights` the checks of the weights of rows and classes.
- `svm`, `nu_svm`, `proxy_svm`, `ridge`, `logistic_regression`, `gaussian_process`, `kernel_pca`, `kernel_kmeans`,
  `spectral_clustering`, `spectral_embedding` and `meka` are the machines. `random_features` has features that do not
  depend on the data. Each file is loaded when it is first used.
- `decision` computes predictions from dual coefficients.
- `choose_correction` makes the choice of correction="auto". `similarity_features` and `similarity_ridge` use
  similarities to landmarks as features.
- `kernel_matrix`, `eigenpairs`, `ridge_system` and `normalized_cut` are the linear algebra of the kernel's own matrix.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:  # for type checkers and editors; _FILE_OF says the same at run time
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

_FILES = {
    "cache": "clear_cache",
    "gaussian_process.classifier": "GaussianProcessClassifier",
    "gaussian_process.regressor": "GaussianProcessRegressor",
    "kernel_kmeans": "KernelKMeans",
    "kernel_pca": "KernelPCA",
    "logistic_regression": "KernelLogisticRegression",
    "meka": "MEKA",
    "nu_svm": "NuSVC NuSVR",
    "proxy_svm": "ProxySVC",
    "random_features": "RandomFourierFeatures",
    "ridge": "KernelRidge KernelRidgeClassifier",
    "spectral_clustering": "SpectralClustering",
    "spectral_embedding": "SpectralEmbedding",
    "svm": "SVC SVR OneClassSVM",
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names.split()}

if not typing.TYPE_CHECKING:  # a checker that saw it would believe in every name

    def __getattr__(name):
        """Load the file of a machine when the machine is first asked for."""
        if name not in _FILE_OF:
            raise AttributeError(f"module 'krein.estimators' has no attribute {name!r}")
        globals()[name] = getattr(importlib.import_module(f"krein.estimators.{_FILE_OF[name]}"), name)
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__all__})

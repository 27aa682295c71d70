"""krein: learning with any symmetric similarity, psd or indefinite, on data far too large for an n x n matrix."""

from __future__ import annotations

from krein import bounds, datasets, preprocessing, truncation
from krein.approximation import Approximation, approximate
from krein.blocksparse import BlockSparse
from krein.correction import correct, psd_shift
from krein.errors import IndefiniteError, InputError, KernelError, KreinError, KreinWarning
from krein.estimators import (
    MEKA,
    SVC,
    SVR,
    GaussianProcessRegressor,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    OneClassSVM,
    SpectralClustering,
    clear_cache,
)
from krein.factorization import Factorization
from krein.kernels import (
    ELM,
    NTK,
    RBF,
    TL1,
    ArcCosine,
    Cosine,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Precomputed,
    Sigmoid,
    SpherePolynomial,
    check_kernel,
)
from krein.spectrum import certify, gershgorin, lanczos

__all__ = [
    "ELM",
    "MEKA",
    "NTK",
    "RBF",
    "SVC",
    "SVR",
    "TL1",
    "Approximation",
    "ArcCosine",
    "BlockSparse",
    "Cosine",
    "Factorization",
    "GaussianProcessRegressor",
    "IndefiniteError",
    "InputError",
    "KernelError",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "KreinError",
    "KreinWarning",
    "Laplacian",
    "Linear",
    "Normalized",
    "OneClassSVM",
    "Polynomial",
    "Precomputed",
    "Sigmoid",
    "SpectralClustering",
    "SpherePolynomial",
    "approximate",
    "bounds",
    "certify",
    "check_kernel",
    "clear_cache",
    "correct",
    "datasets",
    "gershgorin",
    "lanczos",
    "preprocessing",
    "psd_shift",
    "truncation",
]

__version__ = "0.1.0"

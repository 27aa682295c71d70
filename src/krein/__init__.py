"""krein: learning with any symmetric similarity, psd or indefinite, on data far too large for an n x n matrix."""

from __future__ import annotations

from krein import bounds, datasets, preprocessing, report, truncation
from krein.approximation import Approximation, approximate
from krein.blocksparse import BlockSparse
from krein.correction import correct, psd_shift
from krein.errors import IndefiniteError, InputError, KernelError, KreinError, KreinWarning, ModelFileError
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
from krein.inspection import Inspection, inspect
from krein.kernels import (
    ELM,
    NTK,
    RBF,
    TL1,
    Alignment,
    ArcCosine,
    Cosine,
    DoubleCentred,
    DynamicTimeWarping,
    EditDistance,
    EditSimilarity,
    FromDistances,
    JaroWinkler,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Precomputed,
    Sigmoid,
    Spectrum,
    SpherePolynomial,
    check_kernel,
)
from krein.persistence import load, save
from krein.spectrum import certify, gershgorin, lanczos

__all__ = [
    "ELM",
    "MEKA",
    "NTK",
    "RBF",
    "SVC",
    "SVR",
    "TL1",
    "Alignment",
    "Approximation",
    "ArcCosine",
    "BlockSparse",
    "Cosine",
    "DoubleCentred",
    "DynamicTimeWarping",
    "EditDistance",
    "EditSimilarity",
    "Factorization",
    "FromDistances",
    "GaussianProcessRegressor",
    "IndefiniteError",
    "InputError",
    "Inspection",
    "JaroWinkler",
    "KernelError",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "KreinError",
    "KreinWarning",
    "Laplacian",
    "Linear",
    "ModelFileError",
    "Normalized",
    "OneClassSVM",
    "Polynomial",
    "Precomputed",
    "Sigmoid",
    "SpectralClustering",
    "Spectrum",
    "SpherePolynomial",
    "approximate",
    "bounds",
    "certify",
    "check_kernel",
    "clear_cache",
    "correct",
    "datasets",
    "gershgorin",
    "inspect",
    "lanczos",
    "load",
    "preprocessing",
    "psd_shift",
    "report",
    "save",
    "truncation",
]

__version__ = "0.1.0"

"""krein: learning with any symmetric similarity, psd or indefinite, on data far too large for an n x n matrix.

Importing krein loads none of it: each name comes from its room when it is first asked for, and scikit-learn with it.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:  # what type checkers and editors read; _ROOMS says the same at run time, and a test compares
    from krein import bounds, datasets, preprocessing, report, truncation
    from krein.approximation import Approximation
    from krein.approximation.plan import plan
    from krein.choosing import approximate
    from krein.errors import (
        IndefiniteError,
        InputError,
        KernelError,
        KreinError,
        KreinWarning,
        ModelFileError,
        ResourceError,
    )
    from krein.estimators import (
        MEKA,
        SVC,
        SVR,
        GaussianProcessClassifier,
        GaussianProcessRegressor,
        KernelKMeans,
        KernelLogisticRegression,
        KernelPCA,
        KernelRidge,
        KernelRidgeClassifier,
        NuSVC,
        NuSVR,
        OneClassSVM,
        ProxySVC,
        RandomFourierFeatures,
        SpectralClustering,
        SpectralEmbedding,
        clear_cache,
    )
    from krein.factorization import Factorization
    from krein.factorization.core import BlockSparse
    from krein.factorization.correction import correct, psd_shift, split
    from krein.factorization.spectrum import certify, gershgorin, lanczos
    from krein.inspection import Inspection, inspect
    from krein.kernels import (
        ELM,
        NTK,
        RBF,
        TL1,
        Alignment,
        ArcCosine,
        ChiSquared,
        Cosine,
        DoubleCentred,
        DynamicTimeWarping,
        EditDistance,
        EditSimilarity,
        FromDistances,
        GlobalAlignment,
        Gower,
        Hamming,
        Haversine,
        HistogramIntersection,
        Jaccard,
        JaroWinkler,
        Laplacian,
        Linear,
        Matern,
        MinMax,
        Normalized,
        Periodic,
        Polynomial,
        Precomputed,
        RationalQuadratic,
        Sigmoid,
        Spectrum,
        SpherePolynomial,
        Tanimoto,
        check_kernel,
        counting,
        pairwise,
    )
    from krein.persistence import load, save
    from krein.policy import Policy

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
    "ChiSquared",
    "Cosine",
    "DoubleCentred",
    "DynamicTimeWarping",
    "EditDistance",
    "EditSimilarity",
    "Factorization",
    "FromDistances",
    "GaussianProcessClassifier",
    "GaussianProcessRegressor",
    "GlobalAlignment",
    "Gower",
    "Hamming",
    "Haversine",
    "HistogramIntersection",
    "IndefiniteError",
    "InputError",
    "Inspection",
    "Jaccard",
    "JaroWinkler",
    "KernelError",
    "KernelKMeans",
    "KernelLogisticRegression",
    "KernelPCA",
    "KernelRidge",
    "KernelRidgeClassifier",
    "KreinError",
    "KreinWarning",
    "Laplacian",
    "Linear",
    "Matern",
    "MinMax",
    "ModelFileError",
    "Normalized",
    "NuSVC",
    "NuSVR",
    "OneClassSVM",
    "Periodic",
    "Policy",
    "Polynomial",
    "Precomputed",
    "ProxySVC",
    "RandomFourierFeatures",
    "RationalQuadratic",
    "ResourceError",
    "Sigmoid",
    "SpectralClustering",
    "SpectralEmbedding",
    "Spectrum",
    "SpherePolynomial",
    "Tanimoto",
    "approximate",
    "bounds",
    "certify",
    "check_kernel",
    "clear_cache",
    "correct",
    "counting",
    "datasets",
    "gershgorin",
    "inspect",
    "lanczos",
    "load",
    "pairwise",
    "plan",
    "preprocessing",
    "psd_shift",
    "report",
    "save",
    "split",
    "truncation",
]

__version__ = "0.2.0"

_ROOMS = {
    "approximation": "Approximation",
    "approximation.plan": "plan",
    "choosing": "approximate",
    "errors": "IndefiniteError InputError KernelError KreinError KreinWarning ModelFileError ResourceError",
    "estimators": "MEKA SVC SVR GaussianProcessClassifier GaussianProcessRegressor KernelKMeans KernelPCA KernelRidge "
    "KernelLogisticRegression KernelRidgeClassifier NuSVC NuSVR OneClassSVM ProxySVC "
    "RandomFourierFeatures SpectralClustering SpectralEmbedding clear_cache",
    "factorization": "Factorization",
    "factorization.core": "BlockSparse",
    "factorization.correction": "correct psd_shift split",
    "factorization.spectrum": "certify gershgorin lanczos",
    "inspection": "Inspection inspect",
    "kernels": "ELM NTK RBF TL1 Alignment ArcCosine Cosine DoubleCentred DynamicTimeWarping EditDistance "
    "EditSimilarity FromDistances JaroWinkler Laplacian Linear Normalized Polynomial Precomputed Sigmoid Spectrum "
    "SpherePolynomial check_kernel counting Matern RationalQuadratic Periodic Tanimoto MinMax Jaccard Hamming "
    "ChiSquared HistogramIntersection Haversine GlobalAlignment Gower pairwise",
    "persistence": "load save",
    "policy": "Policy",
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names.split()}

if not typing.TYPE_CHECKING:  # a checker that saw it would believe in every name

    def __getattr__(name):
        """Load the room that has the name, or is the name, and keep what was found: asked once for each name."""
        room = f"krein.{_ROOM_OF.get(name, name)}"
        unknown = AttributeError(f"module 'krein' has no attribute {name!r}")
        if name.startswith("_"):  # hasattr(krein, "__wrapped__") and the like; and krein.__main__ would run
            raise unknown
        try:
            found = importlib.import_module(room)
        except ModuleNotFoundError as error:
            if error.name != room:  # the room is there, but something it needs is not: say so
                raise
            raise unknown from None
        globals()[name] = getattr(found, name) if name in _ROOM_OF else found
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__all__})

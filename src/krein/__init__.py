"""krein: learning with any symmetric similarity, psd or indefinite, on data far too large for an n x n matrix.

Importing krein loads none of it: each name comes from its room when it is first asked for, and scikit-learn with it.
"""

from __future__ import annotations

import importlib
import typing

# ruff: noqa: I001 (names that are public by `as` stand together)

if typing.TYPE_CHECKING:  # what type checkers and editors read; _ROOMS says the same at run time, and a test compares
    from krein import (
        bounds as bounds,
        datasets as datasets,
        preprocessing as preprocessing,
        report as report,
        truncation as truncation,
    )
    from krein.approximation import Approximation as Approximation
    from krein.approximation.plan import plan as plan
    from krein.choosing import approximate as approximate
    from krein.errors import (
        IndefiniteError as IndefiniteError,
        InputError as InputError,
        KernelError as KernelError,
        KreinError as KreinError,
        KreinWarning as KreinWarning,
        ModelFileError as ModelFileError,
        ResourceError as ResourceError,
    )
    from krein.estimators import (
        MEKA as MEKA,
        SVC as SVC,
        SVR as SVR,
        GaussianProcessClassifier as GaussianProcessClassifier,
        GaussianProcessRegressor as GaussianProcessRegressor,
        KernelKMeans as KernelKMeans,
        KernelLogisticRegression as KernelLogisticRegression,
        KernelPCA as KernelPCA,
        KernelRidge as KernelRidge,
        KernelRidgeClassifier as KernelRidgeClassifier,
        NuSVC as NuSVC,
        NuSVR as NuSVR,
        OneClassSVM as OneClassSVM,
        ProxySVC as ProxySVC,
        RandomFourierFeatures as RandomFourierFeatures,
        SpectralClustering as SpectralClustering,
        SpectralEmbedding as SpectralEmbedding,
        clear_cache as clear_cache,
    )
    from krein.factorization import Factorization as Factorization
    from krein.factorization.core import BlockSparse as BlockSparse
    from krein.factorization.correction import correct as correct, psd_shift as psd_shift, split as split
    from krein.factorization.spectrum import certify as certify, gershgorin as gershgorin, lanczos as lanczos
    from krein.inspection import Inspection as Inspection, inspect as inspect
    from krein.kernels import (
        ELM as ELM,
        NTK as NTK,
        RBF as RBF,
        TL1 as TL1,
        Alignment as Alignment,
        ArcCosine as ArcCosine,
        ChiSquared as ChiSquared,
        Cosine as Cosine,
        DoubleCentred as DoubleCentred,
        DynamicTimeWarping as DynamicTimeWarping,
        EditDistance as EditDistance,
        EditSimilarity as EditSimilarity,
        FromDistances as FromDistances,
        GlobalAlignment as GlobalAlignment,
        Gower as Gower,
        Hamming as Hamming,
        Haversine as Haversine,
        HistogramIntersection as HistogramIntersection,
        Jaccard as Jaccard,
        JaroWinkler as JaroWinkler,
        Laplacian as Laplacian,
        Linear as Linear,
        Matern as Matern,
        MinMax as MinMax,
        Normalized as Normalized,
        Periodic as Periodic,
        Polynomial as Polynomial,
        Precomputed as Precomputed,
        RationalQuadratic as RationalQuadratic,
        Sigmoid as Sigmoid,
        Spectrum as Spectrum,
        SpherePolynomial as SpherePolynomial,
        Tanimoto as Tanimoto,
        check_kernel as check_kernel,
        counting as counting,
        pairwise as pairwise,
    )
    from krein.persistence import load as load, save as save
    from krein.policy import Policy as Policy

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
    __all__ = sorted([*_ROOM_OF, "bounds", "datasets", "preprocessing", "report", "truncation"])

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

"""Kernels: frozen values that compare objects, declare their properties, and can be checked on data.

Ground: knows only `errors` and `arrays`. A kernel is anything that fills k(A, B) for two collections of objects.
"""

from __future__ import annotations

from krein.kernels.alignment import Alignment
from krein.kernels.check import KernelCheck, check_kernel
from krein.kernels.collections import count_objects, is_vectors, take
from krein.kernels.counting import counting
from krein.kernels.distances import DoubleCentred, FromDistances
from krein.kernels.evaluator import Evaluator
from krein.kernels.kernel import Kernel, Product, Scaled, Sum, Traits
from krein.kernels.networks import ELM, NTK, ArcCosine
from krein.kernels.precomputed import Precomputed
from krein.kernels.products import Cosine, Linear, Polynomial, Sigmoid, SpherePolynomial
from krein.kernels.similarities import Anchored, FromCallable, Normalized, as_kernel
from krein.kernels.stationary import RBF, TL1, Laplacian
from krein.kernels.strings import EditDistance, EditSimilarity, JaroWinkler, Spectrum
from krein.kernels.warping import DynamicTimeWarping

__all__ = [
    "ELM",
    "NTK",
    "RBF",
    "TL1",
    "Alignment",
    "Anchored",
    "ArcCosine",
    "Cosine",
    "DoubleCentred",
    "DynamicTimeWarping",
    "EditDistance",
    "EditSimilarity",
    "Evaluator",
    "FromCallable",
    "FromDistances",
    "JaroWinkler",
    "Kernel",
    "KernelCheck",
    "Laplacian",
    "Linear",
    "Normalized",
    "Polynomial",
    "Precomputed",
    "Product",
    "Scaled",
    "Sigmoid",
    "Spectrum",
    "SpherePolynomial",
    "Sum",
    "Traits",
    "as_kernel",
    "check_kernel",
    "count_objects",
    "counting",
    "is_vectors",
    "take",
]

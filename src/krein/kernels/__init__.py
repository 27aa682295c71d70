"""Kernels: frozen values that compare objects, declare their properties, and can be checked on data.

Ground: knows only `errors` and `arrays`. A kernel is anything that fills k(A, B) for two collections of objects.
"""

from __future__ import annotations

from krein.kernels.check import KernelCheck, check_kernel
from krein.kernels.evaluator import Evaluator
from krein.kernels.kernel import Kernel, Product, Scaled, Sum, Traits
from krein.kernels.networks import ELM, NTK, ArcCosine
from krein.kernels.objects import count_objects, is_vectors, take
from krein.kernels.products import Cosine, Linear, Polynomial, Sigmoid, SpherePolynomial
from krein.kernels.similarities import FromCallable, Normalized, Precomputed, as_kernel
from krein.kernels.stationary import RBF, TL1, Laplacian

__all__ = [
    "ELM",
    "NTK",
    "RBF",
    "TL1",
    "ArcCosine",
    "Cosine",
    "Evaluator",
    "FromCallable",
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
    "SpherePolynomial",
    "Sum",
    "Traits",
    "as_kernel",
    "check_kernel",
    "count_objects",
    "is_vectors",
    "take",
]

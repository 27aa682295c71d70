"""Kernels: what compares objects, and what a collection of objects is.

In: collections of objects (vectors, strings, sequences, indices, anything a function compares) and a kernel, by name or
as a value. Out: checked objects, a kernel with all parameters bound to them, and blocks k(A, B) of similarities.

The base class and its evaluation: `kernel` (`Kernel`, the `Traits` it declares, and `Evaluator`: blocks, checked and
counted). Kernels of vectors: `vectors` (inner products and distances, gamma from the data, RBF), `radial` (Laplacian,
TL1, Matern, rational quadratic, periodic), `products` (linear, polynomial, cosine, sigmoid), `networks` (ELM,
arc-cosine, NTK), `counts` (fingerprints, sets, histograms), `haversine` (places on the Earth). Kernels of other
objects: `strings`, `alignment`, `warping`, `gower` (rows of tables, `mixed_rows`). Kernels made from something else:
`similarities` (functions, normalisation, sums and products), `pair_function` (functions of two objects), `precomputed`
(a matrix), `distances`. Objects: `collections` (how many, which), `validation` (what a user passes as X), `names` (what
a user passes as kernel). `check` is a public test of a kernel.
"""

from __future__ import annotations

from krein.kernels.alignment import Alignment
from krein.kernels.check import KernelCheck, check_kernel
from krein.kernels.collections import count_objects, is_vectors, take
from krein.kernels.counts import ChiSquared, Hamming, HistogramIntersection, Jaccard, MinMax, Tanimoto
from krein.kernels.distances import DoubleCentred, FromDistances
from krein.kernels.gower import Gower
from krein.kernels.haversine import Haversine
from krein.kernels.kernel import Anchored, Evaluator, Kernel, Traits, counting
from krein.kernels.networks import ELM, NTK, ArcCosine
from krein.kernels.pair_function import PairFunction, pairwise
from krein.kernels.precomputed import Precomputed
from krein.kernels.products import Cosine, Linear, Polynomial, Sigmoid, SpherePolynomial
from krein.kernels.radial import TL1, Laplacian, Matern, Periodic, RationalQuadratic
from krein.kernels.similarities import FromCallable, Normalized, Product, Scaled, Sum, as_kernel
from krein.kernels.strings import EditDistance, EditSimilarity, JaroWinkler, Spectrum
from krein.kernels.vectors import RBF
from krein.kernels.warping import DynamicTimeWarping, GlobalAlignment

__all__ = [
    "ELM",
    "NTK",
    "RBF",
    "TL1",
    "Alignment",
    "Anchored",
    "ArcCosine",
    "ChiSquared",
    "Cosine",
    "DoubleCentred",
    "DynamicTimeWarping",
    "EditDistance",
    "EditSimilarity",
    "Evaluator",
    "FromCallable",
    "FromDistances",
    "GlobalAlignment",
    "Gower",
    "Hamming",
    "Haversine",
    "HistogramIntersection",
    "Jaccard",
    "JaroWinkler",
    "Kernel",
    "KernelCheck",
    "Laplacian",
    "Linear",
    "Matern",
    "MinMax",
    "Normalized",
    "PairFunction",
    "Periodic",
    "Polynomial",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Sigmoid",
    "Spectrum",
    "SpherePolynomial",
    "Sum",
    "Tanimoto",
    "Traits",
    "as_kernel",
    "check_kernel",
    "count_objects",
    "counting",
    "is_vectors",
    "pairwise",
    "take",
]

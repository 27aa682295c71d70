"""Kernel machines with scikit-learn's names and contract, on the factored matrix. Thin: each fit reads as its method.

Knows `approximation` and `solvers` and what lies below; nothing below knows it.
"""

from __future__ import annotations

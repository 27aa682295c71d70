"""Pictures: an approximation, a factorization or a fitted estimator in, a scikit-learn-style Display out.

A Display holds the numbers it shows (`from_...` computes them) and draws them with `plot`, which returns it with
`ax_` and `figure_`. matplotlib is imported only when something is drawn. One file per picture.
"""

from __future__ import annotations

from krein.plotting.canvas import MissingPlotError, check_matplotlib, figure_with_axes
from krein.plotting.convergence import ConvergenceDisplay
from krein.plotting.coupling import CoreDisplay
from krein.plotting.findings import InspectionDisplay
from krein.plotting.map import MapDisplay
from krein.plotting.matrix import KernelMatrixDisplay
from krein.plotting.spectrum import SpectrumDisplay
from krein.plotting.tradeoff import MemoryDisplay, Spot
from krein.plotting.uncertainty import UncertaintyDisplay

__all__ = [
    "ConvergenceDisplay",
    "CoreDisplay",
    "InspectionDisplay",
    "KernelMatrixDisplay",
    "MapDisplay",
    "MemoryDisplay",
    "MissingPlotError",
    "SpectrumDisplay",
    "Spot",
    "UncertaintyDisplay",
    "check_matplotlib",
    "figure_with_axes",
]

"""Pictures: an approximation, a factorization or a fitted estimator in, a scikit-learn-style Display out.

A Display holds the numbers it shows (`from_...` computes them) and draws them with `plot`, which returns it with
`ax_` and `figure_`. matplotlib is imported only when something is drawn. One file per picture.
"""

from __future__ import annotations

from krein.display.canvas import MissingPlotError, check_matplotlib, figure_with_axes
from krein.display.convergence import ConvergenceDisplay
from krein.display.coupling import CoreDisplay
from krein.display.findings import InspectionDisplay
from krein.display.matrix import KernelMatrixDisplay
from krein.display.spectrum import SpectrumDisplay
from krein.display.tradeoff import MemoryDisplay, Spot
from krein.display.uncertainty import UncertaintyDisplay

__all__ = [
    "ConvergenceDisplay",
    "CoreDisplay",
    "InspectionDisplay",
    "KernelMatrixDisplay",
    "MemoryDisplay",
    "MissingPlotError",
    "SpectrumDisplay",
    "Spot",
    "UncertaintyDisplay",
    "check_matplotlib",
    "figure_with_axes",
]

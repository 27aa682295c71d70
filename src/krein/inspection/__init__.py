"""How indefinite a similarity is, measured on a sample of its objects before anything is learned with it.

In: objects and a kernel, or a matrix. Out: an `Inspection`, which prints and plots. `inspector` has the public
function, `sampling` draws and checks the sample, `measures` computes, `ranks` scores ranks, `findings` is the result.
"""

from __future__ import annotations

from krein.inspection.findings import Inspection
from krein.inspection.inspector import inspect

__all__ = ["Inspection", "inspect"]

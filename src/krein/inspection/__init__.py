"""How indefinite is it: a look at any similarity through a sample of its objects, before anything is learned with it.

In: objects and a kernel, or a matrix. Out: an `Inspection`, which prints and plots. `looking` has the public
function, `sampling` draws and checks the sample, `measures` computes, `ranks` scores ranks, `findings` is the result.
"""

from __future__ import annotations

from krein.inspection.findings import Inspection
from krein.inspection.looking import inspect

__all__ = ["Inspection", "inspect"]

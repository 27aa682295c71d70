"""A page that says what was found: an inspection, a fitted machine or both in, one self-contained HTML file out.

Values in, text out: this room asks for attributes, computes next to nothing and imports no other, so that inspections,
machines and models can offer `report` themselves. `inspected` and `fitted` say what is on the page, `meanings` what
each number means, `charts` draws, `markup` writes elements, `page` puts them together; `summary` is a small table for
notebooks.

Examples
--------
>>> import numpy as np
>>> import krein
>>> X = np.random.default_rng(0).normal(size=(60, 2))
>>> page = krein.report.report(krein.inspect(X, krein.RBF(gamma=1.0)), title="Points")
>>> page.lower().startswith("<!doctype html>"), "Points" in page
(True, True)
"""

from __future__ import annotations

from krein.report.page import report, write

__all__ = ["report", "write"]

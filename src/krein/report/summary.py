"""A few facts as a small table, for notebooks: of a factorization, an approximation, a fitted machine.

Reads what is known already and computes nothing: a cell that shows a value must not cost anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from krein.errors import si
from krein.report.markup import fixed, plain

__all__ = ["approximation", "factorization", "is_exact", "kernel_of", "machine", "matrix_of", "table"]


def factorization(f: Any) -> str:
    """The table of a `Factorization`."""
    return table("Factorization U M Uᵀ + s I", [("", _held(f))])


def approximation(a: Any) -> str:
    """The table of an `Approximation`."""
    lines = [("Kernel", repr(a.kernel)), *_held(a.factorization), ("For new objects", si(a.nbytes))]
    lines += [("Similarities evaluated", f"{a.n_evaluations:,}"), *_error(a.search_)]
    return table("Approximation of a kernel matrix", [("", lines)])


def machine(e: Any) -> str:
    """The table of a fitted kernel machine, to stand below scikit-learn's own picture of it."""
    lines = [("Kernel", kernel_of(e))]
    if is_exact(e):
        lines += [("Rows", f"{e._n_rows:,}"), ("Matrix", f"{matrix_of(e)}: {e.route_.why}")]
    else:
        a = e.approximation_
        error = getattr(e, "_relative_error", None)  # the property would estimate it
        known = [("Error before correction", fixed(error))] if error is not None else _error(a.search_)
        lines += [*_held(a.factorization), *known, ("Why an approximation", e.route_.why)]
    if getattr(e, "selection_", None) is not None:
        lines.append(("Chosen because", e.selection_.reason))
    lines += [("Correction", str(e.correction_)), ("Negative eigenvalues before it", f"{e.n_negative_:,}")]
    return table("The kernel matrix it was fitted to", [("", lines)])


def is_exact(e: Any) -> bool:
    """Whether a fitted machine used the kernel's own matrix and holds no approximation."""
    return type(e.route_).__name__ in ("Exact", "Features") and e._approximation is None


def matrix_of(e: Any) -> str:
    """The matrix of a fitted machine that holds no approximation, in words."""
    landmarks = getattr(e.route_, "n_landmarks", e._n_rows)
    if landmarks >= e._n_rows:
        return "the kernel's own, nothing is approximated"
    if e.route_.n_pairs and not e.route_.neighbours:
        return f"the kernel's own, of a sample of {landmarks:,} rows"
    return f"similarities to at most {landmarks:,} landmarks are the features"


def kernel_of(e: Any) -> str:
    """The kernel of a fitted machine, in words."""
    return "precomputed" if e._precomputed else repr(e._kernel)


def _held(f: Any) -> list[tuple[str, str]]:
    n = f.shape[0]
    kind = "dense" if hasattr(f.core, "dtype") else "block-sparse"
    lines = [
        ("Rows", f"{n:,}"),
        ("Blocks", f"{f.n_blocks:,}"),
        ("Rank", f"{f.rank:,}" + ("" if f.n_blocks == 1 else " in all")),
        ("Memory", f"{si(f.nbytes)}; the full matrix would take {si(8 * n * n)}"),
        ("Stored as", f"{f.dtype}, {kind} core"),
    ]
    return [*lines, ("Shift", fixed(f.shift))] if f.shift else lines


def _error(found: Any) -> list[tuple[str, str]]:
    """What a search measured; what was built as asked has not been measured."""
    if found is None:
        return []
    known = "0, to rounding" if found.error is None else f"{fixed(found.error.relative)}"
    if found.error is not None and found.error.low < found.error.high:
        known += f" (95 %: {fixed(found.error.low)} to {fixed(found.error.high)})"
    return [("Error before correction", known)]


def table(caption: str, parts: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> str:
    """A table of (heading, [(name, text)]) for notebooks."""
    left = 'style="text-align:left"'
    rows = ""
    for heading, lines in parts:
        rows += f'<tr><th colspan="2" scope="colgroup" {left}>{plain(heading)}</th></tr>' if heading else ""
        for name, value in lines:
            rows += f'<tr><th scope="row" {left}>{plain(name)}</th><td {left}>{plain(value)}</td></tr>'
    return f"<table><caption {left}>{plain(caption)}</caption><tbody>{rows}</tbody></table>"

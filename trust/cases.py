"""Hostile input, one line a case: what is changed, which outcomes hold, and what the right result is compared with."""

# ruff: noqa: E501 - a case per line reads as a table

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from trust.subjects import Data

ERROR = frozenset({"error"})
RIGHT = frozenset({"right"})
REFUSED_OR_RIGHT = frozenset({"error", "right"})
NEVER_SILENT = frozenset({"error", "right", "warning"})

Change = Callable[[Data], Data]


@dataclass(frozen=True)
class Case:
    """One hostile input.

    A result is right if it agrees with that of ``plain`` input, times ``factor``. Without a ``plain`` it has to be
    finite, and predictions have to be near the range of the targets.
    """

    name: str
    change: Change
    holds: frozenset[str] = ERROR
    plain: Change | None = None
    factor: float = 1.0
    tol: float = 1e-6
    exact_only: bool = False  # the invariance holds for the kernel's own matrix; blocks depend on it
    own: type[BaseException] | None = None  # an exception of the user's own, which has to pass untouched


def same(data: Data) -> Data:
    return data


def rows(change: Callable[[Any], Any]) -> Change:
    """Change the rows and the new rows alike."""
    return lambda data: replace(data, X=change(data.X), X_new=change(data.X_new))


def fitted(change: Callable[[Any], Any]) -> Change:
    return lambda data: replace(data, X=change(data.X))


def new(change: Callable[[Any], Any]) -> Change:
    return lambda data: replace(data, X_new=change(data.X_new))


def target(change: Callable[[Any], Any]) -> Change:
    return lambda data: replace(data, classes=change(data.classes), reals=change(data.reals))


def weight(value: Callable[[int], Any]) -> Change:
    return lambda data: replace(data, weight=value(len(data.X)))


def weighted(value: Callable[[int], Any]) -> Change:
    """Weights, with a gamma that does not depend on the number of rows."""
    return lambda data: given(gamma=0.4)(weight(value)(data))


def given(**params: Any) -> Change:
    return lambda data: replace(data, params={**data.params, **params})


def with_value(value: Any) -> Callable[[Any], Any]:
    def change(X: Any) -> Any:
        bad = np.array(X)
        bad[7 % len(bad), -1] = value
        return bad

    return change


def first(value: Any, dtype: Any = None) -> Callable[[Any], Any]:
    """Return a vector whose first value is replaced."""

    def change(y: Any) -> Any:
        bad = np.array(y, dtype=dtype or (object if not isinstance(value, float) else float))
        bad[0] = value
        return bad

    return change


def as_type(dtype: Any) -> Callable[[Any], Any]:
    return lambda X: np.asarray(X).astype(dtype)


def frame(X: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(np.shape(X)[1])])


def nullable(dtype: str, missing: bool = False) -> Callable[[Any], Any]:
    def change(X: Any) -> Any:
        table = frame(np.round(X) if dtype.startswith("I") else X).astype(dtype)
        if missing:
            table.iloc[3, 1] = pd.NA
        return table

    return change


def memory_map(X: Any) -> Any:
    path = Path(tempfile.mkdtemp(prefix="trust-")) / "rows.npy"
    np.save(path, X)
    found = np.load(path, mmap_mode="r")
    path.unlink()  # the map keeps the bytes
    path.parent.rmdir()
    return found


def read_only(X: Any) -> Any:
    found = np.array(X)
    found.flags.writeable = False
    return found


def not_contiguous(X: Any) -> Any:
    return np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]


def sparse_of(change: Callable[[Any], Any] = lambda S: S) -> Callable[[Any], Any]:
    return lambda X: change(sp.csr_matrix(np.where(np.abs(X) < 0.3, 0.0, X)))


def few_zeros(X: Any) -> Any:
    return np.where(np.abs(X) < 0.3, 0.0, X)


def explicit_zeros(X: Any) -> Any:
    S = sp.csr_matrix(np.ones(np.shape(X)))
    S.data = few_zeros(X).ravel()
    return S


def wide_indices(S: Any) -> Any:
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


def unsorted(S: Any) -> Any:
    for i in range(S.shape[0]):
        part = slice(S.indptr[i], S.indptr[i + 1])
        S.indices[part], S.data[part] = S.indices[part][::-1].copy(), S.data[part][::-1].copy()
    S.has_sorted_indices = False
    return S


def twice_stored(X: Any) -> Any:
    S = sp.coo_matrix(few_zeros(X))
    return sp.coo_matrix((np.r_[S.data / 2, S.data / 2], (np.r_[S.row, S.row], np.r_[S.col, S.col])), shape=S.shape)


def one_column(scale: float) -> Callable[[Any], Any]:
    return lambda X: X * np.array([scale, *[1.0] * (np.shape(X)[1] - 1)])


def one_row(scale: float) -> Callable[[Any], Any]:
    def change(X: Any) -> Any:
        found = np.array(X)
        found[0] *= scale
        return found

    return change


WHOLE = rows(np.round)

MISSING = (
    Case("NaN", fitted(with_value(np.nan))),
    Case("inf", fitted(with_value(np.inf))),
    Case("-inf", fitted(with_value(-np.inf))),
    Case(
        "inf and -inf", fitted(lambda X: with_value(np.inf)(X) + np.where(np.arange(len(X))[:, None] == 3, -np.inf, 0))
    ),
    Case("all NaN", fitted(lambda X: np.full_like(X, np.nan))),
    Case("a column of NaN", fitted(lambda X: X * [1, np.nan, 1])),
    Case("float32 NaN", fitted(lambda X: with_value(np.nan)(X).astype(np.float32))),
    Case("float16 inf", fitted(lambda X: with_value(np.inf)(X).astype(np.float16))),
    Case("sparse NaN", fitted(lambda X: sp.csr_matrix(with_value(np.nan)(X)))),
    Case("frame with NaN", fitted(lambda X: frame(with_value(np.nan)(X)))),
    Case("nullable floats with NA", fitted(nullable("Float64", missing=True))),
    Case("nullable integers with NA", fitted(nullable("Int64", missing=True))),
    Case("None among objects", fitted(lambda X: with_value(None)(X.astype(object)))),
    Case("NaT among objects", fitted(lambda X: with_value(pd.NaT)(X.astype(object)))),
    Case("masked values", fitted(lambda X: np.ma.masked_array(X, mask=np.abs(X) > 2.0))),
    Case("signalling NaN", fitted(lambda X: with_value(np.array([0x7FF0000000000001], np.uint64).view(float)[0])(X))),
)

SHAPES = (
    Case("no rows", fitted(lambda X: X[:0])),
    Case("no columns", fitted(lambda X: X[:, :0])),
    Case("no sparse rows", fitted(lambda X: sp.csr_matrix((0, 3)))),
    Case("1-D", fitted(lambda X: X[:, 0])),
    Case("3-D", fitted(lambda X: X[:, :, None])),
    Case("a number", fitted(lambda X: 3.0)),
    Case("an empty list", fitted(lambda X: [])),
    Case("ragged rows", fitted(lambda X: [list(row)[: 2 + i % 2] for i, row in enumerate(X)])),
    Case("None", fitted(lambda X: None)),
    Case("a word", fitted(lambda X: "rows")),
    Case("a dict", fitted(lambda X: {"a": X[:, 0]})),
    Case("a set", fitted(lambda X: set(X[:, 0]))),
    Case("a class", fitted(lambda X: np.ndarray)),
    Case("one row", lambda d: replace(d, X=d.X[:1], classes=d.classes[:1], reals=d.reals[:1])),
)

TYPES = (
    Case("text", fitted(lambda X: np.full(X.shape, "word"))),
    Case("bytes", fitted(lambda X: np.full(X.shape, b"word"))),
    Case("numbers as text", fitted(lambda X: X.astype(str)), REFUSED_OR_RIGHT, same),
    Case("dates", fitted(lambda X: np.full(X.shape, np.datetime64("2020-01-01")))),
    Case("durations", fitted(lambda X: np.full(X.shape, np.timedelta64(1, "D")))),
    Case("complex", fitted(lambda X: X + 1j)),
    Case("sparse complex", fitted(lambda X: sp.csr_matrix(X + 1j))),
    Case("complex among objects", fitted(lambda X: with_value(1j)(X.astype(object)))),
    Case("text among objects", fitted(lambda X: with_value("x")(X.astype(object)))),
    Case("lists among objects", fitted(lambda X: with_value(None)(X.astype(object)).tolist())),
    Case("records", fitted(lambda X: np.zeros(len(X), dtype=[("a", float), ("b", float)]))),
    Case("frame of text", fitted(lambda X: frame(X).astype(str) + "x")),
    Case("frame of dates", fitted(lambda X: frame(X).apply(lambda c: pd.Timestamp("2020-01-01")).to_frame())),
    Case("frame of categories", fitted(lambda X: frame(np.where(X > 0, "a", "b")).astype("category"))),
    Case("frame of lists", fitted(lambda X: frame(X).map(lambda v: [v]))),
    Case("integers beyond float64", fitted(lambda X: with_value(10**400)(X.astype(object)))),
)

STORAGE = (
    Case("float16", rows(as_type(np.float16)), RIGHT, rows(lambda X: X.astype(np.float16).astype(float))),
    Case("float32", rows(as_type(np.float32)), RIGHT, rows(lambda X: X.astype(np.float32).astype(float)), tol=2e-2),
    Case("long double", rows(as_type(np.longdouble)), RIGHT, same),
    *(Case(t, rows(lambda X, t=t: np.round(X).astype(t)), RIGHT, WHOLE) for t in ("int8", "int16", "int32", "int64")),
    *(Case(t, rows(lambda X, t=t: np.round(np.abs(X)).astype(t)), RIGHT, rows(lambda X: np.round(np.abs(X)))) for t in ("uint8", "uint64")),
    Case("booleans", rows(lambda X: X > 0), RIGHT, rows(lambda X: (X > 0).astype(float))),
    Case("big-endian", rows(as_type(">f8")), RIGHT, same),
    Case("big-endian float32", rows(as_type(">f4")), RIGHT, rows(lambda X: X.astype(np.float32).astype(float)), tol=2e-2),
    Case("objects of numbers", rows(as_type(object)), RIGHT, same),
    Case("decimals", rows(lambda X: np.array([[Decimal(repr(float(v))) for v in row] for row in X])), REFUSED_OR_RIGHT, same),
    Case("read-only", rows(read_only), RIGHT, same),
    Case("not contiguous", rows(not_contiguous), RIGHT, same),
    Case("reversed strides", rows(lambda X: X[::-1].copy()[::-1]), RIGHT, same),
    Case("Fortran order", rows(np.asfortranarray), RIGHT, same),
    Case("a broadcast column", rows(lambda X: np.broadcast_to(X[:, :1], X.shape)), RIGHT, rows(lambda X: np.repeat(X[:, :1], 3, 1))),
    Case("unaligned", rows(lambda X: np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(float).reshape(X.shape)), RIGHT, same),
    Case("memory map", rows(memory_map), RIGHT, same),
    Case("lists", rows(lambda X: X.tolist()), RIGHT, same),
    Case("tuples", rows(lambda X: tuple(map(tuple, X.tolist()))), RIGHT, same),
    Case("masked without a mask", rows(np.ma.masked_array), RIGHT, same),
    Case("numpy.matrix", rows(lambda X: np.asmatrix(X)), REFUSED_OR_RIGHT, same),
    Case("frame", rows(frame), RIGHT, same),
    Case("frame of nullable floats", rows(nullable("Float64")), RIGHT, same),
    Case("frame of nullable integers", rows(nullable("Int64")), RIGHT, WHOLE),
    Case("frame of numeric categories", rows(lambda X: frame(np.round(X)).astype("category")), REFUSED_OR_RIGHT, WHOLE),
    Case("frame of mixed types", rows(lambda X: frame(np.round(X)).astype({"x0": "int8", "x1": "float32"})), RIGHT, WHOLE, tol=2e-2),
    Case("sparse rows", rows(sparse_of()), RIGHT, rows(few_zeros)),
    Case("sparse array", rows(lambda X: sp.csr_array(few_zeros(X))), RIGHT, rows(few_zeros)),
    Case("sparse columns", rows(sparse_of(sp.csc_matrix)), RIGHT, rows(few_zeros)),
    Case("sparse coordinates stored twice", rows(twice_stored), RIGHT, rows(few_zeros)),
    Case("sparse explicit zeros", rows(explicit_zeros), RIGHT, rows(few_zeros)),
    Case("sparse 64-bit indices", rows(sparse_of(wide_indices)), REFUSED_OR_RIGHT, rows(few_zeros)),
    Case("sparse unsorted indices", rows(sparse_of(unsorted)), RIGHT, rows(few_zeros)),
    Case("sparse without entries", rows(lambda X: sp.csr_matrix(X.shape)), NEVER_SILENT, rows(np.zeros_like)),
)  # fmt: skip

SCALES = (
    *(Case(f"scale {s:g}", rows(lambda X, s=s: s * X), NEVER_SILENT, same)
      for s in (1e-300, 1e-200, 1e-155, 1e-100, 1e-30, 1e-8, 1e8, 1e30, 1e100, 1e153, 1e155, 1e200, 1e300)),
    Case("subnormal", rows(lambda X: X * 1e-310), NEVER_SILENT, same),
    Case("one column 1e200", rows(one_column(1e200)), NEVER_SILENT, rows(lambda X: X * [1, 0, 0])),
    Case("one column 1e-200", rows(one_column(1e-200)), NEVER_SILENT, rows(lambda X: X * [0, 1, 1])),
    Case("one row 1e8", fitted(one_row(1e8)), NEVER_SILENT),
    Case("one row 1e200", fitted(one_row(1e200)), NEVER_SILENT),
    Case("float32 1e30", rows(lambda X: (1e30 * X).astype(np.float32)), NEVER_SILENT, same, tol=2e-2),
    Case("float32 1e-30", rows(lambda X: (1e-30 * X).astype(np.float32)), NEVER_SILENT, same, tol=2e-2),
    Case("float32 subnormal", rows(lambda X: (1e-40 * X).astype(np.float32)), NEVER_SILENT, rows(lambda X: (1e-40 * X).astype(np.float32).astype(float) * 1e40), tol=2e-2),
    *(Case(f"offset {s:g}", rows(lambda X, s=s: X + s), NEVER_SILENT, rows(lambda X, s=s: (X + s) - s), tol=1e-4, exact_only=s == 1e15)
      for s in (1e3, 1e6, 1e9, 1e12, 1e15)),
    *(Case(f"sparse offset {s:g}", rows(lambda X, s=s: sp.csr_matrix(X + s)), NEVER_SILENT, rows(lambda X, s=s: (X + s) - s), tol=1e-4, exact_only=s == 1e7)
      for s in (1e3, 1e7)),  # sparse rows are not centred for k-means, so blocks may differ
)  # fmt: skip

DEGENERATE = (
    Case("all rows equal", fitted(lambda X: np.ones_like(X)), NEVER_SILENT),
    Case("all zero", fitted(np.zeros_like), NEVER_SILENT),
    Case("two distinct rows", lambda d: replace(d, X=np.where(d.classes[:, None] > 0, 1.0, -1.0) * np.ones(3)), NEVER_SILENT),
    Case("one row repeated", fitted(lambda X: np.where(np.arange(len(X))[:, None] > 0, X[1], X)), NEVER_SILENT),
    Case("constant column", rows(lambda X: X * [1, 1, 0]), NEVER_SILENT),
    Case("collinear columns", rows(lambda X: X[:, :1] * [1, 2, -3]), NEVER_SILENT),
    Case("nearly equal rows", fitted(lambda X: X[:1] + 1e-14 * X), NEVER_SILENT),
    Case("a grid of ties", rows(lambda X: np.round(X)), NEVER_SILENT),
    Case("one column", rows(lambda X: X[:, :1]), NEVER_SILENT),
    Case("more columns than rows", rows(lambda X: np.tile(X, 40)), NEVER_SILENT, same),
    Case("rows in another order", lambda d: replace(d, X=d.X[::-1], classes=d.classes[::-1], reals=d.reals[::-1]), NEVER_SILENT, same, tol=1e-4, exact_only=True),
    Case("two rows", lambda d: replace(d, X=d.X[[0, 1]], classes=np.array([0, 1]), reals=d.reals[[0, 1]]), NEVER_SILENT),
    Case("three rows", lambda d: replace(d, X=d.X[:3], classes=np.array([0, 1, 1]), reals=d.reals[:3]), NEVER_SILENT),
)  # fmt: skip

INPUT = {
    "missing": MISSING,
    "shapes": SHAPES,
    "types": TYPES,
    "storage": STORAGE,
    "scales": SCALES,
    "degenerate": DEGENERATE,
}

NEW = (
    *(replace(case, change=new(lambda X, case=case: case.change(Data(X, X, X, X)).X)) for case in (*MISSING[:9], *SHAPES[:12])),
    Case("fewer columns", new(lambda X: X[:, :2])),
    Case("more columns", new(lambda X: np.hstack([X, X]))),
    Case("text", new(lambda X: np.full(X.shape, "word"))),
    Case("complex", new(lambda X: X + 1j)),
    Case("far away", new(lambda X: X + 1e200), NEVER_SILENT),
    Case("other column names", lambda d: replace(d, X=frame(d.X), X_new=frame(d.X_new).rename(columns={"x0": "z"}))),
    Case("columns in another order", lambda d: replace(d, X=frame(d.X), X_new=frame(d.X_new)[["x2", "x0", "x1"]])),
)  # fmt: skip

TARGETS = (
    Case("none", target(lambda y: None)),
    Case("too short", target(lambda y: y[:-1])),
    Case("too long", target(lambda y: np.r_[y, y[:1]])),
    Case("empty", target(lambda y: y[:0])),
    Case("a number", target(lambda y: 1.0)),
    Case("NaN", target(first(np.nan))),
    Case("inf", target(first(np.inf))),
    Case("None among objects", target(first(None))),
    Case("NA", target(lambda y: pd.Series(first(pd.NA)(y)))),
    Case("complex", target(lambda y: y + 1j)),
    Case("3-D", target(lambda y: np.zeros((len(y), 1, 1)))),
    Case("ragged", target(lambda y: [[1], *[[1, 2]] * (len(y) - 1)])),
    Case("sparse", target(lambda y: sp.csr_matrix(y[:, None]))),
    Case("masked", target(lambda y: np.ma.masked_array(y, mask=np.arange(len(y)) < 3))),
    Case("column vector", target(lambda y: y[:, None]), NEVER_SILENT, same),
    Case("list", target(lambda y: y.tolist()), RIGHT, same),
    Case("series", target(pd.Series), RIGHT, same),
    Case("series with another index", target(lambda y: pd.Series(y, index=np.arange(len(y))[::-1])), RIGHT, same),
    Case("nullable series", target(lambda y: pd.Series(y).astype("Float64" if y.dtype.kind == "f" else "Int64")), RIGHT, same),
    Case("read-only", target(read_only), RIGHT, same),
    Case("big-endian", target(lambda y: y.astype(y.dtype.newbyteorder(">"))), RIGHT, same),
    Case("not contiguous", target(lambda y: np.repeat(y, 2)[::2]), RIGHT, same),
    Case("float32", target(as_type(np.float32)), RIGHT, same, tol=1e-3),
    Case("objects of numbers", target(as_type(object)), REFUSED_OR_RIGHT, same),
)  # fmt: skip

LABELS = (
    Case("one class", target(np.zeros_like)),
    Case("continuous", target(lambda y: y + np.linspace(0.0, 0.3, len(y)))),
    Case("several outputs", target(lambda y: np.column_stack([y, y]))),
    Case("text and numbers", target(lambda y: np.array(["a" if v else 1 for v in y], dtype=object))),
    Case("NaN among text", target(lambda y: np.array([np.nan, *["a" if v else "b" for v in y[1:]]], dtype=object))),
    *(Case(f"labels {a!r}, {b!r}", target(lambda y, a=a, b=b: np.array([b if v else a for v in y])), REFUSED_OR_RIGHT, same)
      for a, b in (("a", "b"), (b"a", b"b"), (False, True), (-5, 3), (2**62, 2**62 + 1), (0.0, 1.0), ("", "x"), ("é", "名"), ("a", "a\0b"), (np.datetime64("2020-01-01"), np.datetime64("2021-01-01")))),
    Case("categories", target(lambda y: pd.Series(np.where(y > 0, "b", "a")).astype("category")), RIGHT, same),
    Case("nullable booleans", target(lambda y: pd.Series(y > 0).astype("boolean")), RIGHT, same),
    Case("one row of the second class", target(lambda y: (np.arange(len(y)) == 5).astype(int)), NEVER_SILENT),
    Case("each row a class", target(lambda y: np.arange(len(y))), NEVER_SILENT),
)  # fmt: skip

REALS = (
    *(Case(f"scale {s:g}", target(lambda y, s=s: s * y), NEVER_SILENT, None, s) for s in (1e-300, 1e-200, 1e-30, 1e30, 1e153, 1e200, 1e300)),
    Case("subnormal", target(lambda y: 1e-310 * y), NEVER_SILENT, None, 1e-310),
    Case("constant", target(np.ones_like), NEVER_SILENT),
    Case("zero", target(np.zeros_like), NEVER_SILENT),
    Case("offset 1e12", target(lambda y: y + 1e12), NEVER_SILENT),
    Case("one outlier 1e200", target(first(1e200)), NEVER_SILENT),
    Case("text", target(lambda y: np.where(y > 0, "a", "b"))),
    Case("dates", target(lambda y: np.full(len(y), np.datetime64("2020-01-01")))),
    Case("integers", target(lambda y: np.round(5 * y).astype(int)), RIGHT, target(lambda y: np.round(5 * y))),
    Case("booleans", target(lambda y: y > 0), RIGHT, target(lambda y: (y > 0).astype(float))),
    Case("float16", target(as_type(np.float16)), RIGHT, target(lambda y: y.astype(np.float16).astype(float))),
    Case("integers beyond float64", target(first(10**400, object))),
)  # fmt: skip

WEIGHTS = (
    Case("negative", weight(lambda n: np.where(np.arange(n) == 3, -1.0, 1.0)), NEVER_SILENT, None),
    Case("all negative", weight(lambda n: -np.ones(n))),
    Case("NaN", weight(lambda n: np.where(np.arange(n) == 3, np.nan, 1.0))),
    Case("inf", weight(lambda n: np.where(np.arange(n) == 3, np.inf, 1.0))),
    Case("all zero", weight(np.zeros)),
    Case("too short", weight(lambda n: np.ones(n - 1))),
    Case("2-D", weight(lambda n: np.ones((n, 2)))),
    Case("text", weight(lambda n: np.full(n, "a"))),
    Case("complex", weight(lambda n: np.ones(n) + 1j)),
    Case("None among objects", weight(lambda n: [None, *[1.0] * (n - 1)])),
    Case("integers beyond float64", weight(lambda n: [10**400, *[1] * (n - 1)])),
    Case("masked", weight(lambda n: np.ma.masked_array(np.ones(n), mask=np.arange(n) < 3))),
    Case("ones", weight(np.ones), RIGHT, same),
    Case("whole ones", weight(lambda n: np.ones(n, dtype=np.int8)), RIGHT, same),
    Case("booleans", weight(lambda n: np.ones(n, dtype=bool)), REFUSED_OR_RIGHT, same),
    Case("one number", weight(lambda n: 1.0), REFUSED_OR_RIGHT, same),
    Case("a list", weight(lambda n: [1.0] * n), RIGHT, same),
    Case("a series", weight(lambda n: pd.Series(np.ones(n))), RIGHT, same),
    *(Case(f"{s:g}", weight(lambda n, s=s: np.full(n, s)), NEVER_SILENT) for s in (1e-300, 1e-30, 1e30, 1e300)),
    Case("from 1e-200 to 1e200", weight(lambda n: np.logspace(-200, 200, n)), NEVER_SILENT),
    Case("rows of weight two are rows twice", weighted(lambda n: np.where(np.arange(n) < 20, 2.0, 1.0)), RIGHT,
         lambda d: replace(d, X=np.vstack([d.X, d.X[:20]]), classes=np.r_[d.classes, d.classes[:20]], reals=np.r_[d.reals, d.reals[:20]], params={"gamma": 0.4}), tol=1e-4, exact_only=True),
    Case("rows of weight zero are left out", weighted(lambda n: np.where(np.arange(n) < 40, 1.0, 0.0)), RIGHT,
         lambda d: replace(d, X=d.X[:40], classes=d.classes[:40], reals=d.reals[:40], params={"gamma": 0.4}), tol=1e-4, exact_only=True),
)  # fmt: skip

BAD_VALUES: dict[str, tuple[Any, ...]] = {
    "kernel": ("no such kernel", 3, None, object(), np.eye(3)),
    "gamma": (-1.0, 0.0, np.nan, np.inf, "x", True, 1e-320),
    "degree": (-1.0, np.nan, "x"),
    "coef0": (np.nan, np.inf, "x"),
    "n_blocks": (0, -1, 1.5, "x", 10**9, None, 10**400),
    "rank": (0, -1, 1.5, "x", True),
    "coupling": ("x", None, 3),
    "drop": (-0.1, 2.0, np.nan, "x"),
    "correction": ("x", None, -1.0, np.nan, 1e9, True),
    "max_error": (-1.0, 0.0, np.nan, "x"),
    "max_memory": (-1.0, 0, np.inf, "x", 10**400),
    "dtype": ("float8", int, "x"),
    "policy": ("x", 3, {}),
    "approximation": ("x", 3),
    "n_jobs": (0, 1.5, "x"),
    "random_state": ("x", -1, 1.5, np.nan),
    "C": (-1.0, 0.0, np.nan, "x", None),
    "alpha": (-1.0, np.nan, np.inf, "x", 10**400),
    "epsilon": (-1.0, np.nan, "x"),
    "nu": (0.0, -0.1, 1.1, np.nan, "x"),
    "tol": (-1.0, np.nan, "x"),
    "max_iter": (-7, 1.5, "x"),
    "class_weight": ("x", {7: 1.0}, 3, {0: -1.0}),
    "n_clusters": (0, -1, 1.5, 10**6, "x"),
    "n_components": (0, -1, 1.5, "x"),
    "n_init": (0, -1, "x"),
    "refine": ("x", 3),
    "optimizer": ("x", 3),
    "n_restarts_optimizer": (-1, "x"),
    "cache_size": (0, -1, "x"),
    "variance": (0.0, -1.0, np.nan, "x"),
    "memory_limit": (0, -1, np.nan, "1XB", True),
    "rho": (0, -1.0, np.nan, np.inf, "x"),
    "max_iter_predict": (0, -1, 1.5, "x"),
    "multi_class": ("x", 3),
    "method": ("x", 3),
    "no_such_parameter": (1,),
}  # fmt: skip


def parameters(name: str) -> tuple[Case, ...]:
    return tuple(Case(f"{name}={value!r:.20}", given(**{name: value})) for value in BAD_VALUES[name])

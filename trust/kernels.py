"""Similarities that break their promise, and matrices that are none."""

# ruff: noqa: E501 - a case per line reads as a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

import krein
from trust.cases import NEVER_SILENT, REFUSED_OR_RIGHT, RIGHT, Case, Change, given, memory_map
from trust.subjects import Data, clean

RARE = clean().X[3], clean().X[47]  # one pair of the rows


def honest(A: Any, B: Any) -> Any:
    """The RBF kernel with gamma 0.5."""
    return np.exp(-0.5 * ((np.asarray(A)[:, None] - np.asarray(B)) ** 2).sum(2))


def spoiled(change: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda A, B: change(honest(A, B), A, B)


def rare_pair(value: float, both: bool = True) -> Callable[[Any, Any], Any]:
    def change(K: Any, A: Any, B: Any) -> Any:
        a, b = RARE
        K[np.ix_((a == A).all(1), (b == B).all(1))] += value
        if both:
            K[np.ix_((b == A).all(1), (a == B).all(1))] += value
        return K

    return spoiled(change)


class Noise:
    """Another value at each call."""

    def __init__(self, size: float) -> None:
        self.size, self.rng = size, np.random.default_rng(0)

    def __call__(self, A: Any, B: Any) -> Any:
        K = honest(A, B)
        return K + self.size * self.rng.standard_normal(K.shape)


class Drift:
    """The same values in one call, others in the next."""

    calls = 0

    def __call__(self, A: Any, B: Any) -> Any:
        self.calls += 1
        return honest(A, B) * (1.0 + 1e-3 * self.calls)


class OneBuffer:
    """Returns the same memory each time, as compiled code may."""

    def __init__(self) -> None:
        self.memory = np.empty(10**5)

    def __call__(self, A: Any, B: Any) -> Any:
        K = honest(A, B)
        if K.size > self.memory.size:
            return K
        out = self.memory[: K.size].reshape(K.shape)
        out[:] = K
        return out


class Bug(Exception):
    """An error of the user's own code."""


def raising(A: Any, B: Any) -> Any:
    raise Bug("my own bug")


def rarely_raising(A: Any, B: Any) -> Any:
    if (RARE[0] == A).all(1).any() and (RARE[1] == B).all(1).any():
        raise Bug("my own bug")
    return honest(A, B)


def writing(A: Any, B: Any) -> Any:
    B *= 2.0
    return honest(A, B / 2.0)


def by_pairs(change: Callable[[float], Any]) -> Callable[[Any, Any], Any]:
    """A function of two rows, whose values are changed; it is said to be one, as nothing it returns need show it."""

    def similarity(a: Any, b: Any) -> Any:
        return change(float(np.exp(-0.5 * ((np.asarray(a) - b) ** 2).sum())))

    return krein.pairwise(similarity, n_jobs=1)


def pair_writing(a: Any, b: Any) -> float:
    b -= a
    return float(np.exp(-0.5 * (b**2).sum()))


def pair_raising(a: Any, b: Any) -> float:
    raise Bug("my own bug")


def case(name: str, kernel: Any, holds: frozenset[str] = frozenset({"error"}), plain: Any = None, **more: Any) -> Case:
    return Case(name, given(kernel=kernel), holds, given(kernel=plain) if plain else None, **more)


KERNELS = (
    case("asymmetric", lambda A, B: honest(A, B) + 0.1 * np.asarray(A)[:, :1]),
    case("slightly asymmetric", lambda A, B: honest(A, B) + 1e-4 * np.asarray(A)[:, :1]),
    case("asymmetric for one pair", rare_pair(0.3, both=False), frozenset({"error", "right", "warning"}), honest),
    case("NaN for one pair", rare_pair(np.nan), REFUSED_OR_RIGHT, honest),
    case("inf for one pair", rare_pair(np.inf), REFUSED_OR_RIGHT, honest),
    case("1e300 for one pair", rare_pair(1e300), NEVER_SILENT),
    case("all NaN", spoiled(lambda K, A, B: np.full_like(K, np.nan))),
    case("all inf", spoiled(lambda K, A, B: np.full_like(K, np.inf))),
    case("random", Noise(0.1)),
    case("slightly random", Noise(1e-4)),
    case("drifting", Drift()),
    case("depends on its company", spoiled(lambda K, A, B: K / K.sum())),
    case("depends on the number of rows", spoiled(lambda K, A, B: K * (1.1 if len(A) > len(B) else 1.0)), frozenset({"error", "right", "warning"}), honest),
    case("one buffer for all results", OneBuffer(), REFUSED_OR_RIGHT, honest),
    case("flat", spoiled(lambda K, A, B: K.ravel())),
    case("transposed", spoiled(lambda K, A, B: K.T), REFUSED_OR_RIGHT),
    case("a column too many", spoiled(lambda K, A, B: np.hstack([K, K[:, :1]]))),
    case("3-D", spoiled(lambda K, A, B: K[:, :, None])),
    case("None", lambda A, B: None),
    case("text", spoiled(lambda K, A, B: K.astype(str))),
    case("complex", spoiled(lambda K, A, B: K + 0j)),
    case("objects", spoiled(lambda K, A, B: K.astype(object)), REFUSED_OR_RIGHT, honest),
    case("masked", spoiled(lambda K, A, B: np.ma.masked_less(K, 0.3))),
    case("lists", spoiled(lambda K, A, B: K.tolist()), REFUSED_OR_RIGHT, honest),
    case("sparse", spoiled(lambda K, A, B: sp.csr_matrix(K)), REFUSED_OR_RIGHT, honest),
    case("float16", spoiled(lambda K, A, B: K.astype(np.float16)), NEVER_SILENT, honest, tol=2e-2, exact_only=True),
    case("float32", spoiled(lambda K, A, B: K.astype(np.float32)), NEVER_SILENT, honest, tol=2e-2),
    case("read-only result", spoiled(lambda K, A, B: (K.setflags(write=False), K)[1]), RIGHT, honest),
    case("writes into the rows", writing),
    case("raises", raising, own=Bug),
    case("raises for one pair", rarely_raising, REFUSED_OR_RIGHT, honest, own=Bug),
    case("1e300", spoiled(lambda K, A, B: 1e300 * K), NEVER_SILENT),
    case("1e-300", spoiled(lambda K, A, B: 1e-300 * K), NEVER_SILENT),
    case("zero", spoiled(lambda K, A, B: 0.0 * K), NEVER_SILENT),
    case("negative definite", spoiled(lambda K, A, B: -K), NEVER_SILENT),
    case("indefinite", lambda A, B: np.tanh(2.0 * np.asarray(A) @ np.asarray(B).T - 1.0), NEVER_SILENT),
    case("pairs", by_pairs(float), REFUSED_OR_RIGHT, honest),
    case("pairs as text of numbers", by_pairs(lambda v: f"{v:.17g}"), REFUSED_OR_RIGHT, honest),
    case("pairs as arrays of two", by_pairs(lambda v: np.array([v, v]))),
    case("pairs as None", by_pairs(lambda v: None)),
    case("pairs as complex", by_pairs(complex)),
    case("pairs as NaN", by_pairs(lambda v: np.nan)),
    case("pairs that write into the rows", pair_writing),
    case("pairs that raise", krein.pairwise(pair_raising, n_jobs=1)),
    case("one argument", lambda A: honest(A, A), own=TypeError),  # Python names the function and its arguments
)  # fmt: skip


def matrix(change: Callable[[Any], Any], rows: Callable[[Any], Any] = lambda K: K) -> Change:
    """The rows become a matrix of similarities, the new rows those to the training objects; both are then changed."""

    def made(data: Data) -> Data:
        return replace(
            data,
            X=change(honest(data.X, data.X)),
            X_new=rows(honest(data.X_new, data.X)),
            params=data.params | {"kernel": "precomputed"},
        )

    return made


def with_entry(value: float, both: bool = True) -> Callable[[Any], Any]:
    def change(K: Any) -> Any:
        K = K.copy()
        K[3, 47] = value
        if both:
            K[47, 3] = value
        return K

    return change


PLAIN = matrix(lambda K: K)
MATRICES = (
    Case("asymmetric", matrix(with_entry(0.9, both=False))),
    Case("slightly asymmetric", matrix(lambda K: K + 1e-4 * np.triu(K))),
    Case("NaN", matrix(with_entry(np.nan))),
    Case("inf", matrix(with_entry(np.inf))),
    Case("not square", matrix(lambda K: K[:, :-1])),
    Case("1-D", matrix(lambda K: K[0])),
    Case("empty", matrix(lambda K: K[:0, :0])),
    Case("complex", matrix(lambda K: K + 0j)),
    Case("text", matrix(lambda K: np.full(K.shape, "word"))),
    Case("masked", matrix(lambda K: np.ma.masked_less(K, 0.3))),
    Case("new rows of other length", matrix(lambda K: K, lambda K: K[:, :-1])),
    Case("new rows with NaN", matrix(lambda K: K, lambda K: np.where(K > 0.5, np.nan, K))),
    Case("1e300", matrix(lambda K: 1e300 * K, lambda K: 1e300 * K), NEVER_SILENT),
    Case("1e-300", matrix(lambda K: 1e-300 * K, lambda K: 1e-300 * K), NEVER_SILENT),
    Case("zero", matrix(np.zeros_like), NEVER_SILENT),
    Case("negative definite", matrix(lambda K: -K), NEVER_SILENT),
    Case("indefinite", matrix(lambda K: K - 0.5), NEVER_SILENT),
    Case("similarities in Fortran order", matrix(np.asfortranarray, np.asfortranarray), RIGHT, PLAIN),
    Case("float16", matrix(lambda K: K.astype(np.float16)), NEVER_SILENT, PLAIN, tol=2e-2, exact_only=True),
    Case("float32", matrix(lambda K: K.astype(np.float32)), NEVER_SILENT, PLAIN, tol=2e-2),
    Case("big-endian similarities", matrix(lambda K: K.astype(">f8")), RIGHT, PLAIN),
    Case("objects", matrix(lambda K: K.astype(object)), REFUSED_OR_RIGHT, PLAIN),
    Case("lists of similarities", matrix(lambda K: K.tolist()), RIGHT, PLAIN),
    Case("memory map of similarities", matrix(memory_map), RIGHT, PLAIN),
    Case("sparse", matrix(sp.csr_matrix), REFUSED_OR_RIGHT, PLAIN),
)  # fmt: skip

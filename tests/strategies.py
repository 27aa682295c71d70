"""What the tests draw from: factorizations with a naive dense twin, and a named catalogue of hard cases.

The twin is written apart from the source: U as an n x r array, filled row by row, and numpy from there on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

import krein
from krein import Factorization
from krein.factorization.core import BlockSparse
from krein.kernels import Kernel

EPS = np.finfo(float).eps

# -- what a fit must not do --------------------------------------------------------------------------------------------


def refuse_full_decompositions(monkeypatch: Any, n: int) -> None:
    """Let numpy's and SciPy's eigenvalue decompositions of n rows or more fail, but for SciPy's of some eigenpairs."""

    def guarded(original: Any) -> Any:
        def call(a: Any, *args: Any, **options: Any) -> Any:
            some = options.get("subset_by_index")
            if len(a) >= n and (some is None or some[1] - some[0] + 1 >= n):
                raise AssertionError(f"a full decomposition of {len(a)} rows")
            return original(a, *args, **options)

        return call

    for module in (np.linalg, scipy.linalg):
        for name in ("eigh", "eigvalsh"):
            monkeypatch.setattr(module, name, guarded(getattr(module, name)))


# -- the dense twin ----------------------------------------------------------------------------------------------------


def dense_basis(f: Factorization) -> np.ndarray:
    """U, n x r, in the caller's row order."""
    U = np.zeros((len(f.order), f.core.shape[0]))
    position, column = 0, 0
    for i, stored in enumerate(f.bases):
        block = np.asarray(stored, dtype=float)
        if f.maps is not None:
            block = block @ f.maps[i]
        for row in block:
            U[f.order[position], column : column + block.shape[1]] = row
            position += 1
        column += block.shape[1]
    return U


def dense_core(core: np.ndarray | BlockSparse) -> np.ndarray:
    if not isinstance(core, BlockSparse):
        return np.asarray(core)
    stops = np.cumsum(core.ranks)
    M = np.zeros((int(stops[-1]) if len(stops) else 0,) * 2)
    for group in core.groups:
        for i, j, held in zip(group.left, group.right, group.values, strict=True):
            block = held if held.ndim == 2 else np.diag(held)
            for a in range(block.shape[0]):
                for b in range(block.shape[1]):
                    p, q = stops[i] - core.ranks[i] + a, stops[j] - core.ranks[j] + b
                    M[p, q] = M[q, p] = block[a, b]
    return M


def dense_twin(f: Factorization) -> np.ndarray:
    """The n x n matrix, symmetric to the last bit."""
    U = dense_basis(f)
    K = U @ dense_core(f.core) @ U.T + f.shift * np.eye(len(U))
    return K / 2 + K.T / 2


def norm_of(K: np.ndarray) -> float:
    """The Frobenius norm, safe at 1e-200 and 1e200."""
    peak = float(np.abs(K).max(initial=0.0))
    return peak * float(np.sqrt(((K / peak) ** 2).sum())) if peak else 0.0


def assert_close(found: object, wanted: np.ndarray, norm: float, factor: float = 1e3) -> None:
    """Equal up to ``factor`` machine epsilons of ``norm``, and of the same shape."""
    found = np.asarray(found)
    assert found.shape == np.shape(wanted)
    assert np.isfinite(found).all()
    assert np.abs(found - wanted).max(initial=0.0) <= factor * EPS * norm


# -- building ----------------------------------------------------------------------------------------------------------


def orthonormal(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((n, k)))[0][:, :k] if k else np.zeros((n, 0))


def random_core(rng: np.random.Generator, r: int, kind: str = "indefinite") -> np.ndarray:
    """A symmetric core of norm about 1; "low" is its rank, "graded" falls from 1 to 1e-12."""
    V = orthonormal(rng, r, r)
    values = {
        "indefinite": rng.standard_normal(r),
        "psd": rng.uniform(0.1, 1.0, r),
        "negative": -rng.uniform(0.1, 1.0, r),
        "zero": np.zeros(r),
        "identity": np.ones(r),
        "low": np.where(np.arange(r) < max(1, r // 3), rng.standard_normal(r), 0.0),
        "graded": np.logspace(0, -12, r) * rng.choice([-1, 1], r) if r else np.zeros(0),
    }[kind]
    M = (V * values) @ V.T
    return (M + M.T) / 2


CORE_KINDS = ("indefinite", "psd", "negative", "zero", "identity", "low", "graded")


def sparse_core(rng: np.random.Generator, ranks: Sequence[int], keep: float, dominant: float = 0.0) -> BlockSparse:
    """A BlockSparse with about ``keep`` of its blocks, on the diagonal and off it, plus ``dominant`` I."""
    blocks = {}
    for i in range(len(ranks)):
        for j in range(i, len(ranks)):
            if rng.random() < keep or (i == j and dominant):
                block = rng.standard_normal((ranks[i], ranks[j])) / np.sqrt(max(1, sum(ranks)))
                blocks[i, j] = (block + block.T) / 2 + dominant * np.eye(ranks[i]) if i == j else block
    return BlockSparse.from_blocks(ranks, blocks)


def diagonal_core(rng: np.random.Generator, ranks: Sequence[int], kind: str = "indefinite") -> BlockSparse:
    return BlockSparse.from_blocks(ranks, {(i, i): random_core(rng, k, kind) for i, k in enumerate(ranks)})


def make(
    rng: np.random.Generator,
    sizes: Sequence[int],
    ranks: Sequence[int],
    core: np.ndarray | BlockSparse | str = "indefinite",
    shift: float = 0.0,
    scale: float = 1.0,
) -> Factorization:
    """A factorization with random bases and a shuffled order; n_i rows and k_i <= n_i columns each."""
    if isinstance(core, str):
        core = scale * random_core(rng, sum(ranks), core)
    bases = tuple(orthonormal(rng, n, k) for n, k in zip(sizes, ranks, strict=True))
    return Factorization.from_blocks(bases, core, rng.permutation(sum(sizes)), shift)


@st.composite
def factorizations(
    draw: st.DrawFn,
    dtypes: Sequence[str] = ("float64", "float32", "float16", "int8"),
    cores: Sequence[str] = CORE_KINDS,
    sparse: bool = True,
) -> Factorization:
    """Any factorization: unequal and zero ranks, one block or several, r = n or less, any shift, scale and storage."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5), label="sizes")
    full = draw(st.booleans(), label="r = n")
    ranks = sizes if full else [draw(st.integers(0, n), label="rank") for n in sizes]
    scale = 10.0 ** draw(st.integers(-8, 8), label="scale")
    shift = scale * draw(st.sampled_from([0.0, 0.5, -0.5, 3.0, 1e-6, -1e-6]), label="shift")
    form = draw(st.sampled_from(("dense", "sparse", "diagonal") if sparse else ("dense",)), label="form")
    core: np.ndarray | BlockSparse = scale * random_core(rng, sum(ranks), draw(st.sampled_from(cores), label="core"))
    if form == "sparse":
        core = sparse_core(rng, ranks, 0.6).map_blocks(lambda i, j, b: scale * b, ranks)
    elif form == "diagonal":
        core = diagonal_core(rng, ranks).map_blocks(lambda i, j, b: scale * b, ranks)
    return make(rng, sizes, ranks, core, shift).astype(draw(st.sampled_from(dtypes), label="dtype"))


# -- the catalogue -----------------------------------------------------------------------------------------------------


def _rng() -> np.random.Generator:
    return np.random.default_rng(20)


HARD_FACTORIZATIONS: dict[str, Callable[[], Factorization]] = {
    "one row": lambda: make(_rng(), [1], [1]),
    "one cluster": lambda: make(_rng(), [12], [4]),
    "a cluster of one row": lambda: make(_rng(), [1, 9, 1], [1, 3, 1]),
    "rank 0": lambda: make(_rng(), [4, 3], [0, 0], shift=2.0),
    "a block of rank 0": lambda: make(_rng(), [5, 6, 4], [2, 0, 3], shift=-0.2),
    "full rank": lambda: make(_rng(), [5, 7], [5, 7]),
    "zero core": lambda: make(_rng(), [6, 6], [2, 3], "zero"),
    "zero core, negative shift": lambda: make(_rng(), [6, 6], [2, 3], "zero", -1.0),
    "negative definite": lambda: make(_rng(), [6, 6], [6, 6], "negative"),
    "rank deficient core": lambda: make(_rng(), [9, 8], [6, 6], "low"),
    "graded core": lambda: make(_rng(), [9, 8], [6, 6], "graded"),
    "tiny": lambda: make(_rng(), [6, 7], [3, 4], scale=1e-200),
    "huge": lambda: make(_rng(), [6, 7], [3, 4], scale=1e200),
    "huge shift": lambda: make(_rng(), [6, 7], [3, 4], shift=1e8),
    "duplicate rows": lambda: Factorization.from_links(
        [np.repeat(_rng().standard_normal((3, 2)), 3, axis=0), np.ones((4, 3))],
        random_core(_rng(), 5),
        _rng().permutation(13),
    ),
    "wide Q": lambda: Factorization.from_links(
        [_rng().standard_normal((2, 5)), np.ones((3, 1))], random_core(_rng(), 6)
    ),
    "block-diagonal core": lambda: make(_rng(), [6, 7, 3], [3, 0, 2], diagonal_core(_rng(), [3, 0, 2])),
    "block-sparse core": lambda: make(_rng(), [6, 7, 3, 5], [3, 0, 2, 5], sparse_core(_rng(), [3, 0, 2, 5], 0.5), 0.1),
    "empty block-sparse core": lambda: make(_rng(), [6, 7], [3, 2], BlockSparse.from_blocks([3, 2], {}), 0.3),
    "int8": lambda: make(_rng(), [16, 17], [4, 5], shift=-0.1).astype("int8"),
    "float16, full rank": lambda: make(_rng(), [6, 7], [6, 7]).astype("float16"),
}

HARD_DATA: dict[str, Callable[[], np.ndarray]] = {
    "duplicates": lambda: np.repeat(_rng().standard_normal((8, 3)), 10, axis=0),
    "all rows equal": lambda: np.ones((40, 3)),
    "constant columns": lambda: np.column_stack([_rng().standard_normal((60, 2)), np.full(60, 5.0), np.zeros(60)]),
    "one column": lambda: _rng().standard_normal((60, 1)),
    "more columns than rows": lambda: _rng().standard_normal((20, 50)),
    "an outlier": lambda: np.vstack([_rng().standard_normal((59, 2)), [[1e6, -1e6]]]),
    "1e-200": lambda: 1e-200 * _rng().standard_normal((60, 3)),
    "1e200": lambda: 1e200 * _rng().standard_normal((60, 3)),
    "far clusters": lambda: np.vstack([c + _rng().standard_normal((20, 2)) for c in (0.0, 1e3, -1e5)]),
}


# -- problems ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """What to approximate and how, with the name of what makes it hard."""

    kind: str
    X: np.ndarray
    kernel: Kernel
    options: dict[str, Any]  # n_blocks, rank, random_state

    def matrix(self) -> np.ndarray:
        """K, dense, over its largest entry: at 1e200 nobody can square it."""
        K = np.asarray(self.kernel.bind(self.X)(self.X), dtype=np.float64)
        return K / (float(np.abs(K).max()) or 1.0)


SCALE_FREE = (krein.RBF, krein.Laplacian, krein.Cosine, krein.Linear)  # in X: others would over- or underflow
PROBLEM_KERNELS: tuple[Callable[[np.random.Generator], Kernel], ...] = (
    lambda rng: krein.RBF(),
    lambda rng: krein.RBF(gamma=10.0 ** rng.uniform(-3, 1)),
    lambda rng: krein.Laplacian(),
    lambda rng: krein.Linear(),
    lambda rng: krein.Polynomial(degree=int(rng.integers(2, 5))),
    lambda rng: krein.ELM(sigma_w=float(10.0 ** rng.uniform(-1, 5))),
    lambda rng: krein.ArcCosine(),
    lambda rng: krein.Cosine(),
    lambda rng: krein.SpherePolynomial(degree=3, a=2.0),
    lambda rng: krein.RBF() + krein.RBF(gamma=1e6) * float(10.0 ** rng.uniform(-2, 1)),  # a nugget
    lambda rng: krein.SpherePolynomial(degree=3, a=1.2),  # from here on indefinite
    lambda rng: krein.TL1(rho=10.0 ** rng.uniform(-0.5, 1)),
    lambda rng: krein.TL1(),
    lambda rng: krein.Sigmoid(),
    lambda rng: krein.Sigmoid(gamma=1.0, coef0=-1.0),
)
SHAPES = ("plain", "blobs", "duplicates", "one direction", "tiny clusters", "heavy tails", "grid", "constant")


def random_problem(seed: int) -> Problem:
    """One of endlessly many problems: 20 to 800 rows, 1 to 30 blocks, any shape of data, scale and sign."""
    rng = np.random.default_rng([20, seed])
    n, d = round(10.0 ** rng.uniform(np.log10(20), np.log10(800))), int(rng.integers(1, 9))
    shape = str(rng.choice(SHAPES, p=[0.15, 0.25, 0.15, 0.1, 0.15, 0.1, 0.07, 0.03]))
    X = rng.standard_normal((n, d))
    if shape == "blobs":
        centres = 10.0 ** rng.uniform(0, 1) * rng.standard_normal((int(rng.integers(2, 12)), d))
        X += centres[rng.integers(len(centres), size=n)]
    elif shape == "duplicates":
        X = X[rng.integers(0, max(1, n // int(rng.integers(2, 10))), n)]
    elif shape == "one direction":
        X = X[:, :1] * rng.standard_normal(d)
    elif shape == "tiny clusters":  # most rows together, the others alone, in twos or in threes far off
        far = 100.0 * rng.standard_normal((n, d))[np.arange(n) // int(rng.integers(1, 4))]
        X = np.where(np.arange(n)[:, None] < min(n // 2, int(rng.integers(3, 25))), far + 0.01 * X, X)
    elif shape == "heavy tails":
        X *= rng.lognormal(0.0, 1.0, (n, 1))
    elif shape == "grid":
        X = np.round(X)
    elif shape == "constant":
        X[:] = X[0]
    kernel = PROBLEM_KERNELS[int(rng.integers(len(PROBLEM_KERNELS)))](rng)
    if kernel.traits.sphere:
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        X = np.where(lengths > 0, X / np.where(lengths > 0, lengths, 1.0), np.eye(1, d))
    kind = f"{shape}, {kernel!r}"
    if isinstance(kernel, SCALE_FREE) and getattr(kernel, "gamma", None) is None and rng.random() < 0.4:
        power = rng.uniform(-100, 100)
        X, kind = X * 10.0**power, f"{kind}, X times 1e{power:.0f}"
    elif rng.random() < 0.3:
        power = rng.uniform(-100, 100)
        kernel, kind = kernel * 10.0**power, f"{kind}, k times 1e{power:.0f}"
    blocks, rank = int(min(n, rng.integers(1, 31))), int(rng.integers(1, 25))
    options = {"n_blocks": blocks, "rank": rank, "random_state": seed}
    return Problem(f"{kind}, n {n}, d {d}, {blocks} blocks of rank {rank}", X, kernel, options)


def quietly(X: Any, kernel: Any, **options: Any) -> krein.Approximation:
    """Duplicates make fewer clusters than asked for, and low ranks a core too large; both are said, and fine here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)
        return krein.approximate(X, kernel, **options)


def relative(A: np.ndarray, K: np.ndarray) -> float:
    """|A - K| / |K|, safe at 1e-200 and 1e200."""
    return norm_of(A - K) / (norm_of(K) or 1.0)


def block_diagonal(f: Factorization) -> np.ndarray:
    """The same factorization without couplings, dense."""
    M, U = dense_core(f.core), dense_basis(f)
    alone = np.zeros_like(M)
    for _, cols in f.spans:
        alone[cols, cols] = M[cols, cols]
    return U @ alone @ U.T


def ideal(f: Factorization, K: np.ndarray) -> np.ndarray:
    """The same clusters and ranks with leading left singular vectors of K[X_i, :] as bases, and the best core."""
    U = np.zeros((len(K), f.rank))
    for rows, cols in f.spans:
        members = f.order[rows]
        U[members, cols] = np.linalg.svd(K[members], full_matrices=False)[0][:, : cols.stop - cols.start]
    return U @ (U.T @ K @ U) @ U.T


def coupled_core(rng: np.random.Generator, c: int, k: int, degree: int) -> BlockSparse:
    """A random graph of blocks, ranks of 0, k // 2 and k, about ``degree`` neighbours each."""
    ranks = rng.choice([0, k // 2, k, k], c).tolist()
    blocks = {(i, i): random_core(rng, ranks[i]) for i in range(c)}
    for i in range(c):
        for j in rng.choice(c, degree // 2, replace=False).tolist():
            if i != j:
                blocks[min(i, j), max(i, j)] = 0.2 * rng.standard_normal((ranks[min(i, j)], ranks[max(i, j)]))
    return BlockSparse.from_blocks(ranks, blocks)


# -- the shared coupling ---------------------------------------------------------------------------------------------


def blobs(n=400, d=4, c=4, seed=0):
    return make_blobs(n, d, centers=c, cluster_std=1.5, random_state=seed)[0]


def error(a, K):
    return relative(dense_twin(a.factorization), K)


def assert_psd(f, tolerance=1e-10):
    M = dense_core(f.core)
    values = np.linalg.eigvalsh((M + M.T) / 2) if M.size else np.zeros(1)
    assert values[0] >= -tolerance * max(values[-1], 0.0)
    assert f.shift == 0.0

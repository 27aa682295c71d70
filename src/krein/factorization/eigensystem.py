"""The eigendecomposition of a core, component by component; ridge, evidence and features use it.

In: a core M. Out: M = V diag(lambda) Vᵀ. For a block-sparse core of several components V is block-diagonal, and every
function f(M) has the same components.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError
from krein.factorization.core import DENSE_LIMIT, BlockSparse, eigh, is_dense

__all__ = ["Component", "Eigensystem", "eigensystem"]


@dataclass(frozen=True, eq=False)
class Component:
    """Blocks that are coupled with each other and with no others."""

    blocks: Indices  # their numbers, ascending
    places: Indices  # (m,) the rows of the core they take
    values: Array  # (m,) ascending
    vectors: Array  # (m, m), one column each


@dataclass(frozen=True, eq=False)
class Eigensystem:
    """M = V diag(values) Vᵀ; values and coordinates stand component after component."""

    components: tuple[Component, ...]
    ranks: tuple[int, ...]
    dense: bool  # whether functions of M come as one dense matrix

    @cached_property
    def values(self) -> Array:
        """All eigenvalues, component after component."""
        return np.concatenate([np.empty(0), *(part.values for part in self.components)])

    @property
    def rank(self) -> int:
        return len(self.values)

    def with_values(self, values: Array) -> Eigensystem:
        """The same vectors with other eigenvalues, in the order of `values`."""
        parts = (replace(part, values=own) for part, own in self._by_component(values))
        return Eigensystem(tuple(parts), self.ranks, self.dense)

    def coordinates(self, w: Array) -> Array:
        """Vᵀ w for w of shape (r,) or (r, p)."""
        parts = [part.vectors.T @ w[part.places] for part in self.components]
        return np.concatenate([np.empty((0, *w.shape[1:])), *parts])

    def combine(self, coordinates: Array) -> Array:
        """V c for c of shape (r,) or (r, p), the opposite of `coordinates`."""
        out, start = np.zeros(coordinates.shape), 0
        for part in self.components:
            stop = start + len(part.values)
            out[part.places] = part.vectors @ coordinates[start:stop]
            start = stop
        return out

    def apply(self, factors: Array, w: Array) -> Array:
        """V diag(factors) Vᵀ w."""
        inner = self.coordinates(w)
        return self.combine(inner * (factors if w.ndim == 1 else factors[:, None]))

    def core(self, factors: Array) -> Array | BlockSparse:
        """V diag(factors) Vᵀ, in the form M has."""
        if self.dense:
            part = self.components[0]
            return _symmetric((part.vectors * factors) @ part.vectors.T)
        blocks: dict[tuple[int, int], Array] = {}
        for part, own in self._by_component(factors):
            whole = _symmetric((part.vectors * own) @ part.vectors.T)
            spans = self._spans(part)
            for a, i in enumerate(part.blocks.tolist()):
                for b, j in enumerate(part.blocks.tolist()[a:], start=a):
                    blocks[i, j] = whole[spans[a], spans[b]]
        return BlockSparse.from_blocks(self.ranks, blocks)

    def diagonal_core(self, factors: Array) -> BlockSparse:
        """The diagonal blocks of V diag(factors) Vᵀ alone: what `Factorization.diagonal` looks at."""
        blocks: dict[tuple[int, int], Array] = {}
        for i, own, rows in self.by_block():
            blocks[i, i] = _symmetric((rows * factors[own]) @ rows.T)
        return BlockSparse.from_blocks(self.ranks, blocks)

    def by_block(self) -> Iterator[tuple[int, slice, Array]]:
        """Yield (block, the eigenvalues of its component, its rows of their vectors (k_i, m))."""
        start = 0
        for part in self.components:
            own = slice(start, start + len(part.values))
            for i, span in zip(part.blocks.tolist(), self._spans(part), strict=True):
                yield i, own, part.vectors[span]
            start = own.stop

    def _by_component(self, factors: Array) -> list[tuple[Component, Array]]:
        stops = np.cumsum([len(part.values) for part in self.components])
        return list(zip(self.components, np.split(factors, stops[:-1]), strict=True))

    def _spans(self, part: Component) -> list[slice]:
        stops = np.cumsum([self.ranks[i] for i in part.blocks.tolist()])
        return [slice(int(s) - self.ranks[i], int(s)) for i, s in zip(part.blocks.tolist(), stops, strict=True)]


def eigensystem(core: Array | BlockSparse, ranks: tuple[int, ...]) -> Eigensystem:
    """Decompose a core whose blocks have these ranks; one that is large and does not fall apart is an error."""
    if is_dense(core):
        values, vectors = eigh(core)
        one = Component(np.arange(len(ranks)), np.arange(len(core)), values, vectors)
        return Eigensystem((one,), tuple(ranks), dense=True)
    if not core.has_spectrum:
        raise InputError(
            f"All eigenvectors of a block-sparse core need a dense matrix of {core.shape[0]} rows, over the limit of "
            f"{DENSE_LIMIT}. Build with fewer couplings (drop) or fewer blocks."
        )
    found = []
    if core.is_block_diagonal:
        for i, block in enumerate(core.diagonal_blocks()):
            values, vectors = eigh(block)
            places = np.arange(core.starts[i], core.starts[i + 1])
            found.append(Component(np.array([i]), places, values, vectors))
        return Eigensystem(tuple(found), core.ranks, dense=False)
    names = core.components
    order = np.argsort(names, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(names[order])) + 1)
    for blocks, part in zip(groups, core.parts(), strict=True):
        places = np.concatenate([np.arange(core.starts[i], core.starts[i + 1]) for i in blocks.tolist()])
        values, vectors = eigh(part.to_dense())
        found.append(Component(blocks, places, values, vectors))
    return Eigensystem(tuple(found), core.ranks, dense=False)


def _symmetric(whole: Array) -> Array:
    return np.asarray((whole + whole.T) / 2.0)

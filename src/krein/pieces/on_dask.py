"""Rows of a Dask collection: the engine that visits them where they are, and predictions as lazy collections.

A visit is one pure task for each piece, one that picks what it sends, and one for each SUMMED parts that adds them up.
Nothing is scattered or bound to a worker, so that what a dead worker held
is computed again from the collection, with the same bits. Small values travel as tasks too. The current client is used,
or Dask's local scheduler if there is none: then the pieces are visited in this process.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from krein.errors import ResourceError
from krein.pieces.engines import Here, add, tree_sum
from krein.pieces.rows import Chunk, RowPieces, Run
from krein.progress import progress_bar

__all__ = ["OnDask", "is_dask", "lazily", "on_dask"]


# So many parts are added up by one task: a power of two, so that the sum has the same tree for any number of parts.
SUMMED = 16


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection. Dask is not imported for the answer."""
    return (
        "dask" in sys.modules and type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "dask")
    )


def on_dask(source: Any, verbose: int = 0) -> RowPieces:
    """The rows of a Dask collection, a piece for each of its chunks."""
    client, cuts = _client(), source.edges()
    if client is None:
        return RowPieces(source, Here(1, verbose), [Run(source, a, b) for a, b in pairwise(cuts)], cuts)
    kind, futures = str(source.dtype), client.compute(source.blocks())
    held = [client.submit(_chunk, f, a, kind, pure=False) for f, a in zip(futures, cuts, strict=False)]
    return RowPieces(source, OnDask(client, verbose), held, cuts)


def _client() -> Any:
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


class OnDask:
    """The workers of a Dask client."""

    def __init__(self, client: Any, verbose: int = 0) -> None:
        self.client, self.verbose = client, verbose

    def visit(
        self, step: Callable[..., tuple[Any, Any]], held: Sequence[Any], *small: Any, own: Sequence[Any] | None = None,
        plus: Callable[[Any, Any], Any] | None = None, what: str = "", name: str | None = None,
    ) -> tuple[list[Any], Any]:  # fmt: skip
        with self._there():
            both = self._run(step, held, small, own)  # what stays is read from the pair: one task less for each piece
            sent = [self.client.submit(operator.itemgetter(1), b, pure=False) for b in both]
            total = tree_sum(
                [self.client.submit(_summed, sent[j : j + SUMMED], plus or add, pure=False)
                 for j in range(0, len(sent), SUMMED)],
                lambda a, b: self.client.submit(plus or add, a, b, pure=False),
            )  # fmt: skip
            return [_Stays(b) for b in both], self._get([total], what)[0]

    def collect(
        self, step: Callable[..., Any], held: Sequence[Any], *small: Any, own: Sequence[Any] | None = None
    ) -> list[Any]:
        with self._there():
            return self._get(self._run(step, held, small, own))

    def _run(self, step: Callable[..., Any], held: Sequence[Any], small: Any, own: Sequence[Any] | None) -> list[Any]:
        # A task that returns the values, as scattered data would be lost with the worker that holds it.
        shared = self.client.submit(_itself, small, pure=False) if small else ()
        futures = []
        for j, rows in enumerate(held):
            mine = () if own is None else (own[j],)
            given = [_future(value) for value in (rows, *mine)]
            pairs = [isinstance(value, _Stays) for value in (rows, *mine)]
            futures.append(self.client.submit(_step, step, given, pairs, shared, pure=False))
        return futures

    def _get(self, futures: list[Any], what: str = "") -> list[Any]:
        with progress_bar(total=1, what=what, verbose=self.verbose if what else -1) as bar:
            found: list[Any] = self.client.gather(futures, direct=True)
            bar.update()
        return found

    @contextmanager
    def _there(self) -> Iterator[None]:
        """Say what to do where workers or the cluster are lost. Errors of a step itself pass."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        try:
            yield
        except KilledWorker as error:
            raise ResourceError(
                f"Workers died again and again at the same piece of the rows: {error}. It needs more memory than they "
                "have: rechunk X into smaller pieces, or give the workers more."
            ) from None
        except Exception as error:
            if isinstance(error, FutureCancelledError | CommClosedError) or self.client.status != "running":
                raise ResourceError(
                    f"The Dask cluster went away during the fit: {error}. Start it again and repeat."
                ) from None
            raise


class _Stays(NamedTuple):
    """What stays at a piece: the first of the pair that a task returns."""

    pair: Any  # a future


def _future(value: Any) -> Any:
    return value.pair if isinstance(value, _Stays) else value


def _step(step: Callable[..., Any], given: list[Any], pairs: list[bool], small: tuple[Any, ...]) -> Any:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return step(*(value[0] if pair else value for value, pair in zip(given, pairs, strict=True)), *small)


def _summed(parts: list[Any], plus: Callable[[Any, Any], Any]) -> Any:
    return tree_sum(parts, plus)


def _itself(value: Any) -> Any:
    return value


def _chunk(block: Any, start: int, dtype: str) -> Chunk:
    return Chunk(np.ascontiguousarray(np.asarray(block), dtype=dtype), start)


def lazily(method: Callable[..., Any], machine: Any, X: Any, probe: Any, **options: Any) -> Any:
    """``method(machine, chunk)`` of every chunk of a Dask collection, as a lazy collection of the same kind.

    ``probe`` is the result for one row, which tells type and shape.
    """
    from dask.delayed import delayed

    model = delayed(machine, pure=True, traverse=False)
    if hasattr(X, "npartitions") and hasattr(X, "columns"):
        import pandas as pd

        def of_frame(part: Any, fitted: Any) -> Any:
            rows = part if hasattr(fitted, "feature_names_in_") else np.asarray(part)  # names that the fit knows too
            values = np.asarray(method(fitted, rows, **options)) if len(part) else probe[:0]
            return pd.Series(values, index=part.index) if values.ndim == 1 else pd.DataFrame(values, index=part.index)

        empty = probe[:0]
        meta = pd.Series(empty) if empty.ndim == 1 else pd.DataFrame(empty)
        return X.map_partitions(of_frame, machine, meta=meta)
    import dask.array

    da: Any = dask.array

    def of_block(block: Any, fitted: Any) -> Any:
        return method(fitted, np.asarray(block), **options) if len(block) else probe[:0]

    parts = [delayed(of_block)(block, model) for block in X.to_delayed().ravel()]
    rows = X.chunks[0]
    arrays = [
        da.from_delayed(part, shape=(m, *probe.shape[1:]), dtype=probe.dtype, meta=probe[:0])
        for part, m in zip(parts, rows, strict=True)
    ]
    return da.concatenate(arrays) if len(arrays) > 1 else arrays[0]

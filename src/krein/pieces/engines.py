"""Who visits the pieces: a pure step and the pieces of the rows in, what stays with each piece and one small sum out.

A step is a function ``step(piece, *small)`` that returns (what stays, what is sent). What stays is handed to the next
step at the same piece. What is sent is small: it is added up in a binary tree over the numbers of the pieces, so that
the sum has the same bits whoever did the work. `Here` runs the steps in this process. `OnDask` in `on_dask` runs them
where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Any, Protocol

from joblib import Parallel, delayed
from threadpoolctl import ThreadpoolController

from krein.progress import progress_bar

__all__ = ["Engine", "Here", "add", "tree_sum"]


class Engine(Protocol):
    """Runs steps at pieces."""

    def visit(
        self, step: Callable[..., tuple[Any, Any]], held: Sequence[Any], *small: Any, own: Sequence[Any] | None = None,
        plus: Callable[[Any, Any], Any] | None = None, what: str = "", name: str | None = None,
    ) -> tuple[list[Any], Any]:  # fmt: skip
        """Run ``step(piece, [own,] *small)`` at every piece; return what stays there and the sum of what is sent.

        ``own`` has one value for each piece. ``what`` is shown with the progress. ``name`` is that of a checkpoint.
        """
        ...

    def collect(
        self, step: Callable[..., Any], held: Sequence[Any], *small: Any, own: Sequence[Any] | None = None
    ) -> list[Any]:
        """Run ``step`` at every piece and return all results, which are small."""
        ...


class Here:
    """One process, with ``n_jobs`` threads over the pieces. Between steps, what stays is a value or the name of a file.

    ``checkpoints``, if given, keeps the results of named visits (`krein.pieces.checkpoints`).
    """

    def __init__(self, n_jobs: int = 1, verbose: int = 0, checkpoints: Any = None) -> None:
        self._n_jobs, self.verbose, self.checkpoints = max(1, n_jobs), verbose, checkpoints
        self._threads = ThreadpoolController()

    def visit(
        self, step: Callable[..., tuple[Any, Any]], held: Sequence[Any], *small: Any, own: Sequence[Any] | None = None,
        plus: Callable[[Any, Any], Any] | None = None, what: str = "", name: str | None = None,
    ) -> tuple[list[Any], Any]:  # fmt: skip
        def done(j: int) -> tuple[Any, Any]:
            before = () if own is None else (own[j],)
            if name is None or self.checkpoints is None:
                return step(held[j], *before, *small)
            rows = getattr(held[j], "rows", held[j])  # they are not written again
            found: tuple[Any, Any] = self.checkpoints.recall(
                f"{name}-{j:05d}", lambda: step(held[j], *before, *small), rows
            )
            return found

        stays, sent = [], _TreeSum(plus or add)
        for kept, part in self._run(done, range(len(held)), what):
            stays.append(kept)
            sent.take(part)
        return stays, sent.total()

    def collect(
        self, step: Callable[..., Any], held: Sequence[Any], *small: Any, own: Sequence[Any] | None = None
    ) -> list[Any]:
        return list(self._run(lambda j: step(held[j], *(() if own is None else (own[j],)), *small), range(len(held))))

    def _run(self, task: Callable[[int], Any], pieces: Iterable[int], what: str = "") -> Iterable[Any]:
        bar = progress_bar(pieces, what=what, verbose=self.verbose) if what else pieces
        with self._threads.limit(limits=1):  # many small products, and more threads would round otherwise
            if self._n_jobs == 1:
                yield from map(task, bar)
            else:
                context = copy_context()  # with the open counts of similarities
                yield from Parallel(self._n_jobs, prefer="threads", return_as="generator")(
                    delayed(context.copy().run)(task, j) for j in bar
                )


class _TreeSum:
    """The sum in a binary tree, of parts that come one after the other: log P of them are held at a time."""

    def __init__(self, plus: Callable[[Any, Any], Any]) -> None:
        self.plus, self.parts = plus, list[tuple[int, Any]]()

    def take(self, part: Any) -> None:
        self.parts.append((1, part))
        while len(self.parts) > 1 and self.parts[-1][0] == self.parts[-2][0]:
            self._merge()

    def total(self) -> Any:
        while len(self.parts) > 1:
            self._merge()
        return self.parts[0][1] if self.parts else None

    def _merge(self) -> None:
        (m, left), (k, right) = self.parts[-2:]
        self.parts[-2:] = [(m + k, self.plus(left, right))]


def tree_sum(parts: Sequence[Any], plus: Callable[[Any, Any], Any]) -> Any:
    """The sum of ``parts`` in the same tree, level by level."""
    level = list(parts)
    while len(level) > 1:
        pairs = [plus(*level[j : j + 2]) for j in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) // 2 * 2 :]
    return level[0] if level else None


def add(left: Any, right: Any) -> Any:
    """The sum of numbers, arrays, and tuples or lists of them; None where nothing was sent."""
    if left is None:
        return None
    if isinstance(left, tuple | list):
        total = [add(a, b) for a, b in zip(left, right, strict=True)]
        return total if isinstance(left, list) else type(left)(*total) if hasattr(left, "_fields") else tuple(total)
    return left + right

"""What a fit of rows in pieces will take: sizes in, seconds, memory, bytes moved and disk for each of its stages out.

The formulas follow the stages of `piecewise` and of the solvers. What one core does is measured for about 0.3 seconds,
or given as a `Machine`. `check_memory` uses the same sizes to refuse a memory limit that no fit can keep.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from krein.approximation.bases import CANDIDATES, CANDIDATES_PER_LANDMARK, FEWEST_CANDIDATES
from krein.approximation.clusters import FLAT_CLUSTERS, SAMPLE, nearest
from krein.approximation.nystrom import n_landmarks
from krein.approximation.shared import CANDIDATES_PER_RANK, ROWS_PER_LANDMARK, Effort
from krein.errors import InputError, ResourceError, one_of, si, whole_number
from krein.factorization.factorization import DENSE_CORE
from krein.factorization.pieces import VECTOR_BYTES
from krein.kernels import Evaluator, Kernel
from krein.kernels.names import kernel_for
from krein.pieces.checkpoints import most_held
from krein.pieces.opening import bytes_from
from krein.pieces.rows import FEWEST_ROWS, PIECE_BYTES, PIECE_SHARE, ROW_BYTES

__all__ = ["LEARNERS", "Machine", "Plan", "Sizes", "Stage", "check_memory", "plan"]

# What can be learned from an approximation: by one solve with its core, or by steps that visit all rows.
LEARNERS = ("ridge", "svm")
# Each of the measurements of a machine takes about this many seconds.
MEASURED_SECONDS = 0.1
# Checking and describing the rows takes this many floating-point operations for each number.
SURVEY_FLOPS = 150
# k-means on the sample takes about this many passes.
KMEANS_PASSES = 60
# The directions of a cluster are found by about this many products of similarities with a thin matrix.
DIRECTION_PRODUCTS = 12
# What is done once with a core of r rows, eigenvalues above all, takes about this many times r³ operations.
CORE_FLOPS = 20
# What is done once with all rows after the build takes about this many operations for each.
ROW_FLOPS = 50_000
# Newton's method takes about this many steps. Hard problems take twice as many.
STEPS = 25
# A step visits all rows so often, line search included.
VISITS = 3.0
# Beside the Gram matrices a step takes about this many operations for each row.
STEP_FLOPS = 8_000
# A step sends about this many vectors of r numbers to each worker, and gets as many back from each piece.
STEP_VECTORS = 4
# The target, the order of the rows and the bounds of a dual take about this many bytes for each row in any case.
HELD_ROW_BYTES = {"ridge": 40, "svm": 100}
# About this many copies of the core are held at once, while it is decomposed.
CORE_COPIES = 3
HEADINGS = ("stage", "time", "memory", "moved", "disk")


@dataclass(frozen=True)
class Machine:
    """What one core does, and what lies between machines. The defaults are a server of 2023, with a Gaussian kernel.

    Parameters
    ----------
    similarity : float
        Seconds for one similarity in float64.
    flops : float
        Floating-point operations a second, in products with thin matrices.
    distance : float
        Seconds for the distance of a row to one centre.
    memory : float
        Bytes of memory. Files of up to this size are read from the disk once.
    disk : float
        Bytes a second that are read from or written to the disk.
    network : float
        Bytes a second between two machines.
    task : float
        Seconds that a scheduler takes for one task.
    """

    similarity: float = 2e-8
    flops: float = 3e10
    distance: float = 6e-9
    memory: float = 64e9
    disk: float = 1e9
    network: float = 1.25e9
    task: float = 1e-3

    @classmethod
    def measured(cls, kernel: Any = "rbf", d: int = 20) -> Machine:
        """This machine with a kernel on rows of d features; disk, network and scheduler are not measured."""
        return _measured(kernel, d)


@dataclass(frozen=True)
class Stage:
    """A stage of a fit: seconds, bytes in the fullest process, bytes moved between machines, bytes written to disk."""

    name: str
    seconds: float
    memory: float = 0.0
    moved: float = 0.0
    disk: float = 0.0


@dataclass(frozen=True)
class Plan:
    """What a fit will take.

    Attributes
    ----------
    stages : tuple of Stage
    seconds : float
        Of all stages.
    memory : float
        Bytes that a process takes at most beside the interpreter.
    moved, disk : float
        Bytes of all stages.
    smallest_memory : float
        The smallest memory limit that such a fit can keep.
    machine : Machine
    notes : tuple of str
        What to know about this fit.
    """

    title: str
    stages: tuple[Stage, ...]
    smallest_memory: float
    machine: Machine
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def memory(self) -> float:
        return max(stage.memory for stage in self.stages)

    @property
    def moved(self) -> float:
        return sum(stage.moved for stage in self.stages)

    @property
    def disk(self) -> float:
        return sum(stage.disk for stage in self.stages)

    def _rows(self) -> list[tuple[str, ...]]:
        total = Stage("in all", self.seconds, self.memory, self.moved, self.disk)
        return [
            (s.name, _duration(s.seconds), *(si(b) if b else "-" for b in (s.memory, s.moved, s.disk)))
            for s in (*self.stages, total)
        ]

    def __str__(self) -> str:
        table = [HEADINGS, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in table
        ]
        return "\n".join([self.title, *lines, *self.notes])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in HEADINGS)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in self._rows())
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{body}</table>{notes}"


def plan(
    n: int,
    d: int,
    *,
    n_blocks: int,
    rank: int,
    kernel: str | Kernel = "rbf",
    workers: int = 1,
    threads: int = 1,
    memory_limit: float | str | None = None,
    learner: str = "ridge",
    dtype: str = "float32",
    machine: Machine | None = None,
) -> Plan:
    """Estimate what a fit of n rows with d features will take, before it is started.

    The estimate is for rows outside memory, with ``coupling="shared"``. Times are meant to be right within a factor of
    2. Choosing blocks and rank, where they are left open, and reading tables are not part of it.

    Parameters
    ----------
    n, d : int
        Rows and features.
    n_blocks, rank : int
        As passed to an estimator.
    kernel : str or Kernel, default="rbf"
    workers : int, default=1
        Processes. Above 1 they are the workers of a Dask cluster, and bytes move between them.
    threads : int, default=1
        Threads of each process.
    memory_limit : float, str or None, default=None
        Bytes that each process may take beside the interpreter, for instance "4GB".
    learner : {"ridge", "svm"}, default="ridge"
        "ridge" stands for what is solved with the core: KernelRidge, KernelRidgeClassifier, Gaussian processes with
        even noise, KernelPCA and MEKA. "svm" stands for SVC with two classes, SVR and OneClassSVM.
    dtype : {"float32", "float64"}, default="float32"
        Type of the rows.
    machine : Machine, default=None
        What one core does. None measures this machine once, for about 0.3 seconds.

    Returns
    -------
    Plan
        It prints as a table.

    Raises
    ------
    ResourceError
        If no fit of this shape can keep the memory limit.

    Examples
    --------
    >>> import krein
    >>> from krein.approximation.plan import Machine
    >>> found = krein.plan(10_000_000, 50, n_blocks=50, rank=32, memory_limit="2GB", machine=Machine())
    >>> [stage.name for stage in found.stages]
    ['read', 'clusters', 'landmarks', 'bases', 'samples', 'core', 'solve']
    >>> found.memory < 2e9
    True
    """
    given = {"n": n, "d": d, "n_blocks": n_blocks, "rank": rank, "workers": workers, "threads": threads}
    for name, value in given.items():
        whole_number(name, value, 1)
    one_of("learner", learner, LEARNERS)
    one_of("dtype", dtype, ("float32", "float64"))
    if n_blocks > n:
        raise InputError(f"n_blocks is at most the number of rows, {n}; got {n_blocks}.")
    if machine is None:
        machine = Machine.measured(kernel, d)
    sizes = Sizes.of(n, d, n_blocks, rank, np.dtype(dtype).itemsize)
    limit = bytes_from(memory_limit)
    if limit is not None:
        check_memory(sizes, limit)
    fit = _Fit(sizes, machine, workers, threads, limit, learner)
    counted = (_count(n_blocks, "block"), _count(workers, "worker"), _count(threads, "thread"))
    title = f"{learner} of {n:,} rows with {d:,} features, {counted[0]} of rank {rank}, {counted[1]} with {counted[2]}"
    found = Plan(title, fit.stages(), sizes.smallest_memory, machine)
    return replace(found, notes=fit.notes(found.memory))


@dataclass(frozen=True)
class Sizes:
    """The sizes of an approximation."""

    n: int
    d: int
    c: int  # blocks
    k: int  # columns kept
    columns: int  # columns built
    landmarks: int  # of a block
    own: int  # of these, those of the block itself
    sampled: int  # rows that couple the blocks, in all
    itemsize: int  # bytes of a number of X

    @classmethod
    def of(cls, n: int, d: int, n_blocks: int, rank: int, itemsize: int) -> Sizes:
        if n_blocks == 1:
            m = n_landmarks(min(n, rank), n)
            return cls(n, d, 1, min(n, rank), m, m, m, 0, itemsize)
        size = max(1, n // n_blocks)
        k = min(rank, size)
        effort = Effort.of(k, size, n_blocks, n)
        columns = min(effort.columns, size)
        sampled = n_blocks * min(size, math.ceil(effort.sampled * columns))
        return cls(n, d, n_blocks, k, columns, effort.own + effort.outside, effort.own, sampled, itemsize)

    @property
    def row_bytes(self) -> float:
        """Bytes of a row while it is worked on."""
        return float(self.d * self.itemsize + ROW_BYTES)

    @property
    def core_entries(self) -> float:
        """Entries of the core before directions are left out; a large core has as much room as the bases."""
        rows = float(self.c * self.columns)
        return min(rows**2, self.c * self.columns**2 + max(DENSE_CORE**2, self.n * self.k * self.itemsize / 8.0))

    @property
    def core_bytes(self) -> float:
        """Bytes of the core with what is computed from it."""
        return CORE_COPIES * 8.0 * self.core_entries

    @property
    def core_flops(self) -> float:
        """r³ for a core of r rows, less where most of its entries are dropped."""
        return min(float(self.c * self.k) ** 3, self.core_entries * self.c * self.k)

    @property
    def pairs(self) -> float:
        """Pairs of sampled rows whose similarities are evaluated."""
        return self.sampled**2 / 2.0 * self.core_entries / (self.c * self.columns) ** 2

    @property
    def maps(self) -> float:
        """Bytes of landmarks and maps, with a copy of the landmarks in float64."""
        return float(self.c * self.landmarks * (self.d * (8 + self.itemsize) + 8 * self.columns))

    @property
    def grams(self) -> float:
        """Bytes of one Gram matrix for each block."""
        return 8.0 * self.c * self.columns**2

    @property
    def smallest_memory(self) -> float:
        """Bytes of the core, of the maps and of the smallest piece."""
        return self.core_bytes + self.maps + self.grams + min(self.n, FEWEST_ROWS) * self.row_bytes


def check_memory(sizes: Sizes, limit: float) -> None:
    """Raise ResourceError if no fit of these sizes can keep the limit."""
    if sizes.smallest_memory > limit:
        raise ResourceError(
            f"{sizes.c} blocks of rank {sizes.k} on rows with {sizes.d} features need at least "
            f"{si(sizes.smallest_memory)} of memory: {si(sizes.core_bytes)} for the core, "
            f"{si(sizes.maps + sizes.grams)} for landmarks and maps, the rest for one piece of rows. memory_limit is "
            f"{si(limit)}. Raise it, or ask for fewer blocks or a lower rank; krein.plan says what each shape takes."
        )


@dataclass(frozen=True)
class _Fit:
    """A fit of known sizes on known machines."""

    sizes: Sizes
    machine: Machine
    workers: int
    threads: int
    limit: float | None
    learner: str

    @property
    def n_pieces(self) -> int:
        """One piece for each thread of a cluster; in one process as `RowPieces.of` cuts them."""
        if self.workers > 1:
            return min(self.sizes.n, self.workers * self.threads)
        room = PIECE_BYTES if self.limit is None else PIECE_SHARE * self.limit
        return -(-self.sizes.n // max(FEWEST_ROWS, int(room / self.threads / self.sizes.row_bytes)))

    @property
    def piece_rows(self) -> int:
        return -(-self.sizes.n // self.n_pieces)

    @property
    def basis_bytes(self) -> float:
        return 4.0 * self.sizes.n * self.sizes.columns

    @property
    def in_files(self) -> bool:
        """Whether the bases and the vectors of a dual are written to files."""
        return self.workers == 1 and self.basis_bytes + VECTOR_BYTES * self.sizes.n > most_held(self.limit)

    def stages(self) -> tuple[Stage, ...]:
        s, m, c, b = self.sizes, self.machine, self.sizes.c, self.sizes.columns
        X, row = float(s.n * s.d * s.itemsize), float(s.d * s.itemsize)
        centres = c if c <= FLAT_CLUSTERS else 2.0 * math.sqrt(c)
        chosen_among = min(CANDIDATES, max(FEWEST_CANDIDATES, CANDIDATES_PER_LANDMARK * s.own), s.n // c)
        tried, candidates = ROWS_PER_LANDMARK * s.landmarks, 0 if c == 1 else c * CANDIDATES_PER_RANK * b
        fetched = 8.0 * candidates * b  # bytes of the rows of U among which the samples are drawn
        steps = STEPS if self.learner == "svm" else 0
        files = self.basis_bytes * self.in_files
        vectors = VECTOR_BYTES * s.n * (steps > 0)
        held = HELD_ROW_BYTES[self.learner] * s.n + s.maps  # in the process that fits, from the start
        piece = self.piece_rows * s.row_bytes * self.threads + (0.0 if self.workers == 1 else X / self.workers)
        built = piece + (0.0 if self.in_files else self.basis_bytes / self.workers)  # at a worker, with the bases

        read = self._stage(
            "read", each=SURVEY_FLOPS * s.d / m.flops, held=held, there=piece, read=X, visits=1)  # fmt: skip
        clusters = self._stage(
            "clusters", each=centres * m.distance, here=KMEANS_PASSES * min(s.n, SAMPLE) * centres * m.distance,
            held=held + SAMPLE * row, there=piece, moved=SAMPLE * row, read=self._again(X), visits=1)  # fmt: skip
        landmarks = self._stage(
            "landmarks", here=c * tried * s.landmarks * (m.similarity + 2.0 * DIRECTION_PRODUCTS * b / m.flops),
            held=held, there=piece, moved=c * row * (chosen_among + tried), visits=2)  # fmt: skip
        bases = self._stage(
            "bases", each=s.landmarks * m.similarity + 2.0 * b * (s.landmarks + b) / m.flops, held=held + s.grams,
            there=built + s.maps, moved=self.workers * s.maps + self.n_pieces * s.grams, read=self._again(X),
            wrote=files, visits=1)  # fmt: skip
        samples = self._stage(
            "samples", each=2.0 * b * b / m.flops, here=2.0 * candidates * b * b / m.flops, held=held + fetched,
            there=built, moved=fetched + s.sampled * (row + 8.0 * b), read=self._again(files), visits=3)  # fmt: skip
        core = self._stage(
            "core", here=s.pairs * (m.similarity + 2.0 * b / m.flops) / self.threads
            + 6.0 * s.core_entries * b / m.flops,
            held=held + s.core_bytes + 8.0 * s.sampled * (s.d + b), there=built - piece)  # fmt: skip
        solve = self._stage(
            "solve", each=(ROW_FLOPS + steps * (STEP_FLOPS + 2.0 * b * b)) / m.flops,
            here=(CORE_FLOPS + steps) * s.core_flops / m.flops, held=held + s.core_bytes,
            there=built + (0.0 if self.in_files else vectors / self.workers),
            moved=8.0 * c * s.k * STEP_VECTORS * (steps + 1) * (self.n_pieces + self.workers)
            + steps * self.n_pieces * s.grams,
            read=self._again(files + vectors) * max(1.0, steps * VISITS), wrote=vectors * self.in_files,
            visits=max(4.0, steps * VISITS))  # fmt: skip
        return read, clusters, landmarks, bases, samples, core, solve

    def _stage(
        self, name: str, *, held: float, there: float, each: float = 0.0, here: float = 0.0, moved: float = 0.0,
        read: float = 0.0, wrote: float = 0.0, visits: float = 0.0,
    ) -> Stage:  # fmt: skip
        """A stage of ``each`` seconds a row, wherever it is, and ``here`` seconds in the process that fits.

        That process holds ``held`` bytes and a worker ``there``; without other workers it holds both.
        """
        m, cores = self.machine, self.workers * self.threads
        seconds = self.sizes.n * each / cores + here + (read + wrote) / (self.workers * m.disk)
        if self.workers == 1:
            return Stage(name, seconds, held + there, 0.0, wrote)
        seconds += moved / (self.workers * m.network) + visits * self.n_pieces * m.task
        return Stage(name, seconds, max(held, there), moved, wrote)

    def _again(self, nbytes: float) -> float:
        """Bytes that are read from the disk once more, as they are too many for the system to keep in memory."""
        return nbytes if nbytes / self.workers > self.machine.memory else 0.0

    def notes(self, memory: float) -> tuple[str, ...]:
        """What to know beside the table."""
        found = []
        if self.limit is not None and memory > self.limit:
            found.append(f"More than the memory limit of {si(self.limit)} may be needed.")
        if self.workers > 1:
            held = si(HELD_ROW_BYTES[self.learner] * self.sizes.n)
            found.append(f"The process that fits holds the target and vectors of {held}, the workers hold the rows.")
        if self.workers > 1 and self.sizes.n < self.workers * self.sizes.c * self.sizes.columns:
            found.append("Gram matrices are larger than the rows that they sum up. Use fewer and larger pieces.")
        if self.learner == "svm" and self._again(self.basis_bytes * self.in_files):
            found.append(f"Each of about {STEPS} steps reads all bases from the disk. Ridge reads them a few times.")
        return tuple(found)


# -- this machine ------------------------------------------------------------------------------------------------------


@cache
def _measured(kernel: Any, d: int) -> Machine:
    rng = np.random.default_rng(0)
    X, Z, T = rng.random(size=(2048, d)), rng.random(size=(192, d)), rng.normal(size=(192, 48))
    X, Z = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (X, Z))  # kernels of the sphere need length 1
    with threadpool_limits(1):
        evaluator = Evaluator(kernel_for(kernel, X), counted=False)
        K = np.asarray(evaluator.cross(X, Z))
        return Machine(
            similarity=_seconds(lambda: evaluator.cross(X, Z)) / K.size,
            flops=2.0 * K.size * T.shape[1] / _seconds(lambda: K @ T),
            distance=_seconds(lambda: nearest(X.astype(np.float32), Z[:50])) / (50 * len(X)),
            memory=_memory(),
        )


def _memory() -> float:
    """Bytes of memory of this machine, where the system says so."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return Machine.memory


def _seconds(run: Callable[[], Any]) -> float:
    """CPU seconds of one run, the least of as many as fit: what else the machine does is not part of it."""
    run()
    taken: list[float] = []
    end = time.perf_counter() + MEASURED_SECONDS
    while time.perf_counter() < end:
        begin = time.process_time()
        run()
        taken.append(time.process_time() - begin)
    return max(min(taken), 1e-9)


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.2g} s" if seconds < 10.0 else f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} h"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"

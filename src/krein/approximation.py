"""Objects and a kernel in, an approximation of the kernel matrix out: Algorithm 1 from end to end.

Composes partition (Part 1), bases (Part 2) and links (Part 3) into a Factorization, keeps what new objects need, and
estimates its own error without K.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from krein.arrays import Array, Indices, check_indices, seed_from, stream
from krein.bases import ALLOCATIONS, LANDMARKS, PER_RANK, LandmarkMap, Sketch, allocate, nystrom, object_bytes, sketch
from krein.blocksparse import BlockSparse
from krein.correction import correct
from krein.error_estimate import ErrorEstimate, estimate_error
from krein.errors import InputError, KreinWarning, one_of, whole_number
from krein.factorization import Factorization, compressed
from krein.kernels import Evaluator, Kernel, as_kernel, count_objects, take
from krein.links import Link, Side, kept_pairs, pairwise_link
from krein.objects import check_new_objects, check_objects, takes_vectors
from krein.partition import Partition, partition
from krein.storage import STORAGE, dtype_name, orthonormalise
from krein.truncation import OutOfRange, out_of_range

__all__ = ["Approximation", "approximate"]

COUPLINGS = ("pairwise",)
EXACT_ROWS = 2000  # up to here "auto" means one block of full rank
AUTO_BLOCKS, AUTO_RANK = 10, 64
DENSE_CORE = 4096  # a core with more rows than this is block-sparse where at least half of its blocks are dropped
SYMMETRY_SAMPLE = 64  # objects of a user's kernel compared with each other in both orders
NOTEWORTHY = 0.01  # a link that would have exploded to less than this share of the block diagonal is not worth a word
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Approximation:
    """A kernel matrix approximated as U M Uᵀ + s I, with what it takes to extend it to new objects."""

    kernel: Kernel  # with every parameter bound
    objects: Any  # the training objects, by reference
    partition: Partition
    maps: tuple[LandmarkMap, ...]  # u(x) = k(x, Z_i) T_i for x in cluster i
    factorization: Factorization
    n_evaluations: int  # kernel entries evaluated to build it
    seed: int

    def __repr__(self) -> str:
        return f"Approximation({self.kernel!r}, {self.factorization!r})"

    @property
    def n_blocks(self) -> int:
        return self.factorization.n_blocks

    @property
    def nbytes(self) -> int:
        """Bytes of the maps and landmarks that new objects need, beside the factorization's own `nbytes`."""
        places = self.partition.embedding
        held = 0 if places is None else object_bytes(places.landmarks) + places.transform.nbytes
        return sum(m.nbytes for m in self.maps) + self.partition.centres.nbytes + held

    def corrected(self, how: str, **options: Any) -> Approximation:
        """The same approximation with its factorization corrected (`krein.correct`)."""
        return replace(self, factorization=correct(self.factorization, how, **options))

    def extend(self, X_new: Any) -> sp.csr_matrix:
        """The rows of U for new objects, (n_new, r), through the landmarks of each one's cluster (the indirect way)."""
        objects = check_new_objects(X_new, self.objects, self.kernel)
        evaluator = Evaluator(self.kernel)
        labels = self.partition.assign(evaluator, objects)
        ranks = np.asarray(self.factorization.ranks, dtype=np.int64)
        pointer = np.concatenate([[0], np.cumsum(ranks[labels])])
        data, columns = np.empty(pointer[-1]), np.empty(pointer[-1], dtype=np.int64)
        for i in np.unique(labels).tolist():
            mine = np.flatnonzero(labels == i)
            spots = pointer[mine][:, None] + np.arange(ranks[i])
            data[spots] = self.maps[i](evaluator, take(objects, mine))
            columns[spots] = np.arange(ranks[i]) + self.factorization.spans[i][1].start
        return sp.csr_matrix((data, columns, pointer), shape=(len(labels), self.factorization.rank))

    def kernel_rows(self, X_new: Any, indices: Any = None, exact: bool = False, truncate: bool = False) -> Array:
        """Similarities of new objects to training rows, (n_new, len(indices) or n), without the shift.

        By default from the factorization, u(x) M Uᵀ; with ``exact=True`` by the kernel itself (the direct way). With
        ``truncate=True`` they are kept to the range the kernel declares. The shift belongs to self-similarities only:
        see `self_similarities`.
        """
        f = self.factorization
        wanted = None if indices is None else check_indices(indices, f.shape[0])
        if exact:
            objects = check_new_objects(X_new, self.objects, self.kernel)
            return Evaluator(self.kernel).block(objects, self.objects if wanted is None else take(self.objects, wanted))
        limits = self._range() if truncate else None
        u = self.extend(X_new)
        if wanted is None:
            rows = f.lift(f.core @ u.T.toarray()).T
        elif len(wanted) < u.shape[0]:  # the core meets the shorter side
            rows = u @ (f.core @ f.basis_rows(wanted).T.toarray())
        else:
            rows = (f.basis_rows(wanted) @ (f.core @ u.T.toarray())).T
        return np.ascontiguousarray(rows if limits is None else np.clip(rows, *limits))

    def out_of_range(self, n_rows: int = 200, random_state: Any = None) -> OutOfRange:
        """The share of similarities outside the range the kernel declares, by looking at ``n_rows`` rows."""
        return out_of_range(self.factorization, *self._range(), n_rows, random_state)

    def _range(self) -> tuple[float | None, float | None]:
        low, high = self.kernel.traits.low, self.kernel.traits.high
        if low is None and high is None:
            raise InputError(
                f"{self.kernel!r} declares no range. Use krein.truncation.truncate(a.factorization, low, high) "
                "with a range of your own."
            )
        return low, high

    def self_similarities(self, X_new: Any, exact: bool = False) -> Array:
        """k(x, x) + shift for new objects; k(x, x) from the factorization or, with ``exact=True``, the kernel."""
        f = self.factorization
        if exact:
            return Evaluator(self.kernel).diag(check_new_objects(X_new, self.objects, self.kernel)) + f.shift
        u = self.extend(X_new)  # each row has the columns of one block, so the diagonal blocks of the core are enough
        inner: Any = sp.block_diag(f.core_diagonal_blocks(), format="csr")
        return np.asarray(u.multiply(u @ inner).sum(1)).ravel() + f.shift

    def error(self, n_samples: int = 50_000, random_state: Any = None) -> ErrorEstimate:
        """The relative Frobenius error |K - (U M Uᵀ + s I)| / |K| with a 95 % interval, without forming K.

        Exact up to 2000 rows. Beyond, the diagonal is taken whole and about ``n_samples`` entries within and between
        blocks are sampled; the estimate is unbiased in the squares.
        """
        return estimate_error(self.factorization, self.kernel, self.objects, n_samples, random_state)


def approximate(
    X: Any,
    kernel: Any,
    *,
    n_blocks: int | str = "auto",
    rank: int | str = "auto",
    total_rank: int | None = None,
    coupling: str = "pairwise",
    landmarks: str = "kmeans++",
    allocation: str = "equal",
    drop: float = 0.0,
    dtype: Any = "auto",
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> Approximation:
    """Approximate the kernel matrix of X as U M Uᵀ + s I, in n k + r² numbers instead of n².

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d), or a sequence of objects
        What the kernel compares; kept by reference, so do not change it afterwards. Objects without coordinates
        (strings, indices of a `Precomputed` matrix) are clustered by their similarities to a few landmarks.
    kernel : Kernel or callable
        A krein kernel (parameters left None are bound to X) or any k(A, B) -> array.
    n_blocks, rank : int or "auto"
        Clusters, and the rank of each. "auto" is one block of full rank, the exact matrix to rounding, up to 2000
        objects, and
        10 blocks of rank 64 beyond.
    total_rank : int, optional
        The sum of all ranks, shared out by ``allocation``; overrides ``rank``.
    coupling : "pairwise"
        The paper's own way: each pair of clusters is fitted on its own random sample.
    landmarks : "uniform", "kmeans++", "rpcholesky" or "leverage"
        How the 2k landmarks of a cluster are chosen; the paper's are uniform.
    allocation : "equal", "spectral" or "size"
        Ranks the same for all, by the diagonal blocks' eigenvalues, or by cluster size (the paper's rules 1, 2, 3).
    drop : float in [0, 1]
        The share of cluster pairs, the most distant ones, that are not coupled.
    dtype : "auto", "float64", "float32", "float16" or "int8"
        How the bases are stored; "auto" keeps X's own float type.
    n_jobs : int, optional
        Threads. The result does not depend on it.
    random_state : int, RandomState, Generator or None
    verbose : int
        Above 0: progress bars.

    Returns
    -------
    Approximation
    """
    plan = _Plan.check(
        X,
        kernel,
        n_blocks,
        rank,
        total_rank,
        coupling,
        landmarks,
        allocation,
        drop,
        dtype,
        n_jobs,
        random_state,
        verbose,
    )
    evaluator = Evaluator(plan.kernel)
    if not takes_vectors(plan.kernel):  # a user's own: is it symmetric across clusters too?
        n = count_objects(plan.objects)
        evaluator.symmetric(take(plan.objects, stream(plan.seed, 4).choice(n, min(n, SYMMETRY_SAMPLE), replace=False)))
    clusters = partition(plan.objects, plan.n_blocks, evaluator, plan.seed)
    ranks = _ranks(plan, clusters, evaluator)
    bases, triangles, maps, blocks = _bases(plan, clusters, ranks, evaluator)
    blocks |= _links(plan, clusters, bases, triangles, evaluator)
    return _assemble(plan, clusters, bases, maps, blocks, evaluator)


@dataclass(frozen=True, eq=False)
class _Plan:
    """The request, checked."""

    objects: Any
    kernel: Kernel
    n_blocks: int
    rank: int
    total_rank: int | None
    landmarks: str
    allocation: str
    drop: float
    dtype: str
    n_jobs: int
    seed: int
    verbose: int

    @classmethod
    def check(
        cls, X: Any, kernel: Any, n_blocks: Any, rank: Any, total: Any, coupling: Any, landmarks: Any, allocation: Any,
        drop: Any, dtype: Any, jobs: Any, random_state: Any, verbose: Any,
    ) -> _Plan:  # fmt: skip
        one_of("coupling", coupling, COUPLINGS)
        one_of("landmarks", landmarks, LANDMARKS)
        one_of("allocation", allocation, ALLOCATIONS)
        objects, bound = check_objects(X, as_kernel(kernel))
        n = count_objects(objects)
        if n_blocks == "auto":
            n_blocks = 1 if n <= EXACT_ROWS else AUTO_BLOCKS
        whole_number("n_blocks", n_blocks, 1, ' or "auto"')
        if n_blocks > n:
            raise InputError(f"n_blocks must be at most the number of objects, {n}; got {n_blocks}.")
        if rank == "auto":
            rank = n if n <= EXACT_ROWS else AUTO_RANK
        whole_number("rank", rank, 1, ' or "auto"')
        if total is not None:
            whole_number("total_rank", total, n_blocks, " (one per block at least)")
        elif allocation != "equal":
            total = n_blocks * rank
        if isinstance(drop, bool) or not (isinstance(drop, int | float | np.number) and 0.0 <= drop <= 1.0):
            raise InputError(f"drop is a share of cluster pairs, from 0 to 1; got {drop!r}.")
        if isinstance(dtype, str) and dtype == "auto":
            dtype = "float32" if getattr(objects, "dtype", None) == np.float32 else "float64"
        else:
            with contextlib.suppress(TypeError):  # what NumPy cannot read as a type is no choice either
                dtype = dtype if isinstance(dtype, str) or dtype is None else np.dtype(dtype).name
            one_of("dtype", dtype, ("auto", *STORAGE))
        if jobs is not None and (not isinstance(jobs, int | np.integer) or jobs == 0):
            raise InputError(f"n_jobs must be a non-zero integer (-1: all cores) or None for 1; got {jobs!r}.")
        total = None if total is None else int(total)
        return cls(
            objects, bound, int(n_blocks), int(rank), total, landmarks, allocation, float(drop), dtype_name(dtype),
            int(jobs or 1), seed_from(random_state), int(verbose or 0),
        )  # fmt: skip

    @property
    def working(self) -> type:
        """What bases are built in: float64 unless they are to be stored in less."""
        return np.float64 if self.dtype == "float64" else np.float32

    def each(self, task: Callable[..., T], arguments: Sequence[tuple[Any, ...]], what: str) -> list[T]:
        """Run ``task`` on each tuple of arguments, in threads; the order of results is that of the arguments."""
        bar: Iterable[tuple[Any, ...]] = tqdm(arguments, desc=what, disable=not self.verbose)
        with threadpool_limits(1):  # many small products; and more BLAS threads would round otherwise
            if self.n_jobs == 1:
                return [task(*a) for a in bar]
            found: list[T] = Parallel(n_jobs=self.n_jobs, prefer="threads")(delayed(task)(*a) for a in bar)
        return found


def _ranks(plan: _Plan, clusters: Partition, evaluator: Evaluator) -> Indices:
    """The rank of each cluster. Rule 2 needs spectra, from a sample of its own."""
    c, sizes = clusters.n_blocks, clusters.sizes
    if plan.total_rank is None:
        return np.minimum(plan.rank, sizes)
    if plan.allocation != "spectral":
        return allocate(plan.total_rank, sizes, plan.allocation)
    count = 2 * PER_RANK * -(-plan.total_rank // c)

    def spectrum(i: int) -> Array:
        found = _sketch(plan, clusters, evaluator, i, count, "uniform", 3)
        # W is a uniform l x l sample of K_i, so its eigenvalues are those of K_i scaled by l / n_i
        return np.asarray(found.values * (sizes[i] / len(found.rows)))

    spectra = plan.each(spectrum, [(i,) for i in range(c)], "spectra")
    return allocate(plan.total_rank, sizes, "spectral", spectra)


def _sketch(plan: _Plan, clusters: Partition, evaluator: Evaluator, i: int, count: int, rule: str, key: int) -> Sketch:
    members, rng = clusters.members(i), stream(plan.seed, key, i)
    places = None if clusters.embedding is None else partial(clusters.embedding, evaluator)
    return sketch(plan.objects, members, min(count, len(members)), rule, evaluator, rng, places)


def _bases(
    plan: _Plan, clusters: Partition, ranks: Indices, evaluator: Evaluator
) -> tuple[list[Array], list[Array], list[LandmarkMap], dict[tuple[int, int], Array]]:
    """Part 2: Q_i = U_i R_i for each cluster, the map of U_i, and the core's diagonal blocks R_i diag(signs) R_iᵀ."""

    def one(i: int) -> tuple[Array, Array, LandmarkMap, Array, bool]:
        k = int(ranks[i])
        found = _sketch(plan, clusters, evaluator, i, PER_RANK * k, plan.landmarks, 1)
        Q, signs, extension = nystrom(plan.objects, clusters.members(i), k, found, evaluator, plan.working)
        U, R = orthonormalise(Q)
        R = R.astype(np.float64)
        block = (R * signs) @ R.T
        extension = replace(extension, transform=_right_divide(extension.transform, R)).limited(U, block, plan.kernel)
        return U, R, extension, block, U.shape[1] < min(k, len(found.values))

    found = plan.each(one, [(i,) for i in range(clusters.n_blocks)], "bases")
    bases, triangles, maps, diagonal, shorter = (list(column) for column in zip(*found, strict=True))
    cut = sum(shorter)
    if cut:
        warnings.warn(
            f"In {cut} of {len(found)} blocks the Nyström approximation of {plan.kernel!r} would have exploded, as "
            "indefinite kernels can; the directions to blame were left out. More rank, or other landmarks, help.",
            KreinWarning,
            stacklevel=3,
        )
    return bases, triangles, maps, {(i, i): block for i, block in enumerate(diagonal)}


def _links(
    plan: _Plan, clusters: Partition, bases: list[Array], triangles: list[Array], evaluator: Evaluator
) -> dict[tuple[int, int], Array]:
    """Part 3: the core's blocks of the pairs that stay coupled."""
    pairs = list(kept_pairs(clusters.centre_distances(), plan.drop))
    sides = [Side(clusters.members(i), bases[i], triangles[i]) for i in range(clusters.n_blocks)]

    def one(i: int, j: int) -> Link:
        return pairwise_link(plan.objects, sides[i], sides[j], evaluator, stream(plan.seed, 2, i, j))

    found = plan.each(one, pairs, "links")
    size = scipy.linalg.norm([scipy.linalg.norm((R @ R.T).ravel()) for R in triangles])  # the block diagonal's
    tamed = sum(link.tamed > NOTEWORTHY * size for link in found)
    if tamed:
        warnings.warn(
            f"{tamed} of {len(pairs)} links between blocks were poorly determined by their samples and would have "
            "exploded; their weakest directions were left out. More rank makes this rarer.",
            KreinWarning,
            stacklevel=3,
        )
    return {pair: link.block for pair, link in zip(pairs, found, strict=True)}


def _assemble(
    plan: _Plan,
    clusters: Partition,
    bases: list[Array],
    maps: list[LandmarkMap],
    blocks: dict[tuple[int, int], Array],
    evaluator: Evaluator,
) -> Approximation:
    """The core, dense or block-sparse, and the bases stored as asked; the maps follow the bases."""
    kept = BlockSparse.from_blocks([U.shape[1] for U in bases], blocks)
    blocks.clear()
    filled = 2 * kept.n_kept - sum(k * k for k in kept.ranks)  # numbers that are not dropped, in both halves
    sparse = kept.shape[0] > DENSE_CORE and 2 * filled <= kept.shape[0] ** 2
    core = kept if sparse else kept.to_dense()
    factorization, turns = compressed(bases, core, clusters.order, 0.0, plan.dtype)
    finished = tuple(
        replace(m, transform=_right_divide(m.transform, T), block=None if m.block is None else T @ m.block)
        for m, T in zip(maps, turns, strict=True)
    )
    return Approximation(
        plan.kernel, plan.objects, clusters, finished, factorization, evaluator.n_evaluations, plan.seed
    )


def _right_divide(transform: Array, R: Array) -> Array:
    """transform @ pinv(R); R is square and well conditioned but for storage that lost a direction."""
    if R.shape[0] == R.shape[1] and R.size:
        return np.asarray(scipy.linalg.solve(R.T, transform.T, check_finite=False).T)
    return np.asarray(transform @ np.linalg.pinv(R))

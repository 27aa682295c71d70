"""Objects and a kernel in, an approximation of the kernel matrix out.

Checks the request (`plan`), chooses what it leaves open (`search`), builds it in either coupling (`building`), keeps
what new objects need, and estimates its own error without K.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from krein.arrays import Array, check_indices, grouped
from krein.bases import LandmarkMap, object_bytes
from krein.building import Parts, build, build_whole
from krein.choice import Look
from krein.correction import correct
from krein.error_estimate import ErrorEstimate, estimate_error
from krein.errors import InputError
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, count_objects, counting, take
from krein.landmarked import usual
from krein.objects import check_new_objects, check_similarity
from krein.partition import Partition
from krein.plan import Plan
from krein.policy import DEFAULT
from krein.search import Search, search
from krein.truncation import OutOfRange, out_of_range

__all__ = ["Approximation", "approximate", "whole_approximation"]

AUTO_BLOCKS, AUTO_RANK = 10, 64


@dataclass(frozen=True, eq=False)
class Approximation:
    """A kernel matrix approximated as U M Uᵀ + s I, with what it takes to extend it to new objects."""

    kernel: Kernel  # with every parameter bound
    objects: Any  # the training objects, by reference
    partition: Partition
    maps: tuple[LandmarkMap, ...]  # u(x) = k(x, Z_i) T_i for x in cluster i
    factorization: Factorization
    n_evaluations: int  # kernel entries evaluated to build it, to bind the kernel included
    seed: int
    search_: Search | None = None  # what was tried, where blocks, rank or type were left open

    def __repr__(self) -> str:
        return f"Approximation({self.kernel!r}, {self.factorization!r})"

    def _repr_html_(self) -> str:
        from krein.report import summary  # a notebook's business

        return summary.approximation(self)

    @property
    def n_blocks(self) -> int:
        return self.factorization.n_blocks

    @property
    def nbytes(self) -> int:
        """Bytes of the maps and landmarks that new objects need, beside the factorization's own `nbytes`."""
        places = self.partition.embedding
        held = 0 if places is None else object_bytes(places.landmarks) + places.transform.nbytes
        tree = self.partition.branches
        held += 0 if tree is None else tree.centres.nbytes + tree.starts.nbytes
        return sum(m.nbytes for m in self.maps) + self.partition.centres.nbytes + held

    def corrected(self, how: str, **options: Any) -> Approximation:
        """The same approximation with its factorization corrected (`krein.correct`)."""
        return replace(self, factorization=correct(self.factorization, how, **options))

    def extend(self, X_new: Any) -> sp.csr_matrix:
        """The rows of U for new objects, (n_new, r), through the landmarks of each one's cluster (the indirect way)."""
        objects = check_new_objects(X_new, self.objects, self.kernel)
        evaluator = Evaluator(self.kernel)
        known, places = self._compared_first(evaluator, objects)
        labels = self.partition.assign(evaluator, objects, places)
        ranks = np.asarray(self.factorization.ranks, dtype=np.int64)
        pointer = np.concatenate([[0], np.cumsum(ranks[labels])])
        data, columns = np.empty(pointer[-1]), np.empty(pointer[-1], dtype=np.int64)
        for i, mine in grouped(labels):
            spots = pointer[mine][:, None] + np.arange(ranks[i])
            data[spots] = self.maps[i](evaluator, take(objects, mine), None if known is None else known[mine])
            columns[spots] = np.arange(ranks[i]) + self.factorization.spans[i][1].start
        return sp.csr_matrix((data, columns, pointer), shape=(len(labels), self.factorization.rank))

    def _compared_first(self, evaluator: Evaluator, objects: Any) -> tuple[Array | None, Array | None]:
        """Similarities to the landmarks that place objects, and the places, where every block's own begin with those.

        So they do with coupling="landmark". Otherwise blocks have landmarks among their own members, none in common.
        """
        embedding = self.partition.embedding
        if embedding is None or self.n_blocks == 1:
            return None, None
        count, own = count_objects(embedding.landmarks), self.maps[0].self_similarities
        first = self.maps[0].rows[:count]
        if len(first) < count or not all(np.array_equal(m.rows[:count], first) for m in self.maps):
            return None, None
        known = evaluator.cross(objects, embedding.landmarks, None if own is None else own[:count])
        return known, known @ embedding.transform

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
        inner: Any = sp.block_diag([sp.coo_array(block) for block in f.core_diagonal_blocks()], format="csr")
        return np.asarray(u.multiply(u @ inner).sum(1)).ravel() + f.shift

    def error(self, n_samples: int = 50_000, random_state: Any = None) -> ErrorEstimate:
        """The relative Frobenius error |K - (U M Uᵀ + s I)| / |K| with a 95 % interval, without forming K.

        Exact up to 2000 rows. Beyond, the diagonal is taken whole and about ``n_samples`` entries within and between
        blocks are sampled, more of them where rows are heavy or blocks near; the estimate is unbiased in the squares.
        ``diagonal``, ``within`` and ``between`` say where the squared error lies.
        """
        return estimate_error(self.factorization, self.kernel, self.objects, n_samples, random_state)


def approximate(
    X: Any,
    kernel: Any,
    *,
    n_blocks: int | str = "auto",
    rank: int | str = "auto",
    total_rank: int | None = None,
    coupling: str = "shared",
    landmarks: str = "kmeans++",
    allocation: str = "equal",
    drop: float | str = "auto",
    max_error: float | None = None,
    max_memory: float | None = None,
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
        Clusters, and the rank of each. "auto" is chosen for ``max_error`` and ``max_memory``, or for an error of 0.02
        within 1 GiB if neither is given; up to 2000 objects it is the exact matrix, to rounding, if the memory allows.
        What was tried is in ``search_`` of the result. Given numbers are kept. One block is Nyström's approximation,
        with ``rank`` landmarks (more where that costs little), if the kernel is psd.
    total_rank : int, optional
        The sum of all ranks, shared out by ``allocation``; overrides ``rank``. Nothing is searched for then.
    coupling : "shared", "pairwise" or "landmark"
        "shared": one sample of rows per cluster serves all of its blocks; psd whenever the kernel is. "pairwise" is the
        paper's own way: each pair of clusters is fitted on its own random sample. "landmark" takes the fewest
        similarities, for those that are dear: one sample of landmarks couples all clusters, so that ``landmarks``,
        ``allocation`` and ``drop`` have no say.
    landmarks : "uniform", "kmeans++", "rpcholesky" or "leverage"
        How the landmarks of a cluster are chosen; the paper's are uniform.
    allocation : "equal", "spectral" or "size"
        Ranks the same for all, by what directions carry (pairwise: by the diagonal blocks' eigenvalues), or by cluster
        size (the paper's rules 1, 2, 3). Where the rank is searched for, ranks follow what directions carry per byte.
    drop : float in [0, 1] or "auto"
        The share of cluster pairs, the weakest ones (pairwise: the most distant), that are not coupled. "auto" keeps
        all while the core is small or no larger than the bases, and then as many as take the bases' room. A kernel
        that is declared psd keeps groups of clusters, so that the result stays psd.
    max_error : float, optional
        The relative Frobenius error to reach, in as few bytes as possible; measured, and a KreinWarning if it is
        missed.
    max_memory : float, optional
        Bytes that the factorization may take. Alone: the lowest error in them.
    dtype : "auto", "float64", "float32", "float16" or "int8"
        How the bases are stored; "auto" keeps X's own float type, unless ``max_memory`` calls for less.
    n_jobs : int, optional
        Threads. The result does not depend on it.
    random_state : int, RandomState, Generator or None
    verbose : int
        Above 0: progress bars.

    Returns
    -------
    Approximation
    """
    with counting() as spent:  # binding the kernel to X takes similarities too
        plan = Plan.check(
            X, kernel, n_blocks=n_blocks, rank=rank, total_rank=total_rank, coupling=coupling, landmarks=landmarks,
            allocation=allocation, drop=drop, max_error=max_error, max_memory=max_memory, dtype=dtype, n_jobs=n_jobs,
            random_state=random_state, verbose=verbose,
        )  # fmt: skip
        evaluator = Evaluator(plan.kernel)
        check_similarity(plan.objects, evaluator)
        parts, found = _parts(plan, evaluator)
    return Approximation(
        plan.kernel,
        plan.objects,
        parts.clusters,
        parts.maps,
        parts.factorization,
        spent.n_evaluations,
        plan.seed,
        found,
    )


def whole_approximation(X: Any, kernel: Any, random_state: Any = None) -> Approximation:
    """The kernel matrix as it is, to rounding: one block whose basis are its eigenvectors. n² similarities and n³."""
    with counting() as spent:
        plan = Plan.check(
            X, kernel, n_blocks=1, rank="auto", total_rank=None, coupling="shared", landmarks="uniform",
            allocation="equal", drop=0.0, max_error=None, max_memory=None, dtype="float64", n_jobs=None,
            random_state=random_state, verbose=0,
        )  # fmt: skip
        evaluator = Evaluator(plan.kernel)
        check_similarity(plan.objects, evaluator, whole=True)
        parts, found = _whole(plan, evaluator)
    built = parts.clusters, parts.maps, parts.factorization
    return Approximation(plan.kernel, plan.objects, *built, spent.n_evaluations, plan.seed, found)


def _whole(plan: Plan, evaluator: Evaluator) -> tuple[Parts, Search]:
    start = time.perf_counter()
    one = (plan.n_blocks or 1) == 1
    parts = build_whole(plan, evaluator) if one else build(replace(plan, rank=plan.n), evaluator)
    f = parts.factorization
    look = Look(f.n_blocks, max(f.ranks), f.dtype, f.nbytes, 0.0, "exact")
    return parts, Search((look,), f"exact, as {plan.n} objects are few", None, 0.0, time.perf_counter() - start)


def _parts(plan: Plan, evaluator: Evaluator) -> tuple[Parts, Search | None]:
    """Build what was asked for; choose what was left open."""
    n, limited = plan.n, plan.max_error is not None or plan.max_memory is not None
    if plan.n_blocks is not None and plan.rank is not None and not limited:
        return build(plan, evaluator), None
    if plan.coupling != "shared" or plan.total_rank is not None:
        if limited:
            raise InputError(
                'max_error and max_memory choose blocks and ranks for coupling="shared" and without total_rank; got '
                f"coupling={plan.coupling!r}, total_rank={plan.total_rank}. Leave them out."
            )
        blocks, rank = (1, n) if n <= DEFAULT.exact_rows else (AUTO_BLOCKS, AUTO_RANK)
        if plan.coupling == "landmark":
            blocks, rank = usual(n)
        plan = replace(plan, n_blocks=plan.n_blocks or blocks, rank=plan.rank or rank)
        return build(plan, evaluator), None
    exact = 16.0 * n * n + 8.0 * n
    if n <= DEFAULT.exact_rows and plan.rank is None and not plan.drop and exact <= (plan.max_memory or math.inf):
        return _whole(plan, evaluator)
    return search(plan, evaluator)

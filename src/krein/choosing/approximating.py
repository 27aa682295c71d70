"""`krein.approximate`: build what was asked for, choose what was left open."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from krein.approximation.approximation import Approximation
from krein.approximation.assignment import ASSIGNMENTS
from krein.approximation.building import build, whole_matrix
from krein.approximation.request import Parts, Request
from krein.arrays import stream
from krein.choosing.by_error import search
from krein.choosing.candidates import Candidate, Selection, bytes_of
from krein.errors import InputError, one_of
from krein.kernels import Evaluator, as_kernel, counting
from krein.pieces.on_dask import is_dask
from krein.pieces.opening import opened
from krein.pieces.rows import RowPieces
from krein.policy import DEFAULT, Policy, check_policy
from krein.threads import using

__all__ = ["approximate", "whole_approximation"]

# Blocks and rank of rows outside memory are chosen on this many of them.
CHOSEN_ON = 50_000


def approximate(
    X: Any,
    kernel: Any,
    *,
    n_blocks: int | str = "auto",
    rank: int | str = "auto",
    total_rank: int | None = None,
    coupling: str = "shared",
    guarded: bool = True,
    landmarks: str = "auto",
    allocation: str = "equal",
    drop: float | str = "auto",
    max_error: float | None = None,
    max_memory: float | None = None,
    dtype: Any = "auto",
    assignment: str = "centre",
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
    policy: Policy | None = None,
    memory_limit: Any = None,
    workdir: Any = None,
) -> Approximation:
    """Approximate the kernel matrix of X as U M Uᵀ + s I, in n k + r² numbers instead of n².

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d), or a sequence of objects
        What the kernel compares; kept by reference, so do not change it afterwards. Objects without coordinates
        (strings, indices of a `Precomputed` matrix) are clustered by their similarities to a few landmarks.
    kernel : Kernel or callable
        A krein kernel (parameters left None are bound to X), any k(A, B) -> array, or f(a, b) -> float.
    n_blocks, rank : int or "auto"
        Clusters, and the rank of each. "auto" is chosen for ``max_error`` and ``max_memory``, or for an error of 0.02
        within 1 GiB if neither is given; up to 2000 objects it is the exact matrix, to rounding, if the memory allows.
        What was tried is in ``search_`` of the result. Given numbers are kept. One block is Nyström's approximation,
        with ``rank`` landmarks (more where that costs little), if the kernel is psd.
    total_rank : int, optional
        The sum of all ranks, shared out by ``allocation``; overrides ``rank``. Nothing is searched for then.
    coupling : {"shared", "pairwise", "landmark"}, default="shared"
        "shared": one sample of rows per cluster serves all of its blocks; psd whenever the kernel is. "pairwise" is the
        paper's Algorithm 1: each pair of clusters is fitted on its own random sample. "landmark" evaluates the fewest
        similarities, for kernels that are expensive to evaluate: one sample of landmarks couples all clusters, and
        ``landmarks``, ``allocation`` and ``drop`` are not used.
    guarded : bool, default=True
        Whether ``coupling="pairwise"`` is kept from exploding where a sample determines a block poorly. False leaves
        the guards out: Algorithm 1 as published, with the signs of negative eigenvalues kept. The other couplings need
        no guard.
    landmarks : {"auto", "uniform", "kmeans++", "rpcholesky", "leverage"}, default="auto"
        How the landmarks of a cluster are chosen. "auto" is "uniform" for ``coupling="pairwise"``, as in the paper, and
        "kmeans++" otherwise.
    allocation : "equal", "spectral" or "size"
        Ranks are the same for all clusters, higher for clusters whose leading eigenvalues are larger, or in proportion
        to cluster sizes. These are the paper's rules 1, 2 and 3; its total of k in rule 3 is ``total_rank=k``. Where
        the rank is searched for, ranks follow the eigenvalues.
    drop : float in [0, 1] or "auto"
        The share of cluster pairs, the weakest ones (pairwise: the most distant), that are not coupled. "auto" keeps
        all while the core is small or no larger than the bases, and then as many as take no more memory than the bases.
        A kernel that is declared psd keeps groups of clusters, so that the result stays psd.
    max_error : float, optional
        The relative Frobenius error to reach, in as few bytes as possible; measured, and a KreinWarning if it is
        missed.
    max_memory : float, optional
        Bytes that the factorization may take. Alone: the lowest error in them.
    dtype : "auto", "float64", "float32", "float16" or "int8"
        How the bases are stored; "auto" keeps X's own float type, unless ``max_memory`` calls for less.
    assignment : {"centre", "landmark"}, default="centre"
        The block that a new object belongs to: that of the nearest cluster centre, or that of the nearest landmark.
        "landmark" is the better one for blocks without couplings on data with near copies, and takes longer.
    n_jobs : int, optional
        Threads, -1 for all cores. None: as many as BLAS may use. The result does not depend on it, but for rounding.
    random_state : int, RandomState, Generator or None
    verbose : int
        Above 0: progress bars.
    policy : Policy, optional
        The limits of what is chosen; None is ``krein.Policy()``.
    memory_limit : int or str, optional
        Bytes that the build may take beside the interpreter, for instance "4GB". X is then visited in pieces, as it is
        if it lies outside memory: a memory map, the path of an .npy, Parquet, CSV or svmlight file, an array that can
        be sliced, an iterator of blocks, or a Dask array. Blocks and rank left open are chosen on a sample of it.
    workdir : path, optional
        Folder for what is not held in memory. If given, an interrupted build that is repeated goes on where it was.

    Returns
    -------
    Approximation

    Examples
    --------
    >>> import krein
    >>> X = krein.datasets.mixture(3000, n_features=6, random_state=0).X
    >>> a = krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=6, rank=20, random_state=0)
    >>> a.factorization
    Factorization(3000 x 3000, 6 blocks, rank 120, dense core, float64, 0.6 MiB, shift 0)
    >>> a.error(random_state=0).relative < 0.1
    True
    >>> krein.certify(a.factorization).psd
    True
    """
    limits = check_policy(policy)
    one_of("assignment", assignment, ASSIGNMENTS)
    asked = {
        "n_blocks": n_blocks, "rank": rank, "total_rank": total_rank, "coupling": coupling, "guarded": guarded,
        "landmarks": landmarks, "allocation": allocation, "drop": drop, "max_error": max_error,
        "max_memory": max_memory, "dtype": dtype, "n_jobs": n_jobs, "random_state": random_state, "verbose": verbose,
    }  # fmt: skip
    if as_kernel(kernel).compares != "vectors":  # other objects are in memory, and a text may be one of them
        if is_dask(X):
            raise InputError(
                f"A Dask collection holds vectors; {kernel!r:.60} compares other objects. Use X.compute()."
            )
        with using(n_jobs):
            return replace(_approximate(X, kernel, limits, **asked), assignment=assignment)
    where = {"memory_limit": memory_limit, "workdir": workdir, "n_jobs": n_jobs, "verbose": verbose}
    with using(n_jobs), opened(X, **where, keep=True) as (rows, _, _):
        if random_state is None and isinstance(rows, RowPieces) and rows.checkpoints and rows.checkpoints.kept:
            asked["random_state"] = rows.checkpoints.seed()  # an interrupted build goes on with it
        return replace(_approximate(rows, kernel, limits, **asked), assignment=assignment)


def _approximate(X: Any, kernel: Any, policy: Policy, whole: bool = False, **asked: Any) -> Approximation:
    """Check what was asked for, build it, and count the similarities; ``whole`` asks for the exact matrix."""
    with counting() as spent:  # binding the kernel to X takes similarities too
        request = Request.check(X, kernel, **asked)
        evaluator = Evaluator(request.kernel)
        evaluator.check_similarity(request.objects, whole)
        parts, found = _whole(request, evaluator) if whole else _parts(request, evaluator, policy)
    built = parts.clusters, parts.maps, parts.factorization
    return Approximation(request.kernel, request.objects, *built, spent.n_evaluations, request.seed, found)


def whole_approximation(X: Any, kernel: Any, random_state: Any = None) -> Approximation:
    """Return the exact kernel matrix, in one block whose basis are its eigenvectors; n² similarities and n³ work."""
    return _approximate(
        X, kernel, DEFAULT, whole=True, n_blocks=1, rank="auto", total_rank=None, coupling="shared", guarded=True,
        landmarks="uniform", allocation="equal", drop=0.0, max_error=None, max_memory=None, dtype="float64",
        n_jobs=None, random_state=random_state, verbose=0,
    )  # fmt: skip


def _whole(request: Request, evaluator: Evaluator) -> tuple[Parts, Selection]:
    start = time.perf_counter()
    one = (request.n_blocks or 1) == 1
    parts = whole_matrix(request, evaluator) if one else build(replace(request, rank=request.n), evaluator)
    f = parts.factorization
    exact = Candidate(f.n_blocks, max(f.ranks), f.dtype, f.nbytes, error=0.0, stage="exact")
    why, taken = f"exact, as {request.n} objects are few", time.perf_counter() - start
    return parts, Selection((exact,), why, 0, build_seconds=taken)


def _parts(request: Request, evaluator: Evaluator, policy: Policy) -> tuple[Parts, Selection | None]:
    """Build what was asked for; choose what was left open."""
    n, limited = request.n, request.max_error is not None or request.max_memory is not None
    if isinstance(request.objects, RowPieces):
        return _outside(request, evaluator, policy)
    if request.n_blocks is not None and request.rank is not None and not limited:
        return build(request, evaluator), None
    if request.coupling != "shared" or request.total_rank is not None:
        if limited:
            raise InputError(
                'max_error and max_memory choose blocks and ranks for coupling="shared" and without total_rank; got '
                f"coupling={request.coupling!r}, total_rank={request.total_rank}. Leave them out."
            )
        blocks, rank = (1, n) if n <= policy.exact_rows else policy.unsearched_shape
        if request.coupling == "landmark":
            blocks, rank = policy.landmark_shape(n)
        request = replace(request, n_blocks=request.n_blocks or blocks, rank=request.rank or rank)
        return build(request, evaluator), None
    fits = bytes_of(n, 1, n, "float64") <= (request.max_memory or math.inf)
    if n <= policy.exact_rows and request.rank is None and not request.drop and fits:
        return _whole(request, evaluator)
    return search(request, evaluator, policy)


def _outside(request: Request, evaluator: Evaluator, policy: Policy) -> tuple[Parts, Selection | None]:
    """Build rows that lie outside memory; what was left open is chosen on a sample of them."""
    if request.coupling != "shared":
        raise InputError(
            f'Rows outside memory are coupled by coupling="shared"; got {request.coupling!r}. Read X into memory for '
            "the others."
        )
    n, found = request.n, None
    limited = request.max_error is not None or request.max_memory is not None
    if limited or request.n_blocks is None or (request.rank is None and request.total_rank is None):
        some = np.sort(stream(request.seed, 61).choice(n, min(n, CHOSEN_ON), replace=False))
        share = len(some) / n
        room = None if request.max_memory is None else request.max_memory * share
        sample = replace(request, objects=request.objects.take(some), max_memory=room)
        parts, found = _parts(sample, evaluator, policy)
        f = parts.factorization
        request = replace(request, n_blocks=f.n_blocks, rank=max(f.ranks), max_error=None, max_memory=None)
    return build(request, evaluator), found

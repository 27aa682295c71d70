"""A checked request to approximate a kernel matrix, and the parts of an approximation that every coupling returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from krein.approximation.bases import ALLOCATIONS, LANDMARKS, LandmarkMap, allocate
from krein.approximation.clusters import Partition
from krein.arrays import Indices, seed_from
from krein.errors import InputError, one_of, warn, whole_number
from krein.factorization import Factorization
from krein.factorization.bases import STORAGE
from krein.factorization.core import BlockSparse
from krein.factorization.factorization import stored
from krein.kernels import Kernel, as_kernel, count_objects
from krein.kernels.kernel import user_written
from krein.kernels.pair_function import with_processes
from krein.kernels.validation import check_objects
from krein.policy import check_options
from krein.progress import progress_bar
from krein.threads import each

__all__ = ["COUPLINGS", "Parts", "Request", "limited", "store"]

COUPLINGS = ("shared", "pairwise", "landmark")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Request:
    """The request, checked. What is None is still to be chosen."""

    objects: Any
    kernel: Kernel  # with every parameter bound
    n_blocks: int | None
    rank: int | None
    total_rank: int | None
    coupling: str
    guarded: bool
    landmarks: str
    allocation: str
    drop: float | None
    max_error: float | None
    max_memory: float | None
    dtype: str | None
    serial: bool  # the kernel was written by a user, or has processes of its own: its calls come one after the other
    seed: int
    verbose: int
    n: int = field(init=False)
    own_dtype: str = field(init=False)  # X's float type
    storage: str = field(init=False)  # the type in which bases are stored
    working: type = field(init=False)  # the type in which bases are computed: float64 unless stored in a smaller one

    @classmethod
    def check(cls, X: Any, kernel: Any, **asked: Any) -> Request:
        """Check everything `krein.approximate` was given."""
        one_of("landmarks", asked["landmarks"], ("auto", *LANDMARKS))
        one_of("allocation", asked["allocation"], ALLOCATIONS)
        if not isinstance(asked["guarded"], bool | np.bool_):
            raise InputError(f"guarded must be True or False; got {asked['guarded']!r}.")
        given = check_options(asked, COUPLINGS, STORAGE)
        if not asked["guarded"] and asked["coupling"] != "pairwise":
            raise InputError(
                'guarded=False is the paper\'s algorithm as published, which needs coupling="pairwise"; got '
                f"coupling={asked['coupling']!r}. Pass both, or leave guarded out."
            )
        objects, bound = check_objects(X, as_kernel(kernel))
        n = count_objects(objects)
        if "n_blocks" in given and given["n_blocks"] > n:
            raise InputError(f"n_blocks must be at most the number of objects, {n}; got {given['n_blocks']}.")
        if asked["total_rank"] is not None:
            whole_number("total_rank", asked["total_rank"], given.get("n_blocks", 1), " (one per block at least)")
            if given.get("rank") is not None:
                warn(
                    f"total_rank={asked['total_rank']} says how many directions all blocks have together, so "
                    f"rank={given['rank']} is not used. Pass one of them."
                )
        numbers: dict[str, Any] = dict.fromkeys(("n_blocks", "rank", "total_rank"), int)
        numbers |= dict.fromkeys(("drop", "max_error", "max_memory"), float)
        chosen: dict[str, Any] = {
            name: None if given.get(name) is None else kind(given[name]) for name, kind in numbers.items()
        }
        jobs = asked["n_jobs"]
        processes = with_processes(bound, None if jobs is None else int(jobs), int(asked["verbose"]))
        serial = processes is not bound or (jobs is None and any(user_written(bound)))
        return cls(
            objects,
            processes,
            **chosen,
            coupling=asked["coupling"],
            guarded=bool(asked["guarded"]),
            landmarks=given.get("landmarks", "uniform" if asked["coupling"] == "pairwise" else "kmeans++"),
            allocation=asked["allocation"],
            dtype=given.get("dtype"),
            serial=serial,
            seed=seed_from(asked["random_state"]),
            verbose=int(asked["verbose"]),
        )

    def __post_init__(self) -> None:
        own = "float32" if getattr(self.objects, "dtype", None) == np.float32 else "float64"
        storage = self.dtype or own
        working = np.float64 if storage == "float64" else np.float32
        vars(self).update(n=count_objects(self.objects), own_dtype=own, storage=storage, working=working)

    def rank_sum(self, n_blocks: int) -> int:
        """The sum of the ranks of so many blocks."""
        return self.total_rank or n_blocks * (self.rank or 1)

    def given_ranks(self, sizes: Indices) -> Indices:
        """The ranks of clusters of these sizes by ``rank`` or ``total_rank``, the same for all or by size."""
        assert self.rank is not None or self.total_rank is not None
        if self.total_rank is None and self.allocation == "equal":
            return np.minimum(self.rank or 1, sizes)
        return allocate(self.rank_sum(len(sizes)), sizes, self.allocation)

    def each(self, task: Callable[..., T], arguments: Sequence[tuple[Any, ...]], what: str) -> list[T]:
        """Run ``task`` on each tuple of arguments, in threads; the order of results is that of the arguments."""
        with progress_bar(total=len(arguments), what=what, verbose=self.verbose) as bar:

            def shown(*some: Any) -> T:
                found = task(*some)
                bar.update()
                return found

            return each(task if bar.disable else shown, arguments, self.serial)


@dataclass(frozen=True, eq=False)
class Parts:
    """Clusters, the maps that extend their bases to new objects, and the factorization."""

    clusters: Partition
    maps: tuple[LandmarkMap, ...]
    factorization: Factorization


def limited(
    request: Request, bases: Sequence[Any], maps: Sequence[LandmarkMap], core: BlockSparse
) -> list[LandmarkMap]:
    """The maps of the bases U_i with limits on u(x) that follow from the blocks M_ii, unless the kernel is psd."""
    if request.kernel.traits.psd is True:
        return list(maps)
    return [m.limited(U, M) for m, U, M in zip(maps, bases, core.diagonal_blocks(), strict=True)]


def store(request: Request, clusters: Partition, bases: list[Any], maps: list[LandmarkMap], core: BlockSparse) -> Parts:
    """Store bases U_i and core M in the request's type. The maps follow the stored bases. Empties ``bases``."""
    factorization, turns = stored(bases, core, clusters.order, request.storage)
    return Parts(clusters, tuple(m.turned(T) for m, T in zip(maps, turns, strict=True)), factorization)

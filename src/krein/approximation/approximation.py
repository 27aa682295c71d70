"""An approximated kernel matrix, with what it takes to extend it to new objects and to estimate its own error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # its io is loaded when it is first used
import scipy.sparse as sp

from krein.approximation.assignment import nearest_block
from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import Partition
from krein.approximation.error import ErrorEstimate, estimate_error
from krein.arrays import Array, Indices, check_indices, grouped
from krein.errors import InputError
from krein.factorization import Factorization
from krein.factorization.core import to_dense
from krein.factorization.correction import correct
from krein.factorization.truncation import OutOfRange, out_of_range
from krein.kernels import Evaluator, Kernel, count_objects, take
from krein.kernels.collections import object_bytes
from krein.kernels.validation import check_new_objects
from krein.threads import using

__all__ = ["Approximation", "Links"]


class Links(NamedTuple):
    """An approximation in the paper's form: K[order][:, order] ~ Q L Qᵀ + shift I with Q = diag(Q_1, ..., Q_c)."""

    Q: list[Array]  # Q_i, (n_i, k_i)
    L: Array  # (r, r), r being the sum of all k_i
    order: Indices  # (n,) the caller's row at each row of Q
    shift: float


@dataclass(frozen=True, eq=False)
class Approximation:
    """A kernel matrix approximated as U M Uᵀ + s I, with what it takes to extend it to new objects.

    Examples
    --------
    >>> import krein
    >>> X = krein.datasets.mixture(500, n_features=6, random_state=0).X
    >>> a = krein.approximate(X[:400], krein.RBF(gamma=0.1), n_blocks=4, rank=20, random_state=0)
    >>> a.kernel_rows(X[400:]).shape  # similarities of new rows to the old ones
    (100, 400)
    >>> a.extend(X[400:]).shape  # their rows of U
    (100, 80)
    """

    kernel: Kernel  # with every parameter bound
    objects: Any  # the training objects, by reference
    partition: Partition
    maps: tuple[LandmarkMap, ...]  # u(x) = k(x, Z_i) T_i for x in cluster i
    factorization: Factorization
    n_evaluations: int  # kernel entries evaluated to build it, to bind the kernel included
    seed: int
    search_: Any = None  # `choosing.by_error.Search`: what was tried, where blocks, rank or type were left open
    assignment: str = "centre"  # a new object belongs to the block of its nearest centre, or of its nearest landmark

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

    def to_links(self) -> Links:
        """Return Q_1, ..., Q_c, L, the row order and the shift: what `Factorization.from_links` takes.

        Q L Qᵀ + shift I is this approximation in the paper's notation. Q_i = U_i is orthonormal, and L is the core M.
        """
        f = self.factorization
        Q = [np.array(f.bases.local(i, slice(None))) for i in range(f.n_blocks)]
        return Links(Q, np.array(to_dense(f.core)), f.order.copy(), f.shift)

    def to_mat(self, path: Any) -> None:
        """Write `to_links` to a file for Matlab and Octave: a cell array Q, L, order (from 1) and shift.

        There ``F = blkdiag(Q{:}); K(order, order) = F * L * F' + shift * eye(numel(order))`` is the matrix.
        """
        target = Path(path)
        if target.suffix != ".mat" or (target.exists() and not target.is_file()):
            raise InputError(f"to_mat writes a regular file whose name ends in '.mat'; got {str(path)!r}.")
        Q, L, order, shift = self.to_links()
        cells = np.empty((1, len(Q)), dtype=object)
        cells[0, :] = Q
        scipy.io.savemat(target, {"Q": cells, "L": L, "order": order[None] + 1.0, "shift": shift})

    def corrected(self, how: str | float, **options: Any) -> Approximation:
        """The same approximation with its factorization corrected (`krein.correct`)."""
        return replace(self, factorization=correct(self.factorization, how, **options))

    def extend(self, X_new: Any) -> sp.csr_matrix:
        """The rows of U for new objects, (n_new, r), through the landmarks of each one's cluster (the indirect way)."""
        objects = check_new_objects(X_new, self.objects, self.kernel)
        evaluator = Evaluator(self.kernel)
        known, places = self._compared_first(evaluator, objects)
        return self.extend_in(self.blocks_of(evaluator, objects, places), objects, known)

    def blocks_of(self, evaluator: Evaluator, objects: Any, places: Any = None) -> Indices:
        """The block that each of these checked objects belongs to; ``places`` if they are embedded already."""
        return nearest_block(self.assignment, self.partition, self.maps, evaluator, objects, places)

    def extend_in(self, labels: Indices, objects: Any, known: Array | None = None) -> sp.csr_matrix:
        """The rows of U for checked objects whose blocks are known; ``known`` similarities as `_compared_first` has."""
        evaluator = Evaluator(self.kernel)
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

    @using(None)
    def error(self, n_samples: int = 50_000, random_state: Any = None) -> ErrorEstimate:
        """The relative Frobenius error |K - (U M Uᵀ + s I)| / |K| with a 95 % interval, without forming K.

        Exact up to 2000 rows. Beyond, the diagonal is taken whole and about ``n_samples`` entries within and between
        blocks are sampled, more of them where rows are heavy or blocks near; the estimate is unbiased in the squares.
        ``diagonal``, ``within`` and ``between`` say where the squared error lies.
        """
        return estimate_error(self.factorization, self.kernel, self.objects, n_samples, random_state)

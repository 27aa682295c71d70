"""The shared coupling and Nyström's block for rows in pieces: the same approximation as in memory, in a few visits.

One visit assigns rows to clusters. Landmarks and the directions T_i of each cluster are decided here, from rows fetched
by their place in the cluster. A second visit evaluates B_i = k(X_i, Z_i) T_i and sends the Gram matrices, whose
Cholesky factors make U_i = B_i A_i orthonormal. A third draws the rows that couple the clusters, by |u(x)|². The last
one stores the directions of U_i that are kept, rounded as in memory. All draws are those of `shared` and `nystrom`, and
depend on places within clusters, so that pieces, files and machines have no part in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_limits

from krein.approximation.bases import MAX_EXTENSION_GROWTH, LandmarkMap, among, candidate_places, row_lengths
from krein.approximation.clusters import Partition, centres_of, scaled, scaling
from krein.approximation.couplings import kept_couplings, strengths_between
from krein.approximation.nystrom import DIAGONAL_TOLERANCE, cholesky_of, divided, leading_turn, n_landmarks, rounding_of
from krein.approximation.plan import Sizes, check_memory
from krein.approximation.request import Parts, Request
from krein.approximation.shared import (
    CANDIDATES_PER_RANK,
    Draft,
    Effort,
    SampledBasis,
    core_strip,
    draft_ranks,
    draw_sample,
    inverse_of,
    leading,
    longest,
    outside_landmarks,
    ranks_of,
    sample_keys,
    sample_places,
    smallest,
    strongest,
    tried_places,
)
from krein.approximation.shrinkage import shrunk
from krein.arrays import Array, Indices, stream
from krein.errors import warn
from krein.factorization import Factorization
from krein.factorization.bases import inverse_triangle, is_ill_conditioned, restoring_map
from krein.factorization.core import BlockSparse, congruent
from krein.factorization.factorization import in_eigenvectors, stays_sparse
from krein.factorization.pieces import VECTOR_BYTES, Piece, PieceBases, Pieces, labels_of
from krein.kernels import Evaluator, Kernel
from krein.kernels.collections import precise
from krein.pieces.engines import add
from krein.pieces.rows import RowPieces

__all__ = ["assigned", "couple_pieces", "partition_rows"]

# Rows of clusters are fetched this many numbers at a time.
FETCHED = 2**22
# This many similarities are evaluated at a time.
TILE = 2**17


def couple_pieces(request: Request, evaluator: Evaluator) -> Parts:
    """Approximate what a request asks for, of `RowPieces`."""
    rows: RowPieces = request.objects
    assert request.n_blocks is not None
    _check_memory(request, rows)
    _begin(request, rows)
    if request.n_blocks == 1:
        first = precise(rows.take([0]))
        clusters = Partition(np.empty(0, dtype=np.intp), np.array([0, request.n]), first, 1.0)
        pieces, _ = assigned(rows, clusters, name="assign")
        found, medoids = _one_block(request, clusters, pieces, evaluator), first
    else:
        clusters, pieces, medoids = _clusters(rows, request.n_blocks, request.seed, name="assign")
        found = None
    found = found or _coupled(request, clusters, pieces, medoids, evaluator)
    rows.source.check()  # nothing was read of rows that had changed
    return found


def _check_memory(request: Request, rows: RowPieces) -> None:
    """Refuse a memory limit that cannot be kept, before any work is done. A given ``drop`` makes the core smaller."""
    limit = None if rows.checkpoints is None else rows.checkpoints.limit
    if limit is not None and not request.drop:
        n_blocks = request.n_blocks or 1
        rank = max(1, request.rank_sum(n_blocks) // n_blocks)
        check_memory(Sizes.of(*rows.shape, n_blocks, rank, rows.dtype.itemsize), limit)


def _begin(request: Request, rows: RowPieces) -> None:
    """Say in the working folder what is built, or find out that something else was."""
    if rows.checkpoints is None:
        return
    rows.source.check()
    names = ("n_blocks", "rank", "total_rank", "landmarks", "allocation", "drop", "storage")
    facts = {name: getattr(request, name) for name in names}
    facts = facts | {"kernel": request.kernel, "seed": request.seed}
    rows.checkpoints.begin(facts | {"rows": rows.source.token, "pieces": rows.cuts.tolist()})


# -- clusters ----------------------------------------------------------------------------------------------------------


def partition_rows(rows: RowPieces, n_blocks: int, seed: int) -> Partition:
    """Clusters of all rows, with the cluster of each row brought here."""
    clusters, pieces, _ = _clusters(rows, n_blocks, seed)
    labels = np.concatenate(pieces.engine.collect(labels_of, pieces.held))
    return replace(clusters, order=np.argsort(labels, kind="stable"))


def _clusters(rows: RowPieces, n_blocks: int, seed: int, name: str | None = None) -> tuple[Partition, Pieces, Array]:
    """Clusters without the order of their rows, the pieces with theirs, and the medoid of each cluster."""
    n, scale = rows.shape[0], scaling(rows.survey.largest, rows.dtype)
    centres, branches = centres_of(lambda some: scaled(rows.take(some), scale), n, n_blocks, seed)
    found = _without_rows(centres, branches, scale)
    pieces, nearest = assigned(rows, found, name)
    sizes = pieces.counts.sum(0)
    if not sizes.all():  # no row changes its cluster when empty ones go
        used = np.flatnonzero(sizes)
        centres, branches = centres[used], None if branches is None else branches.kept(used)
        pieces = Pieces(
            pieces.engine, pieces.engine.visit(_without, pieces.held, used)[0], pieces.cuts, pieces.counts[:, used]
        )
        nearest, sizes = nearest[used], sizes[used]
    if len(centres) < n_blocks:
        warn(
            f"{n_blocks} blocks were asked for, but only {len(centres)} clusters are not empty (duplicate rows?); "
            f"{len(centres)} blocks are used."
        )
    clusters = replace(found, starts=np.concatenate([[0], np.cumsum(sizes)]), centres=centres, branches=branches)
    return clusters, pieces, rows.take(nearest[:, 1].astype(np.intp))


def assigned(rows: RowPieces, clusters: Partition, name: str | None = None) -> tuple[Pieces, Array]:
    """The pieces with the cluster of each row, and (distance, row) of the row nearest to each centre."""
    held, (counts, nearest) = rows.engine.visit(
        _assign, rows.held, clusters.centres, clusters.branches, clusters.scale,
        own=list(enumerate([len(rows.held)] * len(rows.held))), plus=_joined, what="clusters", name=name,
    )  # fmt: skip
    return Pieces(rows.engine, held, rows.cuts, counts), nearest


def _assign(rows: Any, at: tuple[int, int], centres: Array, branches: Any, scale: float) -> tuple[Piece, Any]:
    """Assign rows to clusters; send their counts in the row of this piece, and the medoids."""
    X, (j, n_pieces) = np.asarray(rows.read()), at
    labels = _without_rows(centres, branches, scale).assign(None, X)  # type: ignore[arg-type]
    order = np.argsort(labels, kind="stable").astype(np.int32)
    counts = np.zeros((n_pieces, len(centres)), dtype=np.int64)
    counts[j] = np.bincount(labels, minlength=len(centres))
    starts = np.concatenate([[0], np.cumsum(counts[j])])
    nearest = np.full((len(centres), 2), np.inf)
    for i in np.flatnonzero(counts[j]).tolist():
        mine = order[starts[i] : starts[i + 1]]
        distances = np.square(precise(scaled(X[mine], scale)) - centres[i]).sum(1)
        best = int(np.argmin(distances))
        nearest[i] = distances[best], rows.start + mine[best]
    return Piece(rows, order, starts), (counts, nearest)


def _without_rows(centres: Array, branches: Any, scale: float) -> Partition:
    """Clusters whose rows are not known yet."""
    none = np.zeros(len(centres) + 1, dtype=np.intp)
    return Partition(none[:0], none, centres, scale, None, branches)


def _joined(a: Any, b: Any) -> Any:
    """Counts are added; of two medoids the nearer one is kept, the first of equal ones."""
    return a[0] + b[0], np.where((b[1][:, :1] < a[1][:, :1]), b[1], a[1])


def _without(piece: Piece, used: Indices) -> tuple[Piece, None]:
    return piece._replace(starts=np.append(piece.starts[used], piece.starts[-1])), None


def _rows_at(piece: Piece, wanted: list[tuple[int, Indices]]) -> list[tuple[Indices, Array]]:
    """(numbers, rows of X) at places within clusters."""
    places = [piece.order[piece.starts[i] :][local] for i, local in wanted]
    if not places:
        return []
    X = piece.rows.take(np.concatenate(places))
    ends = np.cumsum([0, *map(len, places)])
    return [(p.astype(np.intp) + piece.rows.start, X[a:b]) for p, a, b in zip(places, ends, ends[1:], strict=False)]


def _fetched(pieces: Pieces, wanted: Sequence[Indices], d: int, use: Callable[[int, Indices, Array], Any]) -> list[Any]:
    """``use(cluster, numbers, rows)`` of rows at places of each cluster, fetched for many clusters at a time."""
    out: list[Any] = []
    start = 0
    while start < len(wanted):
        stop, held = start, 0
        while stop < len(wanted) and (stop == start or held + len(wanted[stop]) * d <= FETCHED):
            held += len(wanted[stop]) * d
            stop += 1
        found = pieces.at([(i, wanted[i]) for i in range(start, stop)], _rows_at)
        out += [
            use(start + k, *(part if part else (np.empty(0, np.intp), np.empty((0, d)))))
            for k, part in enumerate(found)
        ]
        start = stop
    return out


# -- bases -------------------------------------------------------------------------------------------------------------


def _basis(
    piece: Piece,
    at: str,
    kernel: Kernel,
    maps: list[tuple[Any, Any, Array]],
    dtype: Any,
    folder: Any,
    peak: float | None,
) -> tuple[Piece, Any]:
    """Evaluate B = k(X, Z) T cluster by cluster; send Gram matrices, and if some |b(x)|² exceeds k(x, x) / peak."""
    evaluator, X = Evaluator(kernel), np.asarray(piece.rows.read())
    columns = tuple(T.shape[1] for _, _, T in maps)
    sizes = np.diff(piece.starts)
    B = np.empty(int(sizes @ np.array(columns)), dtype=dtype)
    grams, over, offset = [], 0.0, 0
    for i, (Z, own, T) in enumerate(maps):
        start, stop, k = int(piece.starts[i]), int(piece.starts[i + 1]), columns[i]
        mine = B[offset : offset + (stop - start) * k].reshape(stop - start, k)
        offset += mine.size
        G = np.zeros((k, k))
        step, Z = max(1, TILE // max(1, len(T))), precise(Z)
        for a in range(start, stop, step):
            rows = precise(X[piece.order[a : min(stop, a + step)]])
            part = mine[a - start : a - start + len(rows)]
            part[...] = evaluator.cross(rows, Z, own) @ T
            held = part.astype(np.float64, copy=False)
            G += held.T @ held
            if peak is not None:
                most = (1.0 + DIAGONAL_TOLERANCE) / peak * np.abs(evaluator.diag(rows))
                over += float((np.einsum("ij,ij->i", held, held) > most).any())
        grams.append(G)
    stored = B if folder is None else folder.write(at, B, lasting=True)
    return piece._replace(stored=stored, columns=columns), (grams, over)


def _evaluated(
    request: Request, pieces: Pieces, maps: list[tuple[Any, Any, Array]], peak: float | None = None
) -> tuple[Pieces, list[Array], bool]:
    """The pieces with B, its Gram matrices, and whether some |b(x)|² exceeds k(x, x) / peak."""
    folder = _folder(request, int(pieces.counts.sum(0) @ np.array([T.shape[1] for _, _, T in maps])))
    name = "basis" if peak is None else "limited-basis"  # if the first exceeds its limit, the second follows
    held, (grams, over) = pieces.engine.visit(
        _basis, pieces.held, request.kernel, maps, np.dtype(request.working), folder, peak,
        own=[f"{name}-{j:05d}" for j in range(len(pieces.held))], what="bases", name=name,
    )  # fmt: skip
    return pieces.with_held(held), grams, over > 0


def _folder(request: Request, numbers: int) -> Any:
    """Where so many numbers of B are written to, or None if they stay in memory."""
    files = request.objects.checkpoints
    nbytes = np.dtype(request.working).itemsize * numbers + VECTOR_BYTES * request.n
    return files if files is not None and (files.kept or files.holds(nbytes)) else None


def _turned_gram(piece: Piece, maps: list[Array]) -> tuple[Piece, list[Array]]:
    """(B A)ᵀ(B A) of each cluster, from the products themselves."""
    out: list[Array] = [np.zeros((A.shape[1], A.shape[1])) for A in maps]
    for i, _, B in piece.tiles():
        U = B @ maps[i]
        out[i] += U.T @ U
    return piece, out


def _gram_of(pieces: Pieces, maps: list[Array]) -> list[Array]:
    found: list[Array] = pieces.engine.visit(_turned_gram, pieces.held, maps, what="orthonormal")[1]
    return found


def _heavy(piece: Piece, before: Indices, seed: int, maps: list[Array]) -> tuple[Piece, list[Any]]:
    """For each cluster the rows with the smallest keys: (keys, places in the cluster)."""
    found: list[Any] = [(np.empty(0), np.empty(0, dtype=np.intp), CANDIDATES_PER_RANK * A.shape[1]) for A in maps]
    parts: dict[int, list[Array]] = {}
    for i, _, B in piece.tiles():
        U = (B @ maps[i]).astype(piece.stored_type)
        parts.setdefault(i, []).append(np.einsum("ij,ij->i", U, U, dtype=np.float64))
    for i, squares in parts.items():
        weights, count = np.concatenate(squares), found[i][2]
        places = before[i] + np.arange(len(weights))
        keys = sample_keys(seed, i, places, weights)
        least = smallest(keys, count)
        found[i] = keys[least], places[least], count
    return piece, found


def _lighter(a: list[Any], b: list[Any]) -> list[Any]:
    out = []
    for (left, mine, count), (right, yours, _) in zip(a, b, strict=True):
        keys, places = np.concatenate([left, right]), np.concatenate([mine, yours])
        least = smallest(keys, count)
        out.append((keys[least], places[least], count))
    return out


def _turned(
    piece: Piece, at: str, turns: list[list[Array]], inner: list[Array] | None, folder: Any
) -> tuple[Piece, tuple[list[Array], Array]]:
    """U_i = B_i A_i V_i, rounded after each product as in memory; send its Gram matrices and longest |u(x) M_ii|."""
    columns, dtype = tuple(A.shape[1] for A in turns[-1]), piece.stored_type
    sizes = np.diff(piece.starts)
    offsets = np.concatenate([[0], np.cumsum(sizes * np.array(columns))])
    new = np.empty(int(offsets[-1]), dtype=dtype)
    grams: list[Array] = [np.zeros((k, k)) for k in columns]
    reach = np.zeros(len(columns))
    for i, places, U in piece.tiles():
        for turn in turns:
            U = (U @ turn[i]).astype(dtype).astype(np.float64)
        start = offsets[i] + (places.start - piece.starts[i]) * columns[i]
        new[start : start + U.size] = U.ravel()
        grams[i] += U.T @ U
        if inner is not None:
            reach[i] = max(reach[i], float(row_lengths(U @ inner[i]).max(initial=0.0)))
    stored = new if folder is None else folder.write(at, new, lasting=True)
    return piece._replace(stored=stored, columns=columns), (grams, reach)


def _added(a: Any, b: Any) -> Any:
    return add(a[0], b[0]), np.maximum(a[1], b[1])


def _stored(
    request: Request, clusters: Partition, pieces: Pieces, turns: list[list[Array]], maps: list[LandmarkMap],
    core: BlockSparse,
) -> Parts:  # fmt: skip
    """The parts of an approximation whose bases are B_i times the turns; limits follow for kernels that are not psd."""
    inner = None if request.kernel.traits.psd is True else core.diagonal_blocks()
    numbers = int(pieces.counts.sum(0) @ np.array([A.shape[1] for A in turns[-1]]))
    folder = _folder(request, numbers)
    held, (grams, reach) = pieces.engine.visit(
        _turned, pieces.held, turns, inner, folder, own=[f"turned-{j:05d}" for j in range(len(pieces.held))],
        plus=_added, what="storing", name="turned",
    )  # fmt: skip
    if folder is not None and not folder.kept:
        folder.remove("basis-*.npy")  # they are not read any more
    pieces = pieces.with_held(held)
    if inner is not None:
        limits = zip(maps, inner, reach, strict=True)
        maps = [replace(m, block=M, reach=MAX_EXTENSION_GROWTH * float(length)) for m, M, length in limits]
    if np.dtype(request.working) == np.float64:
        return _parts(request, clusters, pieces, [np.eye(len(G)) for G in grams], maps, core)
    restored, turned = zip(*map(restoring_map, grams), strict=True)
    maps = [m.turned(T) for m, T in zip(maps, turned, strict=True)]
    moved = cast(BlockSparse, congruent(core, turned, core.ranks))
    return _parts(request, clusters, pieces, list(restored), maps, moved)


def _parts(
    request: Request,
    clusters: Partition,
    pieces: Pieces,
    bases: list[Array],
    maps: list[LandmarkMap],
    core: BlockSparse,
) -> Parts:
    """The parts of an approximation with U_i = B_i bases[i]."""
    found = PieceBases(pieces, tuple(bases), np.dtype(request.working).name)
    held = core if stays_sparse(core) else core.to_dense()
    f = Factorization(found.in_memory() if pieces.are_here else found, held, 0.0)
    f, turned = in_eigenvectors(f, [np.eye(k) for k in f.ranks])
    return Parts(clusters, tuple(m.turned(T) for m, T in zip(maps, turned, strict=True)), f)


# -- the two couplings -------------------------------------------------------------------------------------------------


def _coupled(request: Request, clusters: Partition, pieces: Pieces, medoids: Array, evaluator: Evaluator) -> Parts:
    """The shared coupling (`shared.couple_by_samples`)."""
    rows: RowPieces = request.objects
    n, d = rows.shape
    c, sizes, seed = clusters.n_blocks, clusters.sizes, request.seed
    ranks = draft_ranks(request, clusters)
    partners = [[i] for i in range(c)]
    strengths: Array = np.empty((c, 0))
    if c > 1 and request.drop != 1.0:
        strengths = strengths_between(medoids, sizes, evaluator)
        partners = kept_couplings(request, clusters, ranks, strengths)
    coupled = any(len(others) > 1 for others in partners)
    efforts = [Effort.of(int(k), int(size), c, n, coupled) for k, size in zip(ranks, sizes, strict=True)]

    own_rngs = [stream(seed, 1, i) for i in range(c)]
    wanted = [
        _first_places(int(size), e.own, request.landmarks, rng)
        for size, e, rng in zip(sizes, efforts, own_rngs, strict=True)
    ]

    def own_landmarks(i: int, numbers: Indices, X: Array) -> tuple[Indices, Array]:
        count = efforts[i].own
        if len(numbers) > count:
            chosen = np.sort(among(X, count, request.landmarks, evaluator, own_rngs[i]))
            numbers, X = numbers[chosen], X[chosen]
        return numbers, X

    with threadpool_limits(1):
        pools = _fetched(pieces, wanted, d, own_landmarks)
        ends = np.cumsum([0, *(len(numbers) for numbers, _ in pools)])
        spots = [np.arange(a, b) for a, b in pairwise(ends)]
        numbers, table = (np.concatenate(part) for part in zip(*pools, strict=True))
        rngs = [stream(seed, 5, i) for i in range(c)]
        chosen = [
            np.concatenate(
                [spots[i], outside_landmarks(spots, i, partners[i], strengths[i], sizes, efforts[i].outside, rngs[i])]
            )
            for i in range(c)
        ]
        tried = [tried_places(int(size), len(z), rng) for size, z, rng in zip(sizes, chosen, rngs, strict=True)]

        def directions(i: int, _: Indices, X: Array) -> LandmarkMap:
            landmarks = table[chosen[i]]
            own = evaluator.own(landmarks)
            first = evaluator.cross(precise(X), precise(landmarks), own)
            transform = leading(first, min(efforts[i].columns, int(sizes[i])), rngs[i])
            return LandmarkMap(landmarks, numbers[chosen[i]], transform, own, longest(first))

        maps = _fetched(pieces, tried, d, directions)
    pieces, grams, _ = _evaluated(request, pieces, [(m.landmarks, m.self_similarities, m.transform) for m in maps])
    bases = [inverse_triangle(G) for G in grams]
    if any(map(is_ill_conditioned, bases)):  # squaring lost digits: once more
        again = _gram_of(pieces, bases)
        bases = [A @ inverse_triangle(G) if is_ill_conditioned(A) else A for A, G in zip(bases, again, strict=True)]
    draws = [
        draw_sample(int(size), A.shape[1], e.sampled, rng)
        for size, A, e, rng in zip(sizes, bases, efforts, rngs, strict=True)
    ]
    candidates = _heavy_places(request, pieces, bases)
    blocks: dict[tuple[int, int], Array] = {}
    for group in _groups(partners, [max(len(x), len(y)) * d for x, y in zip(candidates, draws, strict=True)]):
        X, found = _samples(request, pieces, bases, maps, candidates, draws, group)

        def strip(i: int, X: Array = X, found: dict[int, SampledBasis] = found) -> dict[tuple[int, int], Array]:
            return core_strip(X, found, i, [j for j in partners[i] if j >= i], evaluator)

        for some in request.each(strip, [(i,) for i in group], "core"):
            blocks |= some
    extensions = [replace(m, transform=m.transform @ A) for m, A in zip(maps, bases, strict=True)]
    turns: list[Array] = [np.eye(A.shape[1]) for A in bases]
    draft = Draft(turns, extensions, BlockSparse.from_blocks([A.shape[1] for A in bases], blocks))
    draft = strongest(draft, ranks_of(request, clusters, ranks, draft))
    parts = _stored(request, clusters, pieces, [bases, draft.bases], draft.maps, draft.core)
    return shrunk(request, parts, evaluator)


def _first_places(size: int, count: int, rule: str, rng: np.random.Generator) -> Indices:
    """Places of a cluster that are landmarks, or among which they are chosen, as `choose_landmarks` has it."""
    if count >= size:
        return np.arange(size)
    if rule == "uniform":
        return np.sort(rng.choice(size, count, replace=False))
    return candidate_places(size, count, rng)


def _heavy_places(request: Request, pieces: Pieces, bases: list[Array]) -> list[Indices]:
    """For each cluster the places, ascending, among which the pivots of its sample are sought."""
    before = np.concatenate([np.zeros((1, len(bases)), dtype=np.intp), np.cumsum(pieces.counts, axis=0)[:-1]])
    heavy = pieces.engine.visit(
        _heavy, pieces.held, request.seed, bases, own=list(before), plus=_lighter, what="samples"
    )[1]
    return [np.sort(places) for _, places, _ in heavy]


def _groups(partners: list[list[int]], numbers: list[int]) -> list[range]:
    """Clusters whose samples are held at the same time: all if any are coupled, else as many as take little memory."""
    c = len(partners)
    if any(len(others) > 1 for others in partners):
        return [range(c)]
    cuts = [0]
    held = 0
    for i in range(c):
        if held and held + numbers[i] > FETCHED:
            cuts.append(i)
            held = 0
        held += numbers[i]
    return [range(a, b) for a, b in pairwise([*cuts, c])]


def _samples(
    request: Request, pieces: Pieces, bases: list[Array], maps: list[LandmarkMap], candidates: list[Indices],
    draws: list[Indices], group: range,
) -> tuple[Array, dict[int, SampledBasis]]:  # fmt: skip
    """The sampled rows of some clusters, and what couples each of them; its sample are places among these rows."""
    whole = PieceBases(pieces, tuple(bases), "float64")

    def at(wanted: list[tuple[int, Indices]]) -> list[tuple[Indices, Array]]:
        return [(numbers, U.astype(request.working).astype(np.float64)) for numbers, U in whole.at(wanted)]

    rows = at([(i, candidates[i]) for i in group])
    places = [sample_places(U, candidates[i], draws[i]) for i, (_, U) in zip(group, rows, strict=True)]
    found = at(list(zip(group, places, strict=True)))
    ends = np.cumsum([0, *map(len, places)])
    X = request.objects.take(np.concatenate([numbers for numbers, _ in found]))
    return X, {
        i: SampledBasis(np.empty((0, bases[i].shape[1])), maps[i], np.arange(*ends[k : k + 2]), inverse_of(U))
        for k, (i, (_, U)) in enumerate(zip(group, found, strict=True))
    }


def _one_block(request: Request, clusters: Partition, pieces: Pieces, evaluator: Evaluator) -> Parts | None:
    """Nyström's approximation (`nystrom.one_block`), or None if the kernel turns out to be indefinite."""
    rows: RowPieces = request.objects
    n, declared = request.n, request.kernel.traits.psd is True
    rank = min(n, request.rank_sum(1))
    count, rng = n_landmarks(rank, n), stream(request.seed, 1, 0)
    numbers = _first_places(n, count, request.landmarks, rng)
    landmarks = rows.take(numbers)
    if len(numbers) > count:
        with threadpool_limits(1):
            chosen = np.sort(among(landmarks, count, request.landmarks, evaluator, rng))
        numbers, landmarks = numbers[chosen], landmarks[chosen]
    own = evaluator.own(landmarks)
    W = evaluator.symmetric(precise(landmarks), numbers).astype(np.float64)
    peak = float(np.abs(W).max(initial=0.0))
    L = None if peak == 0.0 else cholesky_of(W / peak, rounding_of(request), declared)
    if L is None:
        return None
    # B = k(X, Z) L⁻ᵀ / peak, so that peak B Bᵀ ~ K
    T = scipy.linalg.solve_triangular(L, np.eye(len(L)), lower=True, trans="T", check_finite=False) / peak
    pieces, (G,), over = _evaluated(request, pieces, [(landmarks, own, T)], None if declared else peak)
    if over:
        return None
    turn, values = leading_turn(G, rank)
    R = scipy.linalg.cholesky(_gram_of(pieces, [turn])[0], check_finite=False)
    turn, values = divided(turn, R), values * np.diagonal(R) ** 2
    usual = peak * float(np.linalg.norm(W / peak, axis=1).max())
    extension = LandmarkMap(landmarks, numbers, T @ turn, own, usual)
    core = BlockSparse.from_blocks([len(values)], {(0, 0): np.diag(values * peak)})
    if declared and request.storage == "float32" and len(values) == len(T):  # as in memory, B is stored as it is
        return _parts(request, clusters, pieces, [turn], [extension], core)
    return _stored(request, clusters, pieces, [[turn]], [extension], core)

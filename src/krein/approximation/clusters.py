"""Objects in, clusters out (Part 1 of Algorithm 1): k-means on a random sample, every object to its nearest centre.

Many clusters are found in two steps, branches first and then the leaves of each branch. Objects are assigned in the
same two steps, which takes about 2 sqrt(c) distances per object instead of c.

Vectors are clustered as they are. Objects that only have similarities are first embedded by the signed Nyström features
of a sample of landmarks, k(x, Z) V |w|^(-1/2). New objects are embedded and assigned by the same map.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import sklearn  # its cluster is loaded when it is first used: importing krein need not wait for it
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from krein.arrays import Array, Indices, grouped, stream, strips
from krein.errors import warn
from krein.kernels import Evaluator, count_objects, is_vectors, take
from krein.kernels.collections import is_sparse
from krein.threads import each

__all__ = [
    "Branches", "Embedding", "Partition", "centres_of", "near_centres", "partition", "scale_of", "scaled", "scaling",
    "square_distances",
]  # fmt: skip

# k-means runs on a random sample of SAMPLE rows, or on more if a centre would have fewer than ROWS_PER_CENTRE of them.
SAMPLE = 20_000
ROWS_PER_CENTRE = 20
# More clusters than FLAT_CLUSTERS are found in two steps, branches first, and objects are assigned in the same steps.
FLAT_CLUSTERS = 128
# Then a centre has at least ROWS_PER_LEAF rows of the sample.
ROWS_PER_LEAF = 40
# Steps of Lloyd's algorithm for the branches, for the leaves of each branch, and after leaves were split.
BRANCH_STEPS, LEAF_STEPS, SPLIT_STEPS = 20, 8, 5
# Greedy k-means++ takes the best of this many drawn rows.
SEED_TRIALS = 4
# Centres are shared out by rows^(1 - w) inertia^w, w = INERTIA_WEIGHT. Rows or inertia alone were up to 11 % worse.
INERTIA_WEIGHT = 0.6
# This share of the leaves is kept back for clusters that turn out to need them. Half of it is given out in each round.
RESERVED_SHARE = 0.25
# All leaves that are left are given out if they are less than this share of the clusters.
LAST_SHARE = 0.1
# Clusters of the sample with more than LARGEST_SIZE times the mean rows are split if possible, in SPLIT_ROUNDS rounds.
LARGEST_SIZE, SPLIT_ROUNDS = 3.5, 8
# At most this many landmarks embed objects without coordinates.
MAX_LANDMARKS = 4 * FLAT_CLUSTERS
# This many rows are assigned at a time, side by side with others.
ASSIGNED_ROWS = 2**16
# This many distances are held at a time, so that they stay in the processor's cache.
STRIP = 2**18


@dataclass(frozen=True, eq=False)
class Embedding:
    """Coordinates for objects that have none: x -> k(x, Z) T."""

    landmarks: Any
    transform: Array  # T, shape (m, p)

    def __call__(self, evaluator: Evaluator, objects: Any) -> Array:
        out = np.empty((count_objects(objects), self.transform.shape[1]))
        for rows, block in evaluator.chunks(objects, self.landmarks):
            out[rows] = block @ self.transform
        return out


@dataclass(frozen=True, eq=False)
class Branches:
    """A tree of two levels over many centres: the nearest branch first, then the nearest of its leaves."""

    centres: Array  # (b, d), in units of the partition's scale
    starts: Indices  # (b + 1,) branch i has the partition's centres starts[i] .. starts[i + 1]

    def nearest(self, places: Any, leaves: Array) -> Indices:
        """The index of the leaf of each row."""
        out = np.empty(places.shape[0], dtype=np.intp)
        for i, here in grouped(nearest(places, self.centres)):
            first, last = self.starts[i : i + 2]
            for rows in strips(len(here), max(last - first, leaves.shape[1]), STRIP):
                out[here[rows]] = first + nearest(places[here[rows]], leaves[first:last], self.centres[i])
        return out

    def kept(self, leaves: Indices) -> Branches:
        """The tree of some leaves (ascending), without branches that have none of them."""
        starts = np.searchsorted(leaves, self.starts)
        used = np.flatnonzero(np.diff(starts))
        return Branches(self.centres[used], np.append(starts[used], len(leaves)))


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint clusters of n objects."""

    order: Indices  # (n,) the objects, cluster by cluster, each cluster ascending
    starts: Indices  # (c + 1,)
    centres: Array  # (c, d), in units of `scale`
    scale: float  # coordinates are multiplied by it, so that squares neither overflow nor vanish
    embedding: Embedding | None = None
    branches: Branches | None = None  # if there are many clusters
    n_blocks: int = field(init=False)  # c
    sizes: Indices = field(init=False)  # (c,)

    def __post_init__(self) -> None:
        vars(self).update(n_blocks=len(self.starts) - 1, sizes=np.diff(self.starts))

    @cached_property
    def labels(self) -> Indices:
        """The cluster of each object, in the caller's order."""
        labels = np.empty(len(self.order), dtype=np.intp)
        labels[self.order] = np.repeat(np.arange(self.n_blocks), self.sizes)
        return labels

    def members(self, i: int) -> Indices:
        return self.order[self.starts[i] : self.starts[i + 1]]

    def places(self, evaluator: Evaluator, objects: Any) -> Any:
        """The coordinates of objects: their vectors, or their embedding."""
        return objects if self.embedding is None else self.embedding(evaluator, objects)

    def assign(self, evaluator: Evaluator, objects: Any, places: Any = None) -> Indices:
        """The cluster whose centre is nearest to each object. With branches: the nearest in the nearest branch."""
        if self.n_blocks == 1:
            return np.zeros(count_objects(objects), dtype=np.intp)
        known = self.places(evaluator, objects) if places is None else places
        return _assigned(scaled(known, self.scale), self.centres, self.branches)

    def medoids(self, evaluator: Evaluator, objects: Any) -> Indices:
        """The member of each cluster that is nearest to its centre, (c,), in O(n d).

        ``objects`` are those of the clusters. Objects without coordinates are embedded again: n m similarities.
        """
        places = self.places(evaluator, objects)
        found = np.empty(self.n_blocks, dtype=np.intp)
        for i, centre in enumerate(self.centres):
            mine = self.members(i)
            found[i] = mine[np.argmin(square_distances(scaled(places[mine], self.scale), centre))]
        return found

    def centre_distances(self) -> Array:
        """|c_i - c_j| for all pairs, (c, c)."""
        moved = self.centres - self.centres.mean(0)  # fewer digits are lost
        squares = np.einsum("ij,ij->i", moved, moved)
        d2 = squares[:, None] + squares - 2.0 * moved @ moved.T
        np.fill_diagonal(d2, 0.0)
        return np.asarray(np.sqrt(np.maximum(d2, 0.0)) / self.scale)


def partition(
    objects: Any, n_blocks: int, evaluator: Evaluator, seed: int, known: tuple[Embedding, Array] | None = None
) -> Partition:
    """Return ``n_blocks`` non-empty clusters. If fewer rows are distinct, there is one for each, and a warning.

    Objects without coordinates are distinct if their embeddings differ by more than rounding. ``known`` is an embedding
    and the coordinates of all objects, if the caller has them already.
    """
    n, embedding = count_objects(objects), None if known is None else known[0]
    if known is None and not is_vectors(objects):
        embedding = landmark_embedding(objects, n_blocks, evaluator, seed)
    if n_blocks == 1:
        places = objects[:1] if embedding is None else embedding(evaluator, take(objects, np.arange(1)))
        centre = np.asarray(_dense(places), dtype=np.float64)
        scale = scale_of(centre)
        return Partition(np.arange(n), np.array([0, n]), centre * scale, scale, embedding)
    places = known[1] if known is not None else objects if embedding is None else embedding(evaluator, objects)
    scale = scale_of(places)
    near = scaled(places, scale)
    centres, branches = centres_of(lambda some: near[some], n, n_blocks, seed)
    tolerance = 0.0 if embedding is None else _rounding(near, np.dtype(np.float64))  # features are computed, rows given
    centres, branches, labels = _filled(near, centres, branches, n_blocks, tolerance)
    if len(centres) < n_blocks:
        warn(
            f"{n_blocks} blocks were asked for, but only {len(centres)} clusters are not empty (duplicate rows?); "
            f"{len(centres)} blocks are used."
        )
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=len(centres)))])
    return Partition(np.argsort(labels, kind="stable"), starts, centres, scale, embedding, branches)


def centres_of(
    take_places: Callable[[Indices], Any], n: int, n_blocks: int, seed: int
) -> tuple[Array, Branches | None]:
    """Centres, and branches if they are many, from a sample of n rows; ``take_places`` gives rows by number."""
    rng = stream(seed, 0, 0)
    size = min(n, max(SAMPLE, (ROWS_PER_CENTRE if n_blocks <= FLAT_CLUSTERS else ROWS_PER_LEAF) * n_blocks))
    seen = take_places(np.sort(rng.choice(n, size, replace=False)) if size < n else np.arange(n))
    with threadpool_limits(1):  # k-means adds up in the order its threads come
        if n_blocks <= FLAT_CLUSTERS:
            return _means(seen, n_blocks, 100, int(rng.integers(2**31))), None
        return _tree(seen, n_blocks, rng)


def _filled(
    places: Any, centres: Array, branches: Branches | None, count: int, tolerance: float
) -> tuple[Array, Branches | None, Indices]:
    """Drop empty clusters and split others until there are ``count``, or one for each distinct row.

    Returns centres, branches and labels. Both k-means and rounding can leave clusters empty. A cluster is split by
    making two of its rows its centres. No other centre is as near to such a row, so neither part can become empty
    again, and there are at most ``count`` splits.
    """
    while True:
        labels = _assigned(places, centres, branches)
        if len(used := np.unique(labels)) < len(centres):
            centres, branches = centres[used], None if branches is None else branches.kept(used)
            continue
        if len(centres) == count:
            return centres, branches, labels
        pairs = _far_pairs(places, centres, labels, count - len(centres), tolerance)
        if not pairs:
            return centres, branches, labels
        centres = centres.copy()
        for i, (near, _) in pairs.items():
            centres[i] = near
        after = np.array(list(pairs)) + 1
        centres = np.insert(centres, after, np.stack([far for _, far in pairs.values()]), axis=0)
        if branches is not None:
            branches = Branches(branches.centres, branches.starts + np.searchsorted(after, branches.starts, "right"))


def _far_pairs(
    places: Any, centres: Array, labels: Indices, most: int, tolerance: float
) -> dict[int, tuple[Array, Array]]:
    """For up to ``most`` clusters, largest first: the row nearest to the centre, and the one farthest from that row."""
    found: dict[int, tuple[Array, Array]] = {}
    for i, here in sorted(grouped(labels), key=lambda group: -len(group[1])):
        if len(found) == most:
            break
        if len(here) > 1:
            near = _float64_row(places, here[np.argmin(_distances(places, here, centres[i]))])
            distances = _distances(places, here, near)
            if distances.max() > tolerance:
                found[i] = near, _float64_row(places, here[np.argmax(distances)])
    return dict(sorted(found.items()))


def landmark_embedding(objects: Any, n_blocks: int, evaluator: Evaluator, seed: int) -> Embedding:
    """Signed Nyström features of uniform landmarks, enough to separate ``n_blocks`` clusters: n m similarities."""
    n = count_objects(objects)
    size = min(n, max(64, 4 * n_blocks), MAX_LANDMARKS)
    chosen = np.sort(stream(seed, 0, 1).choice(n, size, replace=False))
    landmarks = take(objects, chosen)
    values, vectors = np.linalg.eigh(evaluator.symmetric(landmarks, chosen).astype(np.float64))
    strength = np.abs(values)
    keep = strength > 1e-6 * strength.max(initial=0.0)
    if not keep.any():
        return Embedding(landmarks, np.zeros((size, 1)))
    return Embedding(landmarks, vectors[:, keep] / np.sqrt(strength[keep]))


def _assigned(places: Any, centres: Array, branches: Branches | None) -> Indices:
    n = places.shape[0]
    if n <= ASSIGNED_ROWS:
        return nearest(places, centres) if branches is None else branches.nearest(places, centres)
    places = places.tocsr() if is_sparse(places) else places  # its rows can be sliced

    def some(rows: slice) -> Indices:
        return _assigned(places[rows], centres, branches)

    return np.concatenate(each(some, [(rows,) for rows in strips(n, 1, ASSIGNED_ROWS)]))


def nearest(places: Any, centres: Array, middle: Array | None = None) -> Indices:
    """The index of the nearest centre for each row: argmin |c|² - 2 <x, c>, in strips.

    If rounding leaves open which of several centres is nearest, the differences x - c decide. A row that is itself a
    centre is always assigned to it.
    """
    middle = centres.mean(0) if middle is None else middle
    moved = centres - middle  # fewer digits are lost around the centres' own mean
    kind = places.dtype if places.dtype == np.float32 else np.dtype(np.float64)
    weights = (-2.0 * moved.T).astype(kind)
    squares = np.einsum("ij,ij->i", moved, moved)
    radius, offset, shift = math.sqrt(squares.max()), squares, float(np.linalg.norm(middle))
    if is_sparse(places):  # rows stay sparse, so the mean goes to the other side
        offset = squares + 2.0 * moved @ middle
        middle = np.zeros(1)
    rounding = (centres.shape[1] + 4) * float(np.finfo(kind).eps) * radius
    out = np.empty(places.shape[0], dtype=np.intp)
    for rows in strips(places.shape[0], max(centres.shape), STRIP):
        near = places[rows] if is_sparse(places) else places[rows] - middle.astype(kind)
        values = np.asarray(near @ weights) + offset.astype(kind)
        best = np.argmin(values, axis=1)
        if len(centres) > 1:
            lengths = np.sqrt(square_distances(near, np.zeros(centres.shape[1])))
            limit = values[np.arange(len(best)), best] + 2 * rounding * (lengths + (shift + radius))
            close = values <= limit[:, None].astype(kind)
            if np.count_nonzero(close) > len(best):
                _decide(best, close, places[rows], centres)
        out[rows] = best
    return out


def _decide(best: Indices, close: Any, places: Any, centres: Array) -> None:
    """Set ``best`` by differences for rows with several ``close`` centres, (rows, c). Of equal ones it is the first."""
    several = np.flatnonzero(np.count_nonzero(close, axis=1) > 1)
    for part in strips(len(several), centres.size, STRIP):
        mine = several[part]
        row, centre = np.nonzero(close[mine])
        rows = np.asarray(_dense(places[mine]), dtype=np.float64)
        distances = np.empty(len(row))
        for pairs in strips(len(row), centres.shape[1], STRIP):
            distances[pairs] = _lengths(rows[row[pairs]] - centres[centre[pairs]])
        order = np.lexsort((centre, distances, row))
        best[mine] = centre[order[np.searchsorted(row, np.arange(len(mine)))]]


def _lengths(rows: Array) -> Array:
    """|x| for each row. Entries are divided by the largest before they are squared, so that nothing overflows."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    units = rows / np.where(largest > 0.0, largest, 1.0)[:, None]
    return np.asarray(largest * np.sqrt(np.einsum("ij,ij->i", units, units)))


def near_centres(places: Any, centres: Array, count: int) -> Indices:
    """The ``count`` nearest centres of each row, (rows, count), in no order but that the first is the nearest."""
    middle = centres.mean(0)
    moved = centres - middle
    offset = square_distances(moved, np.zeros(len(middle))) + (2.0 * moved @ middle if is_sparse(places) else 0.0)
    values = np.asarray((places if is_sparse(places) else places - middle) @ (-2.0 * moved.T)) + offset
    if count < len(centres):
        found = np.argpartition(values, count - 1, axis=1)[:, :count]
    else:
        found = np.broadcast_to(np.arange(count), values.shape).copy()
    lowest = np.argmin(np.take_along_axis(values, found, 1), axis=1)
    rows = np.arange(len(found))
    found[rows, lowest], found[:, 0] = found[:, 0].copy(), found[rows, lowest]
    return found


def _distances(places: Any, here: Indices, centre: Array) -> Array:
    """|x - c| for the rows ``here``, from the differences."""
    out = np.empty(len(here))
    for part in strips(len(here), len(centre), STRIP):
        out[part] = _lengths(_dense(places[here[part]]).astype(np.float64) - centre)
    return out


def _float64_row(places: Any, i: Any) -> Array:
    return np.asarray(_dense(places[[i]])[0], dtype=np.float64)


def square_distances(places: Any, centre: Array) -> Array:
    """|x - c|² for each row x."""
    if is_sparse(places):
        squares = np.asarray(places.multiply(places).sum(axis=1)).ravel()
        return np.asarray(np.maximum(squares - 2.0 * (places @ centre) + centre @ centre, 0.0))
    differences = places - centre.astype(places.dtype if places.dtype == np.float32 else np.float64)
    return np.asarray(np.einsum("ij,ij->i", differences, differences))


def _means(places: Any, start: int | Array, steps: int, seed: int | None = None) -> Array:
    """Distinct centres by k-means, started by k-means++ with a number of centres or from given ones."""
    if isinstance(start, int):
        means = sklearn.cluster.KMeans(start, init="k-means++", n_init=1, max_iter=steps, random_state=seed)
    else:
        means = sklearn.cluster.KMeans(len(start), init=start.astype(places.dtype), n_init=1, max_iter=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than centres: the caller warns
        means.fit(places)
    return _distinct(np.asarray(means.cluster_centers_, dtype=np.float64), places.dtype)


def _seeds(places: Any, count: int, rng: np.random.Generator) -> Array:
    """At most ``count`` rows by greedy k-means++: the best of a few that are drawn by their squared distance.

    scikit-learn's implementation takes four times as long for the few thousand rows of a branch.
    """
    n, chosen = places.shape[0], [int(rng.integers(places.shape[0]))]
    moved = places if is_sparse(places) else places - places.mean(0)  # fewer digits are lost
    squares = square_distances(moved, np.zeros(moved.shape[1]))
    far = np.full(n, np.inf, dtype=squares.dtype)
    new = chosen
    while True:
        to = np.asarray(moved @ _dense(moved[new]).T).T
        nearer = np.minimum(far, np.maximum(squares[new][:, None] + squares - 2.0 * to, 0.0))
        best = int(np.argmin(nearer.sum(1)))
        chosen[-1], far = new[best], nearer[best]
        far[chosen[-1]] = 0.0
        along = np.cumsum(far, dtype=np.float64)
        if len(chosen) >= count or along[-1] == 0.0:
            return np.asarray(_dense(places[chosen]), dtype=np.float64)
        new = np.minimum(np.searchsorted(along, along[-1] * rng.random(SEED_TRIALS), side="right"), n - 1).tolist()
        chosen.append(new[0])


def _distinct(centres: Array, dtype: np.dtype[Any]) -> Array:
    """The centres without those that differ from an earlier one only by rounding."""
    if len(centres) == 1:
        return centres
    moved = centres - centres.mean(0)
    rounding = _rounding(centres, dtype)
    along = np.sort(moved @ np.linspace(0.5, 1.0, moved.shape[1]) / math.sqrt(moved.shape[1]))
    if np.diff(along).min() > rounding:  # nearly always, and without c x c distances
        return centres
    distinct = [np.linalg.norm(moved[:j] - moved[j], axis=1).min() > rounding for j in range(1, len(moved))]
    return centres[np.flatnonzero([True, *distinct])]


def _rounding(places: Array, dtype: np.dtype[Any]) -> float:
    """A bound on the distance of equal rows after rounding in ``dtype``, with a margin."""
    return 16.0 * float(np.finfo(dtype).eps) * float(np.abs(places).max()) * math.sqrt(places.shape[1])


class _Branch:
    """A branch under construction: its rows of the sample, its leaves, and the rows and inertia of each leaf."""

    def __init__(self, rows: Any, centre: Array) -> None:
        self.rows, self.centre = rows, centre
        self.inertia = float(square_distances(rows, centre).sum(dtype=np.float64))

    def settle(self, seeds: Array, steps: int) -> None:
        """Set the leaves to the means that k-means finds from ``seeds``, without empty ones."""
        leaves = _means(self.rows, seeds, steps) if len(seeds) > 1 else seeds
        while True:
            self.leaves, self.labels = leaves, nearest(self.rows, leaves, self.centre)
            self.sizes = np.bincount(self.labels, minlength=len(leaves))
            if self.sizes.all():
                break
            leaves = leaves[self.sizes > 0]
        self.spread = np.empty(len(leaves))
        self.members = [here for _, here in grouped(self.labels)]
        for i, here in enumerate(self.members):
            self.spread[i] = square_distances(self.rows[here], leaves[i]).sum()


def _tree(sample: Any, count: int, rng: np.random.Generator) -> tuple[Array, Branches]:
    """About sqrt(count) branches with ``count`` leaves in all: about sqrt(count) distances per row and step."""
    n = sample.shape[0]
    few = sample[np.sort(rng.choice(n, min(n, SAMPLE), replace=False))]
    centres = _means(few, _seeds(few, round(math.sqrt(count)), rng), BRANCH_STEPS)
    while len(used := np.unique(labels := nearest(sample, centres))) < len(centres):
        centres = centres[used]
    branches = [_Branch(sample[here], centres[i]) for i, here in grouped(labels)]
    shares = _shares(branches, round((1 - RESERVED_SHARE) * count))
    seeds = [_seeds(branch.rows, int(share), rng) for branch, share in zip(branches, shares, strict=True)]
    each(_Branch.settle, [(b, own, LEAF_STEPS) for b, own in zip(branches, seeds, strict=True)])
    even, largest = True, n
    for _ in range(SPLIT_ROUNDS):
        missing = count - sum(len(b.leaves) for b in branches)
        if not _split_large(branches, count, rng, even):
            break
        before, largest = largest, max(int(b.sizes.max()) for b in branches)
        even = even and (missing > 0 or largest < 0.8 * before)  # some data have one large cluster, however it is split
    starts = np.concatenate([[0], np.cumsum([len(b.leaves) for b in branches])])
    return np.concatenate([b.leaves for b in branches]), Branches(centres, starts)


def _shares(branches: list[_Branch], count: int) -> Indices:
    """The number of leaves of each branch, ``count`` in all: at least one and at most as many as it has rows."""
    rows = np.array([b.rows.shape[0] for b in branches])
    weights = rows ** (1 - INERTIA_WEIGHT) * np.array([b.inertia for b in branches]) ** INERTIA_WEIGHT
    wanted = count * weights / (weights.sum() or 1.0)
    shares = np.clip(np.floor(wanted).astype(np.intp), 1, rows)
    while shares.sum() < min(count, rows.sum()):
        shares[np.argmax(np.where(shares < rows, wanted - shares, -np.inf))] += 1
    while shares.sum() > count:
        shares[np.argmin(np.where(shares > 1, wanted - shares, np.inf))] -= 1
    return shares


def _split_large(branches: list[_Branch], count: int, rng: np.random.Generator, even: bool) -> bool:
    """Split large leaves until none is missing and, if ``even``, in place of small ones. False if none was split.

    The cost of a block and the benefit of its rank grow with its rows, so that none should be many times the mean.
    """
    owner = np.repeat(np.arange(len(branches)), [len(b.leaves) for b in branches])
    inner = np.concatenate([np.arange(len(b.leaves)) for b in branches])
    sizes = np.concatenate([b.sizes for b in branches])
    spread = np.concatenate([b.spread for b in branches])
    mean, missing = sizes.sum() / count, count - len(sizes)
    weights = np.where((sizes > 1) & (spread > 0.0), sizes ** (1 - INERTIA_WEIGHT) * spread**INERTIA_WEIGHT, 0.0)
    pieces = np.where((sizes > LARGEST_SIZE * mean) & (weights > 0.0) & even, np.ceil(sizes / (2 * mean)), 1.0).astype(
        np.intp
    )
    largest = np.concatenate([np.arange(len(b.sizes)) == np.argmax(b.sizes) for b in branches])  # a branch keeps one
    giving = [int(p) for p in np.argsort(sizes, kind="stable") if sizes[p] < mean / 4 and not largest[p]]
    tiny = int((sizes[giving] < min(mean / 16, 2)).sum()) if even and sizes.max() > 2 * mean else 0
    part = missing if missing < LAST_SHARE * count else -(-missing // 2)  # the other half after the leaves have moved
    spare = part + min(len(giving), max(tiny, int((pieces - 1).sum()) - part))
    split: dict[int, list[int]] = {}
    seeds: dict[int, list[Array]] = {}
    gained = 0
    for p in np.lexsort((-weights, sizes <= LARGEST_SIZE * mean)):
        if gained >= spare:
            break
        if weights[p] > 0.0 and (sizes[p] >= mean / 4 or gained < part):
            if p in giving:
                giving.remove(p)
                spare = min(spare, part + len(giving))
            b, leaf = branches[owner[p]], int(inner[p])
            parts = _seeds(b.rows[b.members[leaf]], min(spare - gained + 1, max(2, int(pieces[p]))), rng)
            split.setdefault(int(owner[p]), []).append(leaf)
            seeds.setdefault(int(owner[p]), []).append(parts)
            gained += len(parts) - 1
    for p in giving[: max(0, gained - part)]:
        split.setdefault(int(owner[p]), []).append(int(inner[p]))
    kept = {i: np.delete(branches[i].leaves, gone, axis=0) for i, gone in split.items()}
    moved = [(branches[i], np.concatenate([own, *seeds.get(i, [])]), SPLIT_STEPS) for i, own in kept.items()]
    each(_Branch.settle, moved)
    return gained > 0


def scale_of(places: Any) -> float:
    """A power of two that brings extreme coordinates near 1. It is 1 for ordinary ones, which stay as they are."""
    values = places.data if is_sparse(places) else places
    return scaling(max(float(values.max(initial=0.0)), -float(values.min(initial=0.0))), places.dtype)


def scaling(size: float, dtype: Any) -> float:
    """The same from the largest coordinate."""
    if size == 0.0 or (1e-60 < size < 1e60 and (dtype != np.float32 or 1e-12 < size < 1e12)):
        return 1.0
    largest = 120 if dtype == np.float32 else 1000  # a power that the type itself can hold
    return math.ldexp(1.0, min(-math.frexp(size)[1], largest))


def scaled(places: Any, scale: float) -> Any:
    """The coordinates times ``scale``, in their own type."""
    return places if scale == 1.0 else places * places.dtype.type(scale)


def _dense(places: Any) -> Array:
    return np.asarray(places.toarray() if is_sparse(places) else places)

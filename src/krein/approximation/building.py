"""A complete plan in, the parts of an approximation out: clusters, bases, core, in either coupling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation.bases import LandmarkMap, right_divide
from krein.approximation.clusters import Partition, partition
from krein.approximation.exact import whole_matrix
from krein.approximation.landmark import couple_by_landmarks
from krein.approximation.landmarks import allocate
from krein.approximation.nystrom import one_block
from krein.approximation.pairwise import meka
from krein.approximation.request import Request
from krein.approximation.shared import Draft, couple, strengths
from krein.approximation.taper import taper
from krein.arrays import Array, Indices, stream
from krein.errors import warn
from krein.factorization.blocksparse import BlockSparse
from krein.factorization.dense import is_diagonal
from krein.factorization.factorization import Factorization, compressed
from krein.kernels import Evaluator, take

__all__ = ["Parts", "build", "build_whole", "draft", "finish", "ranks_of"]

DENSE_CORE = 4096  # a core with more rows than this is block-sparse where at least half of its blocks are dropped
APART = 512  # and with more than this where all are: then blocks are solved one by one
NEARLY_ALL = 0.9  # of the couplings' energy: if less is kept, it is said
SPARE = 1.5  # ranks by strength: what a block may take beyond the mean
TILES, TILE = 32, 16  # sampled to see whether the core is too large,
LOOKED_AT = 0.05  # but no more of the matrix than this
SHRUNK = 0.5  # a core that must be scaled by less than this is worth a word
WORTH = 0.05  # and by how much that must lower the squared error


@dataclass(frozen=True, eq=False)
class Parts:
    """What an approximation is made of."""

    clusters: Partition
    maps: tuple[LandmarkMap, ...]
    factorization: Factorization


def build(plan: Request, evaluator: Evaluator) -> Parts:
    """Build what a plan with its numbers of blocks and ranks asks for."""
    assert plan.n_blocks is not None
    match plan.coupling:
        case "pairwise":
            return _stored(plan, *meka(plan, evaluator))
        case "landmark":
            return _stored(plan, *couple_by_landmarks(plan, evaluator))
        case _:
            clusters = partition(plan.objects, plan.n_blocks, evaluator, plan.seed)
            one = _one_block(plan, clusters, evaluator) if clusters.n_blocks == 1 else None
            return _shared(plan, clusters, evaluator) if one is None else one


def _shared(plan: Request, clusters: Partition, evaluator: Evaluator) -> Parts:
    """coupling="shared" with several blocks, or one of an indefinite kernel."""
    ranks = ranks_of(plan, clusters, evaluator)
    found = draft(plan, clusters, ranks, evaluator)
    if plan.allocation == "spectral":
        total = plan.total_rank or clusters.n_blocks * (plan.rank or 1)
        ranks = allocate(total, np.array([len(e) for e in found.energies]), "spectral", found.energies)
    return finish(plan, clusters, found, ranks.tolist(), evaluator)


def build_whole(plan: Request, evaluator: Evaluator) -> Parts:
    """The matrix as it is, in one block."""
    clusters = partition(plan.objects, 1, evaluator, plan.seed)
    U, extension, core = whole_matrix(plan, evaluator)
    return _stored(plan, clusters, [U], [extension.limited(U, core.block(0, 0), plan.kernel)], core)


def _one_block(plan: Request, clusters: Partition, evaluator: Evaluator) -> Parts | None:
    """One block of the rank that is asked for, or None where the kernel turns out to be indefinite (`nystrom`)."""
    rank = min(plan.n, plan.total_rank or plan.rank or 1)
    if rank == plan.n:
        return build_whole(plan, evaluator)
    found = one_block(plan, rank, clusters, evaluator)
    if found is None:
        return None
    core = np.diag(found.values)
    kept = BlockSparse.from_blocks([len(core)], {(0, 0): core})
    if found.combine is not None:
        held = kept if len(core) > APART else core
        f = Factorization.from_blocks((found.stored,), held, clusters.order, 0.0, (found.combine,))
        return Parts(clusters, (found.extension,), f)
    return _stored(plan, clusters, [found.stored], [found.extension.limited(found.stored, core, plan.kernel)], kept)


def ranks_of(plan: Request, clusters: Partition, evaluator: Evaluator) -> Indices:
    """The rank of each cluster, by the plan's rule."""
    if plan.allocation != "spectral":
        return plan.given_ranks(clusters.sizes)
    total = plan.total_rank or clusters.n_blocks * (plan.rank or 1)
    return np.minimum(math.ceil(SPARE * total / clusters.n_blocks), clusters.sizes)


def draft(plan: Request, clusters: Partition, ranks: Indices, evaluator: Evaluator) -> Draft:
    """The shared coupling before directions are left out."""
    c = clusters.n_blocks
    if c == 1 or plan.drop == 1.0:  # no couplings, so no c² strengths of them
        return couple(plan, clusters, ranks, {(i, i): 1.0 for i in range(c)}, np.empty((c, 0)), evaluator)
    force = strengths(plan, clusters, evaluator)
    return couple(plan, clusters, ranks, _kept(plan, clusters, ranks, force), force, evaluator)


def finish(
    plan: Request,
    clusters: Partition,
    found: Draft,
    ranks: Sequence[int],
    evaluator: Evaluator,
    max_bytes: float = math.inf,
) -> Parts:
    """The strongest directions alone, stored as asked, and the core no larger than the kernel is.

    What small types take is known only once they are filled: where it is too much, the weakest directions go.
    """
    bases, maps, core = found.finished(ranks, ordered=math.isfinite(max_bytes))
    maps = [m.limited(U, M, plan.kernel) for m, U, M in zip(maps, bases, core.diagonal_blocks(), strict=True)]
    while True:
        parts = _stored(plan, clusters, list(bases) if math.isfinite(max_bytes) else bases, maps, core)
        held = parts.factorization.nbytes
        if held <= max_bytes:
            return _shrunk(plan, parts, evaluator)
        kept = _fewer(core.ranks, math.ceil((held - max_bytes) * sum(core.ranks) / held))
        if kept is None:
            warn(
                f"{plan.n_blocks} blocks of rank 1 take {held} bytes, above max_memory={max_bytes:.4g}; they are kept. "
                "Ask for fewer blocks, or allow more memory."
            )
            return _shrunk(plan, parts, evaluator)
        bases = [U[:, :k] for U, k in zip(bases, kept, strict=True)]
        maps = [
            replace(m, transform=m.transform[:, :k], block=None if m.block is None else m.block[:k, :k])
            for m, k in zip(maps, kept, strict=True)
        ]
        core = _leading_blocks(core, kept)


def _fewer(ranks: Sequence[int], count: int) -> list[int] | None:
    """Ranks with about ``count`` directions less, the more the larger; None if each block has but one."""
    used = np.array([k for k in ranks if k > 0])
    if used.sum() == len(used):
        return None
    left = iter(allocate(max(len(used), int(used.sum()) - max(1, count)), used, "size").tolist())
    return [next(left) if k > 0 else 0 for k in ranks]


def _leading_blocks(core: BlockSparse, ranks: Sequence[int]) -> BlockSparse:
    return core.map_blocks(lambda i, j, block: block[: ranks[i], : ranks[j]], ranks)


def _kept(plan: Request, clusters: Partition, ranks: Indices, force: Array) -> dict[tuple[int, int], float]:
    """Which blocks (i, j) of the core are kept, i <= j, and with what weight.

    All, while the core is small or takes no more room than the bases; the strongest, if it would. A kernel that is
    known to be psd gets them tapered (`taper`), so that the core stays psd; any other keeps the strongest.
    """
    c = clusters.n_blocks
    weights = {(i, i): 1.0 for i in range(c)}
    n_pairs = c * (c - 1) // 2
    if plan.drop is not None:
        budget, cost = n_pairs - math.floor(plan.drop * n_pairs + 1e-9), None
    else:
        budget = _affordable(plan, clusters, ranks)
        cost = ranks.tolist()
    if plan.kernel.traits.psd is True:
        kept = taper(force, budget, cost)
        if plan.drop is None and (share := kept.captured(force)) < NEARLY_ALL:
            _warn_of_dropped(c, share)
        pairs = zip(kept.left.tolist(), kept.right.tolist(), kept.weights.tolist(), strict=True)
        return weights | {(i, j): w for i, j, w in pairs}
    left, right = np.triu_indices(c, 1)
    order = np.argsort(-force[left, right], kind="stable")
    room = np.cumsum(np.ones(n_pairs) if cost is None else (ranks[left] * ranks[right])[order])
    chosen = np.sort(order[room <= budget])
    total, held = float((force[left, right] ** 2).sum()), float((force[left[chosen], right[chosen]] ** 2).sum())
    if plan.drop is None and held < NEARLY_ALL * total:
        _warn_of_dropped(c, held / total)
    return weights | dict.fromkeys(zip(left[chosen].tolist(), right[chosen].tolist(), strict=True), 1.0)


def _warn_of_dropped(n_blocks: int, share: float) -> None:
    warn(
        f"All couplings of {n_blocks} blocks would take more room than the bases; those that were kept hold about "
        f"{100 * share:.3g} % of their energy, judged by the blocks' medoids. If a.error() is too large, ask for fewer "
        "blocks, less rank, or drop=0.0."
    )


def _affordable(plan: Request, clusters: Partition, ranks: Indices) -> int:
    """How many numbers the blocks off the diagonal may take: all, or so many that the core is as large as the bases,
    or as the largest that is always dense.
    """
    total, diagonal = int(ranks.sum()), int((ranks**2).sum())
    everything = (total**2 - diagonal) // 2
    item = np.dtype(plan.dtype or plan.own_dtype).itemsize
    bases = int(clusters.sizes @ ranks) * item
    if total <= DENSE_CORE or 8 * total**2 <= bases:
        return everything
    return max(0, min(everything, max(bases // 8, DENSE_CORE**2) - diagonal))


def _stored(plan: Request, clusters: Partition, bases: list[Any], maps: list[LandmarkMap], kept: BlockSparse) -> Parts:
    """The core, dense or block-sparse, and the bases stored as asked; the maps follow the bases."""
    filled = 2 * kept.n_kept - sum(k * k for k in kept.ranks)  # numbers that are not dropped, in both halves
    least = min(APART, DENSE_CORE) if kept.is_block_diagonal else DENSE_CORE
    sparse = kept.shape[0] > least and 2 * filled <= kept.shape[0] ** 2
    factorization, turns = compressed(bases, kept, clusters.order, 0.0, plan.dtype or plan.own_dtype, dense=not sparse)
    if isinstance(factorization.core, BlockSparse) and factorization.core.is_block_diagonal:
        factorization, turns = _turned(factorization, factorization.core, turns)
    finished = tuple(
        replace(m, transform=right_divide(m.transform, T), block=None if m.block is None else T @ m.block)
        for m, T in zip(maps, turns, strict=True)
    )
    return Parts(clusters, finished, factorization)


def _turned(f: Factorization, core: BlockSparse, turns: list[Array]) -> tuple[Factorization, list[Array]]:
    """The same matrix with each block seen in its eigenvectors: a core of blocks on their own in r numbers."""
    blocks: dict[tuple[int, int], Array] = {}
    eigenvectors: list[Array | None] = []
    for i, block in enumerate(core.diagonal_blocks()):
        if is_diagonal(block):  # a matrix taken whole comes so
            blocks[i, i] = block
            eigenvectors.append(None)
            continue
        values, V = np.linalg.eigh(block)
        eigenvectors.append(V)
        turns[i] = V.T @ turns[i]
        blocks[i, i] = np.diag(values)
    turned = BlockSparse.from_blocks(core.ranks, blocks)
    return replace(f, bases=f.bases.turned(eigenvectors), core=turned), turns


def _shrunk(plan: Request, parts: Parts, evaluator: Evaluator) -> Parts:
    """Scale the diagonal blocks by a, the others by b <= a, where sampled entries say that the core is too large.

    A kernel with much that no basis of this rank carries (a nugget: k(x, x) stands out of its surroundings) enters the
    least squares through the sampled diagonal and makes M too large: errors above 1 were seen. Scaled so it is still
    psd, as (a - b) I + b 11ᵀ is, and never worse than the block diagonal (b = 0) or nothing (a = 0).
    """
    f = parts.factorization
    if f.rank == 0 or f.rank == f.shape[0]:
        return parts
    rng = stream(plan.seed, 6)
    inner, outer = (_tiles(plan, f, evaluator, inside, rng) for inside in (True, False))
    inner.append(_own(plan, f, evaluator))
    peak = max(float(np.abs(part).max(initial=0.0)) for _, *tile in inner + outer for part in tile)
    within, between = (_Fit.over(tiles, peak or 1.0) for tiles in (inner, outer))  # one scale, or they do not add up
    a, b = within.best, between.best
    if b > a:  # psd needs b <= a, and then the best is one scale for all
        a = b = _Fit(within.kk + between.kk, within.kf + between.kf, within.ff + between.ff).best
    before, after = within.squares(1.0) + between.squares(1.0), within.squares(a) + between.squares(b)
    if after >= (1.0 - WORTH) * before or before == 0.0:
        return parts
    if min(a, b) < SHRUNK:
        warn(
            f"Rank {max(f.ranks)} per block carries so little of this kernel that the core came out too large; it was "
            f"scaled by {a:.2g} within blocks and {b:.2g} between them. More rank, or another kernel parameter, helps."
        )
    core = f.core
    if isinstance(core, BlockSparse):
        core = core.map_blocks(lambda i, j, block: (a if i == j else b) * block, f.ranks)
    else:
        core = b * core
        for (_, cols), block in zip(f.spans, f.core_diagonal_blocks(), strict=True):
            core[cols, cols] = a * block
    maps = tuple(m if m.block is None else replace(m, block=a * m.block, reach=a * m.reach) for m in parts.maps)
    return replace(parts, factorization=f.with_core(core, f.shift), maps=maps)


@dataclass(frozen=True)
class _Fit:
    """Sums over sampled entries: the squared error of F scaled by a is kk - 2 a kf + a² ff."""

    kk: float
    kf: float
    ff: float

    @classmethod
    def over(cls, tiles: list[tuple[float, Array, Array]], peak: float) -> _Fit:
        """The sums over all entries, each tile standing for its share; over ``peak``, so that no square overflows."""
        sums = np.zeros(3)
        for share, exact, found in tiles:
            k, f = exact / peak, found / peak
            sums += share * np.array([(k**2).mean(), (k * f).mean(), (f**2).mean()])
        return cls(*sums.tolist())

    def squares(self, a: float) -> float:
        return max(0.0, self.kk - 2.0 * a * self.kf + a * a * self.ff)

    @property
    def best(self) -> float:
        return min(1.0, max(0.0, self.kf / self.ff)) if self.ff > 0.0 else 1.0


def _tiles(
    plan: Request, f: Factorization, evaluator: Evaluator, inside: bool, rng: np.random.Generator
) -> list[tuple[float, Array, Array]]:
    """Tiles off the diagonal, within blocks or between them: the number of entries each stands for, K's and F's."""
    sizes = np.array([rows.stop - rows.start for rows, _ in f.spans], dtype=np.float64)
    weights = sizes * (sizes - 1.0) if inside else sizes * (len(f.order) - sizes)
    total = float(weights.sum())
    if total == 0.0:
        return []
    out: list[tuple[float, Array, Array]] = []
    count = max(1, min(TILES, int(LOOKED_AT * plan.n**2) // TILE**2))
    for i in rng.choice(len(sizes), count, p=weights / total).tolist():
        span = f.spans[i][0]
        mine = np.arange(span.start, span.stop)
        if inside:
            side = min(TILE, len(mine) // 2)
            both = rng.choice(mine, 2 * side, replace=False)
            rows, cols = both[:side], both[side:]
        else:
            rows = rng.choice(mine, min(TILE, len(mine)), replace=False)
            cols = rng.choice(len(f.order) - len(mine), min(TILE, len(f.order) - len(mine)), replace=False)
            cols = np.where(cols >= span.start, cols + len(mine), cols)
        here, there = f.order[rows], f.order[cols]
        exact = evaluator.block(take(plan.objects, here), take(plan.objects, there)).astype(np.float64)
        out.append((total / count, exact, f.entries(here, there)))
    return out


def _own(plan: Request, f: Factorization, evaluator: Evaluator) -> tuple[float, Array, Array]:
    """The diagonal, whole: it is all there is where rows hardly meet, and no long row (heavy tails) is missed in it."""
    return float(plan.n), evaluator.diag(plan.objects).astype(np.float64), f.diagonal()

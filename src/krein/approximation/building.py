"""A complete request in, the parts of an approximation out: each coupling has a file of its own."""

from __future__ import annotations

from krein.approximation.clusters import partition
from krein.approximation.exact import whole_matrix
from krein.approximation.landmark import couple_by_landmarks
from krein.approximation.nystrom import one_block
from krein.approximation.pairwise import meka
from krein.approximation.parts import Parts, store
from krein.approximation.piecewise import couple_pieces
from krein.approximation.request import Request
from krein.approximation.shared import couple_by_samples
from krein.kernels import Evaluator
from krein.pieces.rows import RowPieces

__all__ = ["build"]


def build(request: Request, evaluator: Evaluator) -> Parts:
    """Build what a request with its number of blocks and its ranks asks for."""
    assert request.n_blocks is not None
    if isinstance(request.objects, RowPieces):
        return couple_pieces(request, evaluator)
    match request.coupling:
        case "pairwise":
            return store(request, *meka(request, evaluator))
        case "landmark":
            return store(request, *couple_by_landmarks(request, evaluator))
        case _:
            clusters = partition(request.objects, request.n_blocks, evaluator, request.seed)
            if clusters.n_blocks == 1 and request.rank_sum(1) >= request.n:
                return whole_matrix(request, evaluator)
            one = one_block(request, clusters, evaluator) if clusters.n_blocks == 1 else None
            return couple_by_samples(request, clusters, evaluator) if one is None else one

"""The parts of an approximation: what every coupling returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import Partition
from krein.approximation.request import Request
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse
from krein.factorization.factorization import stored

__all__ = ["Parts", "store"]


@dataclass(frozen=True, eq=False)
class Parts:
    """Clusters, the maps that extend their bases to new objects, and the factorization."""

    clusters: Partition
    maps: tuple[LandmarkMap, ...]
    factorization: Factorization


def store(request: Request, clusters: Partition, bases: list[Any], maps: list[LandmarkMap], core: BlockSparse) -> Parts:
    """Store bases U_i and core M in the request's type. The maps follow the stored bases. Empties ``bases``."""
    factorization, turns = stored(bases, core, clusters.order, request.storage)
    return Parts(clusters, tuple(m.turned(T) for m, T in zip(maps, turns, strict=True)), factorization)

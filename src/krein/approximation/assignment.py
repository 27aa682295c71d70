"""New objects in, the block of each out: that of the nearest centre, or that of the nearest landmark.

Blocks meet half way between their centres, which cuts through groups of near copies: a new object whose nearest
training objects lie in one block may be nearer to the centre of another. Landmarks follow the shape of a block. They
are held for the extension anyway, and those of the nearest centres alone are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import Partition, near_centres, scaled, square_distances
from krein.arrays import Array, Indices, grouped, strips
from krein.kernels import Evaluator, count_objects
from krein.kernels.collections import is_sparse

__all__ = ["ASSIGNMENTS", "nearest_block"]

ASSIGNMENTS = ("centre", "landmark")
# The landmarks of this many blocks are compared with an object: those whose centres are nearest.
COMPARED_BLOCKS = 16
# This many distances are held at a time.
STRIP = 2**20


def nearest_block(
    assignment: str, partition: Partition, maps: Sequence[LandmarkMap], evaluator: Evaluator, objects: Any,
    places: Any = None, rows: Indices | None = None,
) -> Indices:  # fmt: skip
    """The block of each object. ``places`` are its coordinates, if the caller has them.

    ``rows`` are the objects' own numbers where they are training objects: none is its own landmark then, as if it were
    new.
    """
    if assignment == "centre" or partition.n_blocks == 1:
        return partition.assign(evaluator, objects, places)
    known = scaled(partition.places(evaluator, objects) if places is None else places, partition.scale)
    count = min(COMPARED_BLOCKS, partition.n_blocks)
    n = count_objects(objects)
    near = np.empty((n, count), dtype=np.intp)
    for part in strips(n, partition.n_blocks, STRIP):
        near[part] = near_centres(known[part], partition.centres, count)
    best, distances = near[:, 0].copy(), np.full(n, np.inf)
    for i, pairs in grouped(near.ravel()):  # all objects that are compared with block i
        landmarks = scaled(partition.places(evaluator, maps[i].landmarks), partition.scale)
        for part in strips(len(pairs), landmarks.shape[0], STRIP):
            mine = pairs[part] // count
            between = _square_distances(known[mine], landmarks, partition.centres[i])
            if rows is not None:
                between[rows[mine, None] == maps[i].rows] = np.inf
            found = between.min(axis=1)
            nearer = found < distances[mine]
            best[mine[nearer]], distances[mine[nearer]] = i, found[nearer]
    return best


def _square_distances(places: Any, landmarks: Any, centre: Array) -> Array:
    """|x - z|² of all pairs, (places, landmarks)."""
    if not is_sparse(places):  # fewer digits are lost around the centre
        places, landmarks = places - centre.astype(places.dtype), landmarks - centre.astype(places.dtype)
    products = places @ landmarks.T
    nothing = np.zeros(len(centre))
    lengths = square_distances(places, nothing)[:, None] + square_distances(landmarks, nothing)
    return np.asarray(lengths - 2.0 * (products.toarray() if is_sparse(products) else products))

"""Rows in pieces: X from anywhere in, `RowPieces` out that an engine visits, piece by piece or on a cluster.

- `opening` decides once whether X is read into memory or visited in pieces.
- `rows` is the collection of rows in pieces, `engines` runs steps at the pieces and adds up what they send.
- `on_dask` does so on the workers of a Dask cluster, and makes predictions lazy collections.
- `checkpoints` is the folder for what is not held in memory and for what an interrupted fit has finished.
"""

from __future__ import annotations

from krein.pieces.engines import Engine, Here
from krein.pieces.rows import RowPieces

__all__ = ["Engine", "Here", "RowPieces"]

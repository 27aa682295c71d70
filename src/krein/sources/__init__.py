"""Rows of numbers that lie elsewhere: in files, in chunked arrays, on a Dask cluster, in a stream of blocks.

`source_of` recognises what X is. It returns a `Source`, which reads rows by number, or None for data in memory.
`mapped` holds .npy files and memory maps, `sliced` arrays that can be sliced, `collection` Dask, `changed` rows of
another source that are scaled as they are read, or some of them. What can only be read from its first row to its last
is a `Blocks`: `tables` and `streams` make them, and `spool` writes them to an .npy file.
"""

from __future__ import annotations

from krein.sources.changed import ChangedRows, ChosenRows
from krein.sources.opening import has_columns, names_of, source_of, split_frame
from krein.sources.source import Source

__all__ = ["ChangedRows", "ChosenRows", "Source", "has_columns", "names_of", "source_of", "split_frame"]

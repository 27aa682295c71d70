"""Findings that are not mended yet. Each is a part of the name of an attempt, with the reason."""

from __future__ import annotations

OPEN: dict[str, str] = {
    "sparse offset 1e+07": "distances of sparse float64 rows far from the origin cancel; sparse rows cannot be centred",
    "(call), float32 1e-30": "a kernel called by itself computes float32 rows in float32, and their products vanish",
    "(call), float32 subnormal": "a kernel called by itself computes float32 rows in float32, and their products vanish",
    ", None: unnamed": "a function of two objects that returns None gets Python's own TypeError",
}

"""Findings that are not mended yet. Each is a part of the name of an attempt, with the reason."""

from __future__ import annotations

OPEN: dict[str, str] = {
    "sparse offset 1e+07": "distances of sparse float64 rows far from the origin cancel; sparse rows cannot be centred",
    "(call), float32 1e-30": "a kernel called by itself computes in float32, where products of such rows vanish",
    "(call), float32 subnormal": "the same",
    ", None: unnamed": "a function of two objects that returns None gets Python's own TypeError",
}

"""Findings that are not mended yet. Each is a part of the name of an attempt, with the reason."""

from __future__ import annotations

OPEN: dict[str, str] = {
    "ProxySVC (exact), each row a class: hung": "a proxy for each of 1770 pairs of classes takes 16 to 30 seconds of "
    "CPU time, and ends",
}

"""Findings that are not mended yet. Each is a part of the name of an attempt, with the reason."""

from __future__ import annotations

OPEN: dict[str, str] = {}

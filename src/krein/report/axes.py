"""From numbers to places on paper: linear, logarithmic, and logarithmic to both sides of zero, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Axis", "linear", "logarithmic", "symmetric"]


@dataclass(frozen=True)
class Axis:
    """A range, how it is bent, and where numbers stand."""

    low: float
    high: float
    bend: Callable[[float], float]
    ticks: tuple[float, ...]

    def placed(self, at_high: float, at_low: float) -> Callable[[float], float]:
        """The place of a value, where the ends of the range have these."""
        a, b = self.bend(self.low), self.bend(self.high)
        slope = (at_high - at_low) / (b - a) if b > a else 0.0
        return lambda value: at_low + slope * (self.bend(min(max(value, self.low), self.high)) - a)


def linear(low: float, high: float, snug: bool = False) -> Axis:
    """From low to high, widened to round numbers, or where it is ``snug`` by a little."""
    if not high > low:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(i * step, 12) if step > 1e-9 else i * step for i in range(first, last + 1))
    if snug:
        low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)
        return Axis(low, high, lambda v: v, tuple(t for t in ticks if low <= t <= high))
    return Axis(first * step, last * step, lambda v: v, ticks)


def logarithmic(low: float, high: float) -> Axis:
    """Powers of ten between two numbers above zero; with more between them where the range is short."""
    low, high = low / 1.15, high * 1.15
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found: list[float] = []
    for factors in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)):
        found = [f * 10.0**p for p in range(first, last + 1) for f in factors if low <= f * 10.0**p <= high]
        if len(found) >= 3:
            break
    return Axis(low, high, math.log10, tuple(found[:: max(1, math.ceil(len(found) / 6))]))


def symmetric(low: float, high: float, unit: float | None = None) -> Axis:
    """Linear up to ``unit``, logarithmic beyond, on either side of zero; by default a millionth of the largest."""
    largest = max(abs(low), abs(high)) or 1.0
    u = unit or 1e-6 * largest

    def bend(value: float) -> float:
        return math.copysign(math.log10(1.0 + abs(value) / u), value)

    top = math.floor(math.log10(largest) + 1e-9)
    bottom = math.ceil(math.log10(u) + 0.5) if unit is None else 0
    every = max(1, math.ceil((top - bottom + 1) * (2 if low < 0 < high else 1) / 6))
    powers = [10.0**p for p in range(top, bottom - 1, -every)]
    ticks = [-p for p in powers if -p >= low] + [0.0] + [p for p in powers if p <= high]
    return Axis(low, high, bend, tuple(sorted(ticks)))

"""What an array is here, and where randomness comes from. Ground: knows nothing of the rest."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

__all__ = ["Array", "Indices", "seed_from", "stream"]

Array: TypeAlias = NDArray[np.floating[Any]]
Indices: TypeAlias = NDArray[np.integer[Any]]


def seed_from(random_state: Any) -> int:
    """Return one integer that stands for ``random_state`` (None, int, RandomState or Generator) from here on."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**62))
    state = check_random_state(random_state)
    return int(state.randint(2**31 - 1)) << 31 | int(state.randint(2**31 - 1))


def stream(seed: int, *key: int) -> np.random.Generator:
    """Return the generator that belongs to ``key``: the same whoever asks, and in whatever order they ask."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

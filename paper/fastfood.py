"""Fastfood: random Fourier features of an RBF kernel by fast Hadamard transforms (Le, Sarlós & Smola, 2013).

In: rows, gamma, the number of features. Out: Z with Z Zᵀ ~ K. Gaussian directions are replaced by products
S H G P H B / sqrt(d) of diagonal matrices (S lengths, G Gaussian, B signs), a permutation P and the Hadamard matrix H,
so that all d of a stack take O(d log d) per row and O(d) numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from krein.arrays import Array, Indices

__all__ = ["Fastfood", "hadamard"]


@dataclass(frozen=True, eq=False)
class Fastfood:
    """sqrt(2 / D) cos(V x + b), V of D structured random rows; E[z(x)ᵀ z(y)] = exp(-gamma |x - y|²)."""

    signs: Array  # B, (stacks, d), d the next power of 2
    places: Indices  # P
    normal: Array  # G
    lengths: Array  # S without its sqrt(2 gamma / d)
    phases: Array  # b, (D,)
    gamma: float

    @classmethod
    def draw(cls, n_inputs: int, n_features: int, gamma: float, seed: int) -> Fastfood:
        rng = np.random.default_rng(seed)
        d = 1 << max(0, n_inputs - 1).bit_length()
        stacks = -(-n_features // d)
        normal = rng.standard_normal((stacks, d))
        chi = np.sqrt(rng.chisquare(d, (stacks, d)))  # the length of a Gaussian row
        return cls(
            signs=rng.choice([-1.0, 1.0], (stacks, d)),
            places=np.stack([rng.permutation(d) for _ in range(stacks)]),
            normal=normal,
            lengths=chi / np.linalg.norm(normal, axis=1, keepdims=True),
            phases=rng.uniform(0.0, 2.0 * math.pi, n_features),
            gamma=gamma,
        )

    def __call__(self, X: Array) -> Array:
        """Z, (n, D)."""
        stacks, d = self.signs.shape
        padded = np.zeros((len(X), 1, d))
        padded[:, 0, : X.shape[1]] = X
        v = hadamard(padded * self.signs)  # (n, stacks, d)
        v = np.take_along_axis(v, np.broadcast_to(self.places, v.shape), axis=2) * self.normal
        v = hadamard(v) * (self.lengths * math.sqrt(2.0 * self.gamma / d))
        count = len(self.phases)
        angles = v.reshape(len(X), stacks * d)[:, :count] + self.phases
        return np.asarray(math.sqrt(2.0 / count) * np.cos(angles))


def hadamard(x: Array) -> Array:
    """H x along the last axis, whose length is a power of 2; entries of H are 1 and -1."""
    x, d, half = np.array(x, dtype=np.float64), x.shape[-1], 1
    while half < d:
        pairs = x.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([first + second, first - second], axis=-2).reshape(x.shape)
        half *= 2
    return x

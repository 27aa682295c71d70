"""A naive twin of every kernel: double loops over formulas, written from the literature and not from the source."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from krein.kernels import (
    ELM,
    NTK,
    RBF,
    TL1,
    ArcCosine,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Sigmoid,
    SpherePolynomial,
)

Function = Callable[[Any, Any], float]


def dot(x, y):
    return math.fsum(float(s) * float(t) for s, t in zip(x, y, strict=True))


def l1(x, y):
    return math.fsum(abs(float(s) - float(t)) for s, t in zip(x, y, strict=True))


def l2squared(x, y):
    return math.fsum((float(s) - float(t)) ** 2 for s, t in zip(x, y, strict=True))


def length(x):
    return math.hypot(*(float(s) for s in x))


def cosine(x, y):
    product = length(x) * length(y)
    return max(-1.0, min(1.0, dot(x, y) / product)) if product > 0 else 0.0


def elm(x, y, sigma_w=1e5):
    s = 1 / (2 * sigma_w**2)
    sine = (1 + dot(x, y)) / math.sqrt((s + 1 + dot(x, x)) * (s + 1 + dot(y, y)))
    return 2 / math.pi * math.asin(max(-1.0, min(1.0, sine)))


def arc_cosine(x, y, degree):
    theta = math.acos(cosine(x, y))
    if degree == 0:
        return 1 - theta / math.pi
    if degree == 1:
        return length(x) * length(y) / math.pi * (math.sin(theta) + (math.pi - theta) * math.cos(theta))
    j2 = 3 * math.sin(theta) * math.cos(theta) + (math.pi - theta) * (1 + 2 * math.cos(theta) ** 2)
    return (length(x) * length(y)) ** 2 / math.pi * j2


def ntk(x, y, depth):
    """Jacot et al.'s recursion over covariances of pre-activations, on the raw vectors, with He's scaling."""
    sigma, sigma_x, sigma_y = dot(x, y), dot(x, x), dot(y, y)
    theta = sigma
    for _ in range(depth):
        scale = math.sqrt(sigma_x * sigma_y)
        angle = math.acos(max(-1.0, min(1.0, sigma / scale))) if scale > 0 else math.pi / 2
        derivative = (math.pi - angle) / math.pi  # 2 E[relu'(u) relu'(v)]
        sigma = scale * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / math.pi  # 2 E[relu(u) relu(v)]
        theta = theta * derivative + sigma  # the variances sigma_x, sigma_y stay, by He's scaling
    return theta


FORMULAS: list[tuple[Kernel, Function]] = [
    (RBF(0.3), lambda x, y: math.exp(-0.3 * l2squared(x, y))),
    (Laplacian(0.2), lambda x, y: math.exp(-0.2 * l1(x, y))),
    (Linear(), dot),
    (Polynomial(3, 0.5, 1.0), lambda x, y: (0.5 * dot(x, y) + 1) ** 3),
    (Polynomial(2, 0.7, -0.5), lambda x, y: (0.7 * dot(x, y) - 0.5) ** 2),
    (Cosine(), cosine),
    (SpherePolynomial(2, 2.0), lambda x, y: (1 - l2squared(x, y) / 4) ** 2),
    (SpherePolynomial(3, 1.2), lambda x, y: (1 - l2squared(x, y) / 1.44) ** 3),
    (ELM(), elm),
    (ELM(0.8), lambda x, y: elm(x, y, 0.8)),
    (TL1(2.0), lambda x, y: max(2 - l1(x, y), 0)),
    (Sigmoid(0.4, -0.3), lambda x, y: math.tanh(0.4 * dot(x, y) - 0.3)),
    (ArcCosine(0), lambda x, y: arc_cosine(x, y, 0)),
    (ArcCosine(1), lambda x, y: arc_cosine(x, y, 1)),
    (ArcCosine(2), lambda x, y: arc_cosine(x, y, 2)),
    (NTK(1), lambda x, y: ntk(x, y, 1)),
    (NTK(4), lambda x, y: ntk(x, y, 4)),
    (Normalized(Polynomial(2, 0.5, 1.0)), lambda x, y: _ratio(lambda s, t: (0.5 * dot(s, t) + 1) ** 2, x, y)),
    (RBF(0.3) + 2.0 * Linear(), lambda x, y: math.exp(-0.3 * l2squared(x, y)) + 2 * dot(x, y)),
    (TL1(3.0) * Cosine(), lambda x, y: max(3 - l1(x, y), 0) * cosine(x, y)),
]


def _ratio(k, x, y):
    return k(x, y) / math.sqrt(k(x, x) * k(y, y))


def gram(k: Function, A: Any, B: Any) -> np.ndarray:
    return np.array([[k(x, y) for y in B] for x in A], dtype=float).reshape(len(A), len(B))


def on_sphere(X: Any) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)

"""What a kernel declares and what it costs: asymmetry, ranges of normalised kernels, counted similarities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import krein
from krein import KernelError
from krein.kernels import Normalized


@pytest.mark.parametrize("seed", range(5))
def test_a_kernel_asymmetric_only_between_clusters_is_refused(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 2)) + np.repeat([[0.0, 0.0], [20.0, 0.0]], 100, axis=0)

    def uneven(A, B):
        a, b = (A[:, 0] > 10.0).astype(float), (B[:, 0] > 10.0).astype(float)
        return np.exp(-0.001 * cdist(A, B, "sqeuclidean")) + 0.5 * np.subtract.outer(a, b)

    with pytest.raises(KernelError, match="symmetric"):
        krein.approximate(X, uneven, n_blocks=2, rank=10, random_state=seed)


@pytest.mark.parametrize("kernel", [krein.RBF(), krein.TL1(rho=2.0)], ids=["RBF", "TL1"])
def test_a_normalised_kernel_without_negative_values_declares_so(kernel):
    assert Normalized(kernel).traits.low == 0.0


def test_a_normalised_psd_kernel_declares_cosines():
    traits = Normalized(krein.Linear()).traits
    assert (traits.low, traits.high) == (-1.0, 1.0)
    assert Normalized(krein.RBF()).traits.high == 1.0


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky", "leverage"])
def test_every_kernel_entry_a_callable_computes_is_counted(landmarks):
    count = 0

    def counted(A, B):
        nonlocal count
        count += len(A) * len(B)
        return np.exp(-0.1 * cdist(A, B, "sqeuclidean"))

    X = np.random.default_rng(0).standard_normal((2103, 3))
    a = krein.approximate(X, counted, n_blocks=4, rank=5, landmarks=landmarks, random_state=0)
    assert a.n_evaluations == count
    count = 0
    assert a.error(n_samples=4000, random_state=0).n_evaluations == count

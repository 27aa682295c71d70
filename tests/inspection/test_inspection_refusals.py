"""What is no similarity, or breaks what it promises, is told by an inspection and where."""

from __future__ import annotations

import numpy as np
import pytest
from test_inspection import WORDS, indefinite, overlap

import krein
from krein.errors import InputError


def test_an_asymmetric_function_is_refused_with_the_place():
    def skewed(A, B):
        return overlap(A, B) + np.array([[a == "bdh" and b == "acg" for b in B] for a in A])

    i, j = WORDS.index("bdh"), WORDS.index("acg")
    with pytest.raises(InputError, match=r"k\(x, y\) and k\(y, x\) differ") as told:
        krein.inspect(WORDS, skewed, random_state=0)
    assert f"objects {min(i, j)} and {max(i, j)}" in str(told.value) or f"objects {max(i, j)} and {min(i, j)}" in str(
        told.value
    )


@pytest.mark.parametrize("budget", [None, 1500])
def test_one_object_that_gives_nan_is_found_wherever_it_is(budget):
    def hollow(A, B):
        K = overlap(A, B)
        K[[a == "cfh" for a in A]] = np.nan
        K[:, [b == "cfh" for b in B]] = np.nan
        return K

    for seed in range(4):
        with pytest.raises(InputError, match=rf"finite.*objects.*\b{WORDS.index('cfh')}\b"):
            krein.inspect(WORDS, hollow, max_evaluations=budget, random_state=seed)


@pytest.mark.parametrize("budget", [None, 1500])
def test_an_object_that_is_asymmetric_to_all_others_is_found_wherever_it_is(budget):
    def skewed(A, B):
        return overlap(A, B) + np.array([[0.5 * (a == "cfh" and b != a) for b in B] for a in A])

    for seed in range(4):
        with pytest.raises(InputError, match=rf"differ.*\b{WORDS.index('cfh')}\b"):
            krein.inspect(WORDS, skewed, max_evaluations=budget, random_state=seed)


def test_a_similarity_that_depends_on_its_company_is_refused():
    def ranked(A, B):
        return overlap(A, B) / (len(A) * len(B))

    with pytest.raises(InputError, match="depends on what else is compared"):
        krein.inspect(WORDS, ranked, random_state=0)


def test_a_matrix_that_is_not_symmetric_or_not_square_is_refused(tmp_path):
    K = indefinite(40)
    K[3, 7] += 1.0
    with pytest.raises(InputError, match=r"S\[3, 7\]|S\[7, 3\]"):
        krein.inspect(K)
    np.save(tmp_path / "K.npy", K)  # a file is not checked when it is opened
    with pytest.raises(InputError, match=r"3 and 7|7 and 3|S\[3, 7\]|S\[7, 3\]"):
        krein.inspect(np.load(tmp_path / "K.npy", mmap_mode="r"), random_state=0)
    with pytest.raises(InputError, match="square matrix"):
        krein.inspect(np.ones((5, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [1, 2]}, "one label or number per object"),
        ({"y": np.full(56, np.nan)}, "56 NaN"),
        ({"y": np.zeros(56)}, "single value"),
        ({"y": [*range(55), None]}, "1 NaN, infinite or missing"),
        ({"y": np.array(["a", *range(55)], dtype=object)}, "labels of one type"),
        ({"y": np.arange(56) * 1j}, "labels of one type; got values of dtype complex"),
        ({"y": ["a"] * 56, "task": "regression"}, "y must hold numbers; got values of dtype <U1"),
        ({"max_evaluations": 300}, "max_evaluations must be at least"),
        ({"max_evaluations": 0.5}, "max_evaluations must be an integer"),
        ({"learner": "forest"}, "learner must be one of"),
        ({"task": "ranking"}, "task must be one of"),
        ({"strength": -1}, "strength must be"),
    ],
)
def test_wrong_options_are_told(options, message):
    with pytest.raises(InputError, match=message):
        krein.inspect(WORDS, overlap, **options)


def test_a_kernel_that_breaks_its_promises_is_noted():
    traits = krein.kernels.Traits(stationary=False, psd=True, low=0.0, high=3.0, constant_diagonal=True)
    found = krein.inspect(WORDS, krein.kernels.FromCallable(overlap, traits), random_state=0)
    assert [note.split(",")[0] for note in found.notes[:2]] == [
        "the kernel declares that it is psd",
        "the kernel declares values from 0.0 to 3.0",
    ]

"""What a fit will take: times against fits that were measured, sizes against what is built, limits that are refused."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import krein
from krein.approximation import plan as module
from krein.approximation.plan import Machine, Sizes

FIT = {"n_blocks": 50, "rank": 32}


def test_the_example_of_the_docstring():
    assert doctest.testmod(module).failed == 0


def test_it_prints_every_stage_and_their_sum():
    found = krein.plan(2_000_000, 20, **FIT, workers=2, learner="svm", machine=Machine())
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[2:9]] == [stage.name for stage in found.stages]
    assert found.seconds == pytest.approx(sum(stage.seconds for stage in found.stages))
    assert found.memory == max(stage.memory for stage in found.stages)
    assert found._repr_html_().count("<tr>") == len(found.stages) + 2
    assert "2 workers with 1 thread" in lines[0]


def test_rows_take_time_in_proportion_and_workers_share_them():
    small, large = (krein.plan(n, 50, **FIT, learner="svm", machine=Machine()) for n in (10**7, 10**8))
    assert 8.0 < large.seconds / small.seconds < 12.0
    apart = krein.plan(10**8, 50, **FIT, learner="svm", workers=50, threads=4, machine=replace(Machine(), task=0.0))
    assert apart.seconds < large.seconds / 20.0
    assert large.moved == 0.0
    assert apart.disk == 0.0


def test_what_moves_is_the_sum_of_samples_maps_and_gram_matrices():
    """Counted here once more: 50 blocks of 48 columns, 192 landmarks each, 24,000 sampled rows."""
    found = {s.name: s.moved for s in krein.plan(2_000_000, 20, **FIT, workers=4, machine=Machine()).stages}
    assert found["clusters"] == 20_000 * 20 * 4
    assert found["landmarks"] == 50 * (8 * 96 + 4 * 192) * 20 * 4
    assert found["bases"] == 4 * 50 * 192 * (20 * 12 + 48 * 8) + 4 * 50 * 48 * 48 * 8
    assert found["samples"] == 24_000 * (20 * 4 + 48 * 8) + 50 * 16 * 48 * 48 * 8


@pytest.mark.parametrize(("n_blocks", "rank"), [(1, 40), (4, 16), (40, 30)])
def test_the_sizes_are_those_of_an_approximation(n_blocks: int, rank: int):
    X = np.random.default_rng(0).normal(size=(6000, 5)).astype(np.float32)
    a = krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=n_blocks, rank=rank, random_state=0, memory_limit="2GB")
    sizes = Sizes.of(6000, 5, n_blocks, rank, 4)
    assert sizes.k * sizes.c == pytest.approx(a.factorization.rank, rel=0.05)
    held = np.mean([len(m.landmarks) for m in a.maps])
    assert sizes.landmarks == pytest.approx(held, rel=0.05)


def test_a_limit_that_cannot_be_kept_is_refused_before_any_row_is_read(tmp_path: Path):
    X = np.random.default_rng(0).normal(size=(30_000, 4)).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    y = (X[:, 0] > 0).astype(int)
    machine = krein.KernelRidgeClassifier(n_blocks=60, rank=40, memory_limit="30MB", random_state=0)
    with pytest.raises(krein.ResourceError, match=r"60 blocks of rank 40 .* need at least .* memory_limit is 30 MB"):
        machine.fit(tmp_path / "X.npy", y)
    needed = Sizes.of(30_000, 4, 60, 40, 4).smallest_memory
    with pytest.raises(krein.ResourceError, match="fewer blocks or a lower rank"):
        krein.plan(30_000, 4, n_blocks=60, rank=40, memory_limit=0.99 * needed, machine=Machine())
    assert krein.plan(30_000, 4, n_blocks=60, rank=40, memory_limit=1.01 * needed, machine=Machine()).seconds > 0.0
    smaller = krein.KernelRidgeClassifier(n_blocks=4, rank=16, memory_limit="30MB", random_state=0)
    assert smaller.fit(tmp_path / "X.npy", y).score(X, y) > 0.9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 0}, "n must be an integer of at least 1"),
        ({"n_blocks": 2000}, "n_blocks is at most the number of rows"),
        ({"learner": "trees"}, "'ridge', 'svm'"),
        ({"dtype": "int8"}, "'float32', 'float64'"),
        ({"kernel": "rbff", "machine": None}, "kernel must be one of"),
        ({"memory_limit": "much"}, "memory_limit must be a number of bytes"),
    ],
)
def test_what_cannot_be_planned_is_refused(wrong: dict, message: str):
    given = {"n": 1000, "d": 3, "n_blocks": 4, "rank": 8, "machine": Machine()} | wrong
    with pytest.raises(krein.KreinError, match=message):
        krein.plan(given.pop("n"), given.pop("d"), **given)

"""Newton's method for rows in pieces, against the one in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from test_interior_point_pieces import Folder, Shipping, built, in_pieces, problem_of

from krein.pieces.checkpoints import Workdir
from krein.pieces.engines import Here
from krein.solvers import newton, solve_dual
from krein.solvers.newton import InMemoryRows, Newton
from krein.solvers.newton_pieces import RowsInPieces
from krein.solvers.woodbury import parts_of

__all__ = ["built"]


def both(f, y, C, **more):
    low, high = np.minimum(0.0, C * y), np.maximum(0.0, C * y)
    options = {"tol": 1e-5, "method": "newton", **more}
    return solve_dual(f, y, low, high, **options), solve_dual(in_pieces(f), y, low, high, **options)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_it_ends_where_the_method_in_memory_does(built, C, shift):

    f, y = built
    here, there = both(replace(f, shift=shift), y, C)
    assert here.method == there.method == "newton"
    assert there.gap <= 1e-5
    assert abs(there.objective - here.objective) <= 2e-5 * abs(here.objective)
    reached = here.coefficients @ (f @ here.coefficients)
    assert np.abs((f @ there.coefficients) - (f @ here.coefficients)).max() <= 1e-2 * np.sqrt(abs(reached))


def test_epsilon_and_a_starting_point(built):
    f, y = built
    here, there = both(f, y, 1.0, epsilon=0.1)
    assert abs(there.objective - here.objective) <= 2e-5 * abs(here.objective)
    g = in_pieces(f)
    low, high = np.minimum(0.0, y), np.maximum(0.0, y)
    warm = solve_dual(g, y, low, high, epsilon=0.1, tol=1e-5, method="newton", start=there)
    assert warm.gap <= 1e-5
    assert warm.n_iter < there.n_iter


def test_the_steps_are_those_in_memory(built):
    f, y = built
    here = Newton(InMemoryRows(problem_of(f, y)), parts_of(f))
    g = in_pieces(f)
    there = Newton(RowsInPieces(problem_of(g, y)), parts_of(g))
    for tol in (1e-2, 1e-4):
        here.reach(tol, 100)
        there.reach(tol, 100)
        few = min(len(here.path), len(there.path), 4)
        assert [step for step, _ in here.path[:few]] == [step for step, _ in there.path[:few]]
        assert np.allclose([gap for _, gap in here.path[:few]], [gap for _, gap in there.path[:few]], rtol=1e-3)
    assert np.abs(there.best.product - g @ there.best.b).max() <= 1e-9 * np.abs(there.best.product).max()


def test_a_newton_step_reads_the_bases_twice(built):
    class Named(Here):
        names: ClassVar[list[str]] = []

        def visit(self, step, *args, **options):
            self.names.append(step.__name__)
            return super().visit(step, *args, **options)

    f, y = built
    g = in_pieces(f, engine=Named())
    run = Newton(RowsInPieces(problem_of(g, y)), parts_of(g))
    run.reach(1e-6, 100)
    count = Counter(Named.names)
    assert count["_along"] == count["_move"] == run.n_iter
    assert count["_begin"] == len(run.path) - 1
    assert count["_judge"] == len(run.path)
    assert count["_start"] == 1
    assert set(count) <= {"_start", "_judge", "_begin", "_along", "_move", "_further"}


@pytest.mark.parametrize("n_pieces", [1, 2, 7])
def test_it_can_be_shipped_and_lies_in_files(built, tmp_path, n_pieces):
    f, y = built

    def reached(engine):
        g = in_pieces(f, n_pieces, engine)
        return Newton(RowsInPieces(problem_of(g, y)), parts_of(g)).reach(1e-6, 100)

    plain, shipped = reached(Here()), reached(Shipping())
    filed = reached(Here(checkpoints=Folder(tmp_path)))
    for other in (shipped, filed):
        assert np.array_equal(other.b, plain.b)
        assert np.array_equal(other.product, plain.product)
        assert other.gap == plain.gap
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"newton"}


def test_auto_takes_it_for_many_rows_in_pieces(built, monkeypatch):
    f, y = built
    low, high = np.minimum(0.0, y), np.maximum(0.0, y)
    assert solve_dual(in_pieces(f), y, low, high, tol=1e-3).method == "interior-point"
    monkeypatch.setattr(newton, "NEWTON_ROWS", 100)
    monkeypatch.setattr(newton, "NEWTON_RATIO", 2)
    assert solve_dual(in_pieces(f), y, low, high, tol=1e-3).method == "newton"


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_run_goes_on_with_the_same_bits(built, tmp_path, after):
    f, y = built

    def run(stop, folder):
        with_files = Here(checkpoints=Workdir(folder))
        g = in_pieces(f, 2, with_files)
        rows = RowsInPieces(problem_of(g, y), name="path")
        method, kept = Newton(rows, parts_of(g)), [0]
        begun = method.n_iter

        def keep(state, keep=rows.keep):
            keep(state)
            kept[0] += 1
            if kept[0] == stop:
                raise Stopped

        rows.keep = keep
        try:
            return method.reach(1e-6, 100), method, begun
        except Stopped:
            return None
        finally:
            with_files.checkpoints.close(finished=False)

    whole, first, _ = run(0, tmp_path / "whole")
    assert run(after, tmp_path / "cut") is None
    again, second, begun = run(0, tmp_path / "cut")
    assert begun > 0
    assert np.array_equal(again.b, whole.b)
    assert np.array_equal(again.product, whole.product)
    assert second.path == first.path

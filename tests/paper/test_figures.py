"""The figures: what is drawn is what the tables hold, and the same numbers give the same bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.runner import Table, text
from krein.errors import InputError
from paper import eigenvalues, surfaces
from paper.protocol import Cell, Request

pytest.importorskip("matplotlib")
from paper import figures


def rows_made(kernel="rbf", scale=1.0):
    made = []
    for gamma in (1e-6, 1.0, 10.0) if kernel == "rbf" else ("",):
        for c in (5, 10):
            for r in (20, 80):
                for way, drop in (("pairwise", 0.1), ("pairwise", 0.0), ("shared", 0.1), ("shared", 0.0)):
                    theirs = way == "pairwise"
                    made.append({
                        "dataset": "artificial1", "kernel": kernel, "gamma": gamma, "seed": 0, "n": 100, "n_blocks": c,
                        "total_rank": r, "coupling": way, "drop": drop, "uncoupled_pairs": 0,
                        "error": scale * (c + drop) / r / (1 if theirs else 3),
                        "smallest_eigenvalue": -r / 7.0 if theirs else -1e-14, "largest_eigenvalue": 50.0,
                        "n_negative": r // 4 if theirs else 0, "effective_rank": 80.0, "sampled_rank": 1.0,
                        "n_warnings": 0, "seconds": 1.0,
                    })  # fmt: skip
    return [{c: text(v) for c, v in row.items()} for row in made]


@pytest.fixture
def asked(tmp_path):
    table = Table(tmp_path / "eigenvalues.csv", eigenvalues.COLUMNS, "a test")
    table.add(rows_made() + rows_made("elm"))
    return Request(tmp_path, datasets=("artificial1",), kernels=("rbf", "elm"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.26, "0.26"), (-1434.6, "-1435"), (12.34, "12.3"), (3.08e-7, "3e-7"), (-0.0006, "-6e-4"),
     (0.0123, "0.012"), (10.0, "10"), (12345.0, "1e4"), (0.0099, "1e-2")],
)  # fmt: skip
def test_numbers_are_short(value, shown):
    assert surfaces.short(value) == shown


def texts(axis):
    return {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in axis.texts}


@pytest.mark.parametrize("kernel", ["rbf", "elm"])
def test_each_cell_shows_its_number(kernel):
    found = figures.values(rows_made(kernel))
    along = "gamma" if kernel == "rbf" else "n_blocks"
    some = [r for r in found if kernel == "elm" or r["n_blocks"] == 10]
    axes = np.array(surfaces.heat_maps(some, along, "x", "title").axes).reshape(3, 3)
    across, ranks = sorted({r[along] for r in some}), (80.0, 20.0)
    for i, (name, *_) in enumerate(surfaces.QUANTITIES):
        for j, (way, drop, title) in enumerate(surfaces.COLUMNS):
            shown = texts(axes[i, j])
            assert len(shown) == len(across) * len(ranks)
            assert axes[0, j].get_title() == title
            for (x, y), number in shown.items():
                (row,) = (
                    r for r in some
                    if (r[along], r["total_rank"], r["coupling"], r["drop"]) == (across[x], ranks[y], way, drop)
                )  # fmt: skip
                noise = name == "smallest_eigenvalue" and way == "shared"
                assert number == surfaces.short(0.0 if noise else row[name])


def test_darker_is_larger_and_digits_stay_legible():
    axes = np.array(surfaces.heat_maps(figures.values(rows_made("elm")), "n_blocks", "c", "").axes).reshape(3, 3)
    for i in range(3):
        for axis in axes[i]:
            (image,) = axis.images
            colours = image.cmap(image.norm(np.asarray(image.get_array())))
            grey = colours[..., :3] @ [0.299, 0.587, 0.114]
            assert grey.min() > 0.5  # under digits that are nearly black
            order = np.argsort(np.asarray(image.get_array()), axis=None)
            assert np.all(np.diff(grey.ravel()[order]) <= 1e-6)


def test_what_is_missing_is_left_empty():
    some = [
        r for r in figures.values(rows_made()) if r["n_blocks"] == 10 and (r["gamma"], r["total_rank"]) != (1.0, 80)
    ]
    axes = np.array(surfaces.heat_maps(some, "gamma", "γ", "").axes).reshape(3, 3)
    assert all((1, 0) not in texts(axis) and len(texts(axis)) == 5 for axis in axes.ravel())
    assert math.isnan(float(np.asarray(axes[0, 0].images[0].get_array().filled(np.nan))[0, 1]))


def test_the_same_rows_give_the_same_bytes(tmp_path):
    cell, rows = Cell("artificial1", "elm"), rows_made("elm")
    for name in ("one", "two"):
        (row,) = figures.draw_eigenvalues(tmp_path / name, cell, rows)
        for kind in ("png", "svg"):
            assert (tmp_path / f"{name}.{kind}").stat().st_size == row[f"{kind}_bytes"] < 300_000
    for kind in ("png", "svg"):
        one, two = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "two"))
        assert one == two
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert b"<dc:date>" not in (tmp_path / "one.svg").read_bytes()


def test_pictures_are_drawn_anew_when_their_rows_change_and_only_then():
    rows = rows_made()
    again = [{**row, "run": "3", "seconds": "9"} for row in rows]
    assert figures.digest(rows) == figures.digest(again)
    assert figures.digest(rows) != figures.digest(rows_made(scale=1.1))
    assert figures.digest(rows) != figures.digest(rows[:-1])


def test_tasks_are_those_of_the_table_and_need_it(asked, tmp_path):
    keys = [(t.key["figure"], t.key["kernel"]) for t in figures.tasks(asked)]
    assert keys == [("supplement Sec. 3", "rbf"), ("supplement Sec. 3", "elm")]
    with pytest.raises(InputError, match="krein reproduce eigenvalues"):
        figures.tasks(Request(tmp_path / "elsewhere", datasets=("artificial1",), kernels=("rbf",)))
    with pytest.raises(InputError, match="no rows of cpusmall rbf"):
        figures.tasks(Request(tmp_path, datasets=("cpusmall",), kernels=("rbf",)))
    structure = figures.tasks(Request(tmp_path / "elsewhere", datasets=("gesture", "pendigit"), kernels=("poly",)))
    assert [t.key["figure"] for t in structure] == ["supplement Fig. 1"]


def test_each_task_leaves_its_files_and_the_report_names_them(asked, tmp_path):
    table = Table(tmp_path / "figures.csv", figures.COLUMNS, "a test")
    for task in figures.tasks(asked):
        table.add({**task.key, **row} for row in task.run(*task.arguments))
    table.add([{**table.rows[0], "source": "00000000", "file": "outdated"}])
    told = figures.report(table.rows, asked)
    for kernel in ("rbf", "elm"):
        assert f"(figures/eigenvalues_{kernel}_artificial1.png)" in told
        for kind in ("png", "svg"):
            assert (tmp_path / "figures" / f"eigenvalues_{kernel}_artificial1.{kind}").stat().st_size > 1000
    assert "outdated" not in told


def test_matrices_are_shown_as_they_are():
    K = np.random.default_rng(0).uniform(size=(20, 20))
    figure = surfaces.matrices(
        [surfaces.Panel("one", K, (5, 12), (0.0, 1.0)), surfaces.Panel("two", K.T, (), (0.2, 1.0))]
    )
    first, second = figure.axes[:2]
    assert np.array_equal(np.asarray(first.images[0].get_array()), K)
    assert second.images[0].get_clim() == (0.2, 1.0)
    assert sorted({float(line.get_ydata()[0]) for line in first.lines if line.get_xdata()[0] == 0}) == [4.5, 11.5]
    assert not second.lines


def test_rows_sorted_by_cluster_stay_the_same_rows():
    X = np.random.default_rng(1).normal(size=(600, 3))
    given, ordered, edges = figures._sample(X, Cell("artificial1", "elm").similarity)
    assert len(given) == figures.ROWS
    assert np.array_equal(np.sort(ordered), given)
    labels = figures.partition(X, figures.N_BLOCKS, figures.Evaluator(Cell("artificial1", "elm").similarity), 0).labels
    assert np.array_equal(np.flatnonzero(np.diff(labels[ordered])) + 1, edges)
    assert np.all(np.diff(labels[ordered]) >= 0)


@pytest.mark.data
def test_figure_1_shows_what_its_caption_says(data_dir, tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(figures, "matrices", lambda panels: seen.update(panels=panels) or surfaces.matrices(panels))
    (row,) = figures.draw_gammas(tmp_path / "figure1", True)
    a, b, c, d = (panel.values for panel in seen["panels"])
    assert row["svg_bytes"] < 300_000
    assert np.allclose(np.sort(a, axis=None), np.sort(b, axis=None))
    assert np.linalg.matrix_rank(c, tol=1e-3) == 1  # low rank
    blocks = np.searchsorted(seen["panels"][1].edges, np.arange(len(b)), side="right")
    same = np.equal.outer(blocks, blocks)
    assert b[same].mean() > b[~same].mean() + 0.05
    assert d[same].mean() > 5 * d[~same].mean()  # block-diagonal

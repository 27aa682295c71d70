"""The demo's numbers are true: each column against the value computed apart from it."""

from __future__ import annotations

import numpy as np
import pytest

from krein.cli import demo_experiment as demo
from krein.errors import InputError


@pytest.fixture(scope="module")
def quick():
    return demo.run(seed=3, quick=True)


def test_it_covers_the_four_kernels_on_both_data_sets_in_both_couplings(quick):
    for way in ("pairwise", "shared"):
        cells = [(cell.data.name, type(getattr(cell, way).approximation.kernel).__name__) for cell in quick.cells]
        kernels = ["RBF", "ELM", "SpherePolynomial", "TL1"]
        assert cells == [(data, kernel) for data in ("digits", "mixture") for kernel in kernels]


def test_rows_are_where_the_paper_puts_them_for_each_kernel(quick):
    for cell in quick.cells:
        X = cell.shared.approximation.objects
        assert X is cell.pairwise.approximation.objects
        if type(cell.shared.approximation.kernel).__name__ in ("ELM", "SpherePolynomial"):
            assert np.allclose(np.linalg.norm(X, axis=1), 1.0)
        else:
            assert X.min() == 0.0
            assert X.max() <= 1.0 + 1e-12


def test_both_couplings_have_the_same_clusters_ranks_and_memory(quick):
    for cell in quick.cells:
        one, two = (made.approximation.factorization for made in (cell.pairwise, cell.shared))
        assert np.array_equal(one.order, two.order)
        assert one.ranks == two.ranks
        assert one.nbytes == two.nbytes


@pytest.mark.parametrize("i", range(8))
def test_every_column_agrees_with_the_dense_matrix(quick, i):
    cell = quick.cells[i]
    K = cell.shared.approximation.kernel(cell.shared.approximation.objects)
    n, r = len(K), cell.shared.approximation.factorization.rank
    shown = {f"{top} {name}".strip(): show(cell) for top, name, _, show in demo.COLUMNS}

    def relative(F):
        return pytest.approx(np.linalg.norm(K - F) / np.linalg.norm(K), abs=6e-5)

    for way in ("pairwise", "shared"):
        dense = getattr(cell, way).approximation.factorization.to_dense()
        values = np.linalg.eigvalsh(dense)
        noise = 1e-9 * np.abs(values).max()
        assert float(shown[f"{way} error"]) == relative(dense)
        assert int(shown[f"{way} eigv < 0"]) == pytest.approx(int((values < -noise).sum()), abs=way == "pairwise")
        if way == "pairwise":
            assert float(shown["pairwise shifted"]) == relative(dense + max(0.0, -values[0]) * np.eye(n))
    assert shown["95 % interval"] == "exact"
    assert float(shown["ratio of errors"]) == pytest.approx(
        float(shown["shared error"]) / float(shown["pairwise error"]), abs=0.02
    )
    k = r // 5
    assert float(shown["memory % of n²"]) == pytest.approx(100 * (n * k + r**2 + n) / n**2, abs=6e-3)
    entries = [100 * made.approximation.n_evaluations / n**2 for made in (cell.pairwise, cell.shared)]
    assert [float(v) for v in shown["entries % pairw/shar"].split("/")] == pytest.approx(entries, abs=0.06)


def test_what_the_demo_is_to_show_is_so(quick):
    for cell in quick.cells:
        assert cell.pairwise.n_negative > 0
        assert cell.shared.n_negative == 0
        assert cell.shared.error.relative < cell.pairwise.error.relative < cell.pairwise_shifted.relative


def test_beyond_2000_rows_the_error_has_an_interval():
    size = demo.Size(digits=200, mixture=2200, n_blocks=4, rank=8, chosen=100)
    *_, data = demo._data(size, seed=0)
    cell = demo._cell(data, demo.KERNELS[0], size, seed=0)
    a = cell.shared.approximation
    K = a.kernel(a.objects)
    true = np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K)
    assert cell.shared.error.low < cell.shared.error.relative < cell.shared.error.high
    assert cell.shared.error.relative == pytest.approx(true, rel=0.2)
    (shown,) = (show(cell) for _, name, _, show in demo.COLUMNS if name == "interval")
    assert shown == f"{cell.shared.error.low:.4f}..{cell.shared.error.high:.4f}"


def test_the_choice_is_left_to_krein_and_keeps_the_error_asked_for(quick):
    a = quick.chosen.approximation
    K = a.kernel(a.objects)
    assert np.linalg.norm(K - a.factorization.to_dense()) <= demo.MAX_ERROR * np.linalg.norm(K)
    assert a.search_.reason == "target met"
    text = demo.choice(quick)
    for line in str(a.search_).splitlines():
        assert line in text
    assert f"{demo.QUICK.chosen:,} rows" in text
    assert str(quick.chosen.error) in text


@pytest.mark.parametrize("i", [1, 4])
def test_the_same_seed_gives_the_same_numbers(quick, i):
    one = quick.cells[i]
    data = list(demo._data(demo.QUICK, seed=3))[i // 4]
    two = demo._cell(data, demo.KERNELS[i % 4], demo.QUICK, seed=3)
    assert one.pairwise.error == two.pairwise.error
    assert one.shared.error == two.shared.error
    assert one.pairwise_shifted == two.pairwise_shifted


def test_the_table_is_aligned_and_explains_every_column(quick):
    top, heading, rule, *rest = demo.table(quick).splitlines()
    body = [line for line in rest if line.split(" ")[0] in ("RBF", "ELM", "SpherePolynomial", "TL1")]
    assert len(body) == 8
    assert max(len(line) for line in (top, heading, *body)) <= len(rule) <= 130
    assert len({len(line) for line in (heading, *body)}) == 1
    assert all(len(line.split()) == len(demo.COLUMNS) for line in body)
    explained = rest[rest.index("What the columns say:") + 1 :]
    assert len(explained) == len(demo.COLUMNS)
    for line, (first, name, meaning, _) in zip(explained, demo.COLUMNS, strict=True):
        assert line.split("  ")[1] == f"{first} {name}".strip()
        assert line.endswith(meaning)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True])
def test_a_seed_that_is_none_is_told(seed):
    with pytest.raises(InputError, match="seed must be an integer"):
        demo.run(seed=seed, quick=True)

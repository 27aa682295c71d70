"""The demo's numbers are true: each column against the value computed apart from it."""

from __future__ import annotations

import numpy as np
import pytest

from krein.errors import InputError
from krein.experiments import demo


@pytest.fixture(scope="module")
def quick():
    return demo.run(seed=3, quick=True)


def test_it_covers_the_four_kernels_on_both_data_sets(quick):
    cells = [(cell.data.name, type(cell.approximation.kernel).__name__) for cell in quick.cells]
    kernels = ["RBF", "ELM", "SpherePolynomial", "TL1"]
    assert cells == [(data, kernel) for data in ("digits", "mixture") for kernel in kernels]


def test_rows_are_where_the_paper_puts_them_for_each_kernel(quick):
    for cell in quick.cells:
        X = cell.approximation.objects
        if type(cell.approximation.kernel).__name__ in ("ELM", "SpherePolynomial"):
            assert np.allclose(np.linalg.norm(X, axis=1), 1.0)
        else:
            assert X.min() == 0.0
            assert X.max() <= 1.0 + 1e-12


@pytest.mark.parametrize("i", range(8))
def test_every_column_agrees_with_the_dense_matrix(quick, i):
    cell = quick.cells[i]
    K = cell.approximation.kernel(cell.approximation.objects)
    dense = cell.approximation.factorization.to_dense()
    values = np.linalg.eigvalsh(dense)
    noise = 1e-9 * np.abs(values).max()
    shifted = dense + max(0.0, -values[0]) * np.eye(len(K))
    shown = {f"{top} {name}".strip(): show(cell) for top, name, _, show in demo.COLUMNS}
    assert float(shown["relative error"]) == pytest.approx(np.linalg.norm(K - dense) / np.linalg.norm(K), abs=6e-5)
    assert float(shown["error shifted"]) == pytest.approx(np.linalg.norm(K - shifted) / np.linalg.norm(K), abs=6e-5)
    assert int(shown["eigenv. below 0"]) == pytest.approx(int((values < -noise).sum()), abs=1)
    assert float(shown["smallest eigenv."]) == pytest.approx(values[0], rel=6e-3)
    assert float(shown["shift added"]) == pytest.approx(-values[0], rel=6e-3)
    n, r, k = len(K), cell.approximation.factorization.rank, int(shown["rank"])
    assert float(shown["memory % of n²"]) == pytest.approx(100 * (n * k + r**2 + n) / n**2, abs=6e-3)
    assert int(shown["kernel entries"].replace(",", "")) == cell.approximation.n_evaluations
    assert float(shown["entries % of n²"]) == pytest.approx(100 * cell.approximation.n_evaluations / n**2, abs=0.06)


def test_beyond_2000_rows_the_error_has_an_interval():
    size = demo.Size(digits=200, mixture=2200, n_blocks=4, rank=8)
    *_, data = demo._data(size, seed=0)
    cell = demo._cell(data, demo.KERNELS[0], size, seed=0)
    K = cell.approximation.kernel(cell.approximation.objects)
    true = np.linalg.norm(K - cell.approximation.factorization.to_dense()) / np.linalg.norm(K)
    assert cell.error.low < cell.error.relative < cell.error.high
    assert cell.error.relative == pytest.approx(true, rel=0.2)
    (shown,) = (show(cell) for _, name, _, show in demo.COLUMNS if name == "interval")
    assert shown == f"{cell.error.low:.4f}..{cell.error.high:.4f}"


def test_the_same_seed_gives_the_same_numbers(quick):
    again = demo.run(seed=3, quick=True)
    for one, two in zip(quick.cells, again.cells, strict=True):
        assert one.error == two.error
        assert one.shift == two.shift


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

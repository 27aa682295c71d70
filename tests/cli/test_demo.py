"""The demo's numbers are true: each column against the value computed apart from it."""

from __future__ import annotations

import numpy as np
import pytest

import krein
from krein.cli import demo

KERNELS = [krein.RBF(), krein.ELM(), krein.SpherePolynomial(), krein.TL1()]
SIZE = demo.QUICK


@pytest.fixture(scope="module")
def quick():
    data = krein.datasets.digits()
    digits = krein.datasets.Dataset(data.name, data.X[: SIZE.digits], data.y[: SIZE.digits], data.origin)
    mixture = demo.mixture(SIZE.mixture, 3)
    return [demo.compare(some, kernel, SIZE.n_blocks, SIZE.rank, 3) for some in (digits, mixture) for kernel in KERNELS]


def test_rows_are_where_the_paper_puts_them_for_each_kernel(quick):
    for facts, made in quick:
        X = made["shared"].objects
        assert X is made["pairwise"].objects
        if facts["kernel"] in ("ELM", "SpherePolynomial"):
            assert np.allclose(np.linalg.norm(X, axis=1), 1.0)
        else:
            assert X.min() == 0.0
            assert X.max() <= 1.0 + 1e-12


def test_both_couplings_have_the_same_clusters_ranks_and_memory(quick):
    for _, made in quick:
        one, two = (made[way].factorization for way in ("pairwise", "shared"))
        assert np.array_equal(one.order, two.order)
        assert one.ranks == two.ranks
        assert one.nbytes == two.nbytes


@pytest.mark.parametrize("i", range(8))
def test_every_column_agrees_with_the_dense_matrix(quick, i):
    facts, made = quick[i]
    K = made["shared"].kernel(made["shared"].objects)
    n, r = len(K), made["shared"].factorization.rank
    kernel, memory, *errors, entries, _ = [form.format(**facts) for _, _, form in demo.COLUMNS]
    shown = dict(zip(("pairwise", "pairwise < 0", "shifted", "shared", "shared < 0"), errors, strict=True))

    def relative(F):
        return pytest.approx(np.linalg.norm(K - F) / np.linalg.norm(K), abs=6e-5)

    assert kernel == type(KERNELS[i % 4]).__name__
    for way in ("pairwise", "shared"):
        dense = made[way].factorization.to_dense()
        values = np.linalg.eigvalsh(dense)
        noise = 1e-9 * np.abs(values).max()
        assert float(shown[way]) == relative(dense)
        assert int(shown[f"{way} < 0"]) == pytest.approx(int((values < -noise).sum()), abs=way == "pairwise")
        assert facts[way]["interval"] == [facts[way]["error"]] * 2  # exact
        if way == "pairwise":
            assert float(shown["shifted"]) == relative(dense + max(0.0, -values[0]) * np.eye(n))
    k = r // 5
    assert float(memory) == pytest.approx(100 * (n * k + r**2 + n) / n**2, abs=6e-3)
    evaluated = [100 * made[way].n_evaluations / n**2 for way in ("pairwise", "shared")]
    assert [float(v) for v in entries.split("/")] == pytest.approx(evaluated, abs=0.06)


def test_what_the_demo_is_to_show_is_so(quick):
    for facts, _ in quick:
        assert facts["pairwise"]["n_negative"] > 0
        assert facts["shared"]["n_negative"] == 0
        assert facts["shared"]["error"] < facts["pairwise"]["error"] < facts["pairwise_shifted_error"]


def test_beyond_2000_rows_the_error_has_an_interval():
    facts, made = demo.compare(demo.mixture(2200, 0), krein.RBF(), 4, 8, 0)
    a = made["shared"]
    K = a.kernel(a.objects)
    true = np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K)
    low, high = facts["shared"]["interval"]
    assert low < facts["shared"]["error"] < high
    assert facts["shared"]["error"] == pytest.approx(true, rel=0.2)


def test_the_choice_is_left_to_krein_and_keeps_the_error_asked_for():
    a, measures = demo.choose(SIZE.chosen, 3)
    K = a.kernel(a.objects)
    assert np.linalg.norm(K - a.factorization.to_dense()) <= demo.MAX_ERROR * np.linalg.norm(K)
    assert a.search_.reason == "target met"
    assert measures["n_negative"] == 0


@pytest.mark.parametrize("i", [1, 4])
def test_the_same_seed_gives_the_same_numbers(quick, i):
    one, made = quick[i]
    data = demo.mixture(SIZE.mixture, 3) if i == 4 else krein.datasets.digits()
    some = krein.datasets.Dataset(data.name, data.X[: one["rows"]], data.y[: one["rows"]], data.origin)
    two, _ = demo.compare(some, KERNELS[i % 4], SIZE.n_blocks, SIZE.rank, 3)
    for way in made:
        assert {**one[way], "seconds": 0} == {**two[way], "seconds": 0}
    assert one["pairwise_shifted_error"] == two["pairwise_shifted_error"]


def test_the_table_is_aligned_and_explains_every_column(quick):
    heading, rule, *rest = demo.table([facts for facts, _ in quick]).splitlines()
    body = [line for line in rest if line.split()[:1] and line.split()[0] in ("RBF", "ELM", "SpherePolynomial", "TL1")]
    assert len(body) == 8
    assert {len(line) for line in (heading, rule, *body)} == {len(rule)}
    assert len(rule) <= 130
    assert all(len(line.split()) == len(demo.COLUMNS) for line in body)
    explained = rest[rest.index("") + 1 :]
    for line, (name, meaning, _) in zip(explained, demo.COLUMNS, strict=True):
        assert line.split("  ")[1] == name
        assert line.endswith(meaning)
    assert "digits: 500 rows, 64 columns, in 5 blocks of rank 10" in "\n".join(rest)
    assert "mixture: 1,000 rows, 10 columns, in 5 blocks of rank 10" in "\n".join(rest)

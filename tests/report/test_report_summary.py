"""What a notebook shows: a few facts of a value as a table, true, escaped, and free."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from test_report import HOSTILE, Page

import krein
from krein.report import summary


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(150, 3))


def facts(html):
    """(term -> text) of the last table of a text, whose elements all close."""
    page = Page(html[html.rindex("<table") :])
    terms, values = page.all("th"), page.all("td")
    return {t["text"]: v["text"] for t, v in zip(terms, values, strict=True)}


def test_an_approximation_and_its_factorization_show_what_they_hold(points):
    a = krein.approximate(points, krein.RBF(gamma=0.1), n_blocks=3, rank=5, drop=0.0, random_state=0)
    f, shown = a.factorization, facts(a._repr_html_())
    assert shown["Kernel"] == repr(a.kernel)
    assert (shown["Rows"], shown["Blocks"], shown["Rank"]) == ("150", "3", f"{sum(f.ranks)} in all")
    assert shown["Memory"] == f"{f.nbytes / 1e3:.3g} kB; the full matrix would take 180 kB"
    assert shown["Stored as"] == "float64, dense core"
    assert "Error before correction" not in shown  # nobody measured it
    own = facts(f._repr_html_())
    assert own.items() < shown.items()
    assert facts(f.with_core(f.core, 0.25)._repr_html_())["Shift"] == "0.25"


def test_an_error_is_shown_where_a_search_measured_it(points):
    exact = krein.approximate(points, krein.RBF(gamma=0.1), random_state=0)
    assert facts(exact._repr_html_())["Error before correction"] == "0, to rounding"
    many = np.random.default_rng(1).normal(size=(2100, 2))
    a = krein.approximate(many, krein.RBF(gamma=0.1), max_error=0.1, random_state=0)
    shown = facts(a._repr_html_())["Error before correction"]
    assert float(shown.split()[0]) == pytest.approx(a.search_.error.relative, rel=1e-3)


def test_a_block_sparse_core_is_told():
    eye = np.eye(2)
    core = krein.BlockSparse.from_blocks((2, 2), {(0, 0): eye, (1, 1): eye})
    f = krein.Factorization.from_blocks((np.eye(4)[:, :2], np.eye(4)[:, :2]), core, np.arange(8))
    assert facts(f._repr_html_())["Stored as"] == "float64, block-sparse core"


def test_a_fitted_machine_has_scikit_learns_picture_with_its_facts_below(points):
    machine = krein.KernelRidge(kernel="rbf", gamma=0.1, n_blocks=2, rank=6, correction="shift", random_state=0)
    assert "The kernel matrix" not in machine._repr_html_()
    machine.fit(points, points[:, 0])
    assert "Error before correction" not in facts(summary.machine(machine))  # it is not estimated for this
    shown = machine._repr_html_()
    assert "sk-" in shown
    assert facts(shown)["Correction"] == "shift"
    assert facts(shown)["Negative eigenvalues before it"] == str(machine.n_negative_)
    error = machine.relative_error_
    assert float(facts(machine._repr_html_())["Error before correction"]) == pytest.approx(error, rel=1e-3)
    assert facts(machine._repr_mimebundle_()["text/html"]) == facts(machine._repr_html_())
    with config_context(display="text"):
        assert not hasattr(machine, "_repr_html_")
        assert "text/html" not in machine._repr_mimebundle_()


def test_what_a_user_wrote_stays_text(points):
    def dot(A, B):
        return np.asarray(A) @ np.asarray(B).T

    dot.__name__ = dot.__qualname__ = HOSTILE
    a = krein.approximate(points, dot, n_blocks=1, rank=3, random_state=0)
    html = a._repr_html_()
    assert HOSTILE in facts(html)["Kernel"]
    assert "<script" not in html
    assert "<img" not in html


def test_a_machine_says_why_it_was_fitted_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = X[:, 0] > 0.0
    given = facts(summary.machine(krein.SVC(n_blocks=3, rank=10, random_state=0).fit(X, y)))
    assert given["Why an approximation"] == "n_blocks, rank were given"
    assert "Chosen because" not in given
    chosen = krein.SVC(policy=krein.Policy(exact_rows=50, svm_rows=50), random_state=0).fit(X, y)
    assert facts(summary.machine(chosen))["Chosen because"] == chosen.selection_.reason
    assert "120 rows are more than" in facts(summary.machine(chosen))["Why an approximation"]


@pytest.mark.filterwarnings("ignore:.*indefinite:krein.KreinWarning")
def test_landmarks_are_not_called_the_kernels_own_matrix():
    words = ["".join("abcd"[(i // 4**k) % 4] for k in range(5)) for i in range(300)]
    few = krein.Policy(exact_rows=50, matrix_seconds=0.0, expensive_landmarks=20)
    machine = krein.KernelRidge(kernel=krein.EditSimilarity(), policy=few, random_state=0).fit(words, np.arange(300.0))
    shown = facts(summary.machine(machine))["Matrix"]
    assert shown.startswith(f"the kernel's own, of a sample of {machine.route_.n_landmarks} rows")
    assert "nothing is approximated" not in shown

"""What is drawn is what is there: each picture's data against a dense twin, not only that nothing crashed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import krein
from krein.errors import InputError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from krein.plotting import CoreDisplay, KernelMatrixDisplay, MissingPlotError, SpectrumDisplay  # noqa: E402


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def approximation():
    X = krein.datasets.mixture(300, n_features=4, n_clusters=5, spread=0.4, random_state=1).X
    return krein.approximate(X, krein.TL1(rho=2.0), n_blocks=5, rank=8, coupling="pairwise", random_state=0)


@pytest.fixture(scope="module")
def factorization():
    rng = np.random.default_rng(0)
    bases = tuple(np.linalg.qr(rng.normal(size=(size, 12)))[0] for size in (80, 100, 120))
    core = rng.normal(size=(36, 36)) * np.logspace(0, -2, 36)
    return krein.Factorization.from_blocks(bases, core + core.T, rng.permutation(300))


def lines(display):
    return {line.get_label(): line for line in display.ax_.get_lines()}


def line_of(display, start):
    (found,) = [line for label, line in lines(display).items() if label.startswith(start)]
    return found


# -- the kernel matrix -------------------------------------------------------------------------------------------------


def test_the_panels_show_the_kernel_before_and_after_sorting(approximation):
    display = KernelMatrixDisplay.from_approximation(approximation, n_rows=1000)
    K = approximation.kernel(approximation.objects)
    before, after = (np.asarray(axis.images[0].get_array()) for axis in display.ax_)
    order = np.argsort(approximation.partition.labels, kind="stable")
    assert np.allclose(before, K)
    assert np.allclose(after, K[np.ix_(order, order)])
    assert display.figure_ is display.ax_[0].figure


def test_sorting_gathers_the_large_values_in_the_blocks(approximation):
    display = KernelMatrixDisplay.from_approximation(approximation, n_rows=1000)
    labels = approximation.partition.labels[display.sorted_rows]
    same = np.equal.outer(labels, labels)
    after = display.matrices["after"]
    assert after[same].mean() > 3 * after[~same].mean()
    assert np.array_equal(display.boundaries, np.flatnonzero(np.diff(labels)) + 1)
    edges = sorted({float(line.get_ydata()[0]) for line in display.ax_[1].get_lines() if line.get_xdata()[0] == 0})
    assert edges == [b - 0.5 for b in display.boundaries]


def test_the_approximation_panel_is_the_factorization(approximation):
    display = KernelMatrixDisplay.from_approximation(approximation, n_rows=50, panels=("approximation",))
    dense = approximation.factorization.to_dense()
    shown = np.asarray(display.ax_[0].images[0].get_array())
    assert np.allclose(shown, dense[np.ix_(display.sorted_rows, display.sorted_rows)])


def test_many_rows_are_sampled_and_the_label_says_so(approximation):
    display = KernelMatrixDisplay.from_approximation(approximation, n_rows=40, random_state=3)
    again = KernelMatrixDisplay.from_approximation(approximation, n_rows=40, random_state=3)
    assert len(np.unique(display.rows)) == 40
    assert np.array_equal(display.rows, again.rows)
    assert np.array_equal(np.sort(display.sorted_rows), display.rows)
    assert "40 of 300 rows" in display.ax_[0].get_xlabel()
    assert np.allclose(display.matrices["before"], approximation.kernel(approximation.objects[display.rows]))


def test_all_panels_share_one_colour_scale(approximation):
    panels = ("before", "after", "approximation")
    display = KernelMatrixDisplay.from_approximation(approximation, n_rows=60, panels=panels)
    assert len({axis.images[0].get_clim() for axis in display.ax_}) == 1
    low, high = display.ax_[0].images[0].get_clim()
    assert low == min(values.min() for values in display.matrices.values())
    assert high == max(values.max() for values in display.matrices.values())


def test_axes_of_the_callers_are_used(approximation):
    figure, axes = plt.subplots(1, 2)
    display = KernelMatrixDisplay.from_approximation(approximation, n_rows=30, ax=axes)
    assert list(display.ax_) == list(axes)
    assert display.figure_ is figure
    with pytest.raises(InputError, match=r"ax must hold 2 Axes.*got 1"):
        display.plot(ax=axes[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"panels": ("behind",)}, "panels must be one of 'before', 'after', 'approximation'; got 'behind'"),
        ({"panels": ()}, "at least one"),
        ({"n_rows": 1}, "n_rows must be an integer of at least 2; got 1"),
        ({"n_rows": 2.5}, "n_rows must be an integer"),
    ],
)
def test_a_wrong_choice_of_panels_or_rows_is_told(approximation, options, message):
    with pytest.raises(InputError, match=message):
        KernelMatrixDisplay.from_approximation(approximation, **options)


# -- the spectrum ------------------------------------------------------------------------------------------------------


def test_the_line_before_is_the_dense_spectrum(factorization):
    display = SpectrumDisplay.from_factorization(factorization)
    dense = np.linalg.eigvalsh(factorization.to_dense())
    shown = np.append(lines(display)["before"].get_ydata(), np.zeros(300 - factorization.rank))
    assert np.allclose(np.sort(shown), dense, atol=1e-10 * np.abs(dense).max())


@pytest.mark.parametrize("shift", [0.0, -0.05, 0.05])
@pytest.mark.parametrize(
    ("how", "function"), [("clip", lambda v: np.maximum(v, 0.0)), ("flip", np.abs), ("square", np.square)]
)
def test_each_corrected_value_belongs_to_its_eigenvector(factorization, how, function, shift):
    f = factorization.with_core(factorization.core, shift)
    display = SpectrumDisplay.from_factorization(f, corrections=(how,))
    assert np.allclose(display.corrected[how], function(display.eigenvalues), atol=1e-9)
    line = line_of(display, f"after {how}")
    start = len(display.eigenvalues) - len(line.get_ydata())
    assert np.array_equal(line.get_ydata(), display.corrected[how][start:])
    assert np.allclose(display.corrected[how][:start], display.eigenvalues[:start], atol=1e-7)


def test_the_shift_lifts_every_eigenvalue_and_is_named(factorization):
    display = SpectrumDisplay.from_factorization(factorization, corrections=("shift",))
    lowest = np.linalg.eigvalsh(factorization.to_dense())[0]
    assert lowest < 0
    line = line_of(display, "after shift")
    assert np.allclose(line.get_ydata(), display.eigenvalues - lowest)
    assert f"{-lowest:.3g}" in line.get_label()
    assert f"the other {300 - factorization.rank} eigenvalues of the matrix are 0, {-lowest:.3g} after shift" in (
        display.ax_.get_xlabel()
    )


def test_negative_eigenvalues_are_marked_and_counted(factorization):
    display = SpectrumDisplay.from_factorization(factorization, corrections=())
    dense = np.linalg.eigvalsh(factorization.to_dense())
    n_negative = int((dense < -1e-10 * np.abs(dense).max()).sum())
    marked = line_of(display, "before: ")
    assert n_negative > 0
    assert len(marked.get_ydata()) == n_negative == factorization.n_negative()
    assert (np.asarray(marked.get_ydata()) < 0).all()
    assert f"{n_negative} negative" in marked.get_label()


def test_a_psd_matrix_shows_no_mark_and_no_change(factorization):
    psd = krein.correct(factorization, "flip")
    display = SpectrumDisplay.from_factorization(psd, corrections=("clip",))
    assert [label for label in lines(display) if label.startswith("before:")] == []
    assert "after clip (no change)" in lines(display)


def test_the_lines_differ_without_colour(factorization):
    display = SpectrumDisplay.from_factorization(factorization, corrections=("shift", "clip", "flip", "square"))
    styles = [str(line_of(display, f"after {how}").get_linestyle()) for how in ("shift", "clip", "flip")]
    assert len(set(styles)) == 3
    assert display.ax_.get_yscale() == "symlog"


def test_the_legend_does_not_lie_on_the_curves(factorization):
    display = SpectrumDisplay.from_factorization(factorization, corrections=("shift", "clip", "flip"))
    display.figure_.canvas.draw()
    legend = display.ax_.get_legend().get_window_extent()
    assert legend.y0 >= display.ax_.get_window_extent().y1 - 1


def test_a_zero_matrix_can_be_drawn():
    f = krein.Factorization.from_blocks((np.eye(4)[:, :2],), np.zeros((2, 2)), np.arange(4))
    display = SpectrumDisplay.from_factorization(f, corrections=("shift", "clip"))
    assert np.array_equal(display.eigenvalues, np.zeros(2))
    display.figure_.canvas.draw()


def test_an_unknown_correction_lists_the_known(factorization):
    with pytest.raises(InputError, match="corrections must be one of 'none', 'shift', 'clip', 'flip', 'square'"):
        SpectrumDisplay.from_factorization(factorization, corrections=("bend",))


# -- the core ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dropped():
    X = krein.datasets.mixture(300, n_features=4, n_clusters=6, random_state=1).X
    return krein.approximate(X, krein.RBF(), n_blocks=6, rank=5, drop=0.4, coupling="pairwise", random_state=0)


def test_the_norms_are_those_of_the_blocks_of_the_dense_matrix(dropped):
    display = CoreDisplay.from_factorization(dropped.factorization)
    dense, labels = dropped.factorization.to_dense(), dropped.partition.labels
    for i in range(6):
        for j in range(6):
            assert np.isclose(display.norms[i, j], np.linalg.norm(dense[np.ix_(labels == i, labels == j)]))
    assert np.array_equal(np.ma.getmaskarray(display.ax_.images[0].get_array()), display.dropped)


def test_dropped_blocks_are_counted(dropped):
    display = CoreDisplay.from_factorization(dropped.factorization)
    assert int(np.triu(display.dropped, 1).sum()) == 6  # 0.4 of 15 pairs
    assert not display.dropped.diagonal().any()
    assert display.ax_.get_legend().get_texts()[0].get_text() == "not coupled: 6 of 15 pairs"
    assert display.ax_.patch.get_hatch() == "////"


def test_a_block_sparse_core_looks_like_the_dense_one(dropped):
    f = dropped.factorization
    blocks = {
        (i, j): f.core[f.spans[i][1], f.spans[j][1]]
        for i in range(6)
        for j in range(i, 6)
        if np.any(f.core[f.spans[i][1], f.spans[j][1]])
    }
    sparse = f.with_core(krein.BlockSparse.from_blocks(f.ranks, blocks), 0.0)
    assert np.allclose(CoreDisplay.from_factorization(sparse).norms, CoreDisplay.from_factorization(f).norms)


def test_a_single_block_has_no_legend():
    f = krein.Factorization.from_blocks((np.eye(4)[:, :2],), np.eye(2), np.arange(4))
    display = CoreDisplay.from_factorization(f)
    assert display.ax_.get_legend() is None
    display.figure_.canvas.draw()


# -- matplotlib is optional --------------------------------------------------------------------------------------------


def test_importing_krein_and_its_displays_does_not_import_matplotlib():
    code = "import sys, krein.plotting, krein.cli; from krein import *; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_matplotlib_the_error_names_the_extra(factorization, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPlotError, match=r"krein\[plot\]"):
        SpectrumDisplay.from_factorization(factorization)
    assert issubclass(MissingPlotError, ImportError)
    assert issubclass(MissingPlotError, ValueError)

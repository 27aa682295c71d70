"""Every machine with rows that lie elsewhere, against the same machine with the same rows in memory."""

from __future__ import annotations

import gc
import pickle
import tempfile
from functools import cache

import numpy as np
import pytest
from cases import FEW, MACHINES, NEW, NUMBERS, SMALL, TWO, D, N, X, answers, check_close, fitted, machine, same

import krein
from krein.errors import InputError, ResourceError
from krein.factorization.pieces import PieceBases
from krein.pieces.opening import opened
from krein.pieces.rows import RowPieces
from krein.sources import source_of


def test_these_rows_lie_in_several_pieces(path):
    with opened(path, **SMALL) as (rows, _, _):
        assert isinstance(rows, RowPieces)
        assert len(rows.held) >= 4


@cache
def wanted(name):
    return answers(name, fitted(name, X))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "nu svc" else name for name in MACHINES]
)
def test_a_file_gives_the_answers_of_memory(name, path):
    fit = fitted(name, path, **SMALL)
    check_close(answers(name, fit), wanted(name))
    check_lets_go(fit)


@pytest.mark.parametrize("name", ["ridge classifier", "svc", "components"])
def test_memory_maps_and_limited_arrays_do_too(name, path):
    for rows in (np.load(path, mmap_mode="r"), X):
        check_close(answers(name, fitted(name, rows, **SMALL)), wanted(name))


def test_pairs_of_classes_visit_their_own_rows(path, monkeypatch):
    monkeypatch.setattr("krein.solvers.dual.COPIED_NUMBERS", 0)
    monkeypatch.setattr("krein.solvers.dual.COPIED_SHARE", 0.8)
    visited, part = [], PieceBases.part
    monkeypatch.setattr(PieceBases, "part", lambda self, rows: visited.append(len(rows)) or part(self, rows))
    found = fitted("svc three", path, **SMALL)
    check_close(answers("svc three", found), wanted("svc three"))
    counts = np.bincount(MACHINES["svc three"][2])
    assert visited == [N - counts[2], N - counts[1], N - counts[0]]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_table_has_its_target_by_name(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({**{f"f{j}": X[:, j] for j in range(D)}, "kind": TWO})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    found = fitted("svc", tmp_path / "x.parquet", "kind", **SMALL)
    assert found.classes_.tolist() == ["above", "below"]
    check_close(answers("svc", found), wanted("svc"))
    pq.write_table(table.drop_columns(["kind"]), tmp_path / "new.parquet")
    assert np.array_equal(found.predict(tmp_path / "new.parquet"), found.predict(X))


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("name", ["ridge", "svc", "components"])
def test_single_precision_in_a_file_and_in_memory(name, blocks, tmp_path):
    single = X.astype(np.float32)
    np.save(tmp_path / "x.npy", single)
    found, known = (
        answers(name, fitted(name, rows, n_blocks=blocks, **more))
        for rows, more in ((tmp_path / "x.npy", SMALL), (single, {}))
    )
    # sums in another order round an entry of a float32 basis the other way now and then
    assert np.abs(found - known).max() <= np.finfo(np.float32).eps * known.std()


@pytest.mark.filterwarnings("ignore:TL1.*indefinite")
def test_a_kernel_that_is_not_psd(path):
    wide = {"kernel": krein.TL1(rho=4.0), "gamma": "scale", "correction": "flip"}
    for blocks in (1, 4):
        found, known = (
            answers("ridge", fitted("ridge", rows, n_blocks=blocks, **wide, **more))
            for rows, more in ((path, SMALL), (X, {}))
        )
        check_close(found, known, tolerance=1e-7)  # eigenvalues near 0 of both signs


@pytest.mark.parametrize("name", ["ridge classifier", "svr"])
def test_the_number_of_threads_changes_no_bit(name, path):
    one, two = (answers(name, fitted(name, path, n_jobs=jobs, **SMALL)) for jobs in (1, 2))
    assert same(one, two)


def test_blocks_rank_and_width_are_chosen_on_rows_in_pieces(path):
    options = {
        "n_blocks": "auto",
        "rank": "auto",
        "gamma": "tune",
        "policy": krein.Policy(exact_rows=100, ridge_rows=100),
    }
    found, known = (fitted("ridge", rows, **options, **more) for rows, more in ((path, SMALL), (X, {})))
    assert found.selection_ is not None
    assert found.score(X, NUMBERS) > known.score(X, NUMBERS) - 0.02


def test_an_approximation_of_a_file(path):
    found, known = (
        krein.approximate(rows, krein.RBF(gamma=0.3), n_blocks=4, rank=16, random_state=0, **more)
        for rows, more in ((path, SMALL), (X, {}))
    )
    K, b = known.factorization.to_dense(), np.cos(np.arange(N))
    assert np.allclose(found.factorization @ b, K @ b, rtol=0.0, atol=1e-9 * np.abs(K @ b).max())
    assert np.allclose(found.factorization.diagonal(), np.diag(K), rtol=0.0, atol=1e-10)
    check_close(found.kernel_rows(NEW), known.kernel_rows(NEW))
    exact = krein.RBF(gamma=0.3)(X)
    error = found.error(random_state=0)
    assert error.low <= np.linalg.norm(exact - K) / np.linalg.norm(exact) <= error.high


def test_temporary_files_go_with_the_approximation(path, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    f = krein.approximate(path, krein.RBF(gamma=0.3), n_blocks=4, rank=16, random_state=0, **SMALL).factorization
    gc.collect()
    assert list((tmp_path / "temporary").rglob("*.npy"))
    f.project(np.ones(N))  # its files are still there
    del f
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())
    fitted("svc", path, **SMALL)
    assert not list((tmp_path / "temporary").iterdir())


# -- what a model holds ------------------------------------------------------------------------------------------------


def reached(start):
    """All objects that a value refers to, modules and classes left out."""
    seen, todo = {}, [start]
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, type) or type(value).__name__ in ("module", "function"):
            continue
        seen[id(value)] = value
        todo += gc.get_referents(value)
    return seen.values()


def check_lets_go(fit):
    parameters = fit.get_params()
    for value in reached({k: v for k, v in vars(fit).items() if k not in parameters}):
        kind = type(value)
        assert not (hasattr(kind, "bounds") and hasattr(kind, "token")), kind  # a source
        assert kind.__module__.partition(".")[0] not in ("dask", "distributed"), kind
        assert not isinstance(value, np.memmap), value.filename
        assert not (isinstance(value, str) and value.endswith(".npy")), value


@pytest.mark.parametrize("name", ["ridge", "process", "svc", "spectral embedding"])
def test_models_are_pickled_and_saved_without_their_rows(name, path, tmp_path):
    fit = fitted(name, path, **SMALL)
    known = answers(name, fit)
    path.unlink()
    krein.save(fit, tmp_path / "model.krein")
    for copy in (pickle.loads(pickle.dumps(fit)), krein.load(tmp_path / "model.krein")):
        assert same(answers(name, copy), known)
        check_lets_go(copy)


def test_what_needs_the_training_rows_says_that_they_are_gone(path):
    fit = fitted("svc", path, **SMALL)
    with pytest.raises(ResourceError, match=r"let go of after the fit.*krein.approximate"):
        fit.approximation_.factorization.project(np.ones(N))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_named_by_its_row(value, tmp_path):
    bad = X.copy()
    bad[1403, 2] = value
    np.save(tmp_path / "x.npy", bad)
    with pytest.raises(InputError, match=r"NaN or infinity: 1 .*row 1403\b"):
        fitted("ridge", tmp_path / "x.npy", **SMALL)


def test_a_target_of_another_length(path):
    with pytest.raises(ValueError, match=rf"{N}.*{N - 1}"):
        fitted("ridge", path, NUMBERS[1:], **SMALL)


@pytest.mark.parametrize("limit", ["much", "-1GB", 0, True, "1.2.3MB"])
def test_a_limit_that_is_none(limit, path):
    with pytest.raises(InputError, match='memory_limit must be a number of bytes above 0, a text such as "4GB"'):
        fitted("ridge", path, memory_limit=limit)


@pytest.mark.parametrize("coupling", ["pairwise", "landmark"])
def test_other_couplings_need_memory(coupling, path):
    with pytest.raises(InputError, match=r'coupling="shared".*Read X into memory'):
        fitted("ridge", path, coupling=coupling, **SMALL)


def test_exact_refinement_needs_memory(path):
    with pytest.raises(InputError, match=r"memory"):
        fitted("svc", path, refine="exact", **SMALL)


def test_most_rows_are_never_brought_together(path):
    with pytest.raises(ResourceError, match=rf"of {N:,} rows in memory at once.*read X into memory"):
        machine("svc", memory_limit="150kB", probability=True).fit(path, TWO)


@pytest.mark.parametrize("name", ["ridge", "ridge classifier", "svc three", "svr", "one class", "nu svc", "logistic"])
def test_rows_without_weight_are_not_there(path, name):
    weights = np.arange(N) % 3 / 2.0
    weights[500:950] = 0.0  # a whole piece has none
    target, there = MACHINES[name][2], weights > 0.0
    known = machine(name).fit(X[there], None if target is None else target[there], sample_weight=weights[there])
    for rows in (path, X):
        found = machine(name, **SMALL).fit(rows, target, sample_weight=weights)
        check_close(answers(name, found), answers(name, known))
        check_lets_go(found)
    inside = machine(name).fit(X, target, sample_weight=weights)
    if hasattr(found, "support_"):
        assert np.array_equal(found.support_, inside.support_)
        assert there[found.support_].all()


def test_few_rows_of_a_file_are_read_and_fitted_exactly(tmp_path):
    np.save(tmp_path / "x.npy", X[:90])
    found = krein.SVC(gamma=0.3, policy=FEW).fit(tmp_path / "x.npy", TWO[:90])
    known = krein.SVC(gamma=0.3, policy=FEW).fit(X[:90], TWO[:90])
    assert same(found.decision_function(NEW), known.decision_function(NEW))


def test_a_file_that_changes_under_the_fit(path, monkeypatch):
    changed = []

    class Changing(krein.RBF):
        def values(self, rows, a):
            if not changed:
                changed.append(True)
                np.save(path, X[::-1])
            return super().values(rows, a)

    with pytest.raises(ResourceError, match=r"changed while it was in use.*fit again"):
        fitted("ridge", path, kernel=Changing(gamma=0.3), gamma="scale", **SMALL)


def test_a_file_that_changes_after_its_last_visit_is_no_matter(path):
    source = source_of(path)[0]
    assert same(source.read(0, N), X)
    np.save(path, X[::-1])
    with pytest.raises(ResourceError, match="changed while it was in use"):
        source.read(0, 1)
    assert machine("ridge").fit(path, NUMBERS).n_features_in_ == D


def test_columns_of_a_table_are_found_by_their_names(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    names = [f"x{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(target=NUMBERS)
    frame.to_parquet(tmp_path / "fit.parquet")
    frame[["target", *names[::-1]]].to_parquet(tmp_path / "other.parquet")
    model = machine("ridge", **SMALL).fit(tmp_path / "fit.parquet", "target")
    assert model.feature_names_in_.tolist() == names
    wanted_values = model.predict(frame[names])
    np.testing.assert_allclose(model.predict(tmp_path / "other.parquet"), wanted_values, rtol=1e-12)


def test_a_process_learns_from_few_rows_outside_memory(path):
    limits = krein.Policy(process_rows=100, exact_rows=100, process_learning_rows=200)
    model = krein.GaussianProcessRegressor("rbf", n_blocks=4, rank=64, random_state=0, policy=limits)
    found, wanted_values = model.fit(path, NUMBERS).predict(X), model.fit(X, NUMBERS).predict(X)
    np.testing.assert_allclose(found, wanted_values, atol=1e-6)


# -- targets by name ---------------------------------------------------------------------------------------------------


@pytest.fixture
def frame():
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(D)]).assign(
        number=NUMBERS, twice=2.0 * NUMBERS, kind=np.where(NUMBERS > 0.0, "above", "below")
    )


def test_a_target_by_name_of_a_frame_in_memory(frame):
    names = [f"x{j}" for j in range(D)]
    known = fitted("svc", frame[names], frame["kind"])
    found = fitted("svc", frame[[*names, "kind"]], "kind")
    assert found.feature_names_in_.tolist() == names
    assert same(found.decision_function(frame[names]), known.decision_function(frame[names]))
    assert found.score(frame[["kind", *names]], "kind") == known.score(frame[names], frame["kind"])
    with pytest.raises(InputError, match=r"X has no column 'sort' for the target. Its columns are x0"):
        fitted("svc", frame, "sort")
    polars = pytest.importorskip("polars")
    other = fitted("svc", polars.DataFrame(frame[[*names, "kind"]].to_dict("list")), "kind")
    new = frame[names] if hasattr(other, "feature_names_in_") else X  # scikit-learn 1.6 reads no names of polars 2
    assert same(other.decision_function(new), known.decision_function(frame[names]))


def test_scores_of_a_table_with_the_target_by_name(frame, tmp_path):
    pytest.importorskip("pyarrow")
    names = [f"x{j}" for j in range(D)]
    frame[[*names, "kind"]].to_parquet(tmp_path / "kind.parquet")
    frame[["number", *names[::-1]]].to_parquet(tmp_path / "number.parquet")
    classes = fitted("svc", tmp_path / "kind.parquet", "kind", **SMALL)
    assert classes.score(tmp_path / "kind.parquet", "kind") == np.mean(classes.predict(frame[names]) == frame["kind"])
    numbers = fitted("ridge", frame[[*names, "number"]], "number")
    wanted_score = 1.0 - np.mean((numbers.predict(frame[names]) - NUMBERS) ** 2) / np.var(NUMBERS)
    assert numbers.score(tmp_path / "number.parquet", "number") == pytest.approx(wanted_score, rel=1e-9)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_several_targets_by_name(frame, tmp_path):
    pytest.importorskip("pyarrow")
    names, targets = [f"x{j}" for j in range(D)], ["number", "twice"]
    table = frame[[*names, *targets]]
    table.to_parquet(tmp_path / "x.parquet")
    table.to_csv(tmp_path / "x.csv", index=False)
    known = machine("ridge").fit(X, np.column_stack([NUMBERS, 2.0 * NUMBERS])).predict(NEW)
    for rows in (table, tmp_path / "x.parquet", tmp_path / "x.csv"):
        model = machine("ridge", **SMALL).fit(rows, targets)
        check_close(model.predict(NEW), known, tolerance=1e-8)
    frame.to_parquet(tmp_path / "all.parquet")
    with pytest.raises(InputError, match=r"Several targets must be numbers; kind holds texts"):
        machine("ridge", **SMALL).fit(tmp_path / "all.parquet", ["number", "kind"])


def _product(A, B):
    return A @ B.T


def test_a_path_where_rows_are_needed_in_memory_is_refused(path):
    for refused in (
        lambda: krein.SVC(kernel=_product).fit(path, TWO),
        lambda: krein.SVC(kernel=_product).fit(X[:50], TWO[:50]).predict(str(path)),
        lambda: krein.RandomFourierFeatures().fit(path),
        lambda: krein.RandomFourierFeatures().fit(X).transform(path),
    ):
        with pytest.raises(InputError, match=r"X is the path .*x.npy.* needs its rows in memory"):
            refused()


def test_a_target_by_name_beside_an_array_is_refused():
    fit = machine("ridge").fit(X, NUMBERS)
    for refused in (lambda: fit.score(X, "height"), lambda: machine("ridge").fit(X, "height")):
        with pytest.raises(InputError, match="y='height' names a column, but the columns of X have no names"):
            refused()

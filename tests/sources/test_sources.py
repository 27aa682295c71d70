"""Every kind of source against the same rows in memory."""

from __future__ import annotations

import csv
import os
import pickle
import subprocess
import sys
from itertools import pairwise

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import krein
from krein.errors import InputError, KreinError, ResourceError
from krein.sources import source_of
from krein.sources.source import bounds_within

N, D = 103, 4
NAMES = [f"f{j}" for j in range(D)]


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)


@pytest.fixture
def labels():
    return np.random.default_rng(1).integers(0, 3, N)


def package(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def arrow_table(X, **more):
    return package("pyarrow").table({**{name: X[:, j] for j, name in enumerate(NAMES)}, **more})


# -- one maker a kind: (X, folder) -> what is passed as X --------------------------------------------------------------


def npy(X, folder):
    np.save(folder / "a.npy", X)
    return folder / "a.npy"


def npy_as_text(X, folder):
    return str(npy(X, folder))


def fortran(X, folder):
    return npy(np.asfortranarray(X), folder)


def memory_map(X, folder):
    return np.load(npy(X, folder), mmap_mode="r")


def swapped_bytes(X, folder):
    return npy(X.astype(X.dtype.newbyteorder()), folder)


def slice_of_a_map(X, folder):
    wide = np.full((2 * len(X) + 5, X.shape[1] + 3), np.nan, X.dtype)
    wide[5::2, 2 : 2 + X.shape[1]] = X
    return memory_map(wide, folder)[5::2, 2 : 2 + X.shape[1]]


def raw_map(X, folder):
    with (folder / "raw").open("wb") as file:
        file.write(b"x" * 8200)  # further than a page
        file.write(X.tobytes())
    return np.memmap(folder / "raw", X.dtype, "r", 8200, X.shape)


def reversed_map(X, folder):
    return memory_map(np.ascontiguousarray(X[::-1]), folder)[::-1]


def unflushed_map(X, folder):
    made = np.lib.format.open_memmap(folder / "b.npy", "w+", X.dtype, X.shape)
    made[:] = X
    return made


def hdf5(X, folder, chunks=(10, 2)):
    h5py = package("h5py")
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("group/rows", data=X, chunks=chunks)
    return h5py.File(folder / "a.h5", "r")["group/rows"]


def hdf5_unchunked(X, folder):
    return hdf5(X, folder, None)


def zarr_array(X, folder):
    zarr = package("zarr")
    made = zarr.open(str(folder / "a.zarr"), mode="w", shape=X.shape, chunks=(10, 3), dtype=X.dtype)
    made[:] = X
    return zarr.open(str(folder / "a.zarr"), mode="r")


def parquet(X, folder):
    package("pyarrow.parquet").write_table(arrow_table(X), folder / "a.parquet", row_group_size=20)
    return folder / "a.parquet"


def parquet_folder(X, folder):
    (folder / "parts").mkdir()
    for i, part in enumerate(np.array_split(X, 3)):
        package("pyarrow.parquet").write_table(arrow_table(part), folder / "parts" / f"{i}.parquet")
    return folder / "parts"


def feather(X, folder):
    package("pyarrow.feather").write_feather(arrow_table(X), folder / "a.feather")
    return folder / "a.feather"


def arrow_dataset(X, folder):
    return package("pyarrow.dataset").dataset(parquet(X, folder))


def lazy_frame(X, folder):
    package("pyarrow")
    polars = package("polars")
    return polars.LazyFrame({name: X[:, j] for j, name in enumerate(NAMES)})


def csv_file(X, folder, name="a.csv", delimiter=",", **more):
    with (folder / name).open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow([*NAMES, *more])
        writer.writerows([*map(repr, row), *rest] for row, *rest in zip(X.tolist(), *more.values(), strict=True))
    return folder / name


def tsv_file(X, folder):
    return csv_file(X, folder, "a.tsv", "\t")


def svmlight(X, folder, y=None, zero_based=True):
    dump_svmlight_file(X, np.zeros(len(X)) if y is None else y, str(folder / "a.svm"), zero_based=zero_based)
    return folder / "a.svm"


def iterator(X, folder):
    return iter(np.array_split(X, 7))


def function(X, folder):
    return lambda: iter(np.array_split(X, 7))


def sparse_blocks(X, folder):
    from scipy.sparse import csr_array

    return (csr_array(part) for part in np.array_split(X, 3))


def dask_array(X, folder):
    return package("dask.array").from_array(X, chunks=(30, -1))


def dask_of_unknown_chunks(X, folder):
    array = package("dask.array").from_array(np.vstack([X, np.full((20, D), 1000.0, X.dtype)]), chunks=(30, -1))
    return array[array[:, 0] < 500]


def dask_frame(X, folder):
    frames = package("dask.dataframe")
    return frames.from_pandas(package("pandas").DataFrame(X, columns=NAMES), npartitions=4)


ANY_ORDER = [npy, npy_as_text, fortran, memory_map, slice_of_a_map, raw_map, reversed_map, swapped_bytes, unflushed_map,
             hdf5, hdf5_unchunked, zarr_array, dask_array, dask_of_unknown_chunks, dask_frame]  # fmt: skip
TABLES = [parquet, parquet_folder, feather, arrow_dataset, lazy_frame, csv_file, tsv_file]
STREAMS = [svmlight, iterator, function, sparse_blocks]
DOUBLES = [csv_file, tsv_file, svmlight]  # texts say nothing about a type
ALL = [*ANY_ORDER, *TABLES, *STREAMS]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Make files of a hundred rows come in several blocks."""
    monkeypatch.setattr("krein.sources.tables.BLOCK_NUMBERS", 40 * D)
    monkeypatch.setattr("krein.sources.streams.BLOCK_NUMBERS", 15 * D)
    monkeypatch.setattr("krein.sources.streams.RUN_BYTES", 1000)


# -- every kind --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_source_reads_what_the_array_in_memory_holds(make, dtype, X, tmp_path):
    X = (X / 3).astype(dtype)
    source, y = source_of(make(X, tmp_path), None)
    assert source.shape == X.shape
    assert source.dtype == (np.float64 if make in DOUBLES else dtype)
    assert y is None or make is svmlight
    expected = load_svmlight_file(str(tmp_path / "a.svm"))[0].toarray() if make is svmlight else X.astype(source.dtype)
    for start, stop in [(0, N), (0, 1), (17, 64), (N - 1, N), (5, 5)]:
        rows = source.read(start, stop)
        assert rows.dtype == source.dtype
        assert rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, expected[start:stop])
    for wanted in ([], [N - 1], [50, 3, 50, 0, N - 1, 3], np.random.default_rng(2).permutation(N)):
        rows = source.take(np.array(wanted, dtype=int))
        assert rows.dtype == source.dtype
        assert rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, expected[np.array(wanted, dtype=int)])
    source.check()


@pytest.mark.parametrize("make", ALL)
def test_bounds_cover_all_rows_in_pieces_of_the_size_asked_for(make, X, tmp_path):
    source, _ = source_of(make(X, tmp_path))
    for target in (1, 7, 40, N, 10 * N):
        bounds = source.bounds(target)
        assert (bounds[0], bounds[-1]) == (0, N)
        assert all(0 < stop - start <= target for start, stop in pairwise(bounds))
        assert all(type(bound) is int for bound in bounds)
    with pytest.raises(InputError, match="target must be an integer of at least 1; got 0"):
        source.bounds(0)


@pytest.mark.parametrize("make", ALL)
def test_a_pickled_source_reads_the_same_rows_and_is_small(make, X, tmp_path):
    source, _ = source_of(make(X, tmp_path))
    source.read(0, 2)
    text = pickle.dumps(source)
    again = pickle.loads(text)
    assert again.token == source.token
    np.testing.assert_array_equal(again.read(20, 40), source.read(20, 40))
    again.check()
    if make not in (dask_array, dask_of_unknown_chunks, dask_frame):  # whose graphs hold the rows here
        assert len(text) < 2000


@pytest.mark.parametrize("make", ALL)
def test_row_numbers_outside_are_index_errors_that_say_the_range(make, X, tmp_path):
    source, _ = source_of(make(X, tmp_path))
    for rows in ([0, N], [-1], [0, -N]):
        with pytest.raises(IndexError, match=rf"must lie in 0 \.\. {N - 1}; got"):
            source.take(np.array(rows))
    for rows in (np.zeros((2, 2), int), np.array([0.5]), np.ones(N, bool)):
        with pytest.raises(IndexError, match="1-D array of integers"):
            source.take(rows)
    for start, stop in ((-1, 3), (5, N + 1), (7, 6)):
        with pytest.raises(IndexError, match=f"0 <= start <= stop <= {N}, the number of rows; got {start} and {stop}"):
            source.read(start, stop)


@hypothesis.given(st.lists(st.integers(0, 30), min_size=1, max_size=20).filter(any), st.integers(1, 40))
def test_pieces_end_with_chunks_unless_a_chunk_is_too_large(sizes, target):
    edges = [0, *np.cumsum(sizes).tolist()]
    bounds = bounds_within(edges, target)
    assert (bounds[0], bounds[-1]) == (0, edges[-1])
    assert all(0 < stop - start <= target for start, stop in pairwise(bounds))
    inside = set(bounds) - set(edges)
    for bound in inside:
        chunk = next(i for i in range(len(sizes)) if edges[i] < bound < edges[i + 1])
        assert sizes[chunk] > target
    if max(sizes) <= target:  # two neighbours that would fit into one piece are one piece
        assert all(after - before > target for before, after in zip(bounds, bounds[2:], strict=False))


@pytest.mark.parametrize("make", [hdf5, zarr_array, dask_array])
def test_bounds_follow_the_chunks(make, X, tmp_path):
    step = 30 if make is dask_array else 10
    source, _ = source_of(make(X, tmp_path))
    assert set(source.bounds(2 * step + 3)[:-1]) <= set(range(0, N, step))


# -- what is in memory -------------------------------------------------------------------------------------------------


def test_what_is_in_memory_has_no_source(X, tmp_path):
    from scipy.sparse import csr_array, csr_matrix

    spread = np.load(npy(X, tmp_path), mmap_mode="r")
    held = [X, X.tolist(), csr_array(X), csr_matrix(X), np.ma.masked_array(X), ["words", "of", "text"], None, 3,
            spread[[1, 2]], np.asarray(spread), spread + 1]  # fmt: skip
    assert [type(thing) for thing in held if source_of(thing, np.zeros(N)) is not None] == []


@pytest.mark.parametrize(("module", "kind"), [("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")])
def test_frames_in_memory_have_no_source(module, kind, X):
    frame = getattr(package(module), kind)({name: X[:, j] for j, name in enumerate(NAMES)})
    assert source_of(frame, np.zeros(N)) is None


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.bool_, np.float16, np.uint8])
@pytest.mark.parametrize("make", [npy, hdf5, zarr_array, dask_array])
def test_arrays_of_other_numbers_are_read_as_float64(make, dtype, X, tmp_path):
    given = (10 * X).astype(dtype)
    source, _ = source_of(make(given, tmp_path))
    assert source.dtype == np.float64
    np.testing.assert_array_equal(source.read(0, N), given.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.int16, np.bool_, np.float16, np.int64])
@pytest.mark.parametrize("make", [iterator, parquet, lazy_frame])
def test_a_spool_is_float32_where_that_is_exact(make, dtype, X, tmp_path):
    given = (10 * X).astype(dtype)
    source, _ = source_of(make(given, tmp_path))
    assert source.dtype == (np.float64 if dtype is np.int64 else np.float32)
    np.testing.assert_array_equal(source.read(0, N), given.astype(np.float64))


def test_rows_of_a_file_are_not_copied(X, tmp_path):
    source, _ = source_of(npy(X, tmp_path))
    assert np.shares_memory(source.read(0, N), source.read(10, 20))


def test_a_dask_source_gives_its_chunks_as_tasks(X, tmp_path):
    dask = package("dask")
    source, _ = source_of(dask_array(X.astype(np.float16), tmp_path))
    blocks = dask.compute(*source.blocks())
    assert [len(block) for block in blocks] == [30, 30, 30, 13]
    assert all(block.dtype == np.float64 and block.flags.c_contiguous for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), X.astype(np.float16).astype(np.float64))


def test_a_dask_source_takes_rows_from_the_chunks_that_hold_them_alone(X):
    arrays, dask = package("dask.array"), package("dask")
    computed = []

    def seen(block, block_info=None):
        computed.append(block_info[0]["chunk-location"][0])
        return block

    array = arrays.from_array(X, chunks=(30, -1)).map_blocks(seen, dtype=X.dtype, meta=np.empty((0, 0), X.dtype))
    source, _ = source_of(array)
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_array_equal(source.take(np.array([95, 2, 95, 29])), X[[95, 2, 95, 29]])
        assert sorted(computed) == [0, 3]
        computed.clear()
        np.testing.assert_array_equal(source.read(31, 61), X[31:61])
        assert sorted(computed) == [1, 2]


def test_counting_unknown_chunks_leaves_the_array_of_the_caller_as_it_was(X, tmp_path):
    array = dask_of_unknown_chunks(X, tmp_path)
    source_of(array)
    assert np.isnan(array.shape[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of a cluster that ends
def test_a_dask_source_uses_the_current_client(X, tmp_path):
    distributed = package("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        held = client.persist(dask_array(X, tmp_path))
        source, _ = source_of(held)
        np.testing.assert_array_equal(source.take(np.array([100, 7])), X[[100, 7]])
        np.testing.assert_array_equal(source.read(29, 31), X[29:31])
        futures = client.compute(source.blocks())
        np.testing.assert_array_equal(np.concatenate(client.gather(futures)), X)


# -- changes -----------------------------------------------------------------------------------------------------------


def later(path, seconds=5):
    found = os.stat(path)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + seconds * 10**9))


@pytest.mark.parametrize("make", [npy, memory_map, hdf5, zarr_array])
def test_a_changed_file_has_another_token_and_is_refused(make, X, tmp_path):
    given = make(X, tmp_path)
    source, _ = source_of(given)
    again, _ = source_of(given)
    assert again.token == source.token
    for file in tmp_path.rglob("*"):
        later(file)
    with pytest.raises(ResourceError, match=r"changed while it was in use.*fit again"):
        source.check()
    assert source_of(given)[0].token != source.token


def test_tokens_tell_slices_of_a_map_apart(X, tmp_path):
    spread = memory_map(X, tmp_path)
    assert (
        len({source_of(part)[0].token for part in (spread, spread[:50], spread[50:100], spread[::2], spread[:, :2])})
        == 5
    )


def test_dask_tokens_are_those_of_dask(X, tmp_path):
    array = dask_array(X, tmp_path)
    assert source_of(array)[0].token == source_of(dask_array(X, tmp_path))[0].token
    assert source_of(array)[0].token != source_of(array + 1)[0].token


def test_arrays_without_files_are_told_apart(X):
    class Elsewhere:
        shape, dtype = X.shape, X.dtype

        def __getitem__(self, rows):
            return X[rows]

    one, other = source_of(Elsewhere())[0], source_of(Elsewhere())[0]
    assert one.token != other.token
    one.check()
    np.testing.assert_array_equal(one.take(np.array([3, 3, 1])), X[[3, 3, 1]])


@pytest.mark.parametrize("used", [False, True])
def test_a_shortened_file_is_an_error_and_not_the_end_of_the_process(used, X, tmp_path):
    path = npy(np.tile(X, (500, 1)), tmp_path)
    source, _ = source_of(path)
    if used:
        source.read(0, 10)
    os.truncate(path, 4096)
    for ask in (lambda: source.read(0, 10), lambda: source.take(np.array([40_000])), source.check):
        with pytest.raises(ResourceError, match="now has 4,096"):
            ask()
    path.unlink()
    for ask in (lambda: source.read(0, 10), source.check):
        with pytest.raises(ResourceError, match=r"a\.npy cannot be read: No such file"):
            ask()


def test_a_file_changed_before_its_first_use_is_not_read(X, tmp_path):
    source, _ = source_of(npy(X, tmp_path))
    np.save(tmp_path / "a.npy", X + 1)
    later(tmp_path / "a.npy")
    with pytest.raises(ResourceError, match="changed while it was in use"):
        source.read(0, 3)


def test_a_resource_error_is_both_a_krein_error_and_a_runtime_error():
    assert issubclass(ResourceError, KreinError)
    assert issubclass(ResourceError, RuntimeError)


# -- targets and columns -----------------------------------------------------------------------------------------------


def table_with_target(kind, X, target, folder):
    if kind == "csv":
        return csv_file(X, folder, label=list(target))
    table = arrow_table(X, label=target)
    if kind == "parquet":
        package("pyarrow.parquet").write_table(table, folder / "a.parquet", row_group_size=20)
        return folder / "a.parquet"
    if kind == "polars":
        return package("polars").from_arrow(table).lazy()
    pandas = package("pandas")
    frame = pandas.DataFrame(dict(zip(NAMES, X.T, strict=True)) | {"label": target})
    return package("dask.dataframe").from_pandas(frame, npartitions=3)


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "dask"])
@pytest.mark.parametrize("target", ["integers", "numbers", "text"])
def test_the_target_may_be_the_name_of_a_column(kind, target, X, labels, tmp_path):
    y = {"integers": labels, "numbers": labels + 0.25, "text": np.array(["ant", "bee", "crow"])[labels]}[target]
    source, found = source_of(table_with_target(kind, X, y, tmp_path), "label")
    assert source.shape == (N, D)
    assert source.columns == tuple(NAMES)
    assert isinstance(found, np.ndarray)
    assert (found.dtype.kind in "OU") == (target == "text")
    np.testing.assert_array_equal(found, y)
    np.testing.assert_array_equal(source.read(0, N), X)


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "dask"])
def test_columns_are_used_in_the_order_asked_for(kind, X, labels, tmp_path):
    text = np.array(["ant", "bee", "crow"])[labels]
    given = table_with_target(kind, X, text, tmp_path)
    y = object()
    source, found = source_of(given, y, columns=["f3", "f1"])
    assert found is y
    np.testing.assert_array_equal(source.take(np.array([9, 2])), X[[9, 2]][:, [3, 1]])


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "dask"])
def test_a_table_names_the_columns_it_cannot_use(kind, X, labels, tmp_path):
    given = table_with_target(kind, X, np.array(["ant", "bee", "crow"])[labels], tmp_path)
    with pytest.raises(InputError, match=r"numbers or booleans, but these columns are not: label.*columns="):
        source_of(given)
    with pytest.raises(InputError, match=r"no column 'species' for the target. Its columns are f0, f1, f2, f3, label"):
        source_of(given, "species")
    for columns in (["f0", "f9"], ["f0", "f0"], ["label"], []):
        with pytest.raises(InputError, match="features must be different columns of the table, one at least"):
            source_of(given, "label", columns=columns)
    with pytest.raises(InputError, match="columns must be a list of names; got 'f0'"):
        source_of(given, columns="f0")


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars"])
@pytest.mark.parametrize("column", ["f2", "label"])
def test_a_missing_value_of_a_table_is_named_with_its_row(kind, column, X, labels, tmp_path):
    target = [None if column == "label" and i == 90 else str(label) for i, label in enumerate(labels)]
    values = [None if column == "f2" and i == 90 else float(value) for i, value in enumerate(X[:, 2])]
    if kind == "csv":
        given = csv_file(X, tmp_path, label=[value or "NA" for value in target])
        if column == "f2":
            lines = given.read_text().splitlines()
            lines[91] = f"1,2,,4,{target[90]}"
            given.write_text("\n".join(lines))
    else:
        table = arrow_table(X, label=target).set_column(2, "f2", [values])
        if kind == "polars":
            given = package("polars").from_arrow(table).lazy()
        else:
            given = tmp_path / "a.parquet"
            package("pyarrow.parquet").write_table(table, given)
    with pytest.raises(InputError, match=rf"row 90 \(the first is 0\) has no value in column '{column}'"):
        source_of(given, "label")


def test_a_missing_target_of_a_dask_frame_is_named_with_its_row(X, tmp_path):
    frame = table_with_target("dask", X, [None if i == 90 else "a" for i in range(N)], tmp_path)
    with pytest.raises(InputError, match=r"row 90 \(the first is 0\) has no value in column 'label'"):
        source_of(frame, "label")


def test_missing_numbers_of_a_dask_frame_are_nan(X):
    frames, pandas = package("dask.dataframe"), package("pandas")
    frame = pandas.DataFrame({"a": pandas.array([1, None, 3], "Int64"), "b": [True, False, True]})
    source, _ = source_of(frames.from_pandas(frame, npartitions=2))
    np.testing.assert_array_equal(source.read(0, 3), [[1, 1], [np.nan, 0], [3, 1]])


def test_numbers_of_every_width_booleans_and_decimals_are_features(tmp_path):
    from decimal import Decimal

    arrow, files = package("pyarrow"), package("pyarrow.parquet")
    columns = {
        "a": arrow.array([1, 2], "uint8"),
        "b": [True, False],
        "c": [Decimal("1.50"), Decimal("-2.25")],
        "d": arrow.array([0.5, np.nan], "float32"),
        "e": arrow.array(["x", "y"]).dictionary_encode(),
    }
    files.write_table(arrow.table(columns), tmp_path / "a.parquet")
    source, y = source_of(tmp_path / "a.parquet", "e")
    np.testing.assert_array_equal(source.read(0, 2), [[1, 1, 1.5, 0.5], [2, 0, -2.25, np.nan]])
    assert y.tolist() == ["x", "y"]
    assert source.dtype == np.float64


def test_a_filtered_dataset_gives_the_rows_that_pass(X, tmp_path):
    data = package("pyarrow.dataset")
    dataset = arrow_dataset(X, tmp_path)
    for _ in range(2):  # the spool of all rows is not taken for that of some
        source, _y = source_of(dataset, workdir=tmp_path / "work")
        np.testing.assert_array_equal(source.read(0, N), X)
        source, _y = source_of(dataset.filter(data.field("f0") > 0), workdir=tmp_path / "work")
        np.testing.assert_array_equal(source.read(0, source.shape[0]), X[X[:, 0] > 0])


def test_a_word_among_the_numbers_of_a_csv_file_is_found_in_its_block(X, tmp_path):
    path = csv_file(X, tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:60], "1,2,three,4", *lines[61:]]))
    with pytest.raises(InputError, match=r"a\.csv, rows 40 to 79: .* these columns are not: f2\."):
        source_of(path)


def test_classes_spelled_like_numbers_with_zeros_keep_their_names(X, tmp_path):
    names = np.array(["007", "07", "7"])[np.arange(N) % 3]
    _, y = source_of(csv_file(X, tmp_path, label=names), "label")
    np.testing.assert_array_equal(y, names)


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("run_bytes", [1, 50, 333, 10**6])  # lines have 10 to 90 bytes
def test_svmlight_files_are_read_as_scikit_learn_reads_them(zero_based, run_bytes, X, labels, tmp_path, monkeypatch):
    monkeypatch.setattr("krein.sources.streams.RUN_BYTES", run_bytes)
    sparse = np.where(np.abs(X) > 0.5, X, 0).astype(np.float64)
    sparse[40] = 0.0
    path = svmlight(sparse, tmp_path, labels, zero_based)
    expected, y = load_svmlight_file(str(path))
    source, found = source_of(path)
    np.testing.assert_array_equal(source.read(0, N), expected.toarray())
    np.testing.assert_array_equal(found, y)
    mine = np.arange(N)
    assert source_of(path, mine)[1] is mine


@pytest.mark.parametrize("make", [npy, csv_file, svmlight, dask_frame])
def test_the_target_may_be_an_npy_file(make, X, labels, tmp_path):
    np.save(tmp_path / "y.npy", labels)
    for path in (tmp_path / "y.npy", str(tmp_path / "y.npy")):
        np.testing.assert_array_equal(source_of(make(X, tmp_path), path)[1], labels)
    with pytest.raises(InputError, match=r"y: .*none\.npy cannot be read as an \.npy file"):
        source_of(make(X, tmp_path), tmp_path / "none.npy")


def test_blocks_may_hold_targets(X, labels):
    pairs = lambda: zip(np.array_split(X, 5), np.array_split(labels, 5), strict=True)  # noqa: E731
    for given in (pairs, pairs()):
        source, y = source_of(given)
        np.testing.assert_array_equal(source.read(0, N), X)
        np.testing.assert_array_equal(y, labels)
    with pytest.raises(InputError, match="two targets"):
        source_of(pairs, labels)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((1, 4))], r"block 2 .* has 4 columns, and block 0 has 3"),
        ([np.zeros((2, 3), "f4"), np.zeros((2, 3))], "block 1 .* has dtype float64, and float32.*one dtype"),
        ([np.zeros((2, 3)), np.zeros(3)], r"block 1 .* must be a 2-D array of numbers; it has shape \(3,\)"),
        ([np.array([["a", "b"]])], "block 0 .* dtype <U1"),
        ([(np.zeros((2, 3)), [1, 2]), np.zeros((2, 3))], "block 1 .* has 2 rows and no target"),
        ([np.zeros((2, 3)), (np.zeros((2, 3)), [1, 2])], "block 1 .* has 2 rows and 2 targets"),
        ([(np.zeros((2, 3)), [1, 2, 3])], "block 0 .* has 2 rows and 3 targets"),
        ([(np.zeros((1, 1)), ["a"]), (np.zeros((1, 1)), [1])], "numbers in some blocks and texts in others"),
        ([(np.zeros((1, 1)), [None])], "targets must be numbers or texts"),
        ([], "holds no rows"),
        ([np.zeros((0, 3))], "holds no rows"),
    ],
)
def test_blocks_that_do_not_fit_together_are_named(blocks, words, tmp_path):
    with pytest.raises(InputError, match=words):
        source_of(iter(blocks), workdir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["spool.json"]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(5), r"must be 2-D, .* its shape is \(5,\)"),
        (np.zeros((2, 2, 2)), r"must be 2-D, .* its shape is \(2, 2, 2\)"),
        (np.zeros((2, 2), complex), "real numbers; its dtype is complex128"),
        (np.zeros((2, 2), [("a", "f4"), ("b", "f4")]), "real numbers; .*structured_to_unstructured"),
        (np.zeros((0, 3)), r"one row and one column at least; its shape is \(0, 3\)"),
    ],
)
def test_arrays_that_are_no_rows_of_numbers_are_refused(array, words, tmp_path):
    with pytest.raises(InputError, match=words):
        source_of(npy(array, tmp_path))


def test_files_that_are_something_else_are_refused(X, tmp_path):
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    (tmp_path / "a.npy").write_bytes(b"nothing of the kind")
    (tmp_path / "a.svm").write_text("1 2:x\n")
    for name in ("objects.npy", "a.npy"):
        with pytest.raises(InputError, match=rf"{name} cannot be opened as an array"):
            source_of(tmp_path / name)
    with pytest.raises(InputError, match=r"a\.svm cannot be read as svmlight"):
        source_of(tmp_path / "a.svm")


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_tables_that_are_something_else_are_refused(name, tmp_path):
    package("pyarrow")
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=rf"{name} cannot be read"):
        source_of(tmp_path / name)


def test_paths_that_do_not_exist_or_have_no_known_kind_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.npy does not exist"):
        source_of(tmp_path / "nowhere.npy")
    for name in ("a.h5", "a.npz", "a"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(InputError, match=r"is not known.*\.npy, \.parquet.*\.svm"):
            source_of(tmp_path / name)


def test_names_of_columns_need_a_table(X, tmp_path):
    for given in (npy(X, tmp_path), iterator(X, tmp_path), svmlight(X, tmp_path)):
        with pytest.raises(InputError, match="Only tables have columns with names"):
            source_of(given, "label")
        with pytest.raises(InputError, match="Only tables have columns with names"):
            source_of(given, columns=["f0"])


def test_maps_whose_rows_are_not_in_a_file_count_as_data_in_memory(X, tmp_path):
    assert source_of(np.load(npy(X, tmp_path), mmap_mode="c")) is None
    assert source_of(memory_map(X[:, 0], tmp_path)) is None  # objects of another kind than rows
    removed = memory_map(X, tmp_path)
    os.unlink(tmp_path / "a.npy")
    assert source_of(removed) is None


def test_dask_chunks_of_columns_are_refused_with_the_way_out(X):
    arrays = package("dask.array")
    with pytest.raises(InputError, match=r"cut into 2 chunks of columns. Pass X.rechunk\(\{1: -1\}\)"):
        source_of(arrays.from_array(X, chunks=(30, 2)))
    with pytest.raises(InputError, match="must be 2-D"):
        source_of(arrays.from_array(X[:, 0]))
    with pytest.raises(InputError, match="real numbers"):
        source_of(arrays.from_array(X.astype(complex), chunks=(30, -1)))


@pytest.mark.parametrize("make", [parquet, lazy_frame])
def test_without_pyarrow_tables_say_what_to_install(make, X, tmp_path, monkeypatch):
    given = make(X, tmp_path)
    for name in ("pyarrow", "pyarrow.dataset"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"need pyarrow: pip install 'krein\[parquet\]'"):
        source_of(given)


def test_maps_text_and_iterators_need_no_other_package(X, tmp_path):
    npy(X, tmp_path), csv_file(X, tmp_path), svmlight(X, tmp_path)
    code = f"""if True:
        import sys
        for name in ("dask", "distributed", "pyarrow", "polars", "pandas", "h5py", "zarr"):
            sys.modules[name] = None
        import numpy as np
        from krein.sources import source_of
        for name in ("a.npy", "a.csv", "a.svm"):
            print(source_of({str(tmp_path)!r} + "/" + name)[0].shape)
        print(source_of(iter([np.zeros((2, 3))]))[0].shape)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:4] == [f"({N}, {D})"] * 3 + ["(2, 3)"], done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="FIFOs are of POSIX")
@pytest.mark.parametrize("ending", [".npy", ".csv", ".parquet", ".svmlight"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, ending):
    pipe = tmp_path / f"pipe{ending}"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is not a file"):
        source_of(pipe)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="FIFOs are of POSIX")
def test_a_target_or_a_matrix_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    np.save(tmp_path / "rows.npy", np.eye(4))
    with pytest.raises(InputError, match="is not a file"):
        krein.SVC(n_blocks=2, rank=2).fit(tmp_path / "rows.npy", tmp_path / "pipe.npy")
    with pytest.raises(InputError, match="is not a file"):
        krein.Precomputed(tmp_path / "pipe.npy")


def test_a_workdir_that_is_no_path_is_refused(tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(4))
    with pytest.raises(InputError, match="workdir must be the path of a folder"):
        krein.SVC(n_blocks=2, rank=2, workdir=3).fit(tmp_path / "rows.npy", [0, 1, 0, 1])

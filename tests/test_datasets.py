"""Data sets: from files, by download (never in earnest here), generated."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given
from hypothesis import strategies as st

from krein import datasets
from krein.errors import InputError, KreinWarning
from krein.kernels import EditSimilarity

CLASS_COUNTS = {
    "spambase": {0: 2788, 1: 1813},
    "artificial1": {0: 2500, 1: 2500, 2: 2500},
    "cpusmall": {0: 4364, 1: 3828},
    "gesture": {1: 2741, 2: 2097, 3: 2950, 4: 998, 5: 1087},
    "artificial2": {0: 3339, 1: 3322, 2: 3339},
    "pendigit": {0: 1143, 1: 1143, 2: 1144, 3: 1055, 4: 1144, 5: 1055, 6: 1056, 7: 1142, 8: 1055, 9: 1055},
    "covtype": {1: 211840, 2: 283301, 3: 35754, 4: 2747, 5: 9493, 6: 17367, 7: 20510},
    "peptide_amp": {0: 2600, 1: 2600},
}
CLASS_SIZES = {
    "auralsonar": [50, 50],
    "protein213": [30, 39, 72, 72],
    "yeast200": [100, 100],
    "voting435": [168, 267],
}
FEATURES = {
    "spambase": 57,
    "artificial1": 2,
    "cpusmall": 12,
    "gesture": 32,
    "artificial2": 15,
    "pendigit": 16,
    "covtype": 54,
    "kin40k": 8,
    "protein": 9,
}


def counts(data):
    return dict(zip(*map(np.ndarray.tolist, np.unique(data.y, return_counts=True)), strict=True))


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No data folder, and a network that is down."""

    def fail(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.delenv("KREIN_DATA", raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    monkeypatch.setattr(sklearn.datasets, "fetch_covtype", fail)
    return monkeypatch


def openml(monkeypatch, data, target):
    """Let fetch_openml answer with this; return the list of its calls."""
    calls = []

    def fetch(name, **kwargs):
        calls.append((name, kwargs))
        return SimpleNamespace(data=data, target=target)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return calls


# --- the real files


@pytest.mark.parametrize("name", datasets.names("paper"))
def test_the_papers_sets_are_as_its_table_says(data_dir, name):
    data = datasets.load(name)
    assert data.X.dtype == np.float64
    assert data.y.dtype == np.int64
    assert data.X.flags.c_contiguous
    assert (data.kind, data.d) == ("vectors", FEATURES[name])
    assert counts(data) == CLASS_COUNTS[name]
    assert data.origin == str(data_dir / f"{name}.npz")
    assert np.isfinite(data.X).all()


def test_cpusmall_keeps_the_target_its_labels_come_from(data_dir):
    data = datasets.load("cpusmall", data_dir=data_dir)
    np.testing.assert_array_equal(data.y, data.target >= 90)


@pytest.mark.parametrize("name", ["kin40k", "protein"])
def test_regression_sets_have_no_classes_and_stay_in_float32(data_dir, name):
    data = datasets.load(name)
    assert data.X.dtype == np.float32
    assert data.d == FEATURES[name]
    assert len(data.classes) == 0
    assert "regression" in repr(data)


@pytest.mark.slow
def test_covtype(data_dir):
    data = datasets.load("covtype")
    assert (data.n, data.d, data.X.dtype) == (581012, 54, np.float32)
    assert counts(data) == CLASS_COUNTS["covtype"]


@pytest.mark.parametrize("name", CLASS_SIZES)
def test_similarities_are_symmetric(data_dir, name):
    data = datasets.load(name)
    assert data.kind == "similarity"
    assert data.d == data.n == sum(CLASS_SIZES[name])
    assert sorted(counts(data).values()) == CLASS_SIZES[name]
    np.testing.assert_array_equal(data.X, data.X.T)


def test_strings_are_strings(data_dir):
    data = datasets.load("peptide_amp")
    assert (data.kind, data.n, data.d) == ("strings", 5200, 0)
    assert counts(data) == CLASS_COUNTS["peptide_amp"]
    assert len(set(data.X)) == 4642
    assert {len(min(data.X, key=len)), len(max(data.X, key=len))} == {7, 174}
    assert all(text.isalpha() for text in data.X)


# --- folders


def test_a_folder_given_goes_before_the_environment(nowhere, tmp_path):
    for folder, value in (("given", 1.0), ("set", 2.0)):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "artificial1.npz", X=np.full((7500, 2), value), y=np.zeros(7500, np.int8))
    nowhere.setenv("KREIN_DATA", str(tmp_path / "set"))
    assert datasets.load("artificial1").X[0, 0] == 2.0
    given_folder = datasets.load("artificial1", data_dir=tmp_path / "given")
    assert given_folder.X[0, 0] == 1.0
    assert given_folder.y.dtype == np.int64


def test_what_the_given_folder_lacks_comes_from_the_environment(nowhere, tmp_path):
    (tmp_path / "given").mkdir()
    np.savez(tmp_path / "artificial1.npz", X=np.zeros((7500, 2)), y=np.zeros(7500, int))
    nowhere.setenv("KREIN_DATA", str(tmp_path))
    assert datasets.load("artificial1", data_dir=tmp_path / "given").origin == str(tmp_path / "artificial1.npz")


def test_a_folder_that_is_none_is_an_error(nowhere, tmp_path):
    with pytest.raises(InputError, match="data_dir must name a folder"):
        datasets.load("spambase", data_dir=tmp_path / "typo")
    nowhere.setenv("KREIN_DATA", str(tmp_path / "typo"))
    with pytest.raises(InputError, match="KREIN_DATA must name a folder"):
        datasets.load("artificial1")


@pytest.mark.parametrize(("rows", "labels"), [(7499, 7499), (7500, 7499)])
def test_a_file_of_another_size_is_an_error(nowhere, tmp_path, rows, labels):
    np.savez(tmp_path / "artificial1.npz", X=np.zeros((rows, 2)), y=np.zeros(labels, int))
    with pytest.raises(InputError, match=r"should have the shape \(7500, 2\) and 7500 labels.*7499"):
        datasets.load("artificial1", data_dir=tmp_path)


def test_a_file_without_its_arrays_is_an_error(nowhere, tmp_path):
    np.savez(tmp_path / "artificial1.npz", rows=np.zeros((7500, 2)), y=np.zeros(7500, int))
    with pytest.raises(InputError, match="has no array 'X'; it holds rows, y"):
        datasets.load("artificial1", data_dir=tmp_path)


@pytest.mark.parametrize("damage", ["empty", "cut off", "flipped", "text"])
def test_a_damaged_file_is_an_error(nowhere, tmp_path, damage):
    path = tmp_path / "artificial1.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).random((7500, 2)), y=np.zeros(7500, int))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[1000] ^= 255
    path.write_bytes({"empty": b"", "cut off": whole[:9000], "flipped": bytes(flipped), "text": b"no archive"}[damage])
    with pytest.raises(InputError, match="cannot be read as a NumPy archive"):
        datasets.load("artificial1", data_dir=tmp_path)


def test_a_pickle_is_refused(nowhere, tmp_path):
    np.savez(tmp_path / "artificial1.npz", X=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(InputError, match="without pickles"):
        datasets.load("artificial1", data_dir=tmp_path)


def test_a_bare_array_is_an_error(nowhere, tmp_path):
    with open(tmp_path / "artificial1.npz", "wb") as file:
        np.save(file, np.zeros((7500, 2)))
    with pytest.raises(InputError, match="cannot be read as a NumPy archive"):
        datasets.load("artificial1", data_dir=tmp_path)


# --- download


def test_openml_is_asked_for_the_first_version_and_keeps_it_in_the_cache(nowhere, tmp_path):
    X = np.arange(4601.0 * 57).reshape(4601, 57)
    calls = openml(nowhere, X, np.array(["1", "0"] * 2300 + ["1"], dtype=object))
    data = datasets.load("spambase", cache=tmp_path / "cache")
    ((name, asked),) = calls
    assert (name, asked["version"], asked["data_home"]) == ("spambase", 1, tmp_path / "cache")
    assert data.origin.startswith("OpenML's 'spambase', version 1")
    np.testing.assert_array_equal(data.X, X)
    assert counts(data) == {0: 2300, 1: 2301}
    assert data.y.dtype == np.int64


def test_the_cache_lies_in_scikit_learns_data_home(nowhere, tmp_path):
    calls = openml(nowhere, np.zeros((10992, 16)), np.full(10992, "7", dtype=object))
    assert datasets.load("pendigit").classes.tolist() == [7]
    assert calls[0][1]["data_home"] == tmp_path / "home" / "krein"


def test_gesture_letters_become_the_numbers_of_the_files(nowhere, tmp_path):
    openml(nowhere, np.zeros((9873, 32)), np.resize(np.array(list("DPSHR"), dtype=object), 9873))
    assert datasets.load("gesture", cache=tmp_path).y[:6].tolist() == [1, 2, 3, 4, 5, 1]


def test_cpusmall_is_cut_at_90(nowhere, tmp_path):
    openml(nowhere, np.zeros((8192, 12)), np.resize([89.0, 90.0, 0.0], 8192))
    data = datasets.load("cpusmall", cache=tmp_path)
    assert data.y[:3].tolist() == [0, 1, 0]
    assert data.target[:3].tolist() == [89, 90, 0]


def test_covtype_comes_from_scikit_learns_own_source(nowhere, tmp_path):
    seen = []

    def fetch(data_home):
        seen.append(data_home)
        return SimpleNamespace(data=np.broadcast_to(0.0, (581012, 54)), target=np.broadcast_to(np.int32(2), (581012,)))

    nowhere.setattr(sklearn.datasets, "fetch_covtype", fetch)
    data = datasets.load("covtype", cache=tmp_path)
    assert (seen, data.X.dtype, data.classes.tolist()) == ([tmp_path], np.float32, [2])


def test_a_download_of_another_size_or_with_other_labels_is_an_error(nowhere, tmp_path):
    openml(nowhere, np.zeros((100, 57)), np.full(100, "1", dtype=object))
    with pytest.raises(InputError, match=r"shape \(4601, 57\).*OpenML.*\(100, 57\)"):
        datasets.load("spambase", cache=tmp_path)
    openml(nowhere, np.zeros((9873, 32)), np.full(9873, "Q", dtype=object))
    with pytest.raises(InputError, match=r"should have the labels D, P, S, H, R; got 'Q'"):
        datasets.load("gesture", cache=tmp_path)


@pytest.mark.parametrize("name", ["spambase", "covtype"])
def test_without_files_and_network_the_error_says_what_to_do(nowhere, tmp_path, name):
    with pytest.raises(InputError) as caught:
        datasets.load(name, data_dir=tmp_path, cache=tmp_path / "cache")
    for part in (
        str(tmp_path / "cache"),
        f"{name}.npz does not exist",
        "KREIN_DATA (not set)",
        "no route",
        "Set KREIN",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["kin40k", "peptide_amp", "yeast200"])
def test_what_cannot_be_downloaded_says_so(nowhere, name):
    with pytest.raises(InputError, match="no place to download it from"):
        datasets.load(name)


# --- generated


@pytest.mark.parametrize(("name", "shape"), [("artificial1", (7500, 2)), ("artificial2", (10000, 15))])
def test_generated_stand_ins_say_so_and_are_the_same_each_time(nowhere, name, shape):
    with pytest.warns(KreinWarning, match=f"{name} is generated") as record:
        first = datasets.load(name)
    assert record[0].filename == __file__
    with pytest.warns(KreinWarning):
        again = datasets.load(name)
    assert first.X.shape == shape
    assert first.classes.tolist() == [0, 1, 2]
    assert "generator" in first.origin
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)


def test_generated_artificial2_has_the_rank_of_the_authors(nowhere):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        X = datasets.load("artificial2").X
    assert np.linalg.matrix_rank(X - X.mean(axis=0)) == 13


def test_digits_need_nothing(nowhere):
    data = datasets.digits()
    assert (data.n, data.d, data.classes.tolist()) == (1797, 64, list(range(10)))
    assert data.y.dtype == np.int64


@given(
    st.integers(1, 60),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from([np.float32, "float64"]),
    st.integers(0, 2**32 - 1),
)
def test_a_mixture_has_the_size_asked_for_and_depends_on_the_seed_alone(n, d, clusters, dtype, seed):
    data, again = (datasets.mixture(n, d, clusters, dtype=dtype, random_state=seed) for _ in range(2))
    assert data.X.shape == (n, d)
    assert data.X.dtype == np.dtype(dtype)
    assert data.y.dtype == np.int64
    assert set(data.classes) <= set(range(clusters))
    np.testing.assert_array_equal(data.X, again.X)
    np.testing.assert_array_equal(data.y, again.y)


def test_without_spread_a_mixture_is_its_centres():
    data = datasets.mixture(200, 3, 4, spread=0.0, random_state=0)
    assert len(np.unique(data.X, axis=0)) == 4
    assert len(np.unique(np.column_stack([data.X, data.y]), axis=0)) == 4


def test_clusters_are_dealt_out_to_classes():
    by_cluster = datasets.mixture(300, 2, 6, random_state=1)
    by_class = datasets.mixture(300, 2, 6, n_classes=2, random_state=1)
    np.testing.assert_array_equal(by_cluster.X, by_class.X)
    np.testing.assert_array_equal(by_cluster.y % 2, by_class.y)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_samples": 0}, "n_samples must be an integer of at least 1; got 0"),
        ({"n_clusters": 0}, "n_clusters must be an integer of at least 1"),
        ({"n_classes": 9}, "n_classes must be from 1 to n_clusters = 5; got 9"),
        ({"spread": np.nan}, "spread must be"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'float64'; got 'float16'"),
    ],
)
def test_a_mixture_that_cannot_be_is_an_error(wrong, message):
    with pytest.raises(InputError, match=message):
        datasets.mixture(**{"n_samples": 10, **wrong})


# --- names


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"'spambase'.*'voting435'; got 'iris'"):
        datasets.load("iris")
    with pytest.raises(InputError, match="'paper', 'large', 'similarity'; got 'small'"):
        datasets.names("small")


def test_names_are_those_of_the_groups():
    assert datasets.names() == datasets.names("paper") + datasets.names("large") + datasets.names("similarity")
    assert set(FEATURES) | set(CLASS_SIZES) | {"peptide_amp"} == set(datasets.names())


def test_a_data_set_shows_itself_in_one_line(nowhere):
    assert repr(datasets.digits()) == "Dataset('digits', 1797 x 64, 10 classes, from scikit-learn's load_digits)"
    strings = datasets.Dataset("words", ["a", "b"], np.array([0, 1]), "here", kind="strings")
    assert repr(strings) == "Dataset('words', 2 strings, 2 classes, from here)"
    similarity = datasets.Dataset("pairs", np.eye(2), np.array([0, 1]), "here", kind="similarity")
    assert repr(similarity) == "Dataset('pairs', 2 x 2 similarities, 2 classes, from here)"


def test_families_are_strings_that_resemble_their_own_most():
    data = datasets.families(300, n_families=6, n_classes=3, mutated=0.3, random_state=0)
    assert (data.kind, data.n, data.d) == ("strings", 300, 0)
    assert data.classes.tolist() == [0, 1, 2]
    families = datasets.families(300, n_families=6, mutated=0.3, random_state=0)
    assert families.X == data.X
    assert np.array_equal(families.y % 3, data.y)
    K = EditSimilarity()(data.X) - 2.0 * np.eye(300)
    assert np.mean(families.y[K.argmax(1)] == families.y) > 0.98


def test_families_without_mutation_are_copies_and_bad_requests_are_refused():
    data = datasets.families(50, n_families=3, mutated=0.0, random_state=0)
    assert len(set(data.X)) == 3
    everything = datasets.families(50, n_families=3, mutated=1.0, letters="AB", random_state=0)
    assert set("".join(everything.X)) == {"A", "B"}
    for bad in ({"n_families": 0}, {"mutated": 1.5}, {"n_classes": 9, "n_families": 3}, {"letters": ""}):
        with pytest.raises(InputError, match=next(iter(bad))):
            datasets.families(10, **bad)

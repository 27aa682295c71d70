"""Model files, the good ones: what is saved comes back the same, to the last bit."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import pickle
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

import krein
from krein import kernels
from krein.kernels import FromCallable
from krein.persistence.registry import ESTIMATORS, KINDS, OF_SKLEARN
from krein.persistence.values import Decoder, Encoder
from krein.tables.model import learn
from krein.tables.reading import Frame

N = 60
RNG = np.random.default_rng(7)
X = RNG.standard_normal((N, 3))
NEW = RNG.standard_normal((20, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
LABELS = np.where(X[:, 0] + 0.3 * RNG.standard_normal(N) > 0, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
WORDS = ["".join(RNG.choice(list("abcé"), RNG.integers(1, 8))) for _ in range(N)]
SERIES = [RNG.standard_normal((RNG.integers(3, 9), 2)) for _ in range(N)]
BLOCKS = {"n_blocks": 2, "rank": 6, "drop": 0.0, "random_state": 0}
MANY = {"n_blocks": 135, "rank": 5, "drop": 1.0, "random_state": 0}  # branches, and a block-sparse core
CROWD = RNG.standard_normal((900, 3))


def common_letters(A, B):
    """A kernel of strings: a positive one, as it is an inner product of counts."""
    count = [[[word.count(letter) for letter in "abcé"] for word in words] for words in (A, B)]
    return np.array(count[0], dtype=float) @ np.array(count[1], dtype=float).T + 1.0


def one_pair(a, b, scale=1.0):
    return scale * float(np.exp(-np.abs(a - b).sum()))


FUNCTIONS = {"letters": common_letters, "pair": one_pair}


def fitted(model, objects=X, y=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(objects) if y is None else model.fit(objects, y)


MODELS = {
    "SVC exact": lambda: fitted(krein.SVC(), X, LABELS),
    "SVC 3 classes": lambda: fitted(krein.SVC(**BLOCKS, class_weight={0: 2.0, 1: 1.0, 2: 1.0}), X, THREE),
    "SVC warm": lambda: fitted(krein.SVC(**BLOCKS, warm_start=True), X, LABELS == "yes"),
    "SVC krein": lambda: fitted(krein.SVC(kernel=krein.Sigmoid(), correction="krein", **BLOCKS), X, Y > 0),
    "SVC sparse": lambda: fitted(krein.SVC(kernel="rbf", **BLOCKS), sp.csr_matrix(X), LABELS.astype(object)),
    "SVC precomputed": lambda: fitted(krein.SVC(kernel="precomputed"), X @ X.T, LABELS),
    "SVC float labels": lambda: fitted(krein.SVC(kernel="linear"), X.astype(np.float32), np.sign(Y)),
    "SVC of words": lambda: fitted(krein.SVC(kernel=common_letters, **BLOCKS), WORDS, LABELS),
    "SVC of pairs": lambda: fitted(krein.SVC(kernel=one_pair, kernel_params={"scale": 2.0}, **BLOCKS), X, LABELS),
    "SVC refined": lambda: fitted(krein.SVC(refine="exact", **BLOCKS), X, LABELS),
    "SVR": lambda: fitted(krein.SVR(epsilon=np.float64(0.1), **BLOCKS), X, Y),
    "OneClassSVM": lambda: fitted(krein.OneClassSVM(random_state=np.random.default_rng(0)), X),
    "NuSVC": lambda: fitted(krein.NuSVC(nu=0.3, **BLOCKS, warm_start=True), X, LABELS),
    "NuSVR": lambda: fitted(krein.NuSVR(), X, Y),
    "ProxySVC": lambda: fitted(krein.ProxySVC(kernel="sigmoid"), X, THREE),
    "ProxySVC blocks": lambda: fitted(krein.ProxySVC(**BLOCKS), X, LABELS),
    "RandomFourierFeatures": lambda: fitted(krein.RandomFourierFeatures(9, kernel="laplacian", random_state=0)),
    "Fastfood": lambda: fitted(krein.RandomFourierFeatures(9, method="fastfood", random_state=0)),
    "a weighed negative part": lambda: fitted(krein.SVC(kernel="sigmoid", correction=0.3), X, LABELS),
    "KernelRidge of a variance": lambda: fitted(krein.KernelRidge(kernel="rbf", variance=0.5), X, Y),
    "KernelKMeans": lambda: fitted(krein.KernelKMeans(3, random_state=0)),
    "KernelKMeans blocks": lambda: fitted(krein.KernelKMeans(3, **BLOCKS)),
    "SpectralEmbedding": lambda: fitted(krein.SpectralEmbedding(random_state=0)),
    "KernelRidge": lambda: fitted(krein.KernelRidge(alpha=np.array([0.1, 1.0]), **BLOCKS), X, np.c_[Y, -Y]),
    "KernelRidge loo": lambda: fitted(krein.KernelRidge(alpha="loo", kernel=krein.TL1(), dtype=np.float32), X, Y),
    "KernelRidge int8": lambda: fitted(krein.KernelRidge(kernel="rbf", **BLOCKS, dtype="int8"), X, Y),
    "KernelRidge of words": lambda: fitted(krein.KernelRidge(kernel=common_letters), np.array(WORDS, dtype=object), Y),
    "classifier": lambda: fitted(
        krein.KernelRidgeClassifier(kernel=krein.Normalized(krein.Polynomial() + 2.0 * krein.RBF()), **BLOCKS),
        X,
        LABELS,
    ),
    "logistic": lambda: fitted(krein.KernelLogisticRegression(kernel=krein.TL1()), X, THREE),
    "logistic blocks": lambda: fitted(krein.KernelLogisticRegression(**BLOCKS), X, LABELS),
    "GP classifier": lambda: fitted(krein.GaussianProcessClassifier(sk.RBF(), optimizer=None), X, THREE),
    "GP classifier blocks": lambda: fitted(krein.GaussianProcessClassifier(kernel="rbf", **BLOCKS), X, LABELS),
    "GP pairs": lambda: fitted(
        krein.GaussianProcessClassifier(krein.TL1(), optimizer=None, multi_class="one_vs_one"), X, THREE
    ),
    "GP": lambda: fitted(krein.GaussianProcessRegressor(optimizer=None, random_state=np.random.RandomState(3)), X, Y),
    "GP krein": lambda: fitted(krein.GaussianProcessRegressor(kernel=krein.TL1(), optimizer=None, **BLOCKS), X, Y),
    "GP learned": lambda: fitted(krein.GaussianProcessRegressor(kernel="rbf", **BLOCKS), X[:30], Y[:30]),
    "GP sklearn": lambda: fitted(
        krein.GaussianProcessRegressor(
            kernel=2.0 * sk.Matern([1.0, 2.0, 3.0], nu=1.5) ** 2 + sk.WhiteKernel(), optimizer=None, **BLOCKS
        ),
        X,
        Y,
    ),
    "KernelPCA": lambda: fitted(krein.KernelPCA(3, kernel="rbf", fit_inverse_transform=True)),
    "KernelPCA blocks": lambda: fitted(krein.KernelPCA(3, kernel="rbf", **BLOCKS)),
    "SpectralClustering": lambda: fitted(krein.SpectralClustering(2, random_state=0)),
    "MEKA": lambda: fitted(krein.MEKA(**BLOCKS)),
    "MEKA apart": lambda: fitted(krein.MEKA(**BLOCKS | {"drop": 1.0}, sparse_output=True)),
    "KernelRidge many": lambda: fitted(krein.KernelRidge(kernel="rbf", **MANY), CROWD, CROWD[:, 0]),
    "GP many": lambda: fitted(krein.GaussianProcessRegressor(optimizer=None, alpha=0.1, **MANY), CROWD, CROWD[:, 0]),
    "UnitSphere": lambda: fitted(krein.preprocessing.UnitSphere()),
    "SVC of edits": lambda: fitted(
        krein.SVC(kernel=kernels.DoubleCentred(kernels.EditDistance(), n_references=5), **BLOCKS), WORDS, LABELS
    ),
    "SVC of series": lambda: fitted(
        krein.SVC(kernel=kernels.FromDistances(kernels.DynamicTimeWarping(), "gaussian", 0.5), **BLOCKS), SERIES, LABELS
    ),
    "SVC of aligned series": lambda: fitted(krein.SVC(kernel=krein.GlobalAlignment(), **BLOCKS), SERIES, LABELS),
    "GP with length scales": lambda: fitted(
        krein.GaussianProcessRegressor(krein.Matern([1.0] * X.shape[1])), X[:60], X[:60, 0]
    ),
    "Approximation": lambda: krein.approximate(X, krein.RBF(), **BLOCKS),
    "Approximation pairwise": lambda: krein.approximate(X, krein.Cosine(), **BLOCKS, coupling="pairwise"),
    "Approximation many": lambda: krein.approximate(X, krein.Laplacian(), **BLOCKS | {"n_blocks": 20, "drop": 0.9}),
    "Factorization": lambda: krein.approximate(X, krein.RBF(), **BLOCKS, dtype="float16").factorization,
    "BlockSparse": lambda: krein.BlockSparse.from_blocks([2, 0, 1], {(0, 0): np.eye(2), (0, 2): np.ones((2, 1))}),
}
KERNELS = (
    krein.RBF(), krein.RBF(gamma=0.1), krein.Laplacian(2.0), krein.Linear(), krein.Polynomial(degree=2.5),
    krein.Cosine(), krein.SpherePolynomial(), krein.ELM(), krein.TL1(rho=3.0), krein.Sigmoid(coef0=-0.5),
    krein.ArcCosine(2), krein.NTK(3), krein.Normalized(krein.Normalized(krein.NTK())),
    krein.RBF() + krein.TL1() * krein.Linear() + 3.0 * krein.NTK(),
    kernels.FromDistances(kernels.EditDistance(), "inverse", 0.5), kernels.EditSimilarity(),
    kernels.JaroWinkler(), kernels.Spectrum(2), kernels.Alignment((1.0, -1.0)), kernels.DynamicTimeWarping(3),
    krein.RBF(length_scale=[1.0, 2.0]), krein.Matern(0.5, nu=2.5), krein.RationalQuadratic([3.0, 4.0], 0.5),
    krein.Periodic(2.0, 3.0), krein.Tanimoto(), krein.MinMax(), krein.Jaccard(), krein.Hamming(), krein.ChiSquared(0.5),
    krein.HistogramIntersection(), krein.Haversine(50.0), krein.GlobalAlignment(3.0),
    FromCallable(common_letters), krein.Normalized(FromCallable(functools.partial(one_pair, scale=2.0))),
)  # fmt: skip


def same(a, b, path="model"):
    """Fail unless a and b hold the same, down to types, bits and the layout of arrays; a walk apart from the source."""
    assert type(a) is (np.ndarray if isinstance(b, np.memmap) else type(b)), path
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        assert not b.flags.forc or a.flags.f_contiguous == b.flags.f_contiguous, path
        assert a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes(), path
    elif sp.issparse(a):
        assert a.shape == b.shape
        for part in ("data", "indices", "indptr"):
            same(getattr(a, part), getattr(b, part), f"{path}.{part}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}[{i}]")
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            same(a[key], b[key], f"{path}[{key!r}]")
    elif isinstance(a, np.random.RandomState):
        same(a.get_state(), b.get_state(), path)
    elif isinstance(a, np.random.Generator):
        same(a.bit_generator.state, b.bit_generator.state, path)
    elif isinstance(a, functools.partial):
        same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), path)
    elif hasattr(a, "get_params"):
        unsaved = (
            *getattr(type(b), "_unsaved", ()),
            "_prepared",
            "_function",
        )  # the training rows, and what is rebuilt
        same(*({name: value for name, value in vars(x).items() if name not in unsaved} for x in (a, b)), path)
    elif dataclasses.is_dataclass(a) and not isinstance(a, type):
        for field in dataclasses.fields(a):
            same(getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}")
    else:
        assert a == b or a != a, path


def again(model, path, **options):
    krein.save(model, path / "model.krein", **options)
    return krein.load(path / "model.krein", **options)


def new_objects(name):
    others = {"precomputed": NEW @ X.T, "words": WORDS[:9], "edits": WORDS[:9], "series": SERIES[:9]}
    return others.get(name.split()[-1], NEW)


@pytest.mark.parametrize("name", MODELS)
def test_a_fitted_model_comes_back_as_it_was(name, tmp_path):
    model = MODELS[name]()
    found = again(model, tmp_path, functions=FUNCTIONS)
    same(found, model)
    assert re.sub("0x[0-9A-F]+", "", repr(found)) == re.sub("0x[0-9A-F]+", "", repr(model))
    fresh = new_objects(name)
    for verb in ("predict", "decision_function", "transform", "extend", "kernel_rows"):
        if hasattr(model, verb) and not isinstance(model, krein.SpectralClustering):
            same(getattr(found, verb)(fresh), getattr(model, verb)(fresh), verb)
    if hasattr(model, "route_"):
        for verb in ("relative_error_", "support_vectors_", "X_fit_", "coef_", "eigenvectors_"):
            if hasattr(model, verb) and not (verb == "X_fit_" and "precomputed" in name):  # the matrix is not kept
                same(getattr(found, verb), getattr(model, verb), verb)
        same(clone(found), clone(model))
    if name == "GP sklearn":
        same(found.predict(NEW, return_std=True), model.predict(NEW, return_std=True))
        theta = model.kernel_.theta + 0.1
        same(found.log_marginal_likelihood(theta), model.log_marginal_likelihood(theta))
    if isinstance(model, krein.Approximation):
        same(found.error(), model.error())
    if not ("words" in name or "pairs" in name):
        same(pickle.loads(pickle.dumps(found)), model)  # what is loaded can be pickled like any other


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_an_estimator_that_is_not_fitted_is_kept_with_its_parameters(cls, tmp_path):
    given = {"random_state": np.int64(3), "dtype": np.dtype("float32")}
    model = cls(**{name: value for name, value in given.items() if name in cls().get_params()})
    found = again(model, tmp_path)
    same(found.get_params(), model.get_params())
    assert not hasattr(found, "approximation_")


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_every_kernel_comes_back(kernel, tmp_path):
    found = again(kernel, tmp_path, functions=FUNCTIONS)
    same(found, kernel)
    assert found.traits == kernel.traits


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_a_precomputed_matrix_comes_back_in_its_own_form(kind, tmp_path):
    kernel = krein.Precomputed(kind((X @ X.T).round(1)))
    found = again(krein.Normalized(kernel), tmp_path).kernel
    same(found.S, kernel.S)
    assert found(np.arange(3)).tolist() == kernel(np.arange(3)).tolist()


def test_a_matrix_on_disk_is_kept_whole(tmp_path):
    S = np.memmap(tmp_path / "S.bin", dtype=np.float64, mode="w+", shape=(N, N))
    S[:] = X @ X.T
    assert np.array_equal(again(krein.Precomputed(S), tmp_path).S, X @ X.T)


@pytest.mark.parametrize(
    "labels",
    [LABELS, LABELS.astype(object), LABELS == "yes", THREE, THREE.astype(np.uint8), 1.0 * THREE,
     THREE.astype(np.float32), np.array(["é𝄞\0x", "b"])[(THREE > 1).astype(int)], THREE.astype(">i4")],
    ids=lambda labels: str(labels.dtype),
)  # fmt: skip
def test_labels_of_any_plain_type_come_back(labels, tmp_path):
    model = fitted(krein.KernelRidgeClassifier(**BLOCKS), X, labels)
    found = again(model, tmp_path)
    assert found.predict(NEW).dtype == model.predict(NEW).dtype.newbyteorder("=")
    assert found.predict(NEW).tolist() == model.predict(NEW).tolist()


def test_plain_values_of_any_kind_are_kept(tmp_path):
    values = {
        "numbers": [1, -(2**70), 1.5, -0.0, 5e-324, float("nan"), float("inf"), -float("inf"), True, None],
        "text": ["", "a\0b", "\ud800", "é" * 3, b"", b"\xff"],
        "many": [f"word {i}" for i in range(40)] + ["\udfff"],
        "series": SERIES[:20],
        "ragged": [np.arange(i % 3, dtype="<i4") for i in range(20)],
        "raw": tuple(bytes([i]) for i in range(20)),
        "arrays": [np.zeros((0, 3)), np.zeros((2, 3, 4)).T, np.array(7), np.array(["", "b"])],
        "scalars": [np.float32(1.5), np.str_("x"), np.bool_(True)],
        "objects": np.array([[1, None], ["a", (2.0, "b")]], dtype=object),
        3: {True: {}, 2.5: [], "tuple": ()},
        "types": [np.float32, float, np.dtype("int8")],
    }  # fmt: skip
    same(again(krein.SVC(kernel_params=values), tmp_path).kernel_params, values)
    strided = np.arange(12.0).reshape(3, 4)[::2, ::-1]  # comes back in order
    assert np.array_equal(again(krein.SVC(C=strided), tmp_path).C, strided)


@pytest.mark.parametrize("machine", ["svm", "ridge", "gp"])
def test_a_model_of_a_files_columns_comes_back(machine, tmp_path):
    frame = Frame(("one", "colour", "y"), (X[:, 0], LABELS.astype(object), Y))
    task = "regression" if machine == "gp" else "classification"
    target = "y" if machine == "gp" else "colour"
    model = learn(frame, target, machine=machine, task=task, folds=2, parameters={"n_blocks": 2, "rank": 5})
    found = again(model, tmp_path)
    same(found, model)
    same(found.predict(frame), model.predict(frame))


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
KEYS = st.text(max_size=3) | st.integers(-3, 3)
WORDY = st.lists(st.text(), min_size=16)


@given(
    st.recursive(
        PLAIN | arrays(st.sampled_from([np.float64, np.int8, bool, "<U3", "S2"]), array_shapes(min_dims=0, min_side=0)),
        lambda inner: (
            st.lists(inner)
            | st.lists(inner).map(tuple)
            | st.dictionaries(KEYS, inner)
            | st.lists(st.text(), min_size=16)
        ),
        max_leaves=12,
    )
)
def test_any_plain_value_survives(value):
    encoder = Encoder({})
    root = encoder.value(value)
    entries = json.loads(json.dumps(encoder.entries))
    decoder = Decoder(encoder.arrays, {})
    decoder.run(entries)
    same(decoder.value(root), value)


def test_columns_by_name_are_kept(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["one", "two", "three"])
    found = again(fitted(krein.KernelRidge(**BLOCKS), frame, Y), tmp_path)
    assert found.feature_names_in_.tolist() == ["one", "two", "three"]
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["two", "one", "three"]])
    outputs = fitted(krein.MEKA(**BLOCKS).set_output(transform="pandas"), frame)
    pd.testing.assert_frame_equal(again(outputs, tmp_path).transform(frame), outputs.transform(frame))


def test_the_models_meet_every_form_of_the_approximation():
    a = MODELS["KernelRidge many"]().approximation_
    assert isinstance(a.factorization.core, krein.BlockSparse)
    assert a.partition.branches is not None


def test_what_is_shared_stays_shared_and_is_written_once(tmp_path):
    model = MODELS["SVC 3 classes"]()
    found = again(model, tmp_path)
    assert found.approximation_ is found._expansion.approximation
    assert found._uncorrected.factorization.bases is found.approximation_.factorization.bases
    S = (X @ X.T).copy()
    both = krein.Precomputed(S) + krein.Normalized(krein.Precomputed(S[:]))
    left, right = again(both, tmp_path).terms
    assert left.S is right.kernel.S
    assert (tmp_path / "model.krein").stat().st_size < 1.2 * S.nbytes


def test_a_loaded_model_can_be_used_like_the_first_one(tmp_path):
    a = krein.approximate(X, krein.RBF(), **BLOCKS)
    found = again(a, tmp_path)
    model = krein.KernelRidge(approximation=found, kernel="rbf").fit(X, Y)
    assert model.approximation_.factorization is found.factorization
    same(again(model, tmp_path), model)
    assert found.objects.flags.writeable
    assert found.objects.flags.owndata or found.objects.base is not None


def test_every_estimator_and_kernel_is_in_the_list():
    public = [getattr(room, name) for room in (krein, kernels) for name in room.__all__]
    classes = {thing for thing in public if isinstance(thing, type) and not inspect.isabstract(thing)}
    kept = {cls for cls in classes if issubclass(cls, kernels.Kernel) or hasattr(cls, "fit")}
    assert len(kept) > 30
    assert kept <= {kind.cls for kind in KINDS.values()}
    assert {f"sklearn.{cls.__name__}" for cls in OF_SKLEARN} <= set(KINDS)

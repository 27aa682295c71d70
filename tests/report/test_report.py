"""The report: every number on the page is the value's own, nothing is fetched, nothing a user wrote becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.utils.validation import check_is_fitted

import krein
from krein.errors import InputError, KreinWarning
from krein.report import report, write
from krein.report.axes import linear, logarithmic, symmetric
from krein.report.inspected import relative_change
from krein.report.meanings import MEANINGS
from krein.tables.model import Score, learn
from krein.tables.reading import Frame

VOID = {"meta", "link", "br"}
HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Elements with their attributes and text, in order; complains where one is closed that is not open."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = {"tag": tag, "text": "", **{name: value or "" for name, value in attributes}}
        assert len(found) == len(attributes) + 2, f"an attribute of {tag} is given twice"
        self.elements.append(found)
        if tag not in VOID:
            self.open.append(found)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [e for e in self.elements if e["tag"] == tag and all(e.get(k) == v for k, v in wanted.items())]

    def values(self, key):
        return [float(e["data-value"]) for e in self.all("button", data_key=key)]

    def table(self, caption):
        """Its cells as values, row by row."""
        start = next(i for i, e in enumerate(self.elements) if e["tag"] == "caption" and e["text"] == caption)
        rows = []
        for element in self.elements[start + 1 :]:
            if element["tag"] == "tr":
                rows.append([])
            elif element["tag"] == "td":
                rows[-1].append(element.get("data-value", element["text"]))
            elif element["tag"] in ("caption", "section"):
                break
        return [row for row in rows if row]


def shared_letters(A, B):
    """An indefinite similarity of words."""
    return np.array([[len(set(a) & set(b)) / min(len(set(a)), len(set(b))) for b in B] for a in A])


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(list("ABCDEFGH"), 6)) for _ in range(150)]


@pytest.fixture(scope="module")
def found(words):
    y = np.array([word.count("A") > 0 for word in words]).astype(int)
    return krein.inspect(words, shared_letters, y, max_evaluations=12_000, random_state=0)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 3))
    frame = Frame(("a", "b", HOSTILE, "kind"), (*X.T, (X[:, 0] * X[:, 1] > 0).astype(float)))
    with pytest.warns(KreinWarning):
        return learn(frame, "kind", folds=3, parameters={"kernel": "sigmoid", "coef0": -1.0, "n_blocks": 3, "rank": 8})


@pytest.fixture(scope="module")
def page(found, model):
    return Page(report(found, model, title="A title", data="words"))


def test_the_page_is_one_document_with_landmarks_and_unique_names(page):
    assert page.all("html")[0]["lang"] == "en"
    for tag in ("title", "h1", "main", "header", "nav", "footer"):
        assert len(page.all(tag)) == 1
    names = [e["id"] for e in page.elements if "id" in e]
    assert len(names) == len(set(names))
    for element in page.elements:
        for reference in ("aria-describedby", "aria-labelledby"):
            assert element.get(reference, names[0]) in names
        if element["tag"] == "a":
            assert element["href"][1:] in names
    levels = [int(e["tag"][1]) for e in page.elements if re.fullmatch("h[1-6]", e["tag"])]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_every_section_that_is_asked_for_is_there(page):
    headings = [e["text"] for e in page.all("h2")]
    assert headings == [
        "At a glance", "Data and kernel", "Accuracy", "The machine", "How indefinite", "Blocks", "Memory and error",
        "Corrections", "Rank", "Where the time went", "Notes", "Every number explained",
    ]  # fmt: skip


def test_numbers_of_the_inspection_are_its_own(page, found):
    positive, zero, negative = found.inertia
    assert page.values("positive") == [positive]
    assert page.values("zero") == [zero]
    assert set(page.values("negative")) == {negative}
    assert set(page.values("negative-share")) == {found.negative_share.value}
    for shown in page.all("button", data_key="negative-share"):
        assert float(shown["data-low"]) == found.negative_share.low
        assert float(shown["data-high"]) == found.negative_share.high
    assert page.values("range") == [found.low, found.high]
    assert page.values("smallest") == [found.smallest]
    assert page.values("largest") == [found.eigenvalues[0]]
    assert page.values("triangle") == [found.triangle_violations.value]
    assert page.values("evaluations") == [found.n_evaluations, found.n_evaluations / found.n_objects**2]
    assert page.values("share-of-all") == list(found.negative_share_of_all)


def test_tables_hold_what_was_found(page, found):
    spectrum = page.table("Spectrum")
    assert [int(row[0]) for row in spectrum] == list(range(1, len(found.eigenvalues) + 1))
    assert np.allclose([float(row[1]) for row in spectrum], found.eigenvalues, rtol=1e-5)
    assert [float(row[1]) for row in page.table("Similarities of pairs")] == found.counts.tolist()
    rows = [[float(v) for v in row[:4]] for row in page.table("Memory and error, forecast")]
    assert rows == [[f.n_blocks, f.rank, f.nbytes, f.error] for f in found.forecasts]
    rows = [[float(v) for v in row] for row in page.table("Blocks")]
    assert rows == [[b.n_blocks, b.share.value, b.chance] for b in found.blocks]
    rows = page.table("Corrections")
    assert {row[0]: float(row[2]) for row in rows if row[2]} == {c.name: c.score.value for c in found.corrections}
    assert [row[0] for row in rows if "recommended" in row[3]] == [found.recommended]
    rows = page.table("Score against rank")
    assert [[float(v) for v in row[:3]] for row in rows] == [[r.rank, r.score, r.error] for r in found.rank_scores]
    assert [int(row[0]) for row in rows if row[3] == "sufficient"] == [found.sufficient.rank]
    assert [float(row[0]) for row in page.table("The spectrum of subsets of the sample")] == [
        t.n_objects for t in found.trend
    ]


def test_the_verdict_on_ranks_is_at_a_glance_and_with_its_chart(page, found):
    assert sum(e["text"] == f"{found.rank_verdict}." for e in page.all("li") + page.all("p")) == 2


def test_numbers_of_the_machine_are_its_own(page, model):
    e, f = model.estimator, model.estimator.approximation_.factorization
    assert set(page.values("score")) == {np.mean(model.score.values)}
    assert set(page.values("baseline")) == {model.score.baseline}
    assert f.nbytes in page.values("bytes")
    assert e.relative_error_ in page.values("error")
    assert page.values("n-negative") == [e.n_negative_]
    assert page.values("directions") == [sum(f.ranks)]
    assert [float(row[1]) for row in page.table("Folds")] == list(model.score.values)
    sizes = [(rows.stop - rows.start, rank) for (rows, _), rank in zip(f.spans, f.ranks, strict=True)]
    assert [(int(r[1]), int(r[2])) for r in page.table("The machine's blocks")] == sizes
    assert [row[0] for row in page.table("Corrections") if "in use" in row[-1]] == [e.correction_]


@pytest.mark.parametrize("sparse", [False, True])
def test_the_coupling_and_the_spectrum_are_those_of_the_dense_matrix(sparse):
    X = np.random.default_rng(0).normal(size=(200, 2)) * 4
    machine = krein.KernelRidge(kernel="rbf", n_blocks=6, rank=6, drop=0.0).fit(X, X[:, 0])
    f = machine.approximation_.factorization
    if sparse:
        spans = list(enumerate(columns for _, columns in f.spans))
        kept = {(i, j): f.core[a, b] for i, a in spans for j, b in spans if i <= j < i + 2}
        f = f.with_core(krein.BlockSparse.from_blocks(f.ranks, kept), f.shift)
        machine._approximation = machine._uncorrected = replace(machine.approximation_, factorization=f)
    K = (f.to_dense() - f.shift * np.eye(200))[np.ix_(f.order, f.order)]
    norms = np.array([[np.linalg.norm(K[a, b]) for b, _ in f.spans] for a, _ in f.spans])
    page = Page(report(model=machine))
    rows = page.table("Coupling")
    assert len(rows) == 21
    for row in rows:
        i, j, shown = int(row[0]) - 1, int(row[1]) - 1, float(row[2])
        assert shown == pytest.approx(norms[i, j] / norms.max(), abs=1e-9)
    values = np.linalg.eigvalsh(f.to_dense())[::-1]
    shown = np.array([float(row[1]) for row in page.table("The machine's spectrum")])
    assert np.allclose(shown[:10], values[:10], rtol=1e-5)


HARD = {
    "zero": np.zeros((20, 20)),
    "constant": np.ones((20, 20)),
    "negative": -np.eye(20),
    "huge": 1e150 * np.eye(20),
    "tiny": 1e-200 * np.eye(20),
    "two": np.array([[0.0, 1.0], [1.0, 0.0]]),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_matrices_have_a_page_too(name):
    text = report(krein.inspect(HARD[name], random_state=0))
    assert len(Page(text).all("section")) >= 4
    assert "nan" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S).lower().split("every number")[0]


def test_the_interval_of_the_score_is_students(page, model):
    from scipy import stats

    values = np.array(model.score.values)
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    assert page.values("score-interval")[:2] == pytest.approx([low, min(1.0, high)])


def test_the_stages_are_told_the_slowest_first_and_add_up(page, found, model):
    rows = page.table("Stages")
    seconds = [float(row[1]) for row in rows]
    assert seconds == sorted(seconds, reverse=True)
    told = {row[0]: float(row[1]) for row in rows}
    assert told["Judging it on rows held out"] == model.seconds["judging"]
    assert told["Fitting it to all rows"] == model.seconds["fitting"]
    inspecting = sum(t for name, t in told.items() if name.startswith("Inspecting"))
    assert inspecting == pytest.approx(found.seconds, rel=0.2)
    assert inspecting <= found.seconds


@pytest.mark.parametrize("how", ["none", "shift", "clip", "flip"])
def test_the_change_by_a_correction_is_that_of_the_matrix(how):
    rng = np.random.default_rng(0)
    K = rng.normal(size=(30, 30))
    K = K + K.T
    values, vectors = np.linalg.eigh(K)
    after = {
        "none": K,
        "shift": K - values[0] * np.eye(30),
        "clip": (vectors * np.maximum(values, 0)) @ vectors.T,
        "flip": (vectors * np.abs(values)) @ vectors.T,
    }[how]
    assert relative_change(values, how) == pytest.approx(np.linalg.norm(after - K) / np.linalg.norm(K), abs=1e-12)
    assert relative_change(values, "square") is None


def test_every_number_is_explained(page):
    for element in page.all("button"):
        if element.get("class") in ("n", "sort"):
            key = element["aria-describedby"].removeprefix("why-")
            assert page.all("dd", id=f"why-{key}")[0]["text"] == MEANINGS[key][1]
    assert all(len(meaning) > 20 for _, meaning in MEANINGS.values())


def test_charts_have_a_row_of_their_table_for_every_point_in_every_scale(page):
    plots = page.all("div", class_="plot")
    assert len(plots) >= 9
    for plot in plots:
        assert plot["role"] == "slider"
        assert plot["tabindex"] == "0"
        after = page.elements[page.elements.index(plot) + 1 :]
        tables = [i for i, e in enumerate(after) if e["tag"] == "table"] + [len(after)]
        rows = sum(e["tag"] == "tr" for e in after[tables[0] : tables[1]]) - 1  # but the heading
        after = after[: tables[0]]
        views = [e for e in after if e["tag"] == "g"]
        assert views
        for view in views:
            places = view["data-spots"].split()
            assert len(places) == rows
            spots = np.array([[float(v) for v in place.split(",")] for place in places if place != "-"])
            assert int(plot["aria-valuemax"]) == len(spots)
            assert np.isfinite(spots).all()
            assert (spots >= 0).all()
            assert (spots[:, 0] <= 420).all()


def test_nothing_is_fetched(found, model):
    text = report(found, model)
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttp|WebSocket|sendBeacon", text)
    page = Page(text)
    policy = page.all("meta", http_equiv="Content-Security-Policy")[0]["content"]
    assert policy.startswith("default-src 'none';")
    for element in page.elements:
        assert "src" not in element
        assert element["tag"] not in ("iframe", "object", "embed", "img", "form", "base")
        assert element.get("href", "#").startswith(("#", "data:,"))


def test_what_a_user_wrote_stays_text(found, model):
    spiked = replace(found, kernel=HOSTILE, notes=(HOSTILE, "</script><script>alert(3)</script>"))
    other = learn(Frame(("x", HOSTILE), (np.arange(40.0), np.array(["a", "b"] * 20, dtype=object))), HOSTILE, folds=2)
    text = report(spiked, other, title=HOSTILE, data=HOSTILE, seconds={HOSTILE: 1.0})
    page = Page(text)
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert not any(name.startswith("on") for e in page.elements for name in e)
    assert page.all("title")[0]["text"] == HOSTILE
    assert HOSTILE in page.all("section", id="notes")[0]["text"]
    assert HOSTILE in page.all("section", id="accuracy")[0]["text"] + page.all("section", id="glance")[0]["text"]


def test_an_inspection_alone_and_a_machine_alone(tmp_path, found, model):
    path = found.report(tmp_path / "found.html")
    assert Page(path.read_text(encoding="utf-8")).all("section", id="machine") == []
    path = model.report(tmp_path / "model.html")
    alone = Page(path.read_text(encoding="utf-8"))
    assert alone.all("section", id="indefinite") == []
    assert alone.all("section", id="accuracy")
    path = model.estimator.report(tmp_path / "machine.html", found)
    both = Page(path.read_text(encoding="utf-8"))
    assert both.all("section", id="machine")
    assert both.all("section", id="indefinite")
    assert both.all("section", id="accuracy") == []  # a machine does not know its score; a model does
    assert write(tmp_path / "again.html", found).read_bytes() == (tmp_path / "found.html").read_bytes()


@pytest.mark.parametrize(
    "machine", [krein.SVC(), krein.KernelRidge(), krein.KernelPCA(n_components=2), krein.SpectralClustering(2),
                krein.GaussianProcessRegressor(optimizer=None), krein.OneClassSVM(), krein.MEKA()]
)  # fmt: skip
def test_every_machine_has_a_report_and_scikit_learns_picture(tmp_path, machine):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(float)
    machine.fit(X, y)
    page = Page(machine.report(tmp_path / "machine.html").read_text(encoding="utf-8"))
    assert type(machine).__name__ in page.all("section", id="machine")[0]["text"]
    check_is_fitted(machine)
    assert type(machine).__name__ in machine._repr_html_()


def test_a_psd_kernel_needs_no_correction(words):
    found = krein.inspect(np.random.default_rng(0).normal(size=(40, 2)), krein.RBF(), random_state=0)
    page = Page(report(found))
    assert [row[0] for row in page.table("Corrections")] == ["none"]
    assert "No negative eigenvalue" in page.all("section", id="glance")[0]["text"]
    assert page.all("button", data_key="share-of-all") == []


def test_many_blocks_are_counted_by_size():
    X = np.random.default_rng(0).normal(size=(400, 2))
    machine = krein.KernelRidge(n_blocks=30, rank=3).fit(X, X[:, 0])
    page = Page(report(model=machine))
    rows = page.table("The machine's blocks by size")
    assert sum(int(row[1]) for row in rows) == machine.approximation_.n_blocks


def test_one_part_held_out_has_the_binomial_interval_and_r2_none():
    from krein.report.fitted import interval

    score = Score("accuracy", (0.9,), 400, 0.5)
    assert interval(score) == pytest.approx(
        (0.9 - 1.96 * np.sqrt(0.09 / 400), 0.9 + 1.96 * np.sqrt(0.09 / 400)), abs=1e-5
    )
    assert interval(Score("R²", (0.9,), 400, 0.0)) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "needs an inspection"),
        ((SimpleNamespace(),), "krein.inspect returns"),
        ((None, krein.SVC()), "Call fit"),
        ((None, "model"), "fitted krein machine"),
    ],
)
def test_what_is_no_finding_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        report(*arguments)


def test_a_folder_is_no_file(tmp_path, found):
    with pytest.raises(InputError, match="is a folder"):
        write(tmp_path, found)


@pytest.mark.parametrize("low", [-3.0, 0.0, 1e-9, 12.0])
@pytest.mark.parametrize("width", [0.0, 1e-6, 0.3, 1e5])
def test_axes_keep_order_and_place_their_ends(low, width):
    high = low + width
    made = [linear(low, high), linear(low, high, snug=True), symmetric(low, high)]
    made += [logarithmic(low, high)] if low > 0 else []
    for axis in made:
        place = axis.placed(100.0, 0.0)
        ends = [place(v) for v in (low, (low + high) / 2, high)]
        assert ends == sorted(ends)
        assert all(0.0 <= p <= 100.0 for p in ends)
        assert list(axis.ticks) == sorted(set(axis.ticks))
        assert len(axis.ticks) <= 15

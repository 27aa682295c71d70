"""Every example and every Python snippet of the documents runs, without a warning, and says what it promises."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_CODE = [path for path in DOCUMENTS if FENCED.search(path.read_text(encoding="utf-8"))]
LINKED = re.compile(r"\]\(([^)#]+)\)")


@pytest.fixture(autouse=True)
def _no_windows():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def test_there_is_something_to_run():
    assert len(EXAMPLES) >= 3
    assert {"README.md", "method.md", "kernels.md", "api.md"} <= {path.name for path in WITH_CODE}


@pytest.mark.parametrize("path", WITH_CODE, ids=lambda path: path.name)
def test_the_snippets_of_a_document_run_in_order(path):
    snippets = FENCED.findall(path.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": path.stem}
    for i, snippet in enumerate(snippets):
        exec(compile(snippet, f"{path.name}, snippet {i + 1}", "exec", dont_inherit=True), names)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_snippet_is_fenced_in_a_way_that_hides_it_from_the_test(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("```python") + text.count("```py\n") == len(FENCED.findall(text))


def test_the_five_lines_of_the_readme_are_five_and_true(capsys):
    snippets = FENCED.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [len([line for line in text.splitlines() if line.strip()]) for text in snippets] == [5, 5]
    exec(compile(snippets[0], "README.md", "exec"), {})
    score, of = capsys.readouterr().out.split(maxsplit=1)
    assert float(score) > 0.85
    assert of.startswith("Factorization(19000 x 19000, 50 blocks")
    snippet = snippets[1]
    names: dict[str, object] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    reason, heading, *looked_at, certificate = capsys.readouterr().out.splitlines()
    assert reason.startswith("target met")
    assert heading.split()[:2] == ["blocks", "rank"]
    assert looked_at[-1].endswith("kept     <- chosen")
    assert "psd=True" in certificate
    a = names["a"]
    K = a.kernel(a.objects)
    assert np.linalg.norm(K - a.factorization.to_dense()) <= 0.01 * np.linalg.norm(K)


@functools.cache
def run(name: str) -> tuple[dict[str, object], str]:
    """What an example leaves behind, and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        names = runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return names, out.getvalue()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_prints(path):
    assert len(run(path.name)[1].splitlines()) >= 5


def test_the_digits_example_tells_zeros_apart_with_a_psd_matrix():
    names, _ = run("digits.py")
    assert np.mean(names["predicted"] == names["zero"][1600:]) > 0.97
    assert np.linalg.eigvalsh(names["clipped"].factorization.core)[0] > -1e-9


def test_the_kernel_of_the_digits_example_is_indefinite_and_so_is_what_is_made_of_it():
    names, _ = run("digits.py")
    assert np.linalg.eigvalsh(names["kernel"](names["train"]))[0] < -1.0
    assert names["f"].n_negative() > 0


def test_the_choose_example_keeps_the_error_and_the_memory_it_asks_for():
    names, out = run("choose.py")
    a, b = names["by_error"], names["by_memory"]
    K = a.kernel(a.objects)
    assert np.linalg.norm(K - a.factorization.to_dense()) <= 0.01 * np.linalg.norm(K)
    assert b.factorization.nbytes <= 500_000
    assert str(a.search_) in out
    assert str(b.search_) in out


def test_the_similarity_of_the_strings_example_is_indefinite_indeed():
    names, _ = run("strings.py")
    K = names["shared_pairs"](names["words"], names["words"])
    assert np.array_equal(K, K.T)
    assert np.linalg.eigvalsh(K)[0] < -0.1


def test_the_words_that_the_strings_example_calls_new_are_new():
    names, out = run("strings.py")
    new = re.findall(r"most like '(\w+)'", out)
    assert len(new) == 3
    assert not set(new) & set(names["words"])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_local_link_leads_somewhere(path):
    links = [link for link in LINKED.findall(path.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_public_name_is_in_the_reference():
    import krein

    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in krein.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_the_pictures_of_the_documents_are_small():
    pictures = list((ROOT / "docs" / "images").glob("*.png"))
    assert pictures
    assert [path.name for path in pictures if path.stat().st_size > 150_000] == []


def test_the_picture_of_the_architecture_shows_the_import_contract():
    drawn = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
    message = "run python docs/architecture.py"
    assert drawn["PICTURE"].read_text(encoding="utf-8") == drawn["picture"](), message
    assert all(room in drawn["PURPOSES"] for rooms in drawn["layers"]() for room in rooms if room != "display")

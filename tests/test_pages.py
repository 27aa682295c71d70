"""The Python of the README and of every page runs as it is written, and prints what is shown; links lead to files."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import pytest

import krein

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Pages whose text blocks are, one after the other, what their Python prints.
PRINTED = ("README.md", "index.md", "tour.md")
# What a page needs besides krein.
NEEDS = {"cluster.md": "dask.array", "pictures.md": "matplotlib", "api.md": "matplotlib", "kernels.md": "pandas"}


def blocks(path: Path) -> list[str]:
    return BLOCK.findall(path.read_text(encoding="utf-8"))


LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|\{figure\} (\S+)")
TEXTS = [path for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))) if path.is_file()]
PAGES = [path for path in TEXTS if blocks(path)]


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="only in the repository")
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_the_links_of_a_page_lead_to_files(path: Path) -> None:
    links = [one or other for one, other in LINK.findall(path.read_text(encoding="utf-8"))]
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_blocks_of_a_page_run_in_their_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(NEEDS.get(path.name, "krein"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "MPLBACKEND", "Agg")
    space: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)  # pages say in words what a warning would
        for block in blocks(path):
            exec(compile(block, path.name, "exec"), space)
    if path.name in PRINTED:
        assert capsys.readouterr().out == "".join(SHOWN.findall(path.read_text(encoding="utf-8")))

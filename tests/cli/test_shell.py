"""docs/shell.md is replayed: every command of it runs, in order, and prints what the page says.

Words are compared as they are. Of numbers, those of rows and columns are compared exactly and accuracies within one
point; the others (seconds, bytes, eigenvalues) depend on the machine and are not. To write what the commands print into
the page: python tests/test_shell.py CHAPTER
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "shell.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
COUNTED = re.compile(r"(\d[\d,]*) (?:of )?(?:rows|columns|features)\b")
SCORE = re.compile(r"accuracy\s+(\d+\.\d+) %")
POINTS = 1.0  # by which an accuracy may differ
CHAPTERS = {
    "Pen strokes: a CSV file": "pens",
    "Peptides: lines of text": "peptides",
    "Forests: a Parquet file": "forests",
}


def chapters(text: str) -> dict[str, str]:
    """The chapters by their headings."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def steps(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what it printed; a line that ends in a backslash goes on."""
    pieces = re.split(r"^\$ ((?:.*\\\n)*.*)\n", block, flags=re.MULTILINE)
    assert pieces[0] == "", f"a block begins with a command; this one with {pieces[0]!r}"
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def skeleton(text: str) -> str:
    """The text without its numbers, and without how they were set in columns."""
    return re.sub(r"[ ]+", " ", NUMBER.sub("#", text))


def same(told: str, found: str, command: str) -> None:
    assert skeleton(found) == skeleton(told), command
    assert COUNTED.findall(found) == COUNTED.findall(told), command
    for mine, theirs in zip(SCORE.findall(found), SCORE.findall(told), strict=True):
        assert float(mine) == pytest.approx(float(theirs), abs=POINTS), command


def shell(folder: Path) -> dict[str, str]:
    """An environment in which krein, python and examples/ are those under test."""
    programs = folder / "bin"
    programs.mkdir()
    for name, words in (("krein", "-m krein"), ("python", "")):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        path.chmod(0o755)
    (folder / "examples").symlink_to(ROOT / "examples")
    return os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def printed(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command prints, on stdout and stderr; its exit code must be 0."""
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def replay(heading: str, folder: Path) -> None:
    environment = shell(folder)
    for block in BLOCK.findall(chapters(PAGE.read_text(encoding="utf-8"))[heading]):
        for command, told in steps(block):
            same(told, printed(command, folder, environment), command)


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the page is for a Unix shell")


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("heading", CHAPTERS, ids=CHAPTERS.values())
def test_a_chapter_prints_what_the_page_says(heading: str, tmp_path: Path) -> None:
    if heading.startswith("Peptides"):
        pytest.importorskip("rapidfuzz")
    if heading.startswith("Forests"):
        pytest.importorskip("pyarrow")
    replay(heading, tmp_path)


def test_the_page_fits_predicts_and_inspects_in_every_chapter() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = chapters(text)
    for heading in CHAPTERS:
        commands = [command for block in BLOCK.findall(found[heading]) for command, _ in steps(block)]
        words = {tuple(shlex.split(command)[:2]) for command in commands}
        assert {("krein", "fit"), ("krein", "predict"), ("krein", "inspect")} <= words, heading
    assert len(BLOCK.findall(text)) == text.count("```console")


def test_every_option_on_the_page_is_known() -> None:
    from krein.cli import main

    text = PAGE.read_text(encoding="utf-8")
    context = main.make_context("krein", ["--help"], resilient_parsing=True)
    known = {"--help", "--version"}
    for name in main.list_commands(context):
        known |= {opt for parameter in main.get_command(context, name).params for opt in parameter.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) - known == set()


def test_the_comparison_tells_a_wrong_page() -> None:
    told = "SVC from 10 rows\n  accuracy  90.12 % ± 1.00 %\n  time 1.0 s, 3 blocks\n"
    same(told, told.replace("1.0 s, 3", "20.5 s, 14").replace("90.12", "90.52"), "krein")
    for wrong in (told.replace("10 rows", "11 rows"), told.replace("90.12", "80.12"), told.replace("time", "took")):
        with pytest.raises(AssertionError):
            same(told, wrong, "krein")


if __name__ == "__main__":  # write the chapter anew, as its commands print it here
    import tempfile

    heading = {name: key for key, name in CHAPTERS.items()}[sys.argv[1]]
    with tempfile.TemporaryDirectory() as made:
        place, chapter = Path(made), chapters(PAGE.read_text(encoding="utf-8"))[heading]
        around, new = shell(place), chapter
        for block in BLOCK.findall(chapter):
            written = "".join(f"$ {command}\n{printed(command, place, around)}" for command, _ in steps(block))
            new = new.replace(block, written, 1)
        PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(chapter, new), encoding="utf-8")

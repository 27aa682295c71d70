"""The examples in docstrings run as they are written, every public name has one, and the gallery's scripts run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import krein

GALLERY = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(GALLERY.glob("*/plot_*.py"))
# Reading the table of contents of a package runs no code of it; __main__ would start the command line.
MODULES = sorted(
    found.name for found in pkgutil.walk_packages(krein.__path__, "krein.") if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("name", krein.__all__)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(krein, name)) or "")


def test_the_gallery_has_fifteen_scripts_with_a_title_and_a_picture_each() -> None:
    if not GALLERY.is_dir():
        pytest.skip("there is no gallery beside the tests")
    assert len(SCRIPTS) >= 15
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith('"""\n'), path
        assert "plt.show()" in text, path


def test_the_quick_site_runs_three_examples() -> None:
    if not GALLERY.is_dir():
        pytest.skip("there is no gallery beside the tests")
    pattern = re.findall(r'"filename_pattern": r"(.*?)" if QUICK', (GALLERY.parent / "docs" / "conf.py").read_text())
    assert sum(re.search(pattern[0], path.as_posix()) is not None for path in SCRIPTS) == 3


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_of_the_gallery_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if "dask" in path.stem:
        pytest.importorskip("distributed")
    environment = os.environ | {"MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout

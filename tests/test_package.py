"""The package as a whole: what it exports, how it is built, and that every room keeps the house's rules."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

import krein

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "krein").rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_exported_name_exists_once():
    assert len(set(krein.__all__)) == len(krein.__all__)
    assert [name for name in krein.__all__ if not hasattr(krein, name)] == []


def test_no_public_name_is_missing_from_all():
    public = {
        name
        for name, value in vars(krein).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and value is not annotations
    }
    assert public - set(krein.__all__) == set()


def test_the_version_is_that_of_the_metadata():
    try:
        version = importlib.metadata.version("krein")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("krein is on the path but not installed, so it has no metadata")
    assert krein.__version__ == version


def test_imports_point_one_way():
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    run(sys.executable, "-c", code)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_file_is_longer_than_one_can_read(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.slow
def test_the_wheel_is_complete_and_can_be_imported(tmp_path):
    if importlib.util.find_spec("build") is None:
        pytest.skip("build is not installed")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path))
    (wheel,) = tmp_path.glob("krein-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        archive.extractall(tmp_path / "unpacked")
    assert "krein/py.typed" in held
    assert {str(path.relative_to(ROOT / "src")) for path in SOURCES} <= held
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'unpacked')!r}); import krein; print(krein.__file__)"
    assert run(sys.executable, "-c", code, cwd=tmp_path).startswith(str(tmp_path))

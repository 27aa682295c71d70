"""The package as a whole: what it exports, how it is built, and that every room keeps the house's rules."""

from __future__ import annotations

import ast
import importlib
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


def test_a_name_is_the_same_for_a_type_checker_and_at_run_time():
    tree = ast.parse(Path(krein.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test).startswith("typing"))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(seen) == sorted(krein.__all__)
    for name, room in seen.items():
        if room == "krein":
            assert getattr(krein, name) is importlib.import_module(f"krein.{name}")
        else:
            assert getattr(krein, name) is getattr(importlib.import_module(room), name)


def test_names_not_yet_loaded_are_listed_found_and_starred_without_what_only_some_work_needs():
    code = """if True:
        import sys, sklearn.gaussian_process, sklearn.pipeline, sklearn.svm
        before = set(sys.modules)
        import krein
        from inspect import getmembers
        assert set(krein.__all__) <= set(dir(krein)) and "SVC" not in vars(krein)
        assert krein.kernels.Kernel and krein.errors.InputError  # any room, as if it had been imported
        given = {}
        exec("from krein import *", given)
        assert set(krein.__all__) <= set(given)
        assert all(getattr(krein, name) is given[name] for name in krein.__all__)
        print(*(set(sys.modules) - before))
        assert {name for name, _ in getmembers(krein)} >= set(krein.__all__)
    """
    loaded = run(sys.executable, "-c", code).split()
    assert {"krein.estimators.svm", "krein.datasets"} <= set(loaded)
    assert {"matplotlib", "scipy.cluster", "sklearn.cluster", "sklearn.datasets"} & set(loaded) == set()


def test_public_modules_can_be_imported_by_their_names():
    from krein.bounds import meka_bound
    from krein.display import SpectrumDisplay
    from krein.truncation import truncate

    assert krein.bounds.meka_bound is meka_bound
    assert krein.truncation.truncate is truncate
    assert krein.plotting.SpectrumDisplay is SpectrumDisplay


@pytest.mark.parametrize(
    "code",
    [
        "import krein; krein.__version__, krein.__all__, krein.KreinError",
        "from krein.cli import main; main(['--help'], standalone_mode=False)",
    ],
)
def test_a_start_does_not_wait_for_numbers(code):  # seconds depend on the machine; this is what they are made of
    loaded = run(sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)").splitlines()[-1].split()
    assert "krein" in loaded
    assert {"numpy", "scipy", "sklearn", "joblib", "tqdm", "threadpoolctl", "pandas", "pyarrow"} & set(loaded) == set()


@pytest.mark.slow
def test_threads_that_ask_at_once_get_the_same():
    code = """if True:
        import krein
        from concurrent.futures import ThreadPoolExecutor
        names = ["SVC", "RBF", "load", "inspect", "bounds", "approximate", "datasets", "truncation"] * 4
        with ThreadPoolExecutor(len(names)) as pool:
            found = list(pool.map(lambda name: getattr(krein, name), names))
        assert all(thing is getattr(krein, name) for name, thing in zip(names, found))
    """
    run(sys.executable, "-c", code)


def test_a_name_that_is_not_there_is_an_attribute_error_and_a_missing_package_is_not(monkeypatch):
    with pytest.raises(AttributeError, match="'krein' has no attribute 'SVM'"):
        krein.SVM  # noqa: B018
    with pytest.raises(ImportError, match="SVM"):
        from krein import SVM  # noqa: F401
    assert not hasattr(krein, "__main__")  # there is such a module, but it runs the command line
    monkeypatch.delattr(krein, "datasets", raising=False)
    monkeypatch.delitem(sys.modules, "krein.datasets", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match="sklearn"):
        krein.datasets  # noqa: B018


def test_the_version_is_that_of_the_metadata():
    try:
        version = importlib.metadata.version("krein")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("krein is on the path but not installed, so it has no metadata")
    assert krein.__version__ == version


def test_the_citation_names_the_version():
    citation = Path(__file__).parents[1] / "CITATION.cff"
    assert f"\nversion: {krein.__version__}\n" in citation.read_text(encoding="utf-8")


def test_imports_point_one_way():
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    run(sys.executable, "-c", code)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


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

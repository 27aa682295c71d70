"""Build the wheel and the source distribution, and prove them.

    python release/prove.py [--pythons 3.10 3.13] [--tests ends|some|none]

The wheel is built from the source distribution, so that both are complete. In clean environments, away from this
repository, on every Python that is found with the newest versions of what krein requires, and on the oldest Python
also with the oldest versions that pyproject.toml allows:

1. alone: the wheel and what it requires, nothing else. Every public name is imported; a model is fitted, saved and
   loaded; the command answers. What each dependency weighs is printed.
2. the tests of the source distribution, with the extras and what the tests need, against the installed wheel: all of
   them at both ends (the oldest Python with the oldest versions, the newest Python with the newest), some of them
   between. --tests some runs some of them everywhere, --tests none leaves them out.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
SOME = (
    "tests/test_package.py",
    "tests/test_examples.py",
    "tests/persistence",
    "tests/estimators/test_svm_contract.py",
)
ALONE = """
import krein, tempfile, pathlib, numpy as np
assert "site-packages" in krein.__file__, krein.__file__
for name in krein.__all__:
    getattr(krein, name)
rows = krein.datasets.mixture(3000, n_features=5, n_classes=2, random_state=0)
for machine in (krein.SVC(n_blocks=4, rank=16, random_state=0), krein.KernelRidgeClassifier(), krein.SVC(kernel="tl1")):
    machine.fit(rows.X[:1000], rows.y[:1000])
    path = pathlib.Path(tempfile.mkdtemp()) / "model.krein"
    krein.save(machine, path)
    assert (krein.load(path).predict(rows.X) == machine.predict(rows.X)).all()
print("krein", krein.__version__, "alone: every name, three fits, three model files")
"""
WEIGHTS = """
import importlib.metadata as m
for d in sorted(m.distributions(), key=lambda d: d.metadata["Name"].lower()):
    size = sum(f.locate().stat().st_size for f in d.files or () if f.locate().is_file())
    if d.metadata["Name"] not in ("pip", "setuptools", "wheel"):
        print(f"  {d.metadata['Name']:16} {d.version:12} {size / 1e6:7.1f} MB")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="*", default=PYTHONS, help="versions to prove it on, where they are found")
    parser.add_argument("--tests", choices=("ends", "some", "none"), default="ends", help="where all tests are run")
    arguments = parser.parse_args()
    wheel = build()
    found = {version: path for version in arguments.pythons if (path := python(version))}
    missing = [version for version in arguments.pythons if version not in found]
    print(f"Pythons: {', '.join(found) or 'none'}" + (f"; not found: {', '.join(missing)}" if missing else ""))
    if not found:
        raise SystemExit("No Python to prove it on.")
    last = list(found)[-1]
    ends = [(PYTHONS[0], "oldest")] * (PYTHONS[0] in found) + [(last, "newest")]
    failures = []
    for version, versions in [*ends, *((version, "newest") for version in found if version != last)]:
        title = f"Python {version}, {versions} versions"
        whole = arguments.tests == "ends" and (version, versions) in ends
        tests = () if arguments.tests == "none" else ("tests",) if whole else SOME
        begun = time.monotonic()
        try:
            prove(wheel, found[version], oldest(wheel) if versions == "oldest" else [], tests, title=title)
        except subprocess.CalledProcessError as error:
            failures.append(f"{title}: {' '.join(map(str, error.cmd))[:120]}")
        print(f"{title}: {(time.monotonic() - begun) / 60:.1f} minutes", flush=True)
    if failures:
        raise SystemExit("FAILED\n" + "\n".join(failures))
    print(f"{wheel} and the source distribution beside it hold on {len(found)} Pythons.")


def build() -> Path:
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", ROOT / "dist", ROOT)
    (wheel,) = (ROOT / "dist").glob("*.whl")
    return wheel


def python(version: str) -> Path | None:
    """Return an interpreter of this version: a command python3.x, or one of pyenv's."""
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    for path in filter(None, candidates):
        done = subprocess.run([path, "-c", "import sys, venv; print(sys.version)"], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.startswith(f"{version}."):
            return Path(path)
    return None


def oldest(wheel: Path) -> list[str]:
    """Return the lower bounds of what krein and its extras require, as versions to install."""
    (name,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("dist-info/METADATA"))
    required = re.findall(
        r"^Requires-Dist: ([\w-]+)(?:\[.*\])?>=([\d.]+)(?:; extra == .all.)?$",
        zipfile.ZipFile(wheel).read(name).decode(),
        re.M,
    )
    return [f"{package}=={version}" for package, version in required]


def prove(wheel: Path, interpreter: Path, bounds: list[str], tests: tuple[str, ...], *, title: str) -> None:
    print(f"\n== {title}", flush=True)
    with tempfile.TemporaryDirectory(prefix="krein-prove-") as folder:
        place = Path(folder)
        run(interpreter, "-m", "venv", place / "venv")
        there = place / "venv" / "bin" / "python"
        (place / "bounds.txt").write_text("\n".join(bounds))
        install = (there, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", place / "bounds.txt")
        run(*install, wheel)
        run(there, "-c", WEIGHTS, cwd=place)
        run(there, "-c", ALONE, cwd=place)
        run(place / "venv" / "bin" / "krein", "--version", cwd=place)
        if not tests:
            return
        run(*install, f"{wheel}[all,dev]")
        shutil.unpack_archive(wheel.with_name(f"{'-'.join(wheel.name.split('-')[:2])}.tar.gz"), place)
        (source,) = place.glob("krein-*")
        shutil.rmtree(source / "src")  # the tests import the wheel
        processes = os.environ.get("TEST_PROCESSES", "2")
        run(there, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider", *tests, cwd=source)


def run(*command: object, cwd: Path | None = None) -> None:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | one_thread
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, env=environment)


if __name__ == "__main__":
    main()

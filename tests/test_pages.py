"""The Python of some pages runs as it is written, and so do the two examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDS = {"one_machine.md": "krein", "cluster.md": "dask.array", "krein_space.md": "krein"}


@pytest.mark.filterwarnings("ignore:.*indefinite matrix:krein.errors.KreinWarning")
@pytest.mark.parametrize("name", NEEDS)
def test_the_blocks_of_a_page_run_in_their_order(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDS[name])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), space)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "needs"), [("out_of_core", "krein"), ("on_dask", "distributed")])
def test_an_example_says_how_many_rows_are_right(name: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"([\d.]+) % of the training rows are right", done.stdout)
    assert found is not None
    assert float(found[1]) > 80.0

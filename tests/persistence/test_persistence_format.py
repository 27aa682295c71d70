"""The format of model files: other programs can read it, and files of earlier versions are still read."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from test_persistence import common_letters

import krein
from krein.persistence import FORMAT

GOLDEN = Path(__file__).parent / "golden"


def test_other_programs_can_read_the_arrays_and_check_them(tmp_path):
    X = np.random.default_rng(7).standard_normal((60, 3))
    alpha = np.array([0.1, 1.0])
    model = krein.KernelRidge(alpha=alpha, n_blocks=2, rank=6, random_state=0).fit(X, np.c_[X[:, 0], -X[:, 1]])
    path = tmp_path / "model.krein"
    krein.save(model, path)
    held = load_file(path)
    assert np.array_equal(held["dual_coef_"], model.dual_coef_)
    assert np.array_equal(held["_approximation.objects"], X)
    with safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["krein"])
    assert (header["format"], header["class"], header["krein"]) == (FORMAT, "KernelRidge", krein.__version__)
    root = header["entries"][header["root"]]
    assert root["fields"]["coupling"] == "shared"
    for name, checksum in header["checksums"].items():  # the recipe of docs/files.md
        data = held[name].tobytes()
        parts = [hashlib.sha256(data[i : i + 2**20]).digest() for i in range(0, len(data), 2**20)]
        assert hashlib.sha256(b"".join(parts)).hexdigest() == checksum
    data = path.read_bytes()
    assert hashlib.sha256(data[: 8 + int.from_bytes(data[:8], "little")]).digest() == data[-32:]


def test_an_array_of_many_chunks_is_verified_in_each(tmp_path):
    S = np.add.outer(np.arange(600.0), np.arange(600.0))  # 2.9 MB: three chunks
    path = tmp_path / "model.krein"
    krein.save(krein.Precomputed(S), path)
    assert np.array_equal(krein.load(path).S, S)
    data = bytearray(path.read_bytes())
    for place in (-100, -(2**20) - 100, -2 * 2**20 - 100):
        data[place] ^= 1
        path.write_bytes(data)
        with pytest.raises(krein.ModelFileError, match="'S'"):
            krein.load(path)
        data[place] ^= 1


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.krein")))
def test_files_of_earlier_formats_are_still_read(name):
    told = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    model = krein.load(GOLDEN / f"{name}.krein", functions={"letters": common_letters})
    assert type(model).__name__ == told["class"]
    if "transformed" in told:
        assert np.allclose(model.transform(told["new"]), told["transformed"], rtol=1e-9, atol=1e-12)
        return
    found = model.predict(told["new"])
    if isinstance(told["predicted"][0], str):
        assert found.tolist() == told["predicted"]
    else:
        assert np.allclose(found, told["predicted"], rtol=1e-9, atol=1e-12)
    if "decided" in told:
        assert np.allclose(model.decision_function(told["new"]), told["decided"], rtol=1e-9, atol=1e-12)


def test_what_was_tried_is_read_from_files_that_had_other_classes_for_it():
    """Format 2 had "Choice" and "Trial" for a choice by score, "Search" and "Look" for one by error."""
    told = json.loads((GOLDEN / "v2-selected-by-score.json").read_text(encoding="utf-8"))["selection"]
    found = krein.load(GOLDEN / "v2-selected-by-score.krein").selection_
    assert {name: getattr(found, name) for name in ("n_blocks", "rank", "drop", "reason", "n_scored")}.items() <= (
        told.items()
    )
    assert [t.score for t in found.tried] == told["scores"]
    assert [t.nbytes for t in found.tried] == told["nbytes"]
    assert (found.chosen.n_blocks, found.chosen.rank) == (told["n_blocks"], told["rank"])
    told = json.loads((GOLDEN / "v2-selected-by-error.json").read_text(encoding="utf-8"))["search"]
    found = krein.load(GOLDEN / "v2-selected-by-error.krein").approximation_.search_
    assert (found.reason, found.error.relative) == (told["reason"], told["relative"])
    assert [t.stage for t in found.tried] == told["stages"]
    assert [t.error for t in found.tried] == told["errors"]
    assert found.chosen.stage == "kept"


@pytest.mark.slow
def test_importing_krein_imports_no_safetensors():
    code = "import sys; from krein import *; print('safetensors' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"

"""A model of a matrix on disk: kept whole with a word about it, or left where it is and known again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import krein

N = 400
RNG = np.random.default_rng(0)
PLACES = RNG.normal(size=(N, 2))
LABELS = (PLACES[:, 0] > 0).astype(int)


@pytest.fixture
def filed(tmp_path: Path) -> Path:
    np.save(tmp_path / "S.npy", krein.RBF(gamma=0.5)(PLACES).astype(np.float32))
    return tmp_path / "S.npy"


MODELS: dict[str, Any] = {
    "exact": lambda k: krein.SVC(kernel=k, random_state=0),
    "blocks": lambda k: krein.SVC(kernel=k, n_blocks=4, rank=10, coupling="landmark", random_state=0),
    "wrapped": lambda k: krein.KernelRidge(kernel=krein.Normalized(k), random_state=0),
    "process": lambda k: krein.GaussianProcessRegressor(kernel=k, alpha=0.1, random_state=0),
}


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_beside_its_matrix_is_small_and_predicts_the_same(name: str, filed: Path, tmp_path: Path) -> None:
    model = MODELS[name](krein.Precomputed(filed)).fit(np.arange(300), LABELS[:300])
    krein.save(model, tmp_path / "beside.krein", matrices={"S": filed})
    krein.save(model, tmp_path / "whole.krein")
    saved = (tmp_path / "whole.krein").stat().st_size - (tmp_path / "beside.krein").stat().st_size
    assert saved > 0.99 * N * N * 4
    wanted = model.predict(np.arange(300, N))
    for given in (filed, str(filed), np.load(filed), np.load(filed, mmap_mode="r")):
        found = krein.load(tmp_path / "beside.krein", matrices={"S": given})
        np.testing.assert_array_equal(found.predict(np.arange(300, N)), wanted)
    np.testing.assert_array_equal(krein.load(tmp_path / "whole.krein").predict(np.arange(300, N)), wanted)


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
def test_rows_of_the_precomputed_convention_need_no_more(filed: Path, tmp_path: Path) -> None:
    S = np.load(filed).astype(np.float64)
    train, new = S[:300, :300].copy(), S[300:, :300]
    model = krein.SVC(kernel="precomputed", random_state=0).fit(train, LABELS[:300])
    krein.save(model, tmp_path / "beside.krein", matrices={"S": model.approximation_.kernel.S})
    found = krein.load(tmp_path / "beside.krein", matrices={"S": train})
    np.testing.assert_array_equal(found.decision_function(new), model.decision_function(new))


def test_another_matrix_or_none_is_refused(filed: Path, tmp_path: Path) -> None:
    krein.save(krein.Precomputed(filed), tmp_path / "k.krein", matrices={"S": filed})
    with pytest.raises(krein.InputError, match=r"uses a matrix of yours, 'S'.*matrices=\{'S': ...\}"):
        krein.load(tmp_path / "k.krein")
    other = np.load(filed)
    other[0, 5] += 0.1
    for wrong in (other, other.astype(np.float64), other[:50, :50]):
        with pytest.raises(krein.InputError, match=r"beside a matrix 'S', <f4 \[400, 400\]"):
            krein.load(tmp_path / "k.krein", matrices={"S": wrong})
    with pytest.raises(krein.InputError, match="beside a matrix"):
        krein.load(tmp_path / "k.krein", functions={"S": print})
    for wrong in ({"S": 3}, {3: other}):
        with pytest.raises(krein.InputError, match="matrices must map names"):
            krein.load(tmp_path / "k.krein", matrices=wrong)
    with pytest.raises(krein.InputError, match="cannot be opened"):
        krein.load(tmp_path / "k.krein", matrices={"S": tmp_path / "absent.npy"})


def test_a_large_file_within_a_file_is_told_with_its_size(filed: Path, tmp_path: Path, monkeypatch: Any) -> None:
    krein.save(krein.Precomputed(filed), tmp_path / "k.krein")  # a small one is nobody's worry
    monkeypatch.setattr("krein.persistence.values.LARGE_FILE", 100_000)
    with pytest.warns(krein.KreinWarning, match=r"file of 1 MB \(.*S\.npy\), and becomes part.*matrices="):
        krein.save(krein.Precomputed(filed), tmp_path / "k.krein")
    assert np.array_equal(krein.load(tmp_path / "k.krein").S, np.load(filed))

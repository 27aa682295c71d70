"""Rows of Dask collections: the answers of memory, the same bits on any workers, lazy predictions, dead workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import cache

import numpy as np
import pytest
from cases import MACHINES, NEW, NUMBERS, SHAPE, TWO, D, N, X, answers, check_close, fitted, machine, same
from test_outside import check_lets_go

import krein
from krein.errors import InputError, KreinWarning, ResourceError
from krein.pieces.on_dask import OnDask

da = pytest.importorskip("dask.array", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")

CHUNKS = (450, -1)


def rows():
    return da.from_array(X, chunks=CHUNKS)


@cache
def wanted(name):
    return answers(name, fitted(name, X))


def client(n_workers, **options):
    return distributed.Client(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50, **options
    )


@pytest.fixture(scope="module")
def one_worker():
    with client(1, processes=False) as found:
        yield found


@pytest.mark.parametrize("name", MACHINES)
def test_a_collection_without_a_client_gives_the_answers_of_memory(name):
    fit = fitted(name, rows())
    check_close(answers(name, fit), wanted(name))
    check_lets_go(fit)


@pytest.mark.parametrize("name", ["ridge classifier", pytest.param("svr", marks=pytest.mark.slow)])
def test_the_number_of_workers_changes_no_bit(name):
    found = []
    for n_workers in (1, 2):
        with client(n_workers, processes=False):
            fit = fitted(name, rows())
            found.append(answers(name, fit))
            check_lets_go(fit)
    check_close(found[0], wanted(name))
    assert same(*found)


def test_other_chunks_on_workers(one_worker):
    fit = fitted("ridge", rows().rechunk((390, -1)), da.from_array(NUMBERS, chunks=100))
    check_close(answers("ridge", fit), wanted("ridge"))


def test_rows_without_weight_are_not_there(one_worker):
    weights = (np.arange(N) % 3).astype(float)
    weights[450:900] = 0.0  # a whole chunk has none
    there = weights > 0.0
    fit = machine("ridge").fit(rows(), NUMBERS, sample_weight=weights)
    known = machine("ridge").fit(X[there], NUMBERS[there], sample_weight=weights[there])
    check_close(answers("ridge", fit), answers("ridge", known))
    check_lets_go(fit)


def test_predictions_are_lazy_collections_of_the_same_chunks(one_worker):
    fit, new = fitted("svc", X), da.from_array(NEW, chunks=(70, -1))
    for how in ("predict", "decision_function"):
        lazy = getattr(fit, how)(new)
        assert isinstance(lazy, da.Array)
        assert lazy.chunks == new.chunks[:1]
        found = getattr(fit, how)(NEW)
        assert lazy.dtype == found.dtype
        check_close(lazy.compute(), found)
    features = fitted("components", X).transform(new)
    assert features.chunks == (new.chunks[0], (3,))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_data_frame_with_its_target_by_name(one_worker):
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(D)])
    collection = dd.from_pandas(frame.assign(kind=MACHINES["ridge classifier"][2]), npartitions=4)
    fit = fitted("ridge classifier", collection, "kind")
    check_close(answers("ridge classifier", fit), wanted("ridge classifier"))
    lazy = fit.predict(collection[list(frame.columns)])
    assert lazy.npartitions == 4
    assert np.array_equal(np.asarray(lazy.compute()), fit.predict(X))


def test_an_approximation_on_workers(one_worker):
    found, known = (
        krein.approximate(some, krein.RBF(gamma=0.3), n_blocks=4, rank=16, random_state=0) for some in (rows(), X)
    )
    b = np.cos(np.arange(N))
    assert np.allclose(found.factorization @ b, known.factorization @ b, rtol=0.0, atol=1e-9 * np.abs(b).sum())
    assert np.allclose(found.factorization.rows([3, 700]), known.factorization.rows([3, 700]), rtol=0.0, atol=1e-10)


# -- what is refused ---------------------------------------------------------------------------------------------------


class Counted:
    """How often a chunk was computed."""

    def __init__(self):
        self.n = 0

    def __call__(self, block):
        self.n += 1
        return block


def similarity(a, b):
    return float(np.exp(-0.3 * np.square(a - b).sum()))


@pytest.mark.parametrize("kernel", [similarity, "precomputed", krein.Precomputed(np.eye(3))])
def test_a_collection_is_never_pulled_for_what_needs_memory(kernel):
    counted = Counted()
    lazy = rows().map_blocks(counted, dtype=np.float64, meta=np.empty((0, 0)))
    with pytest.raises(InputError, match=r"Dask collection holds vectors.*compute\(\)"):
        krein.SVC(kernel=kernel, policy=SHAPE["policy"]).fit(lazy, TWO)
    assert counted.n == 0


def test_chunks_of_columns():
    with pytest.raises(InputError, match=r"whole rows.*rechunk\(\{1: -1\}\)"):
        fitted("ridge", rows().rechunk((-1, 2)))


def test_nan_on_a_worker(one_worker):
    bad = X.copy()
    bad[1403, 1] = np.nan
    with pytest.raises(InputError, match=r"row 1403\b"):
        fitted("ridge", da.from_array(bad, chunks=CHUNKS))


def test_deviations_of_a_collection_are_refused():
    fit = fitted("process", X)
    with pytest.raises(InputError, match=r"return_std of a Dask collection.*map_blocks"):
        fit.predict(rows(), return_std=True)


def test_a_workdir_is_not_used(tmp_path):
    with pytest.warns(KreinWarning, match="workdir is not used"):
        fitted("ridge", rows(), workdir=tmp_path / "work")


def test_a_client_that_is_closed_in_the_middle(monkeypatch):
    visit, n_visits = OnDask.visit, [0]

    def closing(self, *args, **options):
        n_visits[0] += 1
        if n_visits[0] == 3:
            self.client.close()
        return visit(self, *args, **options)

    monkeypatch.setattr(OnDask, "visit", closing)
    with client(1, processes=False), pytest.raises(ResourceError, match=r"(?s)cluster went away.*Start it again"):
        fitted("ridge", rows())


# -- workers that die --------------------------------------------------------------------------------------------------

# The step at which a worker is killed. Predictions are no visit.
STAGES = {"assign": "_assign", "bases": "_basis", "core": "_heavy", "solver": "_compare", "predict": None}


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_worker_changes_no_bit(stage, monkeypatch):
    options = {"tol": 1e-3}
    with client(2, processes=True) as found:
        lazy, new = rows(), da.from_array(NEW, chunks=(30, -1))
        fit = fitted("svc", lazy, **options)
        known, blocks = answers("svc", fit), fit.decision_function(new).compute()
        for turn in range(5):
            killing = threading.Thread(target=kill_one, args=(found, 0.02 * turn))
            if stage == "predict":
                result = found.compute(fit.decision_function(new))
                killing.start()
                assert same(result.result(), blocks)
            else:
                with monkeypatch.context() as patch:
                    patch.setattr(OnDask, "_run", watched(STAGES[stage], turn if stage == "solver" else 0, killing))
                    assert same(answers("svc", fitted("svc", lazy, **options)), known)
            assert killing.ident is not None  # it was started
            killing.join()
            found.wait_for_workers(2)


def watched(name, after, killing):
    """`OnDask._run` that starts a thread when a step was handed out for a certain time."""
    run, left = OnDask._run, [after]

    def watching(self, step, *args):
        futures = run(self, step, *args)
        if step.__name__ == name:
            left[0] -= 1
            if left[0] == -1:
                killing.start()
        return futures

    return watching


def kill_one(found, delay):
    """SIGKILL to one worker of a cluster of processes of this machine."""
    time.sleep(delay)
    workers = found.scheduler_info()["workers"]
    os.kill(found.run(os.getpid, workers=[next(iter(workers))]).popitem()[1], signal.SIGKILL)

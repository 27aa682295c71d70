"""The folder of a fit: what an interrupted fit finds there, what a finished one leaves, what may be wrong."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import NUMBERS, SMALL, TWO, N, X, answers, fitted, same

import krein
from krein.errors import InputError, ResourceError
from krein.pieces import checkpoints
from krein.pieces.checkpoints import OWN_FOLDER, Workdir
from krein.solvers import dual, interior_point_pieces
from krein.solvers.interior_point_pieces import InPieces

HERE = Path(__file__).parent


class Stopped(Exception):
    """Ends a fit in the middle."""


def stop_after(monkeypatch, n_files, error=Stopped):
    """Let a fit write some files, and raise."""
    left, written = [n_files], Workdir.written

    def counted(self, path, lasting=True):
        left[0] -= 1
        if left[0] < 0:
            raise error
        return written(self, path, lasting)

    monkeypatch.setattr(Workdir, "written", counted)


def test_a_stopped_fit_goes_on_where_it_was(path, tmp_path, monkeypatch):
    known = answers("ridge", fitted("ridge", path, workdir=tmp_path / "other", **SMALL))
    options = {"workdir": tmp_path / "work"} | SMALL
    with monkeypatch.context() as patch:
        stop_after(patch, 9)
        with pytest.raises(Stopped):
            fitted("ridge", path, **options)
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "work" / OWN_FOLDER).iterdir()}
    assert len(kept) == 9
    reads, read = [], krein.pieces.rows.Run.read
    monkeypatch.setattr(krein.pieces.rows.Run, "read", lambda run: reads.append(run.start) or read(run))
    assert same(answers("ridge", fitted("ridge", path, **options)), known)
    n_pieces, finished = len(set(reads)), sum(name.endswith(".npz") for name in kept)
    assert len(reads) == 3 * n_pieces - finished  # all rows are checked; assigning and bases go on
    assert not list((tmp_path / "work").iterdir())


def test_a_stopped_dual_goes_on_from_its_last_state(path, tmp_path, monkeypatch):
    monkeypatch.setattr(interior_point_pieces, "KEPT_STEPS", 3)
    options = {"workdir": tmp_path / "work"} | SMALL
    steps, step = [], InPieces.step

    def stopping(self):
        steps.append(self.progress.n_iter)
        if len(steps) == 11:
            raise Stopped
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(InPieces, "step", stopping)
        with pytest.raises(Stopped):
            fitted("svc", path, **options)
    states = sorted((tmp_path / "work" / OWN_FOLDER).glob("*path-*.json"))
    assert [state.stem.rpartition("-")[2] for state in states] == ["00006", "00009"]  # two generations
    states[1].write_text("{")  # the last one is damaged
    steps.clear()
    monkeypatch.setattr(InPieces, "step", lambda self: steps.append(1) or step(self))
    found = fitted("svc", path, **options)
    assert len(steps) == found.n_iter_[0] - 6
    assert same(answers("svc", found), answers("svc", fitted("svc", path, **SMALL)))
    assert not list((tmp_path / "work").iterdir())


def test_the_duals_that_were_solved_are_not_solved_again(path, tmp_path, monkeypatch):
    monkeypatch.setattr(dual, "COPIED_NUMBERS", 0)
    options, begun, begin = {"workdir": tmp_path / "work"} | SMALL, [], InPieces.__init__

    def counted(self, *args):
        begun.append(args[-1])
        if len(begun) == 3:
            raise Stopped
        begin(self, *args)

    monkeypatch.setattr(InPieces, "__init__", counted)
    with pytest.raises(Stopped):
        fitted("svc three", path, **options)
    found = fitted("svc three", path, **options)
    assert len(begun) == len(set(begun)) + 1 == 4
    assert same(answers("svc three", found), answers("svc three", fitted("svc three", path, **SMALL)))


def test_the_states_of_another_problem_are_not_used(path, tmp_path, monkeypatch):
    monkeypatch.setattr(interior_point_pieces, "KEPT_STEPS", 3)
    options = {"workdir": tmp_path / "work"} | SMALL
    with monkeypatch.context() as patch:
        patch.setattr(dual, "_finished", lambda run, *args: run.reach(0.1, 9) and stopped())
        with pytest.raises(Stopped):
            fitted("svc", path, **options)
    assert list((tmp_path / "work" / OWN_FOLDER).glob("*path-*.json"))
    found = fitted("svc", path, C=0.5, **options)
    assert same(answers("svc", found), answers("svc", fitted("svc", path, C=0.5, **SMALL)))


def stopped():
    raise Stopped


@pytest.mark.parametrize("name", ["svc", "process"])
def test_a_fit_without_a_random_state_goes_on_with_its_seed(name, path, tmp_path, monkeypatch):
    options = {"workdir": tmp_path / "work", "random_state": None} | SMALL
    if name == "process":  # it builds twice: for each kernel that was learned
        options |= {
            "optimizer": "fmin_l_bfgs_b",
            "policy": krein.Policy(exact_rows=100, process_rows=100, process_learning_rows=60),
        }
    with monkeypatch.context() as patch:
        stop_after(patch, 14)
        with pytest.raises(Stopped):
            fitted(name, path, **options)
    seed = json.loads((tmp_path / "work" / OWN_FOLDER / "fit.json").read_text())["random_state"]
    fit = fitted(name, path, **options)
    assert fit.random_state is None
    assert same(answers(name, fit), answers(name, fitted(name, path, **options | {"random_state": seed})))


def test_an_approximation_goes_on_with_its_seed(path, tmp_path, monkeypatch):
    options = {"n_blocks": 4, "rank": 16, "workdir": tmp_path / "work"} | SMALL
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(Stopped):
            krein.approximate(path, krein.RBF(gamma=0.3), **options)
    seed = json.loads((tmp_path / "work" / OWN_FOLDER / "fit.json").read_text())["random_state"]
    found = krein.approximate(path, krein.RBF(gamma=0.3), **options)
    known = krein.approximate(X, krein.RBF(gamma=0.3), n_blocks=4, rank=16, random_state=seed)
    assert found.seed == known.seed


@pytest.mark.parametrize(("after", "how"), [pytest.param(5, "before", marks=pytest.mark.slow), (40, "after")])
def test_a_killed_process_goes_on_with_the_same_bits(after, how, path):
    check_killed(path.parent, "svc", after, how)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(path):
    rng = np.random.default_rng(7)
    for after, how in zip(rng.integers(0, 120, 20).tolist(), rng.choice(["before", "after"], 20), strict=True):
        check_killed(path.parent, "svc", after, how)


def run(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, str(HERE / "killed.py"), str(folder), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def check_killed(folder, name, after, how):
    """Kill a fit, let it end in another process, and compare with one that was not killed; nothing may be left."""
    work = folder / "work" / OWN_FOLDER
    assert run(folder, name, after, how).returncode == -signal.SIGKILL
    record = work / "fit.json"
    seed = json.loads(record.read_text())["random_state"] if record.exists() else None
    ended = run(folder, name)
    assert ended.returncode == 0, ended.stderr
    assert not list((folder / "work").iterdir())
    if seed is not None:
        known = fitted(name, folder / "x.npy", workdir=folder / "other", random_state=seed, **SMALL)
        assert same(np.load(folder / "answers.npy"), answers(name, known))


def test_the_files_of_others_are_not_touched(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    np.savez(tmp_path / "mine.npz", X)
    (tmp_path / "fit.json").write_text("mine")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    fitted("ridge", tmp_path / "rows.npy", workdir=tmp_path, **SMALL)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_another_fit_in_the_folder_of_an_unfinished_one(path, tmp_path, monkeypatch):
    options = {"workdir": tmp_path / "work"} | SMALL
    with monkeypatch.context() as patch:
        stop_after(patch, 6)
        with pytest.raises(Stopped):
            fitted("ridge", path, **options)
    with pytest.raises(InputError, match=r"unfinished fit that differs in rank \(rank: 16 there, 12 here\)"):
        fitted("ridge", path, rank=12, **options)
    np.save(path, X + 1.0)
    with pytest.raises(InputError, match=r"unfinished fit that differs in .*rows.*remove the folder"):
        fitted("ridge", path, **options)


def test_an_array_in_memory_is_the_same_rows_in_another_process(path):
    first, second, other = (krein.pieces.rows.ArrayRows(rows).token for rows in (X, X.copy(), X + 1.0))
    assert first == second != other


def test_a_nystroem_block_that_turns_out_to_be_too_small(path, tmp_path):
    # a kernel that is not declared psd: the block is given up and the coupling follows, with bases of its own
    options = {"kernel": krein.TL1(rho=30.0), "gamma": "scale", "n_blocks": 1} | SMALL
    with_files = answers("ridge", fitted("ridge", path, workdir=tmp_path / "work", **options))
    assert same(with_files, answers("ridge", fitted("ridge", path, **options)))


# -- what may be wrong -------------------------------------------------------------------------------------------------


def test_a_workdir_that_is_a_file(path, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ResourceError, match=r"workdir must be a folder that can be written to.*file.*Pass another"):
        fitted("ridge", path, workdir=tmp_path / "file", **SMALL)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(("name", "after"), [("ridge", 0), ("ridge", 7), ("svc", 60)])
def test_a_full_disk(name, after, path, tmp_path, monkeypatch):
    left, rename = [after], os.replace

    def full(part, name):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(part, name)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(ResourceError, match=r"could not be written.*bytes free.*No space left.*larger disk"):
            fitted(name, path, workdir=tmp_path / "work", **SMALL)
    assert not list((tmp_path / "work").rglob("*.part"))
    fit = fitted(name, path, workdir=tmp_path / "work", **SMALL)  # room was made
    assert same(answers(name, fit), answers(name, fitted(name, path, workdir=tmp_path / "other", **SMALL)))
    assert same(np.load(path), X)


def test_a_file_larger_than_allowed(path, tmp_path):
    resource = pytest.importorskip("resource")
    code = (
        "import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    assert resource.RLIMIT_FSIZE is not None
    command = [sys.executable, "-c", code, str(HERE / "killed.py"), str(tmp_path), "ridge"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "krein.errors.ResourceError" in ended.stderr
    assert "larger disk" in ended.stderr
    assert not list((tmp_path / "work").rglob("*.part"))


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_a_truncated_file(suffix, path, tmp_path, monkeypatch):
    options = {"workdir": tmp_path / "work"} | SMALL
    with monkeypatch.context() as patch:
        stop_after(patch, 12)
        with pytest.raises(Stopped):
            fitted("ridge", path, **options)
    damaged = sorted((tmp_path / "work").rglob(f"*basis*{suffix}"))[0]
    with open(damaged, "r+b") as file:
        file.truncate(500)
    if suffix == ".npz":  # what was finished is not known any more, and done again
        fitted("ridge", path, **options)
        return
    with pytest.raises(
        ResourceError, match=rf"{damaged.name} was written.*damaged: it has 500 bytes.*Remove the folder"
    ):
        fitted("ridge", path, **options)


def test_a_folder_in_use(path, tmp_path):
    other = Workdir(tmp_path / "work")
    with pytest.raises(ResourceError, match=rf"in use by process {os.getpid()}\. Pass another workdir"):
        fitted("ridge", path, workdir=tmp_path / "work", **SMALL)
    other.close()
    fitted("ridge", path, workdir=tmp_path / "work", **SMALL)


@pytest.mark.parametrize("owner", ["", "4194304000"])
def test_the_lock_of_a_dead_process(owner, path, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "LOCK_SECONDS", 0.0)
    (tmp_path / "work" / OWN_FOLDER).mkdir(parents=True)
    (tmp_path / "work" / OWN_FOLDER / "lock").write_text(owner)
    fitted("ridge", path, workdir=tmp_path / "work", **SMALL)
    assert not list((tmp_path / "work").iterdir())


def test_a_target_that_is_wrong_leaves_the_folder_usable(path, tmp_path):
    with pytest.raises(ValueError, match=str(N)):
        fitted("svc", path, TWO[1:], workdir=tmp_path / "work", **SMALL)
    fitted("ridge", path, NUMBERS, workdir=tmp_path / "work", **SMALL)

"""Rows that are written to a folder once: what is left there, what is used again, and disks that fail."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest

from krein.errors import InputError, ResourceError
from krein.sources import source_of

X = np.random.default_rng(0).normal(size=(90, 3))
LABELS = np.arange(90) % 4


def csv_file(folder, X=X):
    np.savetxt(folder / "a.csv", np.column_stack([X, LABELS]), delimiter=",", header="p,q,r,label", comments="")
    return folder / "a.csv"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The system's temporary folder, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def pairs():
    yield from zip(np.array_split(X, 4), np.array_split(LABELS, 4), strict=True)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_workdir_holds_plain_npy_files_and_a_record(tmp_path):
    source, y = source_of(pairs, workdir=tmp_path / "new" / "work")
    assert names(tmp_path / "new" / "work") == ["rows.npy", "spool.json", "target.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "new" / "work" / "rows.npy"), X)
    np.testing.assert_array_equal(np.load(tmp_path / "new" / "work" / "target.npy"), LABELS)
    np.testing.assert_array_equal(y, LABELS)
    path = source.path
    del source
    gc.collect()
    assert os.path.exists(path)


def test_a_temporary_folder_lives_as_long_as_its_source(temporary):
    source, _ = source_of(iter([X]))
    (folder,) = temporary.iterdir()
    copy = pickle.loads(pickle.dumps(source))
    del copy
    gc.collect()
    assert "rows.npy" in names(folder)
    np.testing.assert_array_equal(source.read(0, 90), X)
    del source
    gc.collect()
    assert names(temporary) == []


def test_nothing_temporary_is_left_after_an_error(temporary):
    def broken():
        yield X
        raise OSError(5, "the network is gone")

    with pytest.raises(OSError, match="the network is gone"):  # an error of the caller's own is passed on
        source_of(broken)
    with pytest.raises(InputError, match="block 1"):
        source_of(iter([X, X[:, :2]]))
    assert names(temporary) == []


def run(code, folder):
    """Run code in another process, whose temporary folder is ``folder``."""
    start = "import gc, os; import numpy as np; from krein.sources import source_of; "
    command, settings = [sys.executable, "-c", start + code], {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_temporary_is_left_at_exit(tmp_path):
    assert run("held = source_of(iter([np.ones((3, 2))])); print(os.listdir(os.environ['TMPDIR']))", tmp_path) != "[]\n"
    assert names(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_does_not_remove_the_folder_of_its_parent(tmp_path):
    code = """if True:
        source, _ = source_of(iter([np.ones((3, 2))]))
        child = os.fork()
        if child == 0:
            del source
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        print(source.read(0, 3).sum())
    """
    assert run("\n" + code, tmp_path) == "6.0\n"


# -- used again --------------------------------------------------------------------------------------------------------


def test_a_spool_of_the_same_rows_is_used_again_and_of_others_is_not(tmp_path):
    path, work = csv_file(tmp_path), tmp_path / "work"
    source, y = source_of(path, "label", workdir=work)
    made = os.stat(work / "rows.npy").st_mtime_ns
    again, y_again = source_of(path, "label", workdir=work)
    assert again.token == source.token
    assert again.columns == source.columns == ("p", "q", "r")
    assert os.stat(work / "rows.npy").st_mtime_ns == made
    np.testing.assert_array_equal(y_again, y)

    all_columns, none = source_of(path, workdir=work)  # other columns
    assert none is None
    assert all_columns.shape == (90, 4)
    with pytest.raises(ResourceError, match="changed while it was in use"):
        source.check()
    csv_file(tmp_path, X + 1)
    later, _ = source_of(path, "label", workdir=work)  # another file
    np.testing.assert_array_equal(later.read(0, 90), X + 1)


@pytest.mark.parametrize("damage", ["rows.npy", "target.npy", "spool.json"])
def test_a_damaged_spool_is_written_anew(damage, tmp_path):
    path, work = csv_file(tmp_path), tmp_path / "work"
    source_of(path, "label", workdir=work)
    if damage == "spool.json":
        (work / damage).write_text(json.dumps({"token": "another", "files": {}}))
    else:
        os.truncate(work / damage, 100)
    source, y = source_of(path, "label", workdir=work)
    np.testing.assert_array_equal(source.read(0, 90), X)
    np.testing.assert_array_equal(y, LABELS)
    (work / "rows.npy").unlink()
    source, y = source_of(path, "label", workdir=work)
    np.testing.assert_array_equal(source.read(0, 90), X)


def test_iterators_are_always_read(tmp_path):
    for shift in range(3):
        source, _ = source_of(iter([X + shift]), workdir=tmp_path)
        np.testing.assert_array_equal(source.read(0, 90), X + shift)


def test_files_of_somebody_else_are_not_overwritten(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(InputError, match=r"that krein did not write there. Pass another folder as workdir"):
        source_of(iter([X + 1]), workdir=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), X)
    assert names(tmp_path) == ["rows.npy"]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path, work = csv_file(tmp_path), tmp_path / "work"
    monkeypatch.setattr("krein.sources.tables.BLOCK_NUMBERS", 40)
    from krein.tables import reading

    whole = reading.chunks

    def chunks(*args, **options):
        for i, frame in enumerate(whole(*args, **options)):
            if i == 2:
                path.touch()
                os.utime(path, ns=(0, 10**18))
            yield frame

    monkeypatch.setattr(reading, "chunks", chunks)
    with pytest.raises(ResourceError, match=r"a\.csv changed while it was read"):
        source_of(path, "label", workdir=work)
    monkeypatch.setattr(reading, "chunks", whole)
    source, _ = source_of(path, "label", workdir=work)  # what was written is not taken for the new rows
    np.testing.assert_array_equal(source.read(0, 90), X)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
def test_a_killed_process_leaves_a_folder_that_is_used_by_the_next(tmp_path):
    path, work = csv_file(tmp_path), tmp_path / "work"
    code = f"""if True:
        import os, signal
        from krein.sources import source_of, spool
        replace = os.replace
        def killed(part, name):
            if str(name).endswith("target.npy"):
                os.kill(os.getpid(), signal.SIGKILL)
            replace(part, name)
        os.replace = killed
        source_of({str(path)!r}, "label", workdir={str(work)!r})
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert names(work) == ["rows.npy", "spool.json", "target.npy.part"]
    source, y = source_of(path, "label", workdir=work)
    np.testing.assert_array_equal(source.read(0, 90), X)
    np.testing.assert_array_equal(y, LABELS)
    assert names(work) == ["rows.npy", "spool.json", "target.npy"]


# -- disks that fail ---------------------------------------------------------------------------------------------------


def test_a_full_disk_is_an_error_with_bytes_and_folder_and_leaves_nothing(tmp_path):
    resource = pytest.importorskip("resource", reason="the system has no limits of files")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = np.zeros((1000, 10))
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))  # of 400,000 bytes
    try:
        with pytest.raises(ResourceError, match=r"need at least 240,\d{3} bytes in .*work, where .* are free"):
            source_of(iter([large] * 5), workdir=tmp_path / "work")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path / "work") == ["spool.json"]


def test_a_disk_that_is_too_small_for_the_rows_is_seen_before_they_are_written(tmp_path, monkeypatch):
    files = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    files.write_table(pyarrow.table({"p": X[:, 0], "q": X[:, 1]}), tmp_path / "a.parquet")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ResourceError, match=r"need 1,440 bytes in .*work, where 1,000 bytes are free"):
        source_of(tmp_path / "a.parquet", workdir=tmp_path / "work")
    assert names(tmp_path / "work") == ["spool.json"]


def test_a_folder_that_cannot_be_written_is_an_error_before_a_block_is_read(tmp_path):
    (tmp_path / "file").write_text("")
    folders = [tmp_path / "file", tmp_path / "file" / "work"]
    if hasattr(os, "geteuid") and os.geteuid() != 0:  # the superuser may write everywhere
        (tmp_path / "closed").mkdir(mode=0o500)
        folders.append(tmp_path / "closed")
    read = []

    def blocks():
        read.append(1)
        yield X

    for folder in folders:
        with pytest.raises(ResourceError, match=r"krein cannot write the rows of X to .*Pass a folder that"):
            source_of(blocks, workdir=folder)
    assert read == []

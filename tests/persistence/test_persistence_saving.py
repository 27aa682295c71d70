"""Model files, from outside: what is refused when one is saved, and how one is written: whole or not at all."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import numpy as np
import pytest
import safetensors
from test_persistence import FUNCTIONS, common_letters

import krein
from benchmarks.runner import replace

# -- what is refused ---------------------------------------------------------------------------------------------------


class OwnKernel(krein.RBF):
    pass


class OwnMachine(krein.SVC):
    pass


@pytest.mark.parametrize(
    ("model", "needle"),
    [
        (krein.SVC(kernel=common_letters), "functions={'common_letters'"),
        (krein.SVC(kernel=lambda A, B: A @ B.T), "functions={'mine'"),
        (krein.SVC(kernel=OwnKernel()), "functions="),
        (krein.GaussianProcessRegressor(optimizer=print), "optimizer is <built-in function print>"),
        (krein.KernelRidge(alphas={1.0, 2.0}), "alphas is a builtins.set"),
        (krein.KernelRidge(alpha=np.array([1 + 2j])), "complex128"),
        (krein.SVC(random_state=np.random.Generator(np.random.MT19937(0))), "default_rng"),
        (krein.SVC(random_state=np.random.RandomState(np.random.PCG64(0))), "cannot be saved"),
        (krein.SVC(approximation="mine"), "SVC.approximation cannot be a str"),
        (OwnMachine(), "the model it extends"),
        (krein.SVC, "the class SVC"),
        ([krein.SVC()], "got a list"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_kept_is_refused_with_the_way_out(model, needle, tmp_path):
    with pytest.raises(krein.InputError) as caught:
        krein.save(model, tmp_path / "model.krein")
    assert needle in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_attribute_of_the_users_own_is_refused(tmp_path):
    model = krein.SVC()
    model.note = "mine"
    with pytest.raises(krein.InputError, match="'note' is no parameter of SVC"):
        krein.save(model, tmp_path / "model.krein")


def test_nesting_without_end_is_refused(tmp_path):
    endless = []
    endless.append(endless)
    with pytest.raises(krein.InputError, match="deep"):
        krein.save(krein.SVC(kernel_params={"x": endless}), tmp_path / "model.krein")


def test_a_function_has_to_be_handed_in_again(tmp_path):
    krein.save(krein.SVC(kernel=common_letters), tmp_path / "m.krein", functions=FUNCTIONS)
    with pytest.raises(krein.InputError, match=r"functions=\{'letters'"):
        krein.load(tmp_path / "m.krein")
    with pytest.raises(krein.InputError, match="names to callables"):
        krein.load(tmp_path / "m.krein", functions={"letters": 3})
    assert krein.load(tmp_path / "m.krein", functions={"letters": max}).kernel is max


def test_the_name_has_to_end_as_it_should(tmp_path):
    with pytest.raises(krein.InputError, match=r"'model.pkl.krein'"):
        krein.save(krein.SVC(), tmp_path / "model.pkl")


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "model.krein"
    krein.save(krein.SVC(C=1.0), path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        krein.save(krein.SVC(C=2.0), path)
    assert krein.load(path).C == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["model.krein"]


@pytest.mark.skipif(os.name != "posix", reason="links and modes")
def test_links_and_modes_are_respected(tmp_path):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "model.krein", tmp_path / "link.krein"
    link.symlink_to(real)
    before = os.umask(0o027)
    try:
        krein.save(krein.SVC(), link)
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    real.chmod(0o604)
    krein.save(krein.SVC(C=3.0), link)
    assert stat.S_IMODE(real.stat().st_mode) == 0o604
    assert krein.load(real).C == 3.0


def make_special(kind):
    if kind == "a FIFO":
        os.mkfifo("special.krein")
    elif kind == "a folder":
        os.mkdir("special.krein")
    else:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("special.krein")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs and links")
@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a socket"])
def test_what_is_no_regular_file_is_never_replaced(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
    make_special(kind)
    mode = os.stat("special.krein").st_mode
    os.symlink("special.krein", "link.krein")
    os.symlink("link.krein", "second.krein")
    for name in ("special.krein", "link.krein", "second.krein"):
        with pytest.raises(krein.InputError, match=f"special.krein.*{kind}.*Give the name of a regular file"):
            krein.save(krein.SVC(), name)
        with pytest.raises(krein.InputError, match=kind):
            replace(Path(name), "a table")
    assert os.stat("special.krein").st_mode == mode
    assert sorted(os.listdir()) == ["link.krein", "second.krein", "special.krein"]


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_the_target_of_a_link_is_replaced_and_links_without_end_are_refused(tmp_path):
    krein.save(krein.SVC(C=1.0), tmp_path / "model.krein")
    (tmp_path / "first.krein").symlink_to("model.krein")
    (tmp_path / "second.krein").symlink_to("first.krein")
    krein.save(krein.SVC(C=2.0), tmp_path / "second.krein")
    assert not (tmp_path / "model.krein").is_symlink()
    assert (tmp_path / "first.krein").is_symlink()
    assert (tmp_path / "second.krein").is_symlink()
    assert krein.load(tmp_path / "model.krein").C == 2.0
    (tmp_path / "loop.krein").symlink_to("loop.krein")
    with pytest.raises(OSError, match="symbolic links"):
        krein.save(krein.SVC(), tmp_path / "loop.krein")
    assert (tmp_path / "loop.krein").is_symlink()


def test_a_file_that_is_replaced_while_it_is_opened_is_read_whole(tmp_path, monkeypatch):
    path = tmp_path / "model.krein"
    krein.save(krein.SVC(C=1.0), path)
    newer = [krein.SVC(C=2.0)]
    safe_open = safetensors.safe_open

    def open_after_the_replacement(*arguments, **options):
        if newer:
            krein.save(newer.pop(), path)
        return safe_open(*arguments, **options)

    monkeypatch.setattr(safetensors, "safe_open", open_after_the_replacement)
    assert krein.load(path).C == 2.0
    assert not newer


def test_the_file_is_synced_before_it_is_renamed_and_the_folder_after(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def replaced(source, target):
        calls.append("rename")
        assert Path(source).parent == Path(target).parent
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    krein.save(krein.SVC(), tmp_path / "model.krein")
    assert calls == ["file", "rename"] + ["folder"] * (os.name == "posix")


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    path = tmp_path / "nowhere" / "a.krein"
    with pytest.raises(krein.InputError, match=r"there is no folder .*nowhere\. Make it first"):
        krein.save(krein.RBF(gamma=1.0), path)

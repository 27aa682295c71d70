from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings

import numpy as np
import pytest

import krein
from krein import progress
from krein.kernels import pair_function


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(monkeypatch, screen, delay):
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "DELAY", delay)
    return screen


def shown(monkeypatch, verbose, delay, screen=Terminal):
    screen = watch(monkeypatch, screen(), delay)
    assert list(progress.progress_bar(range(3), what="counting", verbose=verbose, mininterval=0)) == [0, 1, 2]
    return screen.getvalue()


def test_verbose_shows_a_bar_at_once_that_stays(monkeypatch):
    bar = shown(monkeypatch, 1, 1e9)
    assert "counting: 100%" in bar
    assert bar.endswith("\n")


def test_a_long_step_says_what_it_does_without_verbose(monkeypatch):
    bar = shown(monkeypatch, 0, 1e-9)
    assert "counting" in bar
    assert not bar.endswith("\n")  # it has gone


def test_a_short_step_says_nothing(monkeypatch):
    assert shown(monkeypatch, 0, 1e9) == ""


def test_minus_one_never_says_anything(monkeypatch):
    assert shown(monkeypatch, -1, 1e-9) == ""


def test_nothing_is_written_where_nobody_watches(monkeypatch):
    assert shown(monkeypatch, 0, 1e-9, io.StringIO) == ""


def test_a_notebook_counts_as_watched(monkeypatch):
    notebook = type("tqdm", (), {"__module__": "tqdm.notebook"})
    monkeypatch.setattr(progress, "Bar", notebook)
    assert progress._is_watched()


def test_a_fit_shows_its_long_steps(monkeypatch):
    class Eager(progress.Bar):
        def __init__(self, *args, **options):
            super().__init__(*args, mininterval=0, **options)

    monkeypatch.setattr(progress, "Bar", Eager)
    screen = watch(monkeypatch, Terminal(), 1e-9)
    X = np.random.default_rng(0).normal(size=(300, 3))
    krein.approximate(X, krein.RBF(), n_blocks=3, rank=10, random_state=0)
    assert "bases: 100%" in screen.getvalue()


@pytest.mark.parametrize("verbose", [-1, 0])
def test_short_steps_of_a_fit_say_nothing_on_a_terminal(monkeypatch, verbose):
    screen = watch(monkeypatch, Terminal(), 10.0)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)
    krein.SVC(n_blocks=2, rank=5, verbose=verbose, random_state=0).fit(X, y)
    assert screen.getvalue() == ""


def test_a_function_of_two_objects_is_silent_too(monkeypatch):
    monkeypatch.setattr(pair_function, "BAR_SECONDS", 0.0)
    words = ["ab", "abc", "b", "bc", "cab", "a", "ca", "cc"]

    def alike(one, other):
        return float(len(set(one) & set(other)))

    def written(verbose):
        screen = watch(monkeypatch, Terminal(), 10.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", krein.KreinWarning)
            krein.SVC(kernel=alike, correction="clip", verbose=verbose).fit(words, [0, 0, 1, 1, 0, 0, 1, 1])
        return screen.getvalue()

    assert "similarities" in written(0)  # its bar does not wait here
    assert written(-1) == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_process_that_is_killed_while_it_draws_a_bar_stops_no_other() -> None:
    """tqdm's own lock, which forked processes share, would be held for ever."""
    assert list(progress.progress_bar(range(1), what="steps", verbose=-1)) == [0]  # tqdm makes its lock now
    child = os.fork()
    if child == 0:
        progress.Bar.get_lock().acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.extend(progress.progress_bar(range(3), what="steps", verbose=-1)))
    thread.daemon = True
    thread.start()
    thread.join(10.0)
    assert done == [0, 1, 2]

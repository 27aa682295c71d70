"""Threads are decided by krein for the time of a call, and answers do not depend on them."""

import threading

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import krein
from krein import threads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1500, 4))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1]


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


MACHINES = {
    "uncoupled blocks": krein.KernelRidge(
        0.1, kernel="rbf", gamma=0.5, n_blocks=150, rank=10, drop=1.0, random_state=0
    ),
    "coupled blocks": krein.KernelRidge(0.1, kernel="rbf", gamma=0.5, n_blocks=4, rank=20, random_state=0),
    "one block": krein.KernelRidge(0.1, kernel="rbf", gamma=0.5, n_blocks=1, rank=60, random_state=0),
    "exact": krein.KernelRidge(0.1, kernel="rbf", gamma=0.5),
    "chosen": krein.KernelRidge(
        0.1, kernel="rbf", gamma=0.5, random_state=0, policy=krein.Policy(exact_rows=1000, ridge_rows=1000)
    ),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("before", [1, 2])
def test_limits_are_restored(name, before):
    with threadpool_limits(before, "blas"):
        for n_jobs in (None, 1, 2):
            machine = MACHINES[name].set_params(n_jobs=n_jobs).fit(X, Y)
            assert blas_threads() == [before] * len(blas_threads())
            machine.predict(X[:500])
            assert blas_threads() == [before] * len(blas_threads())


def test_limits_are_restored_after_an_error():
    def fails(A, B):
        raise RuntimeError("no similarity today")

    with threadpool_limits(2, "blas"):
        with pytest.raises(RuntimeError, match="today"):
            krein.approximate(X, fails, n_blocks=3, rank=5)
        assert blas_threads() == [2] * len(blas_threads())


@pytest.mark.parametrize("name", MACHINES)
def test_answers_depend_on_threads_by_rounding_alone(name):
    krein.clear_cache()
    answers = []
    for blas, n_jobs in ((1, None), (2, None), (2, 1), (2, 3)):
        with threadpool_limits(blas, "blas"):
            answers.append(MACHINES[name].set_params(n_jobs=n_jobs).fit(X, Y).predict(X[:700]))
        krein.clear_cache()
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], rtol=0.0, atol=1e-9 * np.abs(Y).max())


def test_tasks_run_side_by_side_with_one_blas_thread_each():
    barrier, seen = threading.Barrier(2, timeout=30), []

    def task(i):
        if i < 2:
            barrier.wait()  # passes only if the first two run at the same time
        seen.append((threads.n_threads(), max(blas_threads())))
        return i * i

    with threadpool_limits(2, "blas"), threads.using(None):
        assert threads.n_threads() == 2
        assert threads.each(task, [(i,) for i in range(2)]) == [0, 1]
        assert threads.each(lambda i: i * i, [(i,) for i in range(100)]) == [i * i for i in range(100)]
    assert seen == [(1, 1), (1, 1)]


def large_in_a_task():
    with threads.large_products(5000):
        return max(blas_threads())


@pytest.mark.skipif(joblib.cpu_count() < 2, reason="needs two cores")
def test_large_matrices_are_factorized_with_all_threads_of_the_call():
    with threadpool_limits(2, "blas"):
        with threads.large_products(5000):
            assert max(blas_threads()) == 2  # no call is under way: nothing is changed
        with threads.using(None):
            assert max(blas_threads()) == 1
            with threads.large_products(threads.LARGE_MATRIX - 1):
                assert max(blas_threads()) == 1
            with threads.large_products(5000):
                assert max(blas_threads()) == 2
            assert max(blas_threads()) == 1
            seen = threads.each(large_in_a_task, [(), ()])
            threads.large_to_the_end(5000)
            assert max(blas_threads()) == 2
        assert seen == [1, 1]  # the other task has the other core
        assert max(blas_threads()) == 2


def test_the_first_error_of_a_task_is_raised():
    def task(i):
        if i >= 5:
            raise ValueError(f"task {i}")
        return i

    with threads.using(2), pytest.raises(ValueError, match="task 5"):
        threads.each(task, [(i,) for i in range(20)])


def test_limits_of_several_threads_are_restored():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with threads.using(1):
            inside.set()
            leave.wait(30)

    with threadpool_limits(2, "blas"):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(30)
        with threads.using(1):
            assert max(blas_threads()) == 1
        leave.set()
        thread.join()
        assert blas_threads() == [2] * len(blas_threads())


def test_a_function_of_the_user_is_called_by_one_thread_unless_told():
    callers = set()

    def similarity(A, B):
        callers.add(threading.get_ident())
        return np.exp(-((A[:, None] - B) ** 2).sum(2))

    with threadpool_limits(2, "blas"):
        krein.approximate(X[:400], similarity, n_blocks=20, rank=5)
    assert callers == {threading.get_ident()}

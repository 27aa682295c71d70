"""The interior point of rows in pieces, against the one in memory and against PIQP."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from dual_problems import Question, by_piqp, random_question

import krein
from krein import Factorization
from krein.approximation.piecewise import couple_pieces
from krein.approximation.request import Request
from krein.errors import IndefiniteError
from krein.factorization.pieces import Piece, PieceBases, Pieces
from krein.kernels import Evaluator
from krein.pieces.checkpoints import Workdir
from krein.pieces.engines import Here
from krein.pieces.rows import Chunk, RowPieces, Run
from krein.solvers import Dual, dual, solve_dual
from krein.solvers.interior_point import InMemory, InteriorPoint
from krein.solvers.interior_point_pieces import InPieces, Vectors
from krein.solvers.problem import Problem
from krein.solvers.woodbury import parts_of
from krein.sources import source_of
from strategies import make


class Counting(Here):
    """Counts the visits, and keeps what stayed at the last one."""

    n_visits = 0

    def visit(self, *args, **options):
        self.n_visits += 1
        self.stays, sent = super().visit(*args, **options)
        return self.stays, sent


class Shipping(Here):
    """Sends every step and everything it needs and leaves as bytes, as to another machine."""

    def visit(self, step, held, *small, own=None, plus=None, **options):
        def there(piece, mine):
            values = pickle.loads(pickle.dumps((step, piece, pickle.loads(mine), *small)))
            stays, sent = values[0](*values[1:])
            return pickle.dumps(stays), pickle.loads(pickle.dumps(sent))

        own = [mine if isinstance(mine, bytes) else pickle.dumps(mine) for mine in own]
        return super().visit(there, held, own=own, plus=pickle.loads(pickle.dumps(plus)), **options)

    def collect(self, step, held, *small, own=None):
        own = own if own is None else [pickle.loads(mine) if isinstance(mine, bytes) else mine for mine in own]
        return super().collect(step, held, *small, own=own)


class Folder:
    """Arrays in files of a folder."""

    def __init__(self, path):
        self.path = path

    def holds(self, nbytes):
        return True

    def write(self, name, array):
        part, path = self.path / f"{name}.part", self.path / f"{name}.npy"
        with part.open("wb") as file:
            np.save(file, array)
        part.replace(path)
        return str(path)


def in_pieces(f: Factorization, n_pieces: int = 3, engine: Here | None = None) -> Factorization:
    """The same factorization with its rows of U cut into pieces, and other numbers B with U = B A."""
    rng, n = np.random.default_rng(0), f.shape[0]
    maps = [np.eye(k) + 0.3 * rng.standard_normal((k, k)) / max(1, k) for k in f.ranks]
    cuts, labels, held, counts = np.linspace(0, n, n_pieces + 1).astype(int), f.bases.labels, [], []
    U = f.bases.rows(np.arange(n)).toarray()
    for a, b in pairwise(cuts):
        order = np.argsort(labels[a:b], kind="stable")
        counts.append(np.bincount(labels[a:b], minlength=f.n_blocks))
        stored = [
            np.linalg.solve(maps[i].T, U[a + order[labels[a + order] == i]][:, f.spans[i][1]].T).T.ravel()
            for i in range(f.n_blocks)
        ]
        starts = np.concatenate([[0], np.cumsum(counts[-1])])
        rows = Chunk(np.empty((b - a, 0)), int(a))
        held.append(Piece(rows, order.astype(np.int32), starts, np.concatenate(stored), f.ranks))
    pieces = Pieces(engine or Here(), held, cuts, np.array(counts))
    return replace(f, bases=PieceBases(pieces, tuple(maps), "float64"))


def ask(q: Question, f: Factorization, **more) -> Dual:
    return solve_dual(f, q.linear, q.low, q.high, **q.options, method="interior-point", **more)


@pytest.fixture(scope="module")
def built() -> tuple[Factorization, np.ndarray]:
    """Six coupled clusters with 900 rows in all, and labels that overlap."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((900, 3))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_normal(900) > 0, 1.0, -1.0)
    return krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=6, rank=12, random_state=0).factorization, y


def problem_of(f: Factorization, y: np.ndarray, C: float = 3.0) -> Problem:
    return Problem(f, y, np.minimum(0.0, C * y), np.maximum(0.0, C * y), 0.0, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_it_ends_where_the_method_in_memory_does(seed):
    q = random_question(seed)
    q = replace(q, f=replace(q.f, shift=1.0))  # then the solution is unique
    here, there = ask(q, q.f), ask(q, in_pieces(q.f))
    assert there.converged
    assert abs(there.n_iter - here.n_iter) <= 2
    assert there.objective == pytest.approx(here.objective, rel=1e-9, abs=1e-6 * q.size())
    assert there.intercept == pytest.approx(here.intercept, rel=1e-6, abs=1e-6 * (1.0 + np.abs(q.linear).max()))
    np.testing.assert_allclose(there.coefficients, here.coefficients, atol=1e-6 * np.ptp([q.low, q.high]))


@pytest.mark.parametrize("seed", range(100, 112))
def test_no_dense_solver_does_better(seed):
    q = random_question(seed)
    d = ask(q, in_pieces(q.f, 1 + seed % 4))
    assert d.converged
    assert (d.coefficients >= q.low).all()
    assert (d.coefficients <= q.high).all()
    assert abs(d.coefficients.sum() - q.total) <= 1e-9 * (np.abs(q.low).sum() + np.abs(q.high).sum())
    mine = q.objective(d.coefficients)
    assert d.objective == pytest.approx(mine, rel=1e-7, abs=q.size())
    if d.n_iter:  # else there was nothing to choose, and the other solver's sum is off by its tolerance
        theirs = q.objective(by_piqp(q))
        assert mine <= theirs + 1e-6 * (abs(theirs) + q.size())


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_a_step_is_at_most_five_visits_and_follows_the_path_in_memory(built, epsilon):
    f, y = built
    engine = Counting()
    g = in_pieces(f, 4, engine)
    runs = []
    for some, make_iterate in ((f, InMemory), (g, InPieces)):
        problem = replace(problem_of(some, y), epsilon=epsilon)
        if epsilon:
            problem = replace(problem, low=np.full(900, -3.0), high=np.full(900, 3.0))
        runs.append(InteriorPoint(make_iterate(problem, parts_of(some))))
        runs[-1].reach(1e-8, 100)
    here, there = runs
    assert there.best.gap <= 1e-8
    assert engine.n_visits <= 5 * there.n_iter
    assert there.n_iter == here.n_iter
    np.testing.assert_allclose(*(np.array(run.path)[:, 1] for run in runs), rtol=1e-4, atol=1e-10)
    np.testing.assert_allclose(there.best.product, f @ there.best.b, atol=1e-10 * np.abs(there.best.b).sum())
    for mine, other in zip(there.ends, here.ends, strict=True):
        assert (mine != other).mean() < 0.01


def test_threads_files_and_other_machines_keep_every_bit(built, tmp_path):
    f, y = built
    engine = Counting(checkpoints=Folder(tmp_path))
    found = []
    for some in (Here(), Here(n_jobs=2), Shipping(), engine):
        run = InteriorPoint(InPieces(problem_of(in_pieces(f, 4, some), y), parts_of(f)))
        run.reach(1e-6, 100)
        found.append((run.best.b.tobytes(), run.best.multiplier, run.best.objective, tuple(run.path)))
    assert all(other == found[0] for other in found[1:])
    assert all(isinstance(value, str | None) for vectors in engine.stays for value in vectors)
    assert {type(vectors) for vectors in engine.stays} == {Vectors}
    assert not list(tmp_path.glob("*.part"))


def test_the_files_of_the_best_point_are_not_written_over(built, tmp_path):
    f, y = built
    marks = []
    for engine in (Here(), Here(checkpoints=Folder(tmp_path))):
        iterate = InPieces(problem_of(in_pieces(f, 2, engine), y), parts_of(f))
        assert iterate.step()
        marks.append(iterate.judge())
        iterate.best = (0.0, iterate.slot)  # as if every later point were worse
        assert all(iterate.step() for _ in range(4))
    for one, other in zip(*(mark.found()[0].b for mark in marks), strict=True):
        assert one == other


def test_bases_that_were_built_in_pieces(tmp_path):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((2000, 4))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(2000) > 0, 1.0, -1.0)
    np.save(tmp_path / "rows.npy", X)
    source = source_of(str(tmp_path / "rows.npy"))[0]
    cuts = source.bounds(700)
    held, files = [Run(source, a, b) for a, b in pairwise(cuts)], Workdir(tmp_path / "files")
    rows = RowPieces(source, Here(checkpoints=files), held, cuts, files)
    request = Request.check(
        X, krein.RBF(gamma=0.3), n_blocks=8, rank=16, total_rank=None, coupling="shared", guarded=True,
        landmarks="auto", allocation="equal", drop="auto", max_error=None, max_memory=None, dtype="auto", n_jobs=None,
        random_state=0, verbose=0,
    )  # fmt: skip
    g = couple_pieces(replace(request, objects=rows), Evaluator(request.kernel)).factorization
    assert len(g.bases.pieces.held) > 1
    f = replace(g, bases=g.bases.take(np.arange(2000)))
    here, there = (
        solve_dual(some, y, np.minimum(0.0, y), np.maximum(0.0, y), method="interior-point") for some in (f, g)
    )
    assert there.converged
    assert abs(there.n_iter - here.n_iter) <= 2
    assert there.objective == pytest.approx(here.objective, rel=1e-6)
    assert there.intercept == pytest.approx(here.intercept, abs=1e-4)
    K, b = f.to_dense(), there.coefficients
    assert 0.5 * b @ K @ b - y @ b == pytest.approx(there.objective, rel=1e-9)


@pytest.mark.parametrize("share", [0.8, 0.3])
def test_some_of_the_rows_as_for_a_pair_of_classes(built, share, monkeypatch):
    f, y = built
    monkeypatch.setattr(dual, "COPIED_NUMBERS", 0)
    rows = np.random.default_rng(2).permutation(900)[: int(900 * share)]
    engine = Counting()
    own, box = y[rows], (np.minimum(0.0, y[rows]), np.maximum(0.0, y[rows]))
    here, there = (solve_dual(some, own, *box, rows=rows) for some in (f, in_pieces(f, 3, engine)))
    assert engine.n_visits > 4 * there.n_iter
    assert there.method == "interior-point"
    assert there.converged
    assert there.objective == pytest.approx(here.objective, rel=1e-6)
    K, b = f.to_dense()[np.ix_(rows, rows)], there.coefficients
    assert 0.5 * b @ K @ b - own @ b == pytest.approx(there.objective, rel=1e-9)


def test_too_many_rows_for_a_polish_end_at_the_gap_asked_for(built, monkeypatch):
    f, y = built
    monkeypatch.setattr(dual, "POLISHED_ROWS", 0)
    best = ask(Question(f, None, y, np.minimum(0.0, y), np.maximum(0.0, y), 0.0, 0.0), f)
    d = solve_dual(in_pieces(f), y, np.minimum(0.0, y), np.maximum(0.0, y), tol=1e-5)
    assert d.converged
    assert 1e-9 < d.gap <= 1e-5
    assert best.objective <= d.objective <= best.objective + 1e-5 * abs(best.objective)


def test_an_indefinite_core_is_refused():
    f = make(np.random.default_rng(3), [40, 30], [10, 10], "indefinite", 0.0, scale=100.0)
    y = np.where(np.arange(70) % 2, 1.0, -1.0)
    with pytest.raises(IndefiniteError, match=r"smallest eigenvalue is -.*krein.correct"):
        solve_dual(in_pieces(f), y, np.minimum(0.0, 10 * y), np.maximum(0.0, 10 * y))


def test_verbose_shows_the_steps(built, capsys):
    f, y = built
    solve_dual(in_pieces(f), y, np.minimum(0.0, y), np.maximum(0.0, y), verbose=1)
    assert "interior point" in capsys.readouterr().err

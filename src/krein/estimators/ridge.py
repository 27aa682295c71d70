"""Kernel ridge regression and classification: closed forms on the factored matrix, and alpha by leave-one-out.

A shift of the factorization adds to alpha: ridge on K + s I with alpha is ridge on K with alpha + s. A row of weight w
counts as w rows. Solutions and held-out errors for all alphas come from `leave_one_out`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from krein.approximation import Approximation
from krein.arrays import EPS, Array, Indices, seed_from, stream
from krein.choosing import whole_approximation
from krein.choosing.by_score import codes
from krein.errors import InputError, is_number, warn
from krein.estimators.base import KernelMachine
from krein.estimators.choose_correction import choose_for_features, judge_for
from krein.estimators.decision import FactoredExpansion, KernelExpansion, copied, mapped
from krein.estimators.outside import ScoredOutside, fits_outside, predicts_outside
from krein.estimators.ridge_system import LARGEST_LOSS, SMALL_LOSS, constrained, solve_exactly, solve_factored
from krein.estimators.route import Exact, Features, choose_route
from krein.estimators.similarity_features import SimilarityFeatures
from krein.estimators.similarity_ridge import ridge_errors, solve_ridge
from krein.estimators.weights import check_weights, class_weights
from krein.factorization import Factorization
from krein.factorization.core import has_spectrum
from krein.factorization.correction import changed
from krein.factorization.eigensystem import eigensystem
from krein.kernels import Kernel, Precomputed, take
from krein.kernels.collections import only
from krein.policy import check_policy
from krein.solvers.leave_one_out import Factored, RidgeEigensystem, decompose

__all__ = ["KernelRidge", "KernelRidgeClassifier"]

# The leave-one-out error is a mean over at most LOO_ROWS rows, or LOO_ENTRIES errors of all alphas and targets.
# If each row takes a solve of its own, it is a mean over at most LOO_SOLVES rows.
LOO_ROWS = 50_000
LOO_ENTRIES = 2**25
LOO_SOLVES = 200
# Default candidates of alpha="loo", in units of the mean of k(x, x). Those of a classifier begin at LABEL_START: an
# alpha below 1e-5 changes no class.
ALPHAS = np.logspace(-8.0, 2.0, 21)
LABEL_START = 6
# Weights below NEGLIGIBLE_WEIGHT, and as small beside the largest one, count as 0: their inverse may overflow.
NEGLIGIBLE_WEIGHT = 1e-200
# Relative differences of scores up to SCORE_ROUNDING count as ties.
SCORE_ROUNDING = 1e-6
# A left-out value below VALUE_ROUNDING times its target is rounding, and counts as 0 because rounding depends on the
# target.
VALUE_ROUNDING = 1e-9
# The candidates of correction="auto".
CANDIDATES = ("flip", "clip", "square")


class Score(NamedTuple):
    """The score of left-out rows; higher is better."""

    values: Array  # (q,) one per target; their mean is compared
    noise: float  # differences of the mean up to this are ties
    tie: float  # decides between ties


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """A least squares problem, and the score of its left-out rows."""

    targets: Array  # (n, p)
    weights: Array  # (n,)
    share: Array  # (n,) the part of each row's weight that is left out with it
    score: Callable[[Array, Indices], Score]  # of errors (m, p) at m rows
    classes: Indices | None = None  # (n,) labels, if the targets are codes of classes

    def on(self, some: Indices) -> LeastSquares:
        """The problem of ``some`` of the rows."""
        return replace(
            self, targets=self.targets[some], weights=self.weights[some], share=self.share[some],
            score=lambda errors, rows: self.score(errors, some[rows]),
            classes=None if self.classes is None else self.classes[some],
        )  # fmt: skip

    @property
    def unit(self) -> float:
        """The weight of all rows if they are equal, else 1. Equal weights are a factor of alpha."""
        low, high = float(self.weights.min()), float(self.weights.max())
        return low if low == high else 1.0


class _Ridge(KernelMachine):
    """Base class of the regressor and the classifier."""

    alpha: Any
    alphas: Any
    alphas_: Array | None
    loo_scores_: Array | None
    _grid: ClassVar[Array] = ALPHAS
    _limit: ClassVar[str] = "ridge_rows"
    _learns_features: ClassVar[bool] = True
    _tunes: ClassVar[bool] = True

    def _weighted(self, objects: Any, kernel: Kernel, weights: Array) -> Any:
        """Return the rows that are used. Rows without weight are left out, if the matrix is still to be computed."""
        whole = self.approximation is not None or isinstance(kernel, Precomputed)
        if weights.min() > 0.0 or whole:
            return slice(None)
        return np.flatnonzero(weights > 0.0)

    def _learn(self, objects: Any, kernel: Kernel, task: LeastSquares) -> Array:
        """Solve the problem: set ``alpha_``, the expansion and, for "loo", the scores; return the dual, (n, p)."""
        kept = task.weights > NEGLIGIBLE_WEIGHT * min(1.0, task.weights.max())
        task = replace(task, weights=np.where(kept, task.weights, 0.0))
        fixed = self._fixed_alpha(task.targets.shape[1])
        self._variance()  # refuses what is no variance before anything is built
        route = self._decide(objects, kernel, scored=True)
        chooser = self._chooser(task.targets, None if fixed is None else float(fixed.mean()))
        kernel = self._tune(objects, kernel, chooser)
        self.alpha_, self.alphas_, self.loo_scores_ = self.alpha, None, None
        few = fixed is None and len(task.targets) <= check_policy(self.policy).loo_rows  # leave-one-out on all rows
        if isinstance(route, Exact) and route.psd and not few:
            dual = self._learn_exactly(objects, kernel, task, fixed)
            if dual is not None:
                return dual
            self.route_ = choose_route(
                self, objects, kernel, spectrum=self._needs_spectrum(), scored=True, solvable=False
            )
            self._relative_error = 0.0 if isinstance(self.route_, Exact) else None
        if isinstance(route, Features):
            answers = task.targets if task.classes is None else task.classes
            objects, rows = self._taking_part(objects, kernel, answers)
            task = task if isinstance(rows, slice) else task.on(rows)
            return self._learn_features(self._similarity_features(objects, kernel, chooser), task, fixed)
        a = self._settle(self._build(objects, kernel, chooser), lambda raw: self._judge(raw, task, fixed))
        f, unit = a.factorization, task.unit
        weights = np.ones(f.shape[0]) if unit != 1.0 else task.weights
        path = None
        if fixed is None:
            path = decompose(f, weights)
            fixed = self._choose_alpha(path, task, self._path(f, task.weights), f.shift, unit, a.seed)
        ridges: Array = (fixed + f.shift) / unit
        factors: Array = np.ones(len(fixed))
        if (variance := self._variance()) is not None:
            path = decompose(f, weights) if path is None else path
            ridges, factors = _constrained(f, weights, task.targets, ridges, path, variance)
        dual, inner = solve_factored(f, weights, task.targets, ridges, path)
        dual, inner = factors * dual, factors * inner
        if isinstance(self.route_, Exact):
            own = self._kernel if self._precomputed else a.kernel
            self._expansion: Any = KernelExpansion(
                own, copied(a.objects), mapped(self._uncorrected.factorization, inner)
            )
            self._forget_matrix()
        else:
            self._expansion = FactoredExpansion(a, inner)
        return dual

    def _learn_features(self, features: SimilarityFeatures, task: LeastSquares, fixed: Array | None) -> Array:
        """Solve the problem with similarities as features. Open choices are made on held-out rows."""
        given = 1.0 if fixed is None else float(fixed.mean())

        def choose(names: tuple[str, ...]) -> tuple[str, float]:
            if fixed is None:
                return "square", 1.0  # the choice of alpha makes up for the scale
            own = tuple(name for name in names if name != "shift")  # a shift is a larger alpha
            return choose_for_features(
                features, task.targets, own, task="regression", alpha=given, weights=task.weights
            )

        features, scale = self._correct_features(features, choose)
        if fixed is None:
            units = abs(features.unit * float(features.own.mean())) or 1.0
            alphas = self._grid * units if self.alphas is None else self._given_alphas()
            held, errors = ridge_errors(features, task.targets, task.weights, alphas, task.classes)
            fixed = self._take_best([task.score(e, held) for e in errors], alphas, task.targets.shape[1])
        dual, self._expansion = solve_ridge(features, self._kernel, task.targets, task.weights, fixed, scale)
        return dual if features.is_whole else self._expansion.weights  # of all objects, or of the landmarks

    def _learn_exactly(self, objects: Any, kernel: Kernel, task: LeastSquares, fixed: Array | None) -> Array | None:
        """Solve the problem with the kernel's own matrix by Cholesky factorization; None if the matrix is singular.

        With "loo" alpha is chosen on a sample of the rows.
        """
        n, policy = len(task.targets), check_policy(self.policy)
        if fixed is None:
            some = np.sort(stream(seed_from(self.random_state), 18).choice(n, policy.loo_rows, replace=False))
            few = whole_approximation(take(objects, some), kernel).factorization
            left_out = task.on(some)
            weights = left_out.weights
            fixed = self._choose_alpha(decompose(few, weights), left_out, self._path(few, weights), 0.0, 1.0, 0)
        objects = self._use_exactly(objects, kernel)
        decomposable = n <= policy.exact_rows  # an eigendecomposition is affordable, and more accurate
        dual = solve_exactly(
            kernel, objects, task.weights, task.targets, fixed, bearable=SMALL_LOSS if decomposable else LARGEST_LOSS
        )  # fmt: skip
        if dual is None:
            if not decomposable:
                warn(
                    f"alpha = {float(fixed.min()):g} leaves a matrix of {n} rows that is singular to rounding, or so "
                    f"nearly that predictions would lose more than {LARGEST_LOSS:g} of y, so an approximation is used: "
                    "relative_error_ says how good it is. Pass a larger alpha, or scale the data."
                )
            return None
        self._expansion = KernelExpansion(self._kernel, copied(objects), dual)
        return dual

    def _needs_spectrum(self) -> str:
        return super()._needs_spectrum() if self._variance() is None else "a variance constraint"

    def _variance(self) -> float | None:
        """The mean square that fitted values shall have, if it is given."""
        variance = getattr(self, "variance", None)
        if variance is not None and not (is_number(variance) and variance > 0.0):
            raise InputError(f"variance must be a number above 0, or None; got {variance!r}.")
        return None if variance is None else float(variance)

    def _choose_alpha(
        self, path: RidgeEigensystem | Factored, task: LeastSquares, alphas: Array, shift: float, unit: float, seed: int
    ) -> Array:
        """Set ``alpha_`` and the scores of all alphas; return the best one, once for each target."""
        scores = _scores(path, task, (alphas + shift) / unit, seed)
        return self._take_best(scores, alphas, task.targets.shape[1])

    def _take_best(self, scores: list[Score], alphas: Array, n_targets: int) -> Array:
        self.alpha_, self.alphas_ = float(alphas[_best(scores)]), alphas
        self.loo_scores_ = np.array([s.values for s in scores])
        return np.full(n_targets, self.alpha_)

    def _fixed_alpha(self, n_targets: int) -> Array | None:
        """Return one alpha per target, or None if alpha is to be chosen."""
        if isinstance(self.alpha, str):
            if self.alpha != "loo":
                raise InputError(f'alpha must be a number of at least 0, one per target, or "loo"; got {self.alpha!r}.')
            return None
        try:
            alpha = np.atleast_1d(np.asarray(self.alpha, dtype=np.float64))
        except (TypeError, ValueError, OverflowError):
            alpha = np.array([np.nan])
        if alpha.ndim != 1 or len(alpha) not in (1, n_targets) or not np.isfinite(alpha).all() or alpha.min() < 0.0:
            raise InputError(
                f'alpha must be a number of at least 0, one per target ({n_targets}), or "loo"; got {self.alpha!r}.'
            )
        return np.broadcast_to(alpha, n_targets)

    def _path(self, f: Factorization, weights: Array) -> Array:
        """Return the candidates of alpha, ascending."""
        if self.alphas is None:
            if np.all(weights == weights[0]):  # U is orthonormal: the mean of the diagonal is the core's
                own = sum(float(np.trace(block)) for block in f.core_diagonal_blocks()) / f.shape[0]
            else:
                own = float(weights @ (f.diagonal() - f.shift) / weights.sum())
            return self._grid * (abs(own) or 1.0)
        return self._given_alphas()

    def _given_alphas(self) -> Array:
        alphas = np.sort(np.asarray(self.alphas, dtype=np.float64).ravel())
        if not len(alphas) or not np.isfinite(alphas).all() or alphas[0] <= 0.0:
            raise InputError(f"alphas must be numbers above 0, or None for a grid of them; got {self.alphas!r}.")
        return alphas

    def _judge(self, a: Approximation, task: LeastSquares, fixed: Array | None) -> str:
        """Return the correction with the best score on held-out rows (`choose_correction`).

        Each is scored at the given alpha, or at the one that leave-one-out chooses for it. "shift" is not a candidate,
        because it is a larger alpha.
        """
        f = a.factorization
        if not has_spectrum(f.core):
            warn(
                f"{a.kernel!r} gave an indefinite matrix whose core is too large to correct for ridge: it is used as "
                "it is. Build with fewer blocks or couplings for a core that can be."
            )
            return "none"
        alphas = dict.fromkeys(CANDIDATES, float(fixed.mean())) if fixed is not None else self._each(a, task)
        least, heavy = EPS * f.ends().largest, task.weights.mean()
        strengths = {how: max(alpha, least) / heavy for how, alpha in alphas.items()}
        kind = "regression" if task.classes is None else "classification"
        answers = task.targets if task.classes is None else task.classes
        return judge_for(answers, kind, learner="ridge", strength=strengths, names=CANDIDATES, seed=a.seed)(a)

    def _each(self, a: Approximation, task: LeastSquares) -> dict[str, float]:
        """Return the alpha that leave-one-out chooses after each correction. All have the same eigenvectors."""
        f, unit, found = a.factorization, task.unit, {}
        system = eigensystem(f.core, f.ranks)
        weights = task.weights if unit == 1.0 else np.ones(f.shape[0])
        for how in CANDIDATES:
            values, shift = changed(how, system.values, f.shift)
            corrected = f.with_core(system.core(values), shift)
            alphas = self._path(corrected, task.weights)
            path = decompose(corrected, weights, system.with_values(values))
            found[how] = float(alphas[_best(_scores(path, task, (alphas + shift) / unit, a.seed))])
        return found

    @property
    def X_fit_(self) -> Any:
        """The training objects, or the matrix of their similarities."""
        check_is_fitted(self)
        if self._precomputed:
            kernel: Any = self._training[1] if hasattr(self, "_training") else self.approximation_.kernel
            return kernel.S
        e = self._expansion
        return e.support if isinstance(e, KernelExpansion) else e.approximation.objects

    def _values(self, X: Any) -> Array:
        objects = self._new(X)
        values: Array = self._expansion(objects, self.verbose)
        return values


def _constrained(
    f: Factorization, weights: Array, y: Array, ridges: Array, path: RidgeEigensystem | Factored, variance: float
) -> tuple[Array, Array]:
    """The penalties and factors with which ridge has the variance, target by target."""
    largest = max(abs(f.ends().largest), abs(f.ends().smallest)) * float(weights.max())
    found = []
    for j, t in enumerate(ridges.tolist()):
        if t <= 0.0:
            raise InputError(f"A variance constraint needs alpha above 0; got {t:g}.")
        column = y[:, [j]]
        found.append(
            constrained(lambda p, b=column: path.solve(b, p)[:, 0], weights, y[:, j], t, variance, largest)  # type: ignore[misc]
        )
    return np.array([p for p, _ in found]), np.array([c for _, c in found])


def _scores(path: RidgeEigensystem | Factored, task: LeastSquares, ridges: Array, seed: int) -> list[Score]:
    """Return the leave-one-out score of each alpha."""
    n, p = task.targets.shape
    most = min(LOO_ROWS, LOO_ENTRIES // (p * len(ridges))) if isinstance(path, RidgeEigensystem) else LOO_SOLVES
    rows = None if n <= most else np.sort(stream(seed, 17).choice(n, most, replace=False))
    here = np.arange(n) if rows is None else rows
    return [task.score(errors, here) for errors in path.left_out(task.targets, ridges, task.share, rows)]


def _best(scores: list[Score]) -> int:
    """Return the place of the best score. Among ties the largest ``tie`` decides, and then the last place."""
    means = np.array([s.values.mean() for s in scores])
    if not np.isfinite(means).any():
        raise InputError("No alpha leaves a system that can be solved. Pass larger alphas.")
    top = int(np.nanargmax(means))
    ties = np.where(means >= means[top] - scores[top].noise, [s.tie for s in scores], -np.inf)
    return int(np.flatnonzero(ties >= ties.max() - SCORE_ROUNDING * abs(ties.max()))[-1])


@dataclass(eq=False, repr=False)
class KernelRidge(ScoredOutside, MultiOutputMixin, RegressorMixin, _Ridge):  # type: ignore[misc]
    """Kernel ridge regression with any symmetric kernel, for any number of rows.

    It minimises the squared loss plus alpha times the squared norm, without an intercept. The parameters and
    predictions are those of `sklearn.kernel_ridge.KernelRidge`.

    Parameters
    ----------
    alpha : float, array of shape (n_targets,) or "loo", default=1.0
        Strength of the penalty, for all targets or for each. "loo" chooses one value for all targets from ``alphas`` by
        the leave-one-out squared error. That error is exact, and one eigendecomposition gives it for all alphas.
    alphas : array, default=None
        Candidates of ``alpha="loo"``. By default 21 values from 1e-8 to 100 times the mean of k(x, x).
    correction : {"auto", "none", "shift", "clip", "flip", "square"} or float, default="auto"
        How an indefinite matrix is made psd. "auto" takes the one of "flip", "clip" and "square" with the best
        validated score. "shift" has the same effect as a larger alpha. A number is the weight of the negative part.
    variance : float or None, default=None
        Mean square that the predictions of the training rows shall have: the variance constraint of Oglic and Gärtner
        (2018), by which a fit to centred targets does not shrink towards 0. The solution is ridge with another alpha,
        times a factor. It takes an eigendecomposition or an approximation.
    kernel : str, Kernel or callable, default="linear"
    gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    dual_coef_ : array of shape (n,) or (n, n_targets)
        Coefficients of the rows in ``X_fit_``.
    X_fit_ : array, or list of objects
        The training objects, or the precomputed matrix. Rows of weight 0 are left out. If similarities to landmarks are
        features (``route_``), these are the landmarks.
    alpha_ : float or array
        The alpha that was used; that of the penalty, where a ``variance`` is given too.
    alphas_ : array of shape (n_alphas,) or None
        The candidates of ``alpha="loo"``.
    loo_scores_ : array of shape (n_alphas,) or (n_alphas, n_targets), or None
        Negative leave-one-out mean squared error of each candidate. Above 50,000 rows it is the mean over a random
        sample of 50,000. An exact machine with more than ``policy.loo_rows`` rows uses a sample of that size, and
        leaves each of its rows out of that sample.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Notes
    -----
    A row of weight w counts as w rows, of which one is left out at a time, or the whole row if w < 1. Leave-one-out
    scores are exact for the matrix that is used. The spectrum of a corrected matrix depends on the row that is left
    out, so the error on new rows may be larger or smaller; docs/corrections.md has figures.

    Examples
    --------
    >>> import numpy as np
    >>> from krein.estimators.ridge import KernelRidge
    >>> X = np.linspace(0.0, 6.0, 60)[:, None]
    >>> model = KernelRidge(alpha="loo", kernel="rbf").fit(X, np.sin(X).ravel())
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 1e-3)
    True
    """

    alpha: Any = 1.0
    _: KW_ONLY
    kernel: Any = "linear"
    gamma: Any = None
    coef0: float = 1.0
    alphas: Any = None
    variance: float | None = None

    @fits_outside
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelRidge:
        """Fit to targets y of shape (n,) or (n, n_targets)."""
        given = None if sample_weight is None else check_weights(sample_weight, _count(X))
        objects, y, kernel = self._start(X, y, weights=given, multi_output=True, y_numeric=True)
        targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        flat = targets.ndim == 1
        weights = np.ones(len(targets)) if given is None else given
        kept = self._weighted(objects, kernel, weights)
        if not isinstance(kept, slice):
            objects = only(objects, kept)
        targets, weights = targets.reshape(len(targets), -1)[kept], weights[kept]

        def score(errors: Array, rows: Indices) -> Score:
            means = weights[rows] @ errors**2 / weights[rows].sum()
            return Score(-means, SCORE_ROUNDING * float(means.mean()), 0.0)

        task = LeastSquares(targets, weights, 1.0 / np.maximum(weights, 1.0), score)
        dual = self._learn(objects, kernel, task)
        self.dual_coef_ = dual[:, 0] if flat else dual
        if flat and self.loo_scores_ is not None:
            self.loo_scores_ = self.loo_scores_[:, 0]
        self._flat = flat
        return self

    @predicts_outside
    def predict(self, X: Any) -> Array:
        """Return the predicted values, (n,) or (n, n_targets)."""
        values = self._values(X)
        return values[:, 0] if self._flat else values


@dataclass(eq=False, repr=False)
class KernelRidgeClassifier(ScoredOutside, ClassifierMixin, _Ridge):  # type: ignore[misc]
    """Kernel ridge classification with any symmetric kernel, for any number of rows.

    Kernel ridge regression on targets of -1 and 1 for each class. One factorization serves all classes, and nothing is
    iterated.

    Parameters
    ----------
    alpha : float or "loo", default="loo"
        Strength of the penalty. "loo" chooses it from ``alphas`` by the leave-one-out accuracy. Among candidates within
        a standard error of the best it takes the one with the smallest squared error.
    class_weight : dict or "balanced", default=None
        Weights of the classes, as in `sklearn.linear_model.RidgeClassifier`.
    alphas : array, default=None
        Candidates of ``alpha="loo"``. By default 15 values from 1e-5 to 100 times the mean of k(x, x).
    correction : {"auto", "none", "shift", "clip", "flip", "square"} or float, default="auto"
        See `KernelRidge`.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The class labels.
    dual_coef_ : array of shape (n,) for two classes, (n, n_classes) for more
        Coefficients of the rows in ``X_fit_``.
    alpha_, alphas_, X_fit_
        See `KernelRidge`.
    loo_scores_ : array of shape (n_alphas,) or None
        Leave-one-out accuracy of each candidate.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import krein
    >>> data = krein.datasets.mixture(300, n_features=4, n_clusters=3, n_classes=2, random_state=0)
    >>> machine = krein.KernelRidgeClassifier(random_state=0).fit(data.X[:200], data.y[:200])
    >>> machine.score(data.X[200:], data.y[200:]) > 0.8
    True
    >>> type(machine.route_).__name__  # few rows: the kernel's own matrix
    'Exact'
    >>> machine = krein.KernelRidgeClassifier(n_blocks=3, rank=16, random_state=0).fit(data.X[:200], data.y[:200])
    >>> machine.approximation_.factorization.n_blocks
    3
    """

    alpha: Any = "loo"
    _: KW_ONLY
    class_weight: Any = None
    alphas: Any = None

    _grid: ClassVar[Array] = ALPHAS[LABEL_START:]

    @fits_outside
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelRidgeClassifier:
        """Fit to labels y of shape (n,)."""
        given = None if sample_weight is None else check_weights(sample_weight, _count(X))
        objects, y, kernel = self._start(X, y, weights=given)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        copies = np.ones(len(y)) if given is None else given
        kept = self._weighted(objects, kernel, copies)
        if not isinstance(kept, slice):
            objects, y, copies = only(objects, kept), y[kept], copies[kept]
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data; got one class: "
                f"{self.classes_[0]!r}."
            )
        weights = copies * class_weights(self.class_weight, self.classes_, labels)[labels]
        targets = codes(labels)

        def score(errors: Array, rows: Indices) -> Score:
            w = weights[rows] / weights[rows].sum()
            values = targets[rows] - errors
            values[np.abs(values) <= VALUE_ROUNDING * (1.0 + np.abs(errors))] = 0.0  # of a row like no other
            right = float(w @ (_decided(values) == labels[rows]))
            square = float((w @ errors**2).mean())
            noise = math.sqrt(max(0.0, right * (1.0 - right)) / copies[rows].sum())  # the standard error of a share
            return Score(np.array([right if math.isfinite(square) else np.nan]), noise + SCORE_ROUNDING, -square)

        task = LeastSquares(targets, weights, 1.0 / np.maximum(copies, 1.0), score, labels)
        dual = self._learn(objects, kernel, task)
        self.dual_coef_ = dual[:, 0] if dual.shape[1] == 1 else dual
        if self.loo_scores_ is not None:
            self.loo_scores_ = self.loo_scores_[:, 0]
        return self

    @predicts_outside
    def decision_function(self, X: Any) -> Array:
        """Return decision values: (n,) for two classes, positive for the second, else (n, n_classes)."""
        values = self._values(X)
        return values[:, 0] if values.shape[1] == 1 else values

    @predicts_outside
    def predict(self, X: Any) -> Any:
        """Return the class of each object."""
        values = self.decision_function(X)
        return self.classes_[_decided(values.reshape(len(values), -1))]


def _decided(values: Array) -> Indices:
    """Return the place of the predicted class, from decision values of shape (n, 1) or (n, n_classes)."""
    return np.asarray(values.argmax(1) if values.shape[1] > 1 else (values[:, 0] > 0.0).astype(np.intp))


def _count(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X) if hasattr(X, "__len__") else len(np.asarray(X))

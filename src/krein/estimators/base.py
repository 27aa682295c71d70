"""The base class of all kernel machines: shared parameters, validation, the approximation and its correction.

Estimators are dataclasses of keyword parameters. Those they share are declared once, here, and scikit-learn finds all
of them in the signature. The steps of a fit are:

1. `_start` validates X and binds the kernel to it.
2. `_decide` chooses the route (`route.choose_route`), once.
3. An exact fit calls `_use_exactly`. An approximated one calls `_build`, which returns the approximation, and
   `_settle`, which corrects it and warns if that changes anything.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, is_classifier
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from krein.approximation import Approximation
from krein.approximation.request import COUPLINGS
from krein.arrays import EPS, Array, seed_from
from krein.choosing import approximate, whole_approximation
from krein.choosing.by_score import Chooser, codes
from krein.choosing.candidates import Selection
from krein.errors import InputError, is_number, warn
from krein.estimators.cache import Built, digest, remembered
from krein.estimators.eigenpairs import inertia
from krein.estimators.expensive_similarities import expensive_features
from krein.estimators.route import (
    ByScore,
    Exact,
    Features,
    Handed,
    Route,
    announce_cost,
    choose_route,
    possible_corrections,
)
from krein.estimators.similarity_features import SimilarityFeatures, landmark_choice, similarity_features
from krein.factorization.bases import STORAGE
from krein.factorization.correction import CORRECTIONS
from krein.factorization.spectrum import certify
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects, counting, take
from krein.kernels.names import check_beside, kernel_for
from krein.kernels.pair_function import with_processes
from krein.kernels.precomputed import GivenColumns, given_matrix
from krein.kernels.validation import (
    as_objects,
    bound_to,
    check_no_dates,
    check_no_mask,
    check_objects,
    check_table,
    holds_vectors,
    in_range,
    is_plain,
)
from krein.kernels.vectors import warn_of_no_contrast
from krein.pieces.rows import RowPieces
from krein.policy import Policy, check_correction, check_parameters, check_policy
from krein.threads import large_to_the_end

__all__ = ["KernelMachine", "KernelTransformer", "check_approximation", "validated"]

# The checks that plain rows of floats pass, or that concern targets alone.
FOR_TARGETS = {"accept_sparse", "multi_output", "y_numeric"}
# The error of rows that lie elsewhere is estimated from this many entries before they are let go of.
ERROR_SAMPLES = 8_000
# If similarities have single precision, eigenvalues have a relative error of SINGLE_ROUNDING.
SINGLE_ROUNDING = 100.0 * float(np.finfo(np.float32).eps)


def validated(machine: Any, X: Any, y: Any, **checks: Any) -> Any:
    """Return what scikit-learn's validate_data does; integers that float64 cannot hold are refused with words."""
    try:
        return validate_data(machine, X, y, **checks)
    except OverflowError:
        raise InputError(
            "X or y holds an integer that float64 cannot hold. Rescale it or take its logarithm."
        ) from None


@dataclass(eq=False, repr=False, kw_only=True)
class KernelMachine(BaseEstimator):  # type: ignore[misc]
    """Parameters of the kernel and of its approximation, and the steps every fit begins with.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        The similarity of two objects. Names are those of scikit-learn ("rbf", "poly", "sigmoid", "laplacian", "linear",
        "cosine", "chi2"), "tl1", "elm", "arccosine", "ntk", "sphere-polynomial", "matern", "rational-quadratic",
        "periodic", "tanimoto", "minmax", "jaccard", "hamming", "histogram-intersection", "haversine" and "precomputed".
        A callable k(A, B) returns the matrix of similarities; one that compares two objects and returns a number
        (`krein.pairwise`) is recognised, and evaluated in ``n_jobs`` processes. Names and kernels of vectors read a
        list as a matrix. A callable that
        takes arrays does so if the items are equally long lists of numbers. Any other list is a list of objects.
        Objects passed to predict are interpreted as they were in fit.
    gamma : {"scale", "auto", "tune"}, float or None, default="scale"
        Coefficient of kernels that have one. "scale" is 1 / (n_features * X.var()); "auto" and None are 1 / n_features.
        "tune" takes the value with the best validated score, in machines with a target.
    degree : float, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    kernel_params : dict, default=None
        Further parameters of a kernel given by name or of a callable.
    n_blocks, rank, coupling, drop, max_error, max_memory, dtype
        Shape of the approximation, see `krein.approximate`. What is given is obeyed. By default a machine is exact up
        to a number of rows (``policy``). With more rows, machines with a target choose blocks and rank by a validated
        score. The complete list of cases is in `krein.estimators.route.choose_route`.
    correction : {"auto", "none", "shift", "clip", "flip", "square"} or float, default="auto"
        How an indefinite matrix is made psd, see `krein.correct`. "auto" does nothing to a psd matrix. Otherwise it
        chooses by a validated score, and reports the choice in ``correction_`` and in a warning. A number is the weight
        of the negative part, 0 being "clip" and 1 "flip". It is the ratio of the penalties of the two parts of a
        learner in Krein space (Oglic and Gärtner 2018, 2019).
    approximation : Approximation, default=None
        An approximation of the same X that was built before and is used instead of a new one. Fits on equal data share
        approximations without this parameter: the most recent ones are cached, up to 128 MiB.
    policy : Policy, default=None
        The limits behind these decisions. None means ``krein.Policy()``.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the clustering, the landmarks and all samples.
    n_jobs : int, default=None
        Number of threads of fits and predictions; -1 means all cores. None means as many as BLAS may use, which are all
        cores unless an environment variable, threadpoolctl or a pool of processes says less. No variable has to be set:
        BLAS has one thread but for matrices of 4000 rows and more. The result does not depend on it, but for rounding.
    verbose : int, default=0
        Show progress bars if above 0. With 0, a step that takes longer than ten seconds shows its bar on a terminal or
        in a notebook. With -1, none does.
    memory_limit : int, str or None, default=None
        Bytes that the fit may take beside the interpreter, in each process, for instance "4GB". If given, X is visited
        in pieces that fit. X that lies outside memory is visited in pieces anyway: memory maps and paths of .npy,
        Parquet, Arrow, CSV or svmlight files, arrays that can be sliced (zarr, h5py), iterators of blocks, and Dask
        collections, which are visited on their cluster. y may be the name of a column of a table.
    workdir : path or None, default=None
        Folder for what is not held in memory. If given, an interrupted fit that is repeated goes on where it was. None
        means a temporary folder.

    Attributes
    ----------
    route_ : Exact, Features, Handed, Given, ByError or ByScore
        How the matrix was computed, and why.
    approximation_ : Approximation
        The corrected approximation. An exact machine holds none. It builds one on first access, with a warning, and
        does not use it in predictions. After loading from a file or a pickle it cannot be built.
    correction_ : str or float
        The correction that was used.
    n_negative_ : int
        Number of negative eigenvalues before the correction. If they are too many to count it is 1, and the warning
        says so.
    selection_ : Selection or None
        The candidates that were scored to choose blocks, rank or gamma. Printed, it is a table.
    relative_error_ : float
        Relative Frobenius error of the matrix before the correction. It is 0 if all similarities are used, and NaN if
        similarities to landmarks are features. Otherwise it is estimated on first access.
    n_iter_, converged_
        Number of solver steps, and whether the solver converged. They are 1 and True for closed forms.
    """

    kernel: Any = "rbf"
    gamma: Any = "scale"
    degree: float = 3
    coef0: float = 0.0
    kernel_params: dict[str, Any] | None = None
    n_blocks: int | str = "auto"
    rank: int | str = "auto"
    coupling: str = "shared"
    drop: float | str = "auto"
    correction: Any = "auto"
    max_error: float | None = None
    max_memory: float | None = None
    dtype: Any = "auto"
    approximation: Approximation | None = None
    policy: Policy | None = None
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0
    memory_limit: Any = None
    workdir: Any = None

    _corrections: ClassVar[tuple[str, ...]] = ("auto", *CORRECTIONS)
    _needs_psd: ClassVar[bool] = True  # False: an indefinite matrix may be used without a correction
    _tunes: ClassVar[bool] = False  # whether gamma="tune" is allowed, which needs a target
    _deferred: ClassVar[tuple[str, ...]] = ("krein",)  # corrections that the machine applies after `_settle`
    _unsaved: ClassVar[tuple[str, ...]] = ("_training", "_on_demand")  # attributes left out of pickles and files
    _of_route: ClassVar[tuple[str, ...]] = ("_uncorrected", "_on_demand")  # attributes that only some routes set
    _limit: ClassVar[str] = "exact_rows"  # the field of the policy up to which a psd kernel is used exactly
    _learns_features: ClassVar[bool] = False  # whether similarities may be features, which needs a target

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._precomputed
        tags.input_tags.pairwise = self._precomputed
        return tags

    def set_params(self, **params: Any) -> Any:
        """Set parameters, as scikit-learn has it; those of a kernel (``kernel__gamma``) give it a changed kernel."""
        nested: dict[str, dict[str, Any]] = {}
        for key in [key for key in params if "__" in key]:
            name, _, rest = key.partition("__")
            if isinstance(params.get(name, getattr(self, name, None)), Kernel):
                nested.setdefault(name, {})[rest] = params.pop(key)
        super().set_params(**params)
        for name, changes in nested.items():
            setattr(self, name, getattr(self, name).with_params(**changes))
        return self

    def report(self, path: Any, inspection: Any = None, **options: Any) -> Path:
        """Write a report of the fit as an HTML page (`krein.report.write`), with an inspection of its data if given."""
        check_is_fitted(self)
        from krein.report import write

        return write(path, inspection, self, **options)

    def _repr_html_inner(self) -> str:  # scikit-learn's picture, and once it is fitted a few facts below it
        with self._shown():
            return str(super()._repr_html_inner()) + self._facts()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        with self._shown():
            shown: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return shown | ({"text/html": shown["text/html"] + self._facts()} if "text/html" in shown else {})

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """Hide attributes that are computed on access while scikit-learn displays all attributes."""
        self._showing = True
        try:
            yield
        finally:
            del self._showing

    def __dir__(self) -> list[str]:  # scikit-learn's own asks for each attribute, and so computes them all
        computed = {
            name for cls in type(self).__mro__ for name, value in vars(cls).items() if isinstance(value, property)
        }
        shown = [name for name in object.__dir__(self) if name not in computed and hasattr(self, name)]
        return shown if "_showing" in vars(self) else [*shown, *computed]

    def _facts(self) -> str:
        from krein.report import summary

        return summary.machine(self) if hasattr(self, "route_") else ""

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in self._unsaved}

    # -- the steps of a fit ----------------------------------------------------------------------------------------

    def _start(
        self, X: Any, y: Any = "no_validation", *, weights: Array | None = None, **checks: Any
    ) -> tuple[Any, Any, Kernel]:
        """Validate X and y; return (objects, y, kernel bound to them). ``checks`` go to scikit-learn's validate_data.

        By default there is no y to validate. A y of None is a missing target, which is an error.
        """
        check_correction("correction", self.correction, self._corrections)
        check_parameters(vars(self), COUPLINGS, STORAGE)
        gamma = "scale" if self._tuned and self._tunes else self._width  # where tuning starts
        precomputed = self._precomputed
        X, y = self._checked(X, y, reset=True, **checks)
        if weights is not None and len(weights) != count_objects(X):
            raise InputError(f"sample_weight needs one number per row, {count_objects(X)}; got {len(weights)}.")
        if precomputed:
            return np.arange(X.shape[0]), y, given_matrix(X)
        with counting() as spent:
            check_beside(self, self._similarity)
            kernel = kernel_for(
                self._similarity, X, gamma=gamma, degree=self.degree, coef0=self.coef0, params=self.kernel_params,
                weights=weights,
            )  # fmt: skip
        self._binding = spent.n_evaluations
        if kernel.compares == "vectors":
            warn_of_no_contrast(X, kernel)
        return X, y, with_processes(kernel, self.n_jobs, self.verbose)

    def _new(self, X: Any) -> Any:
        """Objects to predict, checked against those of the fit."""
        if not hasattr(self, "_fit_on_vectors"):  # looking at all attributes takes longer
            check_is_fitted(self)
        return self._checked(X, "no_validation", reset=False)[0]

    def _checked(self, X: Any, y: Any, *, reset: bool, **checks: Any) -> tuple[Any, Any]:
        if isinstance(X, RowPieces):
            return X, self._checked_rows(X, y, **checks)
        known = not reset and hasattr(self, "_fit_on_vectors")  # a process has a prior, before any fit
        similarity, is_numeric = self._similarity, not isinstance(y, str) and not is_classifier(self)
        vectors: bool = self._fit_on_vectors if known else self._vectors(X)  # type: ignore[has-type]
        if reset:
            self._fit_on_vectors = vectors
        for name, values in (("X", X), ("y", y)):
            check_no_mask(name, values)
        if is_numeric:
            check_no_dates("y", y)
        if vectors:
            if not reset:
                check_table(X, similarity)
            check_no_dates("X", X)
            kind = {"accept_sparse": "csr", "dtype": (np.float64, np.float32), "ensure_min_samples": 2 if reset else 1}
            simple = y is not None and checks.keys() <= FOR_TARGETS and not hasattr(self, "feature_names_in_")
            if simple and is_plain(X, None if reset else getattr(self, "n_features_in_", -1)):
                self.n_features_in_ = X.shape[1]
                return in_range(X), None if isinstance(y, str) else self._checked_target(X, y, **checks)
            found = validated(self, X, y, reset=reset, **kind | checks)
            return (in_range(found), None) if isinstance(y, str) else (in_range(found[0]), found[1])
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        if getattr(self._similarity, "compares", None) == "tables":
            validate_data(self, X, reset=reset, skip_check_array=True)  # names and number of the columns
        found = as_objects(X, self._similarity)
        if not isinstance(y, str):
            check_consistent_length(found, y)
        return found, y

    def _checked_rows(self, X: RowPieces, y: Any, **checks: Any) -> Any:
        """The target of rows that lie elsewhere, which were checked when they were first visited."""
        if not self._vectors(X):
            raise InputError(
                f"Rows outside memory are vectors, compared by a named kernel or one of krein's own; got "
                f"{self._similarity!r}. Read X into memory for a function of your own."
            )
        self._fit_on_vectors, self.n_features_in_ = True, X.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        if isinstance(y, str):
            return None
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        return self._checked_target(np.broadcast_to(0, X.shape[:1]), y, **checks)

    def _checked_target(self, X: Any, y: Any, **checks: Any) -> Any:
        """The target of rows that were checked."""
        for_y = {name: value for name, value in checks.items() if name in ("multi_output", "y_numeric")}
        y = validated(self, "no_validation", y, reset=False, **for_y)
        check_consistent_length(X, y)
        return y

    def _vectors(self, X: Any) -> bool:
        """Whether X is a matrix of numbers, as a fit would take it."""
        return holds_vectors(X, self._similarity, self.kernel_params)

    @property
    def _precomputed(self) -> bool:
        return isinstance(self._similarity, str) and self._similarity == "precomputed"

    @property
    def _similarity(self) -> Any:
        """The kernel parameter, which has another name in some machines."""
        return self.kernel

    @property
    def _width(self) -> Any:
        """The gamma that goes with it."""
        return self.gamma

    def _chooser(self, targets: Any, alpha: float | None = None) -> Chooser:
        """Return a chooser of blocks, rank and gamma for these targets, and for this alpha of ridge."""
        task = "classification" if is_classifier(self) else "regression"
        return Chooser(targets, task, self._tuned, check_policy(self.policy), alpha)

    @property
    def _tuned(self) -> bool:
        return isinstance(self._width, str) and self._width == "tune"

    def _needs_spectrum(self) -> str:
        """What asks for the eigenvalues of a psd matrix too; nothing but for a few parameters."""
        return "correction='square'" if self.correction == "square" else ""

    def _decide(self, objects: Any, kernel: Kernel, *, scored: bool = False) -> Route:
        """Decide how this fit goes (`choose_route`), once; sets ``route_`` and forgets what an earlier fit left."""
        self._forget(*self._of_route)
        spectrum = self._needs_spectrum()
        self.route_: Route = choose_route(self, objects, kernel, spectrum=spectrum, scored=scored)
        announce_cost(self, self.route_, objects, kernel)
        if isinstance(self.route_, Exact | Features):
            large_to_the_end(count_objects(objects))
        self.selection_: Selection | None = None
        self._approximation: Approximation | None = None
        self._relative_error: float | None = 0.0 if isinstance(self.route_, Exact | Features) else None
        if isinstance(self.route_, Features) and self.route_.n_landmarks < count_objects(objects):
            self._relative_error = math.nan  # landmarks describe objects, and no matrix is approximated
        self._training = (objects, kernel)  # by reference
        self._kernel: Kernel = GivenColumns() if self._precomputed else kernel
        self._n_rows = count_objects(objects)
        self.n_iter_: Any = 1  # of a closed form; what iterates says so itself
        self.converged_ = True
        return self.route_

    def _let_go(self) -> None:
        """Let go of the training rows, which lie elsewhere; what was found out about them stays."""
        if self._relative_error is None and hasattr(self, "_uncorrected"):
            estimate = self._uncorrected.error(ERROR_SAMPLES, random_state=0)
            self._relative_error = float(estimate.relative)
        for a in (self._approximation, getattr(self, "_uncorrected", None)):
            pieces = None if a is None else getattr(a.factorization.bases, "pieces", None)
            if pieces is not None:
                pieces.close()
            if a is not None and isinstance(a.objects, RowPieces):
                a.objects.close()  # some of the rows that were opened
        self._forget("_training", "_on_demand")

    def _forget(self, *names: str) -> None:
        """Delete attributes of an earlier fit by another route."""
        for name in names:
            self.__dict__.pop(name, None)

    def _use_exactly(self, objects: Any, kernel: Kernel) -> Any:
        """The objects of an exact fit, checked as `krein.approximate` checks them; nothing is corrected."""
        if self._fit_on_vectors:  # checked when the fit began
            bound_to(objects, kernel)
        else:
            objects, _ = check_objects(objects, kernel)
        Evaluator(kernel).check_similarity(objects, whole=True)
        self.correction_ = "none" if self.correction == "auto" else self.correction
        self.n_negative_ = 0
        return objects

    def _tune(self, objects: Any, kernel: Kernel, chooser: Chooser) -> Kernel:
        """The kernel with the gamma of the best score, where gamma="tune" and blocks are not chosen along with it."""
        if not chooser.tune or isinstance(self.route_, ByScore):
            return kernel
        if isinstance(self.route_, Handed):
            raise InputError(
                "gamma='tune' needs a kernel of its own, but an approximation was passed. Pass one of them."
            )
        n = count_objects(objects)
        policy = check_policy(self.policy)
        blocks, rank = (1, n) if n <= policy.exact_rows else policy.tuning_shape
        self.selection_ = chooser(
            objects, kernel, n_blocks=blocks, rank=rank, seed=seed_from(self.random_state), verbose=self.verbose
        )
        tuned = self.selection_.kernel or kernel
        self._training, self._kernel = (objects, tuned), tuned
        return tuned

    def _build(self, objects: Any, kernel: Kernel, chooser: Chooser | None = None) -> Approximation:
        """The approximation of k(objects, objects), uncorrected: the one that was passed, a cached one, or a new one.

        ``chooser`` scores blocks, rank and gamma where they are not given. Sets ``selection_``.
        """
        route = self.route_
        if isinstance(route, Handed):
            return self._handed(objects, kernel)
        asked = {} if isinstance(route, Exact | Features) else route.request
        chooser = chooser if isinstance(route, ByScore) else None
        before = int(self.__dict__.pop("_binding", 0))
        settings = self._settings(asked, () if chooser is None else chooser.key)
        if chooser is not None and chooser.alpha is not None:
            settings = None  # fits that differ in alpha share what was built, if the same was chosen for them
        with counting() as spent:

            def build() -> Built:
                found = self._built(objects, kernel, chooser, asked)
                count = before + spent.n_evaluations  # including those of binding, recognition and choice
                return replace(found, approximation=replace(found.approximation, n_evaluations=count))

            built = remembered(objects, kernel, settings, build)
        self.selection_ = built.choice or self.selection_
        return built.approximation

    def _settings(self, asked: dict[str, Any], *more: Any) -> tuple[Any, ...] | None:
        """What an approximation depends on beside objects and kernel; None if a generator's state is part of it."""
        if not (self.random_state is None or isinstance(self.random_state, int | np.integer)):
            return None
        return (*more, self.random_state, str(self.policy), *(f"{name}={value}" for name, value in asked.items()))

    def _built(self, objects: Any, kernel: Kernel, chooser: Chooser | None, asked: dict[str, Any]) -> Built:
        options = {name: getattr(self, name) for name in ("n_jobs", "random_state", "verbose", "policy")}
        if isinstance(self.route_, Exact):
            return Built(whole_approximation(objects, kernel, self.random_state))
        if chooser is None:
            return Built(approximate(objects, kernel, **asked, **options))
        choice = chooser(objects, kernel, **asked, seed=seed_from(self.random_state), verbose=self.verbose)
        own = {} if self.drop == "auto" else {"drop": self.drop}
        while True:
            wanted, chosen = asked | choice.parameters | own, choice.kernel or kernel

            def build(wanted: dict[str, Any] = wanted, chosen: Kernel = chosen) -> Built:
                return Built(approximate(objects, chosen, **wanted, **options))

            settings = None if chooser.alpha is None else self._settings(wanted)
            a = remembered(objects, chosen, settings, build).approximation
            held, room = a.factorization.nbytes, self.max_memory or math.inf
            if held <= room or not isinstance(choice.rank, int) or choice.rank < 2 or self.rank != "auto":
                return Built(a, choice)
            # the rows it was tried on took less: what was asked for holds
            lower = max(1, min(choice.rank - 1, int(choice.rank * room / held)))
            choice = replace(choice, best=None, parameters=choice.parameters | {"rank": lower})

    def _handed(self, objects: Any, kernel: Kernel) -> Approximation:
        a = check_approximation(self.approximation)
        n, m = count_objects(objects), a.factorization.shape[0]
        mine, theirs = (k.S if isinstance(k, Precomputed) else x for k, x in ((kernel, objects), (a.kernel, a.objects)))
        if not (mine is theirs or (n == m and digest(mine) == digest(theirs))):
            raise InputError(
                f"approximation is of {m} other objects than the {n} to fit. Hand it to fits on the same X, row for "
                "row; a cross-validation shares approximations by itself."
            )
        given = not isinstance(self._similarity, str) or is_number(self._width)  # a name alone leaves gamma open
        usual = (own := type(self).__dataclass_fields__).get("affinity", own["kernel"]).default
        other = kernel != a.kernel if given else self._similarity != usual and type(kernel) is not type(a.kernel)
        if other and not isinstance(kernel, Precomputed):  # the default name leaves the kernel open too
            raise InputError(
                f"approximation is of {a.kernel!r}, but {kernel!r} was asked for. Leave kernel and gamma at their "
                "defaults, or hand in an approximation of that kernel."
            )
        return a

    def _settle(self, a: Approximation, judge: Callable[[Approximation], str] | None = None) -> Approximation:
        """Correct the approximation, set ``correction_`` and ``n_negative_``; ``judge`` chooses for "auto"."""
        f = a.factorization
        certificate = certify(f)
        psd = certificate.psd or _is_rounding(a, certificate.margin)
        self.n_negative_, least = (0, "") if psd else _count_negative(a)
        how = self.correction
        if how == "auto":
            how = "none" if psd else judge(a) if judge is not None else "flip"
        if not psd:
            self._warn_indefinite(a.kernel, how, f"{least}{self.n_negative_} of {f.rank}", certificate.margin)
        self.correction_ = how
        corrected = a if how in ("none", *self._deferred) else a.corrected(how)
        self._approximation, self._uncorrected = corrected, a
        return corrected

    def _warn_indefinite(self, kernel: Kernel, how: str | float, count: str, smallest: float) -> None:
        """Warn about negative eigenvalues and name the correction, unless correction="none" was passed."""
        if how == "none" and self.correction != "auto":
            return
        unchanged = how == "none" and not self._needs_psd
        used = "it as it is, correction='none', and needs no psd matrix" if unchanged else f"correction={how!r}"
        others = ", ".join(repr(c) for c in self._corrections if c not in ("auto", how))
        warn(
            f"{kernel!r} gave an indefinite matrix: {count} eigenvalues are negative, the smallest {smallest:.3g}. "
            f"{type(self).__name__} uses {used}{'; there are also ' + others if others else ''}."
        )

    def _settle_exactly(self, K: Array, kernel: Kernel, auto: str) -> None:
        """Set ``n_negative_`` and ``correction_`` from the kernel's own matrix; ``auto`` is what "auto" means here."""
        held = kernel.S if isinstance(kernel, Precomputed) else self._training[0]
        single = getattr(held, "dtype", None) == np.float32
        self.n_negative_, smallest = inertia(K, SINGLE_ROUNDING / len(K) if single else EPS)
        self.correction_ = self.correction
        if self.correction == "auto":
            self.correction_ = auto if self.n_negative_ else "none"
        if self.n_negative_:
            self._warn_indefinite(kernel, self.correction_, f"{self.n_negative_} of {len(K)}", smallest)

    def _taking_part(self, objects: Any, kernel: Kernel, targets: Any) -> tuple[Any, Any]:
        """Return the objects that take part, and their places: all, or a sample where similarities are expensive."""
        route = self.route_
        if not (isinstance(route, Features) and route.n_pairs) or self._tuned:
            return objects, slice(None)
        objects, _ = check_objects(objects, kernel)
        Evaluator(kernel).check_similarity(objects, whole=False)
        chooser = self._chooser(codes(targets) if is_classifier(self) else targets)
        self._compared, rows, why = expensive_features(
            kernel,
            objects,
            route.n_pairs,
            route.neighbours,
            chooser.targets,
            chooser.task,
            seed_from(self.random_state),
            self.verbose,
        )
        self.route_ = replace(route, why=f"{route.why}; {why}", n_landmarks=len(self._compared.landmarks))
        if rows is None:
            return objects, slice(None)
        possible = possible_corrections(len(rows), check_policy(self.policy))
        self.route_ = replace(self.route_, neighbours=False, corrections=possible)
        objects = take(objects, rows)
        self._training = (objects, kernel)
        return objects, rows

    def _similarity_features(self, objects: Any, kernel: Kernel, chooser: Chooser) -> SimilarityFeatures:
        """Return uncorrected similarities as features; set ``n_negative_``, and ``selection_`` if there were scores.

        ``chooser`` holds the targets by which landmarks are scored.
        """
        route = self.route_
        assert isinstance(route, Features)
        found: SimilarityFeatures | None = self.__dict__.pop("_compared", None)
        if found is None:
            objects, _ = check_objects(objects, kernel)
            Evaluator(kernel).check_similarity(objects, whole=False)
            found = similarity_features(
                kernel, objects, route.n_landmarks, neighbours=route.neighbours, targets=chooser.targets,
                task=chooser.task, seed=seed_from(self.random_state), verbose=self.verbose,
            )  # fmt: skip
        if found.scores:
            self.selection_ = landmark_choice(found)
        self.n_negative_ = found.count_negative()
        if kernel.traits.psd is False and not found.is_whole:
            self.n_negative_ = max(1, self.n_negative_)  # known from the kernel, though the sample has none
        return found

    def _correct_features(
        self, features: SimilarityFeatures, choose: Callable[[tuple[str, ...]], tuple[str, float]]
    ) -> tuple[SimilarityFeatures, float]:
        """Correct the features and set ``correction_``; ``choose`` takes names and returns a correction and a scale.

        A kernel whose complete matrix is psd is not corrected.
        """
        assert isinstance(self.route_, Features)
        how = self.correction
        scale = 1.0
        if how == "auto" and not self.n_negative_ and features.is_psd:
            how = "none"
        elif how == "auto":
            how, scale = choose(self.route_.corrections)
        elif how == "square":
            how, scale = choose(("square",))
        self.correction_ = how
        if self.n_negative_:
            count = f"at least {self.n_negative_} of {self._n_rows}"
            self._warn_indefinite(features.kernel, how, count, min(0.0, float(features.seen_eigenvalues[0])))
        return replace(features, correction="flip" if how == "krein" else how), scale

    def _forget_matrix(self) -> None:
        """Drop the eigendecomposition of an exact fit; predictions use the kernel itself."""
        self._approximation = None
        del self._uncorrected

    @property
    def approximation_(self) -> Approximation:
        """The corrected approximation; an exact machine has none, and builds it now."""
        check_is_fitted(self)
        if self._approximation is not None:
            return self._approximation
        if not hasattr(self, "_training"):
            raise AttributeError(
                f"{type(self).__name__} used the kernel's own matrix and holds no approximation, and the training "
                "objects were not saved with it. Build one with krein.approximate(X, kernel)."
            )
        if not hasattr(self, "_on_demand"):
            warn(
                f"{type(self).__name__} used the kernel's own matrix and holds no approximation. This one is built "
                "now, as krein.approximate builds it by default; it has no part in predictions."
            )
            objects, kernel = self._training
            raw = approximate(objects, kernel, n_jobs=self.n_jobs, random_state=self.random_state)
            how = "none" if self.correction_ in ("krein", "proxy") else self.correction_
            self._on_demand = raw, raw.corrected(how)
        return self._on_demand[1]

    @property
    def relative_error_(self) -> float:
        """The relative Frobenius error of the matrix before any correction; 0 where it is the kernel's own."""
        check_is_fitted(self)
        if self._relative_error is None:
            found = self._uncorrected.search_
            known = found is not None and found.error is not None
            self._relative_error = found.error.relative if known else self._uncorrected.error(random_state=0).relative
        return self._relative_error


class KernelTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelMachine):  # type: ignore[misc]
    """A kernel machine with `transform`."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _precision(self, X: Any) -> Any:
        """float32 rows have float32 features."""
        return np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64


def check_approximation(a: Any) -> Approximation:
    """Refuse anything but an approximation."""
    if not isinstance(a, Approximation):
        raise InputError(f"approximation must be what krein.approximate returns, or None; got {type(a).__name__}.")
    return a


def _count_negative(a: Approximation) -> tuple[int, str]:
    """The number of negative eigenvalues, and a word on it: of a core too large for all of them one is known."""
    try:
        return a.factorization.n_negative(), ""
    except InputError:
        return 1, "at least "


def _is_rounding(a: Approximation, smallest: float) -> bool:
    """Whether negative eigenvalues are no larger than the rounding of similarities given in single precision."""
    held = a.kernel.S if isinstance(a.kernel, Precomputed) else a.objects
    if getattr(held, "dtype", None) != np.float32:
        return False
    return -smallest <= SINGLE_ROUNDING * a.factorization.ends().largest

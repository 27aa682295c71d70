"""From the columns of a file to a scored and fitted model, and from new rows to predictions.

In: a `Frame` and the name of its target. Out: a `Model`, which holds the names of its columns, its score on rows held
out, and the fitted estimator that predicts the rows of another file.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from krein.errors import InputError, KreinWarning, one_of, warn
from krein.estimators import SVC, GaussianProcessRegressor, KernelRidge, KernelRidgeClassifier
from krein.kernels import Alignment, EditSimilarity, Gower, JaroWinkler, Kernel, Spectrum
from krein.kernels.names import NAMES
from krein.kernels.vectors import unit_rows
from krein.progress import progress_bar
from krein.tables.encoding import (
    Categories,
    Encoder,
    encoder_for,
    has_text_or_missing,
    mixed_encoder_for,
    usable_columns,
)
from krein.tables.reading import MAX_CLASSES, Column, Frame, is_text

__all__ = [
    "KERNELS", "MACHINES", "SPHERE_KERNELS", "TABLE_KERNELS", "TASKS", "TEXT_KERNELS", "UNSCALED_KERNELS", "Model",
    "Score", "check_scale", "comparable_objects", "kernel_of_columns", "kernel_parameter_names", "learn", "machine_for",
    "target_values", "text_column",
]  # fmt: skip

TASKS = ("auto", "classification", "regression")
MACHINES = ("auto", "svm", "ridge", "gp")
# Above MAX_SVM_ROWS rows, machine="auto" is the ridge classifier: it is as accurate, and its alpha is found for free.
MAX_SVM_ROWS = 20_000
# float64 represents every whole number up to MAX_EXACT_INTEGER exactly.
MAX_EXACT_INTEGER = 2.0**53
# Above MAX_FOLD_ROWS rows, one part held out replaces the cross-validation.
MAX_FOLD_ROWS = 100_000
# These kernels compare texts.
TEXT_KERNELS: dict[str, type[Kernel]] = {
    "edit": EditSimilarity,
    "jaro-winkler": JaroWinkler,
    "spectrum": Spectrum,
    "alignment": Alignment,
}
# These kernels compare columns as they are.
TABLE_KERNELS: dict[str, type[Kernel]] = {"gower": Gower}
TABLE_KERNEL_PARAMETERS = ("weights", "decay", "power")
KERNELS = (*sorted(NAMES), *TEXT_KERNELS, *TABLE_KERNELS)
# kernel="auto" has these candidates for a table with text or missing values. The one with the best score is taken, by
# CHOICE_FOLDS-fold cross-validation on at most CHOICE_ROWS rows.
CANDIDATES: tuple[str | Kernel, ...] = ("rbf", Gower(), Gower(weights="balanced", decay=2.0, power=2.0))
CHOICE_ROWS = 1500
CHOICE_FOLDS = 3
# These kernels need rows of length 1.
SPHERE_KERNELS = ("sphere-polynomial",)
# These kernels compare bits, counts, categories or degrees as they are.
UNSCALED_KERNELS = ("chi2", "hamming", "haversine", "histogram-intersection", "jaccard", "minmax", "tanimoto")


@dataclass(frozen=True)
class Score:
    """The score of a model on rows held out."""

    name: str  # "accuracy" or "R²"
    values: tuple[float, ...]  # one per fold
    n_tested: int
    baseline: float  # the score of always predicting the most frequent class, or the mean

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def error(self) -> float | None:
        """The standard error of the mean over the folds; of one part held out that of the accuracy, None for R²."""
        if len(self.values) > 1:
            return float(np.std(self.values, ddof=1) / math.sqrt(len(self.values)))
        return math.sqrt(self.mean * (1.0 - self.mean) / self.n_tested) if self.name == "accuracy" else None


@dataclass(eq=False)
class Model:
    """A fitted estimator with the columns it was fitted on."""

    estimator: Any
    target: str
    task: str
    text: str | None  # the column whose texts are compared, None if columns are encoded as numbers
    encoder: Encoder | None  # the encoding of the columns, None if texts are compared
    sphere: bool  # whether rows are scaled to length 1
    offset: float  # the mean of a regression target, which kernel ridge has no intercept for
    score: Score | None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns a file to predict must have."""
        if self.encoder is not None:
            return tuple(column.name for column in self.encoder.columns)
        return (self.text,) if self.text is not None else ()

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns to read as text in every file: those that were text in the fit, and a target with text labels."""
        found = [c.name for c in self.encoder.columns if isinstance(c, Categories)] if self.encoder else [*self.columns]
        labels = getattr(self.estimator, "classes_", None)
        return (*found, self.target) if labels is not None and labels.dtype.kind not in "biuf" else tuple(found)

    def objects(self, frame: Frame) -> Any:
        """Return what the kernel compares: rows of numbers, or a list of texts."""
        return comparable_objects(frame, self.text, self.encoder, self.sphere)

    def predict(self, frame: Frame) -> NDArray[Any]:
        """Return the class or value of each row; other columns than those of the fit are ignored."""
        return self._shifted(self.estimator.predict(self.objects(frame)))

    def predict_with_std(self, frame: Frame) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the mean and standard deviation of each row, for a Gaussian process."""
        if not isinstance(self.estimator, GaussianProcessRegressor):
            raise InputError(f"Only a Gaussian process says how sure it is; this is {type(self.estimator).__name__}.")
        mean, std = self.estimator.predict(self.objects(frame), return_std=True)
        return self._shifted(mean), std

    def report(self, path: Any, inspection: Any = None, **options: Any) -> Path:
        """Write a report of the model, and of an inspection of its data if given, as one HTML page."""
        from krein.report import write

        return write(path, inspection, self, **options)

    def _shifted(self, values: Any) -> NDArray[Any]:
        return np.asarray(values + self.offset if self.task == "regression" else values)


def learn(
    frame: Frame,
    target: str,
    *,
    task: str = "auto",
    machine: str = "auto",
    scale: str = "standard",
    folds: int = 5,
    random_state: int = 0,
    verbose: int = 0,
    progress: Callable[[str], Any] = lambda line: None,
    parameters: dict[str, Any] | None = None,
) -> Model:
    """Return a model of ``target``, scored by cross-validation and then fitted to all rows.

    Everything, including the scaling of columns, is learned from the training rows of each fold alone.

    Parameters
    ----------
    frame : Frame
    target : str
        Name or number of the target column.
    task : {"auto", "classification", "regression"}, default="auto"
    machine : {"auto", "svm", "ridge", "gp"}, default="auto"
    scale : {"standard", "minmax", "none"}, default="standard"
    folds : int, default=5
        Folds of the cross-validation; 0 for none.
    random_state : int, default=0
    verbose : int, default=0
        Whether to show progress bars.
    progress : callable, optional
        Called with a line of text after each fold.
    parameters : dict, optional
        Parameters of the estimator, such as kernel, C, alpha or max_memory. With kernel="auto" a table with text or
        missing values has the kernel with the best score of CANDIDATES, and any other "rbf".
    """
    one_of("task", task, TASKS)
    one_of("machine", machine, MACHINES)
    parameters = {"kernel": "rbf"} | (parameters or {}) | {"random_state": random_state, "verbose": verbose}
    target = frame.name_of(target)
    rest = frame.without([target])
    y, task = target_values(frame[target], target, task)
    classes = task == "classification"
    named = parameters["kernel"]
    check_scale(named, scale)
    text = text_column(rest, named)
    left_out: tuple[str, ...] = ()
    if text is None:
        rest, left_out = usable_columns(rest)
    if text is not None or named in TABLE_KERNELS:
        parameters["kernel"] = kernel_of_columns(named, parameters.pop("kernel_params", None) or {})
    elif named == "auto":
        parameters["kernel"] = "rbf"
    candidates: tuple[Any, ...] = (parameters["kernel"],)
    if named == "auto" and machine != "gp" and has_text_or_missing(rest):
        candidates = CANDIDATES
    estimator = machine_for(machine, classes, len(y), parameters)
    score, rule = ("accuracy", accuracy_score) if classes else ("R²", r2_score)

    def fitted_with(kernel: Any, rows: Any) -> Model:
        part = rest.take(rows)
        encoder = None
        if text is None:
            encoder = mixed_encoder_for(part) if isinstance(kernel, Gower) else encoder_for(part, scale)
            encoder = replace(encoder, notes=(*left_out, *encoder.notes))
        offset = 0.0 if classes else float(np.mean(y[rows]))
        own = clone(estimator).set_params(kernel=kernel)
        model = Model(own, target, task, text, encoder, named in SPHERE_KERNELS, offset, None)
        model.estimator.fit(model.objects(part), y[rows] if classes else y[rows] - offset)
        return model

    def fitted(rows: Any) -> Model:
        """The model of these rows, with the candidate that scores best on a sample of them."""
        if len(candidates) == 1:
            return fitted_with(candidates[0], rows)
        sample = np.random.default_rng(random_state).permutation(np.arange(len(y))[rows])[:CHOICE_ROWS]
        parts = [
            (sample[train], sample[test])
            for train, test in KFold(CHOICE_FOLDS).split(sample)
            if not classes or len(np.unique(y[sample[train]])) > 1
        ]
        with warnings.catch_warnings():  # what is to be said about the kernel that is taken, its fit says again
            warnings.simplefilter("ignore", KreinWarning)
            means = [
                float(np.mean([rule(y[test], fitted_with(k, train).predict(rest.take(test))) for train, test in parts]))
                for k in candidates
            ]
        model = fitted_with(candidates[int(np.argmax(means))], rows)
        assert model.encoder is not None
        told = ", ".join(f"{kernel!s} {mean:.4f}" for kernel, mean in zip(candidates, means, strict=True))
        note = f"kernel chosen by {score} on {len(sample)} rows: {told}"
        model.encoder = replace(model.encoder, notes=(*model.encoder.notes, note))
        return model

    begin = time.perf_counter()
    values, tested = [], 0
    splits = list(_splits(y, classes, folds, random_state))
    for train, test in progress_bar(splits, what="folds", verbose=verbose):
        predicted = fitted(train).predict(rest.take(test))
        values.append(float(rule(y[test], predicted)))
        tested += len(test)
        left = (time.perf_counter() - begin) / len(values) * (len(splits) + 1 - len(values))
        progress(f"part {len(values)} of {len(splits)} left out: {score} {values[-1]:.4f}, about {left:.0f} s to go")
    judged = time.perf_counter()
    model = fitted(slice(None))  # a slice gives views, positions would give copies
    if values:
        model.score = Score(score, tuple(values), tested, _baseline(y, classes))
    model.seconds = {"judging": judged - begin, "fitting": time.perf_counter() - judged}
    return model


def target_values(y: Column, target: str, task: str = "auto") -> tuple[NDArray[Any], str]:
    """Return the target as classes or numbers, and the task; "auto" takes text and few whole numbers for classes.

    Classes are text or whole numbers, so that predictions are spelled as in the file.
    """
    if len(y) < 2:
        raise InputError("The file holds a single row; to learn from it takes at least two.")
    absent = int(np.sum(y == "")) if is_text(y) else int(np.sum(~np.isfinite(y)))
    if absent:
        raise InputError(f"The target {target!r} is missing in {absent} of {len(y)} rows. Remove those rows first.")
    different = len(np.unique(y))
    if different < 2:
        raise InputError(f"The target {target!r} is the same in all {len(y)} rows: there is nothing to learn.")
    whole = not is_text(y) and bool(np.all((y == np.round(y)) & (np.abs(y) <= MAX_EXACT_INTEGER)))
    if task == "auto":
        task = "classification" if is_text(y) or (whole and different <= MAX_CLASSES) else "regression"
    if task == "classification":
        return (y.astype(np.int64) if whole else y.astype(str)), task
    if is_text(y):
        raise InputError(f"The target {target!r} holds text, which cannot be regressed on. Use --task classification.")
    return y, task


def text_column(frame: Frame, kernel: Any) -> str | None:
    """Return the only text column if the kernel compares texts, otherwise None."""
    if not isinstance(kernel, str) or kernel not in TEXT_KERNELS:
        return None
    found = [name for name, column in zip(frame.names, frame.columns, strict=True) if is_text(column)]
    if len(found) != 1:
        raise InputError(
            f"--kernel {kernel} compares texts, so the file must have one column of text beside the target; it has "
            f"{len(found)}{': ' + ', '.join(found) if found else ''}. Leave the others out with --drop."
        )
    return found[0]


def kernel_of_columns(name: str, settings: dict[str, Any]) -> Kernel:
    """Return the kernel on texts or mixed columns of this name with these parameters."""
    known = kernel_parameter_names(name)
    if unknown := [setting for setting in settings if setting not in known]:
        raise InputError(f"--kernel {name} takes {', '.join(known) or 'no parameters'}; got {', '.join(unknown)}.")
    return (TEXT_KERNELS | TABLE_KERNELS)[name](**settings)


def kernel_parameter_names(kernel: str) -> tuple[str, ...]:
    """Return the names of the parameters of a kernel."""
    if kernel in TABLE_KERNELS:
        return TABLE_KERNEL_PARAMETERS
    return tuple(f.name for f in fields((NAMES | TEXT_KERNELS)[kernel]) if f.init)  # type: ignore[arg-type]


def check_scale(kernel: Any, scale: str) -> None:
    """Refuse to scale columns for a kernel that compares them as they are."""
    if isinstance(kernel, str) and kernel in UNSCALED_KERNELS and scale != "none":
        raise InputError(
            f"The kernel {kernel!r} compares bits, counts, categories or degrees as they are, and scale={scale!r} "
            "would change them. Pass scale='none' (--scale none)."
        )


def comparable_objects(frame: Frame, text: str | None, encoder: Encoder | None, sphere: bool) -> Any:
    """Return the texts of a column, or the encoded rows, scaled to length 1 if ``sphere``."""
    if encoder is not None:
        X = encoder(frame)
        return unit_rows(X)[0] if sphere else X
    column = frame[text or frame.names[0]]
    if not is_text(column):
        raise InputError(f"The texts to compare are in column {text!r}, which here holds numbers.")
    return column.tolist()


def machine_for(machine: str, classes: bool, n: int, parameters: dict[str, Any]) -> Any:
    """Return the estimator that ``machine`` names, for n rows; a parameter that it does not have is an error."""
    if machine == "auto":
        machine = "svm" if classes and n <= MAX_SVM_ROWS else "ridge"
    made: dict[tuple[str, bool], Any] = {
        ("svm", True): SVC,
        ("ridge", True): KernelRidgeClassifier,
        ("ridge", False): KernelRidge,
        ("gp", False): GaussianProcessRegressor,
    }
    kind = made.get((machine, classes))
    if kind is None:
        fits = ", ".join(name for name, of in made if of == classes)
        raise InputError(f"--machine {machine} does not do {'classes' if classes else 'regression'}; use {fits}.")
    known = kind().get_params()
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise InputError(f"{kind.__name__} has no parameter {', '.join(unknown)}; it has {', '.join(sorted(known))}.")
    if machine == "ridge":
        parameters = {"alpha": "loo"} | parameters
    return kind(**parameters)


def _splits(y: NDArray[Any], classes: bool, folds: int, seed: int) -> Iterator[tuple[Any, Any]]:
    if folds == 1:
        raise InputError("folds must be 0, for none, or at least 2; with a single one there is nothing to learn from.")
    if folds == 0:
        return
    if classes:
        names, counts = np.unique(y, return_counts=True)
        asked, folds = folds, min(folds, int(counts.min()))
        if 2 <= folds < asked and len(y) <= MAX_FOLD_ROWS:
            warn(f"{folds} folds rather than {asked}: the class {names[counts.argmin()]} has {folds} rows.")
        if folds < 2:
            raise InputError(
                f"The class {names[counts.argmin()]} has a single row, so no part of it can be held out. Remove it, or "
                "use --folds 0."
            )
    rule: Any
    if len(y) > MAX_FOLD_ROWS:
        rule = (StratifiedShuffleSplit if classes else ShuffleSplit)(1, test_size=1 / folds, random_state=seed)
    else:
        rule = (StratifiedKFold if classes else KFold)(folds, shuffle=True, random_state=seed)
    yield from rule.split(y, y)


def _baseline(y: NDArray[Any], classes: bool) -> float:
    return float(np.unique(y, return_counts=True)[1].max() / len(y)) if classes else 0.0

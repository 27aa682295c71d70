"""From a file's columns to a judged and fitted machine, and from new rows to predictions.

In: a `Frame` and the name of its target. Out: a `Model`, which knows its columns by name, how it scored on rows it had
not seen, and how to predict the rows of another file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit
from tqdm import tqdm

from krein.errors import InputError, one_of, warn
from krein.estimators import SVC, GaussianProcessRegressor, KernelRidge, KernelRidgeClassifier
from krein.kernels import Alignment, EditSimilarity, JaroWinkler, Kernel, Spectrum
from krein.kernels.geometry import unit_rows
from krein.kernels.names import NAMES
from krein.tables.encoding import Categories, Encoder, encoder_for
from krein.tables.reading import Column, Frame, is_text, typed

__all__ = [
    "KERNELS",
    "MACHINES",
    "ON_SPHERE",
    "TASKS",
    "Model",
    "Score",
    "answers",
    "learn",
    "objects_of",
    "parameters_of",
    "spelled",
    "target_of",
    "text_column",
    "text_kernel",
]

TASKS = ("auto", "classification", "regression")
TARGETS = ("target", "label", "y", "class")  # a column of such a name is taken for the target without being named
MACHINES = ("auto", "svm", "ridge", "gp")
CLASSES = 20  # different whole numbers in a target up to which it is taken for classes
SVM_ROWS = 20_000  # beyond, "auto" takes the ridge classifier: as accurate, and its alpha costs nothing to find
EXACT = 2.0**53  # whole numbers up to here are told apart as float64
HELD_OUT = 100_000  # rows beyond which one part held out replaces the folds
ON_TEXT: dict[str, type[Kernel]] = {
    "edit": EditSimilarity,
    "jaro-winkler": JaroWinkler,
    "spectrum": Spectrum,
    "alignment": Alignment,
}  # kernels that compare texts
KERNELS = (*sorted(NAMES), *ON_TEXT)
ON_SPHERE = ("sphere-polynomial",)  # kernels that want rows of length 1


@dataclass(frozen=True)
class Score:
    """How a machine did on rows it had not seen."""

    name: str  # "accuracy" or "R²"
    values: tuple[float, ...]  # one per fold
    n_tested: int
    baseline: float  # the same of always answering the commonest class, or the mean

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def error(self) -> float | None:
        """The standard error of the mean: over folds, or of a share of the one part held out; one R² has none."""
        if len(self.values) > 1:
            return float(np.std(self.values, ddof=1) / math.sqrt(len(self.values)))
        return math.sqrt(self.mean * (1.0 - self.mean) / self.n_tested) if self.name == "accuracy" else None


@dataclass(eq=False)
class Model:
    """A fitted machine with the columns it was fitted on."""

    estimator: Any
    target: str
    task: str
    text: str | None  # the column whose texts are compared, or
    encoder: Encoder | None  # how the columns become numbers
    sphere: bool  # rows are brought to length 1
    offset: float  # what is added to every value: a kernel machine without intercept learns what is around it
    score: Score | None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns a file to predict must have."""
        if self.encoder is not None:
            return tuple(column.name for column in self.encoder.columns)
        return (self.text,) if self.text is not None else ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns to read as text, whatever the rows at hand look like; labels that are text too."""
        found = [c.name for c in self.encoder.columns if isinstance(c, Categories)] if self.encoder else [*self.columns]
        labels = getattr(self.estimator, "classes_", None)
        return (*found, self.target) if labels is not None and labels.dtype.kind not in "biuf" else tuple(found)

    def objects(self, frame: Frame) -> Any:
        """What the machine compares: rows of numbers, or a list of texts."""
        return objects_of(frame, self.text, self.encoder, self.sphere)

    def predict(self, frame: Frame) -> NDArray[Any]:
        """The class or value of each row; columns the model does not know are left alone."""
        return self._shifted(self.estimator.predict(self.objects(frame)))

    def predict_with_std(self, frame: Frame) -> tuple[NDArray[Any], NDArray[Any]]:
        """Mean and standard deviation, for a Gaussian process."""
        if not isinstance(self.estimator, GaussianProcessRegressor):
            raise InputError(f"Only a Gaussian process says how sure it is; this is {type(self.estimator).__name__}.")
        mean, std = self.estimator.predict(self.objects(frame), return_std=True)
        return self._shifted(mean), std

    def report(self, path: Any, inspection: Any = None, **options: Any) -> Path:
        """Write what is known of it as one HTML page (`krein.report.write`), and an inspection of its data if given."""
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
    say: Callable[[str], Any] = lambda line: None,
    parameters: dict[str, Any] | None = None,
) -> Model:
    """Return a model of ``target``, scored on rows held out and then fitted to all of them.

    ``parameters`` go to the machine: kernel, C, alpha, max_memory and so on. Everything, the scaling of columns
    included, is learned from the training rows of each fold alone. ``verbose`` shows bars, ``say`` is told of folds.
    """
    one_of("task", task, TASKS)
    one_of("machine", machine, MACHINES)
    parameters = {"kernel": "rbf"} | (parameters or {}) | {"random_state": random_state, "verbose": verbose}
    target = frame.name_of(target)
    rest = frame.without([target])
    y, task = answers(frame[target], target, task)
    classes = task == "classification"
    named = parameters["kernel"]
    text = text_column(rest, named)
    if text is not None:
        parameters["kernel"] = text_kernel(named, parameters.pop("kernel_params", None) or {})
    estimator = _machine(machine, classes, len(frame), parameters)

    def fitted(rows: Any) -> Model:
        part = rest.take(rows)
        encoder = None if text is not None else encoder_for(part, scale)
        offset = 0.0 if classes else float(np.mean(y[rows]))
        model = Model(clone(estimator), target, task, text, encoder, named in ON_SPHERE, offset, None)
        model.estimator.fit(model.objects(part), y[rows] if classes else y[rows] - offset)
        return model

    begin = time.perf_counter()
    values, tested, score = [], 0, "accuracy" if classes else "R²"
    splits = list(_splits(y, classes, folds, random_state))
    for train, test in tqdm(splits, desc="folds", disable=verbose <= 0, leave=False):
        predicted = fitted(train).predict(rest.take(test))
        values.append(float((accuracy_score if classes else r2_score)(y[test], predicted)))
        tested += len(test)
        left = (time.perf_counter() - begin) / len(values) * (len(splits) + 1 - len(values))
        say(f"part {len(values)} of {len(splits)} left out: {score} {values[-1]:.4f}, about {left:.0f} s to go")
    judged = time.perf_counter()
    model = fitted(slice(None))  # views, where positions would make copies
    if values:
        model.score = Score(score, tuple(values), tested, _baseline(y, classes))
    model.seconds = {"judging": judged - begin, "fitting": time.perf_counter() - judged}
    return model


def target_of(names: tuple[str, ...], asked: str | None) -> str | None:
    """The column that was asked for, or the only one with a target's usual name, if there is one."""
    usual = [name for name in names if name.lower() in TARGETS]
    return asked if asked is not None or len(usual) != 1 else usual[0]


def answers(y: Column, target: str, task: str = "auto") -> tuple[NDArray[Any], str]:
    """The target as classes or numbers, and which of the two: "auto" takes text and few whole numbers for classes.

    Classes are text or whole numbers, so that a prediction looks as the file does.
    """
    if len(y) < 2:
        raise InputError("The file holds a single row; to learn from it takes at least two.")
    absent = int(np.sum(y == "")) if is_text(y) else int(np.sum(~np.isfinite(y)))
    if absent:
        raise InputError(f"The target {target!r} is missing in {absent} of {len(y)} rows. Remove those rows first.")
    different = len(np.unique(y))
    if different < 2:
        raise InputError(f"The target {target!r} is the same in all {len(y)} rows: there is nothing to learn.")
    whole = not is_text(y) and bool(np.all((y == np.round(y)) & (np.abs(y) <= EXACT)))
    if task == "auto":
        task = "classification" if is_text(y) or (whole and different <= CLASSES) else "regression"
    if task == "classification":
        return (y.astype(np.int64) if whole else y.astype(str)), task
    if is_text(y):
        raise InputError(f"The target {target!r} holds text, which cannot be regressed on. Use --task classification.")
    return y, task


def spelled(y: Column, task: str) -> Column:
    """A target that was read as text, as numbers if it is some; classes such as 01 and 02 stay as they are written."""
    numbers = typed(y)
    if is_text(numbers) or not is_text(y):
        return y
    present = numbers[np.isfinite(numbers)]
    classes = task == "classification" or len(np.unique(present)) <= CLASSES
    padded = any(
        len(word.lstrip("+-")) > 1 and word.lstrip("+-").isdigit() and word.lstrip("+-")[0] == "0" for word in y
    )
    one_to_one = len(set(y.tolist()) - {""}) == len(np.unique(present))
    return y if classes and padded and one_to_one else numbers


def text_column(frame: Frame, kernel: Any) -> str | None:
    """The one column of text, where the kernel compares texts."""
    if not isinstance(kernel, str) or kernel not in ON_TEXT:
        return None
    found = [name for name, column in zip(frame.names, frame.columns, strict=True) if is_text(column)]
    if len(found) != 1:
        raise InputError(
            f"--kernel {kernel} compares texts, so the file must have one column of text beside the target; it has "
            f"{len(found)}{': ' + ', '.join(found) if found else ''}. Leave the others out with --drop."
        )
    return found[0]


def text_kernel(name: str, settings: dict[str, Any]) -> Kernel:
    """The kernel of this name on texts, with these parameters."""
    known = parameters_of(name)
    if unknown := [setting for setting in settings if setting not in known]:
        raise InputError(f"--kernel {name} takes {', '.join(known) or 'no parameters'}; got {', '.join(unknown)}.")
    return ON_TEXT[name](**settings)


def parameters_of(kernel: str) -> tuple[str, ...]:
    """The parameters of the kernel of this name."""
    return tuple(f.name for f in fields((NAMES | ON_TEXT)[kernel]) if f.init)  # type: ignore[arg-type]


def objects_of(frame: Frame, text: str | None, encoder: Encoder | None, sphere: bool) -> Any:
    """What is compared: the texts of a column, or the columns as rows of numbers, of length 1 if ``sphere``."""
    if encoder is not None:
        X = encoder(frame)
        return unit_rows(X)[0] if sphere else X
    column = frame[text or frame.names[0]]
    if not is_text(column):
        raise InputError(f"The texts to compare are in column {text!r}, which here holds numbers.")
    return column.tolist()


def _machine(machine: str, classes: bool, n: int, parameters: dict[str, Any]) -> Any:
    if machine == "auto":
        machine = "svm" if classes and n <= SVM_ROWS else "ridge"
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
        if 2 <= folds < asked and len(y) <= HELD_OUT:
            warn(f"{folds} folds rather than {asked}: the class {names[counts.argmin()]} has {folds} rows.")
        if folds < 2:
            raise InputError(
                f"The class {names[counts.argmin()]} has a single row, so no part of it can be held out. Remove it, or "
                "use --folds 0."
            )
    rule: Any
    if len(y) > HELD_OUT:
        rule = (StratifiedShuffleSplit if classes else ShuffleSplit)(1, test_size=1 / folds, random_state=seed)
    else:
        rule = (StratifiedKFold if classes else KFold)(folds, shuffle=True, random_state=seed)
    yield from rule.split(y, y)


def _baseline(y: NDArray[Any], classes: bool) -> float:
    return float(np.unique(y, return_counts=True)[1].max() / len(y)) if classes else 0.0

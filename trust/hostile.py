"""Hostile input: each case against every estimator and public function, at three sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from trust import cases, kernels, subjects
from trust.attacks import Attack, Tally, attempt, judged
from trust.cases import Case
from trust.subjects import Data, Subject

# Predictions are near the range of the targets if they leave it by no more than this multiple of its width.
MARGIN = 3.0
# Machines that look at the rows of the fit alone.
NO_NEW_ROWS = ("SpectralClustering", "SpectralEmbedding")
# Solutions that are known to fewer digits than a case asks for. The gap of a proxy's dual ends near 1e-10, and its
# solution is within the square root of that.
TOLERANCES = {"ProxySVC": 1e-4}
# Invariances that krein does not promise, with the reason.
NOT_PROMISED: dict[tuple[str, str], str] = {
    ("OneClassSVM", "rows of weight two are rows twice"): "nu is a share of the rows, as in scikit-learn",
    ("GaussianProcessRegressor", "kernel=None"): "the default",
    ("GaussianProcessClassifier", "kernel=None"): "the default",
    **{
        (name, case): "it predicts no new rows"
        for name in NO_NEW_ROWS
        for case in ("new rows of other length", "new rows with NaN")
    },
    **{
        ("GaussianProcessClassifier", case): "a matrix does not say how similar new rows are to themselves"
        for case in (
            "similarities in Fortran order",
            "big-endian similarities",
            "lists of similarities",
            "memory map of similarities",
        )
    },
    ("SpectralEmbedding", "rows in another order"): "what it returns are places of these rows, in their order",
    ("RandomFourierFeatures", "one row"): "features do not depend on other rows",
    ("SpectralClustering", "rows in another order"): "k-means starts elsewhere, and these rows have no clusters",
}

_known: dict[tuple[Any, ...], Any] = {}


def trial(subject: Subject, case: Case) -> str:
    """Attack one subject with one case and return the outcome."""
    plain, data = subjects.clean(), case.change(subjects.clean())
    if subject.kernel == "affinity" and "kernel" in data.params:
        data = replace(data, params={("affinity" if k == "kernel" else k): v for k, v in data.params.items()})
    ended = attempt(lambda: subject.use(data))
    return judged(ended, lambda found: right(subject, case, plain, data, found), case.own)


def right(subject: Subject, case: Case, plain: Data, data: Data, found: Any) -> bool:
    """Whether a result is that of the plain input, or where there is none, finite and near the targets."""
    if subject.size == "call":  # infinite values show, and whatever takes a kernel refuses them
        wanted = subjects.high_precision(
            subject.name, case.plain(plain) if _only_stored(case) else data
        )  # refuses them
        with np.errstate(all="ignore"):
            rounded = wanted.astype(np.float64)
        largest = np.abs(rounded[np.isfinite(rounded)]).max(initial=0.0)
        return bool((np.abs(found - rounded)[np.isfinite(found)] <= case.tol * largest).all())
    if not np.isfinite(found).all():
        return False
    compared = case.plain is not None and not (case.exact_only and subject.size != "exact")
    if compared:
        key = (subject.name, subject.size, case)
        if key not in _known:
            _known[key] = attempt(lambda: subject.use(case.plain(plain))).value
        wanted = _known[key]
        if wanted is None:
            return False
        spread = np.ptp(wanted) or np.abs(wanted).max() or 1.0
        return bool(
            np.abs(found.reshape(wanted.shape) - wanted).max()
            <= max(case.tol, TOLERANCES.get(subject.name, 0.0)) * spread
        )
    if subject.target != "reals":
        return True
    y = np.asarray(data.reals, dtype=np.float64)
    width = max(float(np.ptp(y)), float(np.abs(y).max()))
    return bool((found >= y.min() - MARGIN * width).all() and (found <= y.max() + MARGIN * width).all())


def _only_stored(case: Case) -> bool:
    """Whether the case changes how numbers are stored, and none of the numbers."""
    return case in cases.STORAGE or case.name == "numbers as text"


def holds(subject: Subject, case: Case) -> frozenset[str]:
    """The outcomes that hold. A kernel called by itself computes its formula; machines may refuse sparse rows."""
    more = {"right"} if subject.size == "call" else set()
    return case.holds | more | ({"error"} if not subject.sparse and case.name.startswith("sparse") else set())


def attacked(pairs: Iterable[tuple[Subject, Case]]) -> Tally:
    tally = Tally()
    for subject, case in pairs:
        if (subject.name, case.name) in NOT_PROMISED:
            continue
        outcome = trial(subject, case)
        tally.add(outcome in holds(subject, case), f"{subject.name} ({subject.size}), {case.name}: {outcome}")
    return tally


def thinned(pairs: list[tuple[Subject, Case]], quick: bool, every: int) -> list[tuple[Subject, Case]]:
    """All pairs, or in the short form one of ``every``, spread over subjects and cases."""
    return [pair for i, pair in enumerate(pairs) if i * 7919 % every == 0] if quick else pairs


def _group(name: str, group: tuple[Case, ...], chosen: Callable[[], list[Subject]], every: int = 60) -> Attack:
    def run(quick: bool) -> Tally:
        return attacked(thinned([(s, c) for s in chosen() for c in group], quick, every))

    def control(quick: bool) -> Tally:
        return attacked((subjects.unprotected(), c) for c in group)

    return Attack("hostile", name, run, control, "kernel ridge without checks")


def everything() -> list[Subject]:
    return [*subjects.machines(), *subjects.functions(), *subjects.kernels()]


def _with_target(*kinds: str) -> Callable[[], list[Subject]]:
    return lambda: [s for s in subjects.machines() if s.target in kinds]


def _parameters() -> Attack:
    def pairs(some: list[Subject]) -> list[tuple[Subject, Case]]:
        always = {"no_such_parameter"}
        return [(s, c) for s in some for name in cases.BAD_VALUES if name in s.params | always
                for c in cases.parameters(name)]  # fmt: skip

    def run(quick: bool) -> Tally:
        return attacked(thinned(pairs([*subjects.machines(), *subjects.functions()]), quick, 60))

    return Attack("hostile", "parameters out of range", run, lambda quick: attacked(pairs([subjects.unprotected()])),
                  "kernel ridge without checks")  # fmt: skip


def _takes_kernel() -> list[Subject]:
    return [s for s in (*subjects.machines(), *subjects.functions()) if s.kernel]


ATTACKS = (
    _group("missing and infinite numbers", cases.MISSING, everything),
    _group("shapes that are no matrix", cases.SHAPES, everything),
    _group("types that are no numbers", cases.TYPES, everything),
    _group("numbers stored in unusual ways", cases.STORAGE, everything, 90),
    _group("scales and offsets", cases.SCALES, everything, 90),
    _group("degenerate rows", cases.DEGENERATE, everything),
    _group("new rows", cases.NEW, lambda: [s for s in subjects.machines() if s.name not in NO_NEW_ROWS]),
    _group("targets", cases.TARGETS, _with_target("classes", "reals")),
    _group("labels", cases.LABELS, _with_target("classes"), 20),
    _group("targets of all sizes", cases.REALS, _with_target("reals"), 20),
    _group("weights", cases.WEIGHTS, lambda: [s for s in subjects.machines() if s.weights], 40),
    _parameters(),
    _group("similarities that break their promise", kernels.KERNELS, _takes_kernel, 60),
    _group("matrices of similarities", kernels.MATRICES, lambda: [s for s in subjects.machines() if s.kernel], 60),
)

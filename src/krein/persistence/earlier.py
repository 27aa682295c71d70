"""Fields of files in format 1, written before a fit had one route, as today's classes have them.

There every machine held an approximation, exact or not, and predicted through one class of expansion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.choosing.candidates import Candidate, Selection
from krein.errors import InputError
from krein.estimators.decision import FactoredExpansion, KernelExpansion
from krein.estimators.route import Given
from krein.kernels import PairFunction, count_objects
from krein.kernels.precomputed import GivenColumns

__all__ = ["EARLIER", "EarlierExpansion", "upgraded"]

# Fitted machines no longer have these attributes.
GONE = ("_direct", "_screened", "_rows", "_by_support", "_binding")


class EarlierExpansion:
    """The class "Expansion" of format 1: through the kernel where it had weights, else through the factorization."""

    @staticmethod
    def together(given: dict[str, Any]) -> KernelExpansion | FactoredExpansion:
        """Today's expansion for its fields."""
        a, weights = given.get("approximation"), given.get("weights")
        if not isinstance(a, Approximation) or not isinstance(given.get("inner"), np.ndarray):
            raise InputError("an Expansion lacks its approximation")
        if weights is None:
            return FactoredExpansion(a, given["inner"])
        support = given["support"]
        if not isinstance(weights, np.ndarray) or weights.ndim != 2 or count_objects(support) != len(weights):
            raise InputError("an Expansion has other weights than support")
        return KernelExpansion(a.kernel, support, weights)


def _trial(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Candidate` that was scored."""
    fields = {name: value for name, value in given.items() if name != "tie"}
    return fields | {"squared_error": -given["tie"]}


def _search(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Selection` by error, whose last candidate was built."""
    return given | {"best": len(given["tried"]) - 1}


def _choice(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Selection` by score."""
    shape = {name: given[name] for name in ("n_blocks", "rank", "drop", "dtype", "max_memory")}
    coupling = given.get("coupling")
    key = (given["n_blocks"], given["rank"], given["dtype"], given["drop"] == 0.0, given["kernel"])
    keys = [t.key for t in given["tried"]]
    return {name: given[name] for name in ("tried", "reason", "kernel", "n_scored", "seconds")} | {
        "best": keys.index(key) if key in keys else None,
        "parameters": shape | ({} if coupling is None else {"coupling": coupling}),
    }


# Classes of earlier files by their names: today's class, and its fields from theirs.
EARLIER: dict[str, tuple[type, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "Look": (Candidate, dict),
    "Trial": (Candidate, _trial),
    "Search": (Selection, _search),
    "Choice": (Selection, _choice),
    "Pairs": (PairFunction, dict),
}


def upgraded(given: dict[str, Any]) -> dict[str, Any]:
    """The state of a fitted machine of format 1 as it is today; any other is returned as it is."""
    if "approximation_" not in given:
        return given
    state = {name: value for name, value in given.items() if name not in (*GONE, "approximation_")}
    a = given["approximation_"]
    if not isinstance(a, Approximation):
        raise InputError(f"approximation_ cannot be a {type(a).__name__}")
    precomputed = isinstance(given.get("kernel"), str) and given["kernel"] == "precomputed"
    state["_approximation"], state["_n_rows"] = a, a.factorization.shape[0]
    state["_kernel"] = GivenColumns() if precomputed else a.kernel
    state.setdefault("_relative_error", None)
    state["route_"] = Given({}, "read from a file of format 1, which does not say")
    expansion = state.get("_expansion")
    if precomputed and isinstance(expansion, KernelExpansion):
        state["_expansion"] = KernelExpansion(GivenColumns(), expansion.support, expansion.weights)
    if "support_" in state:
        state["_places"] = _places(given, expansion)
    return state


def _places(given: dict[str, Any], expansion: Any) -> Any:
    """Where the support vectors stand among the objects of the expansion, which are in the order of the rows."""
    among = np.searchsorted(given["_rows"], given["support_"])
    if isinstance(expansion, KernelExpansion) and len(expansion.weights) == len(among):
        return np.searchsorted(np.sort(among), among)
    return among

"""The examples in the docstrings of kernels, factorizations, solvers, sources and machines run as they are written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

ROOMS = ("krein.kernels", "krein.factorization", "krein.solvers", "krein.sources", "krein.estimators")
MODULES = [
    found.name
    for room in ROOMS
    for found in pkgutil.iter_modules(importlib.import_module(room).__path__, prefix=f"{room}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0

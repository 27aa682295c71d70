"""What all tests share: hypothesis' settings, and the paper's data sets where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

import krein

# By default everybody's tests draw the same examples, with or without CI. `make fuzz` draws new ones at random; what it
# finds is mended and added to the test as an @example. No deadline: a busy machine is no failure.
COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("krein", max_examples=50, derandomize=True, database=None, **COMMON)
settings.register_profile(
    "fuzz",
    max_examples=200,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    **COMMON,
)
settings.load_profile("krein")  # pytest --hypothesis-profile=fuzz loads the other

NO_DATA = "set KREIN_DATA to the folder with the paper's data sets"


def _data_dir() -> Path | None:
    folder = os.environ.get("KREIN_DATA")
    return Path(folder) if folder and Path(folder).is_dir() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked ``data`` where there are no data, and ``clone`` where krein is an installed wheel."""
    skipped = {} if _data_dir() else {"data": NO_DATA}
    if not (Path(krein.__file__).resolve().parents[2] / "paper").is_dir():
        skipped["clone"] = "krein is installed, not a clone"
    for item in items:
        for marker, reason in skipped.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def data_dir() -> Path:
    """The folder with the paper's data sets; without one the test is skipped."""
    folder = _data_dir()
    if folder is None:
        pytest.skip(NO_DATA)
    return folder

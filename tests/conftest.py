"""What all tests share: hypothesis' settings, and the paper's data sets where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the first call of a BLAS routine, or a busy machine, is no failure. In CI the same examples every time.
settings.register_profile("krein", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("krein-ci", settings.get_profile("krein"), derandomize=True, print_blob=True)
settings.load_profile("krein-ci" if os.environ.get("CI") else "krein")

NO_DATA = "set KREIN_DATA to the folder with the paper's data sets"


def _data_dir() -> Path | None:
    folder = os.environ.get("KREIN_DATA")
    return Path(folder) if folder and Path(folder).is_dir() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked ``data`` where there are no data."""
    if _data_dir() is None:
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(pytest.mark.skip(reason=NO_DATA))


@pytest.fixture
def data_dir() -> Path:
    """The folder with the paper's data sets; without one the test is skipped."""
    folder = _data_dir()
    if folder is None:
        pytest.skip(NO_DATA)
    return folder

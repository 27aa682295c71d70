"""krein reproduce: the command of `paper/`, which is in the repository but not in the installed package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

import krein

__all__ = ["command"]


@click.command("reproduce", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1)
def _missing(arguments: tuple[str, ...]) -> None:
    """Make the tables and figures of the paper again, beside the published ones. Needs a clone of the project."""
    raise ValueError(
        "The paper's experiments are part of the project's repository, not of the installed package. Clone it, and "
        "run krein reproduce or python -m paper there."
    )


def _found() -> click.Command:
    root = Path(krein.__file__).resolve().parents[2]
    if not (root / "paper" / "command.py").is_file():
        return _missing
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))  # before any installed package named `paper` or `benchmarks`
    found: click.Command = import_module("paper.command").command
    return found


command = _found()

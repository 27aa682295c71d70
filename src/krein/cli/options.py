"""Options that several commands share, and the functions that check and convert them."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from krein.cli.choices import FORMATS, KERNELS, SCALES, TASKS
from krein.errors import InputError, KreinWarning

if TYPE_CHECKING:  # loaded where they are used: see krein.cli
    from krein.tables.model import Model
    from krein.tables.reading import Frame

__all__ = [
    "AS_JSON",
    "FORMAT",
    "SEED",
    "check_writable",
    "collected_warnings",
    "default_kernel",
    "kernel_options",
    "kernel_parameters",
    "load_model",
    "parse_bytes",
    "parse_settings",
    "rounded",
    "table_options",
    "unused_columns",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


def parse_bytes(_context: Any, parameter: click.Parameter, value: str | None) -> float | None:
    """Return 500MB, 2GiB or 1e9 as a number."""
    from krein.pieces.opening import bytes_from

    return bytes_from(value, parameter.opts[0])


def parse_names(_context: Any, _parameter: Any, values: tuple[str, ...]) -> list[str]:
    """Return the names of columns, of which each value may hold several."""
    return [name for value in values for name in value.split(",") if name]


def parse_settings(_context: Any, _parameter: Any, values: tuple[str, ...]) -> dict[str, Any]:
    """Return NAME=VALUE options as a dictionary; a value is a number, true, false, none or a word."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{value!r} must be of the form name=value.")
        found[name] = parse_value(None, None, text)
    return found


def parse_value(_context: Any, _parameter: Any, value: str | None) -> Any:
    """Return a number, True, False or None, otherwise the word itself."""
    if value is None:
        return None
    word = value.strip().lower()
    if word in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return value.strip()


FORMAT = click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="Format of DATA, by default that of its extension."
)
SEED = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Seed of the random numbers."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


def table_options(target: str) -> Callable[[F], F]:
    """Return the options that choose columns of DATA; ``target`` is the help text of --target."""
    usual = "by default the column 'target', 'label', 'y' or 'class'."
    return _all(
        click.option("--target", metavar="COLUMN", help=f"{target}: its name, or its number from 0 (-1: the last); "
                     f"{usual}"),
        click.option("--drop", callback=parse_names, multiple=True, metavar="COLUMN",
                     help="Column to leave out; may be given several times, or comma-separated."),
        FORMAT,
        click.option("--task", type=click.Choice(TASKS), default="auto", show_default=True,
                     help="auto: text and at most 20 different whole numbers are classes."),
        click.option("--scale", type=click.Choice(SCALES), default="standard", show_default=True,
                     help="Scale numbers to mean 0 and standard deviation 1, to [0, 1], or not."),
    )  # fmt: skip


def kernel_options(gamma: str, *more: str) -> Callable[[F], F]:
    """Return the options of the kernel; ``gamma`` is the help text of --gamma, ``more`` are further kernel names."""
    names = (*KERNELS, *more)
    matrix = " precomputed: DATA is a square matrix." if "precomputed" in more else ""
    return _all(
        click.option("--kernel", type=click.Choice(names), metavar="NAME",
                     help=f"One of {', '.join(names)}; by default rbf, or edit for a text file.{matrix}"),
        click.option("--gamma", callback=parse_value, metavar="VALUE", help=gamma),
        click.option("--degree", type=float, help="Degree of a polynomial kernel."),
        click.option("--coef0", type=float, help="Constant term of a polynomial or sigmoid kernel."),
        click.option("-k", "--kernel-param", callback=parse_settings, multiple=True, metavar="NAME=VALUE",
                     help="Further parameter of the kernel, such as rho=3."),
    )  # fmt: skip


def _all(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def default_kernel(kernel: str | None, kind: str, usual: str = "rbf") -> tuple[str, tuple[str, ...]]:
    """Return the kernel of --kernel, or the default for this file format, with notes about that choice."""
    if kernel is None and kind == "text":  # as categories no new text would be like any other
        return "edit", ("texts are compared by --kernel edit, as none was named",)
    return kernel or usual, ()


def unused_columns(frame: Frame, text: str | None, kernel: str) -> tuple[str, ...]:
    """Return notes about the columns that a kernel on texts does not compare."""
    others = [name for name in frame.names if name != text]
    if text is None or not others:
        return ()
    shown = ", ".join(others[:5]) + " ..." * (len(others) > 5)
    return (f"{shown}: not used, --kernel {kernel} compares the texts of {text!r} alone",)


def kernel_parameters(
    kernel: str, gamma: Any, degree: float | None, coef0: float | None, further: dict[str, Any]
) -> dict[str, Any]:
    """Return gamma and kernel_params for the estimator; an option that the kernel does not have is an error."""
    from krein.tables.model import kernel_parameter_names

    options = {"gamma": gamma, "degree": degree, "coef0": coef0}
    given = {name: value for name, value in options.items() if value is not None}
    known = () if kernel in ("precomputed", "auto") else kernel_parameter_names(kernel)
    if wrong := [name for name in (*given, *further) if name not in known]:
        raise InputError(
            f"--kernel {kernel} has no {', '.join(wrong)}; it takes {', '.join(known) or 'no parameters'}."
        )
    found: dict[str, Any] = {} if gamma is None else {"gamma": gamma}
    params = {name: value for name, value in given.items() if name != "gamma"} | further
    return found | ({"kernel_params": params} if params else {})


def load_model(path: Path) -> Model:
    """Return the model that krein fit wrote to ``path``."""
    from krein.persistence import load
    from krein.tables.model import Model

    if not path.is_file():
        raise InputError(f"{path} is not a file.")
    found = load(path)
    if not isinstance(found, Model):
        raise InputError(f"{path} holds a {type(found).__name__}, which knows no columns; use krein.load in Python.")
    return found


def check_writable(path: Path | None, *sources: Path, suffix: str = "", what: str = "model file") -> None:
    """Raise InputError before any work is done if the file cannot be written or is one of the ``sources``."""
    if path is None:
        return
    if any(path.exists() and source.exists() and path.samefile(source) for source in sources):
        raise InputError(f"{path} is read, so it cannot be written as well. Give another name.")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}. Make it first.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: it is read-only, or its folder is. Give another place.")
    if not path.name.endswith(suffix):
        raise InputError(f"A {what}'s name ends in {suffix}; got {path.name}. Call it {path.name}{suffix}.")


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of krein in a list, which is filled when the block has ended.

    Of warnings that differ only in their numbers, such as one per fold, the last is kept: it is about the final model.
    """
    collected: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KreinWarning)
        yield collected
    messages = [str(w.message) for w in caught if issubclass(w.category, KreinWarning)]
    collected += {re.sub(r"'\w*'|[-+\d.e]+", "", text): text for text in messages}.values()


def rounded(text: str) -> str:
    """Return the text with its decimal numbers rounded to four digits."""
    return re.sub(r"\d+\.\d+(e-?\d+)?", lambda found: f"{float(found[0]):.4g}", text)

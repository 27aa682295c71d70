"""The command line: each command parses its options, calls one public function and prints one value.

A user error (any ValueError, or a file that cannot be read or written) is one sentence and exit code 2. Unfinished work
is exit code 1, Ctrl-C is 130. Each command is a module of this package and is loaded when it is called. A command
imports NumPy and scikit-learn inside its function, so that help and completion do not wait for them.

`options` holds the options that several commands share, and `choices` the values they may take.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

import krein

__all__ = ["main"]

COMMANDS = {
    "demo": "Show what krein does on small data, in under a minute.",
    "fit": "Fit a model to a file, score it and save it.",
    "predict": "Predict the rows of a file with a saved model.",
    "inspect": "Measure how indefinite a kernel is and what a fit would cost.",
    "reproduce": "Make the tables and figures of the paper again.",
}


class Mistake(click.ClickException):
    """A user error: one line on stderr, without a traceback."""

    exit_code = 2


class Unfinished(click.ClickException):
    """Some of the work failed; what was done is kept."""

    exit_code = 1


class Stopped(click.ClickException):
    """The user pressed Ctrl-C."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(f"\n{self.message}", file=file, err=True)


class Commands(click.Group):
    """A group that loads its commands by name and turns user errors into one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"krein.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `krein predict ... | head`: click ends quietly
            raise
        except KeyboardInterrupt:
            raise Stopped("Stopped before the end, by Ctrl-C.") from None
        except (ValueError, OSError, ImportError) as error:
            if isinstance(error, ImportError) and not isinstance(error, krein.KreinError):
                raise
            words = " ".join(str(error).split()) or type(error).__name__
            raise Mistake("".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(krein.__version__, prog_name="krein")
def main() -> None:
    """Kernel methods for any symmetric similarity, on data too large for an n x n matrix.

    \b
    Start here:
      krein demo                                   what it does, on small data
      krein fit digits.csv --target label          a model of a table
      krein predict digits.krein new.csv           its predictions
      krein COMMAND --help                         options and examples

    Completion of commands and options: eval "$(_KREIN_COMPLETE=bash_source krein)", or zsh_source, fish_source.
    """

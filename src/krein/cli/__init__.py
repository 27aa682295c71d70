"""The command line: words in, one public function called, one value printed.

A mistake of the user's (any ValueError, or a file that cannot be read or written) is one sentence and exit code 2; work
that could not be finished is exit code 1, Ctrl-C 130. Each command is a module of this room, loaded when it is asked
for; what it needs to do its work it imports in its body, as scikit-learn takes seconds, for which help and completion
need not wait.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

import krein

__all__ = ["main"]

COMMANDS = {
    "demo": "Show on small data what krein does; under a minute.",
    "fit": "Learn from a file, judge the model, save it.",
    "predict": "Apply a saved model to a file.",
    "inspect": "How indefinite is a similarity, and what would it cost?",
    "reproduce": "Make the paper's tables and figures, theirs and ours.",
    "bench": "Time krein beside scikit-learn on this machine.",
}


class Mistake(click.ClickException):
    """Said in one line on stderr, without a traceback."""

    exit_code = 2


class Unfinished(click.ClickException):
    """Some of the work failed; what was done is kept."""

    exit_code = 1


class Stopped(click.ClickException):
    """Ctrl-C: not a failure, and not finished."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(f"\n{self.message}", file=file, err=True)


class Commands(click.Group):
    """A group whose commands are loaded by name and may raise what a user can put right."""

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
            raise Mistake(" ".join(str(error).split()) or type(error).__name__) from error


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

"""Declaration of a command on data: examples in its help, its messages and its exit status."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

import typer

from gleanery.cli.data.failures import CommandFailed, to_failure
from gleanery.cli.data.output import printable
from gleanery.client.errors import ClientError
from gleanery.common.errors import SettingsError

INTERRUPTED = 130
"""Exit status after Ctrl-C, as of every command that a shell starts."""

Command = Callable[..., None]


def data_command(
    app: typer.Typer, name: str, *, examples: Sequence[str]
) -> Callable[[Command], Command]:
    """Add a function to the commands of an app.

    Its errors become one sentence and an exit status: 1 for a failure, 2 for an error of the
    user, 130 for Ctrl-C.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> None:
            try:
                command(**values)
                sys.stdout.flush()  # reports a full disk or a closed pipe here, not at the exit
            except BrokenPipeError:  # the reader, such as head, has enough
                _discard_output()
                raise typer.Exit(1) from None
            except (ClientError, CommandFailed, SettingsError, OSError) as error:
                failure = to_failure(error)
                _fail(str(failure), failure.status)
            except (KeyboardInterrupt, typer.Abort):
                _fail("interrupted", INTERRUPTED)

        app.command(name, help=_help(command), epilog=epilog(examples))(run)
        return command

    return decorate


def _help(command: Command) -> str:
    """Return the docstring with one line per paragraph: the terminal decides where lines end."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def epilog(examples: Sequence[str]) -> str:
    """Return the end of a help text."""
    return "\n".join(["Examples:", *(f"$ {example}" for example in examples)])


def _fail(message: str, status: int) -> None:
    """Print why the command ends, and end it."""
    with suppress(OSError):  # nobody reads standard error
        typer.echo(f"gleanery: {printable(message)}", err=True)
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    raise typer.Exit(status)


def _discard_output() -> None:
    """Let the output that cannot be written go to the null device.

    Python writes it again at its exit, and would report the error a second time.
    """
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), sys.stdout.fileno())

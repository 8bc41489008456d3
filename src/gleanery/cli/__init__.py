"""The ``gleanery`` command: which room has which of its commands, and how it ends."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from gleanery import __version__
from gleanery.errors import GleaneryError, SettingsError

COMMAND_MODULES = {
    "serve": "serve",
    "demo": "demo",
    "migrate": "serve",
    "backup": "backups",
    "restore": "backups",
    "restored": "backups",
    "token": "tokens",
    "keys": "keys",
}


class _Commands(TyperGroup):
    """Opens a room when it is asked for: serve need not wait for what draws tables."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMAND_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMAND_MODULES:
            return None
        room = import_module(f"gleanery.cli.{COMMAND_MODULES[cmd_name]}")
        return get_group(room.app).commands[cmd_name]


app = typer.Typer(
    name="gleanery",
    cls=_Commands,
    help="A self-hosted data service for web scraping.\n\n"
    "Every option is also an environment variable, GLEANERY_…, as shown beside it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def gleanery(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_tell_version),
    ] = False,
) -> None:
    """What comes before a command's name."""


def main() -> None:
    """The command; what the user must mend is one sentence, not a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave in order, as on Ctrl-C
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        app()
    except (SettingsError, GleaneryError, OSError) as error:
        typer.echo(f"gleanery: {_words_of(error)}", err=True)
        sys.exit(2)


def _words_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)

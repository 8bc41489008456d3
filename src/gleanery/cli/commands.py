"""Table of commands, and the group that imports the module of a command on use."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import click

from gleanery.cli.declaration import CommandGroup
from gleanery.common.errors import SettingsError


class Row(NamedTuple):
    """Command of the table."""

    module: str
    summary: str
    """First sentence of the command's help, which is known without an import of the module."""


INTERRUPTED = 130
"""Exit status after Ctrl-C, as of every command that a shell starts."""
DATA_COMMANDS = {
    "login": Row(
        "connection", "Store the address of a service and a token for the other commands."
    ),
    "logout": Row("connection", "Remove the address and the token that gleanery login has stored."),
    "groups": Row("browse", "List the groups, or the jobs of one group."),
    "group": Row("groups", "Show and change the settings of a group."),
    "push": Row(
        "push",
        "Store the items of a file, or of a pipe, in a group. Items that are stored already stay.",
    ),
    "run": Row("runs", "Start, finish, list and show runs of jobs, and run a program in one."),
    "pull": Row(
        "pull", "Write all changes of a group into files. Run it again to get only the new ones."
    ),
    "export": Row(
        "export",
        "Write the outputs of a group to a file, each once. The file appears when it is complete.",
    ),
    "history": Row(
        "browse",
        "List the versions of an output, newest first, with the fields that each has changed.",
    ),
    "fields": Row(
        "browse",
        "Show how often each field is filled, with which values, and where that has changed.",
    ),
    "reviews": Row("reviews", "List the latest review of each job of a group, or show one review."),
    "sample": Row("reviews", "List outputs of a job for a review, each with a reason."),
    "approve": Row("reviews", "Approve the present outputs of a job, or give another review."),
    "reject": Row("reviews", "Reject the present outputs of a job, or request changes."),
    "open": Row("browse", "Open the page of a group in the console, in a browser."),
    "sessions": Row(
        "sessions", "List, import, export, delete and lease the logins that scrapers use."
    ),
    "check": Row(
        "alerts",
        "Exit with 1 if a group or a job has open alerts, and print a sentence for each.",
    ),
    "alerts": Row(
        "alerts", "List, show, acknowledge, mute and accept alerts about the runs of jobs."
    ),
    "monitors": Row(
        "monitors", "Show, set and suggest the rules that the runs of a group must keep."
    ),
    "webhooks": Row(
        "webhooks", "Create, list, change, test and delete webhooks, and show their deliveries."
    ),
}
SERVICE_COMMANDS = {
    "serve": Row(
        "serve", "Run the service on SQLite under --data, or on PostgreSQL with --database."
    ),
    "demo": Row(
        "serve",
        "Run the service with a sample organization, and print a token and commands to try.",
    ),
    "migrate": Row(
        "serve", "Update the database schema. The command serve does this at its start."
    ),
    "backup": Row(
        "maintenance", "Copy the SQLite database and its files into FILE while the service runs."
    ),
    "restore": Row(
        "maintenance",
        "Restore a backup into a folder without a database. Clients then sync everything again.",
    ),
    "restored": Row(
        "maintenance",
        "Prepare a database that another tool has restored; gleanery restore does this itself.",
    ),
    "compact": Row(
        "maintenance",
        "Give the unused space in the SQLite database back to the disk, while the service runs.",
    ),
    "token": Row("organizations", "Create, list and revoke access tokens."),
    "organization": Row("organizations", "List, rename and delete organizations."),
    "usage": Row(
        "organizations",
        "Show the requests, the bytes, the outputs and the stored bytes of each organization.",
    ),
    "keys": Row(
        "maintenance",
        "List, rotate, retire and forget the keys that encrypt cookie and local-storage values.",
    ),
}
SERVER_MODULES = frozenset(
    [
        "apsw",
        "asyncpg",
        "backports",
        "cryptography",
        "deflate",
        "httptools",
        "jsonschema_rs",
        "limits",
        "obstore",
        "orjson",
        "puremagic",
        "pycountry",
        "pydantic",
        "pydantic_core",
        "typing_extensions",
        "uvloop",
    ]
)
"""Modules of the packages in the extra ``server``."""


class LazyCommands(CommandGroup):
    """Lists commands from the table. Imports the module of a command when the command runs.

    So ``serve`` starts faster, and the help needs nothing of the service.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*DATA_COMMANDS, *SERVICE_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command as the help lists it; ``resolve_command`` returns the real one."""
        row = (DATA_COMMANDS | SERVICE_COMMANDS).get(cmd_name)
        return None if row is None else click.Command(cmd_name, help=row.summary)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        try:
            return name, listed and load(str(name)), rest
        except MissingService:
            if not ctx.resilient_parsing:  # while the shell completes, no message appears
                raise
            return name, listed, rest

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        found = super().sections(ctx)
        del found["Commands"]
        for title, rows in (("Data", DATA_COMMANDS), ("Service", SERVICE_COMMANDS)):
            found[title] = [(name, row.summary) for name, row in rows.items()]
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


class MissingService(SettingsError):
    """The command needs packages of the extra ``server``, or another system."""


def load(name: str) -> click.Command:
    """Import the module of a command, and return the command. Raises MissingService."""
    if name in DATA_COMMANDS:
        module = import_module(f"gleanery.cli.data.{DATA_COMMANDS[name].module}")
    else:
        module = _service_module(name)
    app: CommandGroup = module.app
    return app.commands[name]


def _service_module(name: str) -> ModuleType:
    if sys.platform == "win32":
        raise MissingService(f"{name} needs Linux or macOS: the service does not run on Windows")
    try:
        return import_module(f"gleanery.cli.service.{SERVICE_COMMANDS[name].module}")
    except ModuleNotFoundError as error:
        if error.name not in SERVER_MODULES:
            raise
        advice = "pip install 'gleanery[server]'"
        raise MissingService(f"{name} needs the service: {advice}") from None

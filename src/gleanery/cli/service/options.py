"""Command-line options, generated from the settings table.

Each option is also an environment variable, except confirmations.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from gleanery.setting_rows import Setting
from gleanery.settings import Settings, table

Command = Callable[..., None]
_WITH_DATABASE = ("pooling", "listen_database")


def option(name: str, help_: str) -> Any:
    """Declare an option that belongs to one command and is not a setting."""
    variable = f"GLEANERY_{name.upper().replace('-', '_')}"
    return typer.Option(f"--{name}", envvar=variable, help=help_)


def confirmation(name: str, help_: str) -> Any:
    """Declare an option that confirms a step. It has no variable, which could confirm others."""
    return typer.Option(f"--{name}", help=help_)


def settings_options(*names: str) -> Callable[[Command], Command]:
    """Give a command an option for each named setting; it receives them as ``settings``."""
    by_name = {row.name: row for row in table()}
    if "database" in names:  # or the command would fail behind a transaction pooler
        names = tuple(dict.fromkeys((*names, *_WITH_DATABASE)))
    rows = [by_name[name] for name in names]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> None:
            given = {row.name: values.pop(row.name) for row in rows}
            chosen = {row.name: _value(row, given[row.name]) for row in rows}
            command(settings=Settings(**chosen, secret_key=secret_key()), **values)

        run.__signature__ = _signature(command, rows)  # type: ignore[attr-defined]
        return run

    return decorate


def all_settings_options() -> Callable[[Command], Command]:
    """Give a command an option for every setting that has one."""
    return settings_options(*(row.name for row in table() if row.has_option))


def _signature(command: Command, rows: list[Setting]) -> Any:
    """Signature that Typer reads: the command's own parameters, then the settings."""
    command_signature = signature(command, eval_str=True)
    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in command_signature.parameters.values()
        if parameter.name != "settings"
    ]
    return command_signature.replace(parameters=[*parameters, *map(_parameter, rows)])


def _parameter(row: Setting) -> Parameter:
    rule = f" Must be {row.check.rule}." if row.check is not None else ""
    declaration = typer.Option(row.option, envvar=row.variable, help=row.help + rule)
    type_, default = (list[str], [*row.default]) if row.is_list else (row.type, row.default)
    return Parameter(
        row.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[type_, declaration],
    )


def _value(row: Setting, value: Any) -> Any:
    return tuple(value) if row.is_list else value


def secret_key() -> str | None:
    """Read the key from the environment: an option would show it in the process list."""
    return os.environ.get("GLEANERY_SECRET_KEY")

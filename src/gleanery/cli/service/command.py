"""What the commands of the service share: options, checks of names, and the database.

The options are generated from the settings table. Each one is also an environment variable, except
confirmations.
"""

from __future__ import annotations

import asyncio
import os
import unicodedata
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar

import click

from gleanery.cli.declaration import Option
from gleanery.common.errors import SettingsError
from gleanery.common.setting_rows import Setting
from gleanery.common.settings import Settings, table
from gleanery.service.storage.database import Engine
from gleanery.service.storage.engines import open_engine

Command = Callable[..., None]
_WITH_DATABASE = ("pooling", "listen_database")
T = TypeVar("T")
_MAX_LENGTH = 200
_UNPRINTABLE = "Cc"  # the category of control characters


def option(name: str, help_: str) -> Any:
    """Declare an option that belongs to one command and is not a setting."""
    variable = f"GLEANERY_{name.upper().replace('-', '_')}"
    return Option(f"--{name}", envvar=variable, help=help_)


def confirmation(name: str, help_: str) -> Any:
    """Declare an option that confirms a step. It has no variable, which could confirm others."""
    return Option(f"--{name}", help=help_)


def settings_options(*names: str) -> Callable[[Command], Command]:
    """Give a command an option for each named setting; it receives them as ``settings``."""
    by_name = {row.name: row for row in table()}
    if "database" in names:  # or the command would fail behind a transaction pooler
        names = tuple(dict.fromkeys((*names, *_WITH_DATABASE)))
    rows = [by_name[name] for name in names]
    has_mail = "smtp_username" in names

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> None:
            given = {row.name: values.pop(row.name) for row in rows}
            chosen = {row.name: _value(row, given[row.name]) for row in rows}
            secrets: dict[str, Any] = {"secret_key": _secret("SECRET_KEY")}
            if has_mail:
                secrets["smtp_password"] = _secret("SMTP_PASSWORD")
            command(settings=Settings(**chosen, **secrets), **values)

        run.__signature__ = _signature(command, rows)  # type: ignore[attr-defined]
        return run

    return decorate


def all_settings_options() -> Callable[[Command], Command]:
    """Give a command an option for every setting that has one."""
    return settings_options(*(row.name for row in table() if row.has_option))


def _signature(command: Command, rows: list[Setting]) -> Any:
    """Signature that a declaration reads: the command's own parameters, then the settings."""
    command_signature = signature(command, eval_str=True)
    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for parameter in command_signature.parameters.values()
        if parameter.name != "settings"
    ]
    return command_signature.replace(parameters=[*parameters, *map(_parameter, rows)])


def _parameter(row: Setting) -> Parameter:
    rule = f" Must be {row.check.rule}." if row.check is not None else ""
    declaration = Option(row.option, envvar=row.variable, help=row.help + rule)
    type_, default = (list[str], [*row.default]) if row.is_list else (row.type, row.default)
    return Parameter(
        row.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[type_, declaration],
    )


def _value(row: Setting, value: Any) -> Any:
    return tuple(value) if row.is_list else value


def _secret(name: str) -> str | None:
    """Read a secret from the environment: an option would show it in the process list."""
    return os.environ.get(f"GLEANERY_{name}")


def with_database(
    settings: Settings,
    work: Callable[[Engine], Coroutine[Any, Any, T]],
    create: bool = False,
    migrate: bool = False,
) -> T:
    """Run the work on a database with this program's schema.

    Only ``create`` allows a new database. Only ``migrate`` updates the schema of an existing one:
    an older service may be running on it.
    """

    async def prepare_and_work(database: Engine) -> T:
        if migrate or (create and (await database.schema_state()).number == 0):
            await database.migrate()
        else:
            await database.check_schema()
        return await work(database)

    return with_any_schema(settings, prepare_and_work, create)


def with_any_schema(
    settings: Settings, work: Callable[[Engine], Coroutine[Any, Any, T]], create: bool = False
) -> T:
    """Run the work on a database with any schema. Only ``create`` allows a new database."""
    is_new = settings.database is None and not settings.sqlite_file.exists()

    async def run() -> T:
        async with open_engine(settings, create) as database:
            return await work(database)

    result = asyncio.run(run())
    if is_new:
        click.echo(f"Created a new database in {settings.data.absolute()}", err=True)
    return result


def check_name(option: str, name: str, max_length: int = _MAX_LENGTH) -> None:
    """Raise SettingsError unless the name can be stored and shown in one line."""
    is_printable = not any(unicodedata.category(letter) == _UNPRINTABLE for letter in name)
    if not name or name != name.strip() or len(name) > max_length or not is_printable:
        raise SettingsError(
            f"{option} must be a name of 1 to {max_length} characters, without control "
            "characters, and without spaces at its start or end"
        )

"""The database that the options of a command name, opened for its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import typer

from gleanery.cli.options import secret_key
from gleanery.errors import SettingsError
from gleanery.settings import Settings
from gleanery.storage.database import Engine
from gleanery.storage.engines import opened

T = TypeVar("T")


def where(data: Path, database: str | None) -> Settings:
    return Settings(data=data, database=database, secret_key=secret_key())


def with_database(
    data: Path,
    url: str | None,
    work: Callable[[Engine], Coroutine[Any, Any, T]],
    create: bool = False,
) -> T:
    """Runs the work on the database that the options name. None of it needs the secret key."""
    settings = where(data, url)
    is_new = url is None and not settings.sqlite_file.exists()
    if is_new and not create:
        must_exist(settings)

    async def run() -> T:
        async with opened(settings) as database:
            await database.migrate()
            return await work(database)

    result = asyncio.run(run())
    if is_new:
        typer.echo(f"Made a new database in {settings.data.absolute()}", err=True)
    return result


def must_exist(settings: Settings) -> None:
    if not settings.sqlite_file.exists():
        raise SettingsError(
            f"There is no database in {settings.data.absolute()}: give --data (or GLEANERY_DATA), "
            "the folder that serve uses"
        )

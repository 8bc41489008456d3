"""``gleanery usage``: what each organization has sent, received and stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from gleanery.cli.service.database import with_database
from gleanery.cli.service.options import option, settings_options
from gleanery.cli.terminal import print_table
from gleanery.settings import Settings
from gleanery.storage import organizations, usage
from gleanery.storage.database import Database, Engine
from gleanery.storage.maintenance import storage_bytes
from gleanery.values import timestamps

app = typer.Typer()

_COLUMNS = ("ID", "Organization", "Requests", "Bytes in", "Bytes out", "Outputs stored")
_STORAGE_COLUMNS = ("Database bytes", "File bytes", "Measured on")
_STORAGE_KEYS = ("database_bytes", "file_bytes", "measured_on")
_SUMS = usage.DayUsage._fields[1:]


@app.command("usage")
@settings_options("data", "database")
def show_usage(
    settings: Settings,
    organization: Annotated[
        str | None, option("organization", "Name of one organization; without it, show all.")
    ] = None,
    days: Annotated[
        int,
        typer.Option("--days", min=1, max=usage.KEPT_DAYS, help="Days to add up, with today."),
    ] = 30,
    storage: Annotated[
        bool,
        typer.Option("--storage", help="Measure the stored bytes now. This reads every row."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Show the requests, the bytes, the outputs and the stored bytes of each organization.

    The services store these numbers about once a minute. They measure the stored bytes once an hour
    to once a day, which depends on their number. Days are days in UTC. Example:
    gleanery usage --days 7 --json
    """
    work = partial(_read, organization, timestamps.now() // usage.DAY - days + 1, storage)
    found = with_database(settings, work)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        print_table(_table(found))


async def _read(
    name: str | None, first_day: int, with_storage: bool, engine: Engine
) -> list[dict[str, Any]]:
    """Return the usage of one organization, or of all, as the command prints it as JSON."""
    if name is not None:
        await organizations.find(engine, name)  # raises NotFound
    return [
        await _read_one(engine, id_, found, first_day, with_storage)
        for id_, found in await organizations.all_names(engine)
        if name in (None, found)
    ]


async def _read_one(
    engine: Engine, id_: int, name: str, first_day: int, with_storage: bool
) -> dict[str, Any]:
    database = engine.for_tenant(id_)
    days = await usage.read(database, first_day)
    found: dict[str, Any] = {"organization_id": id_, "organization": name}
    found |= {key: sum(getattr(day, key) for day in days) for key in _SUMS}
    found |= dict(zip(_STORAGE_KEYS, await _read_storage(database, with_storage), strict=True))
    found["days"] = [day._asdict() | {"day": _date(day.day)} for day in days]
    return found


async def _read_storage(database: Database, measures: bool) -> Sequence[int | str | None]:
    """Return the bytes in the database and in files, and the day of the measurement."""
    find = storage_bytes.measure if measures else usage.last_storage
    storage = await find(database, timestamps.now() // usage.DAY)
    if storage is None:
        return (None, None, None)
    return (storage.database_bytes, storage.file_bytes, _date(storage.day))


def _date(day: int) -> str:
    return timestamps.render_microseconds(day * usage.DAY)[:10]


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(*_COLUMNS, *_STORAGE_COLUMNS, box=None)
    for one in found:
        values = (one[key] for key in (*_SUMS, *_STORAGE_KEYS))
        numbers = ["-" if value is None else str(value) for value in values]
        table.add_row(str(one["organization_id"]), Text(one["organization"]), *numbers)
    return table

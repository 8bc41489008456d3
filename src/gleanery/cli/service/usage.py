"""``gleanery usage``: what each organization has sent, received and stored."""

from __future__ import annotations

import json
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
from gleanery.storage.database import Engine
from gleanery.values import timestamps

app = typer.Typer()

_COLUMNS = ("ID", "Organization", "Requests", "Bytes in", "Bytes out", "Outputs stored")
_STORAGE_COLUMNS = ("Database bytes", "File bytes")
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
        typer.Option("--storage", help="Add up the stored bytes. This reads every row."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Show the requests, the bytes and the stored outputs of each organization.

    The services store these numbers about once a minute. Days are days in UTC. Example:
    gleanery usage --days 7 --storage --json
    """
    work = partial(_read, organization, timestamps.now() // usage.DAY - days + 1, storage)
    found = with_database(settings, work)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        print_table(_table(found, storage))


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
    if with_storage:
        found |= (await usage.measure_storage(database))._asdict()
    found["days"] = [
        day._asdict() | {"day": timestamps.render_microseconds(day.day * usage.DAY)[:10]}
        for day in days
    ]
    return found


def _table(found: list[dict[str, Any]], with_storage: bool) -> Table:
    table = Table(*_COLUMNS, *(_STORAGE_COLUMNS if with_storage else ()), box=None)
    keys = (*_SUMS, *(usage.Storage._fields if with_storage else ()))
    for one in found:
        numbers = [str(one[key]) for key in keys]
        table.add_row(str(one["organization_id"]), Text(one["organization"]), *numbers)
    return table

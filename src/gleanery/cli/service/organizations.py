"""``gleanery organization``: list, rename and delete organizations."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gleanery.admin import organizations as admin
from gleanery.cli.service.database import with_database
from gleanery.cli.service.names import check_name
from gleanery.cli.service.options import confirmation, option, settings_options
from gleanery.cli.terminal import pluralize, print_table, progress_bars
from gleanery.errors import SettingsError
from gleanery.settings import Settings
from gleanery.storage import organizations
from gleanery.storage.database import Engine
from gleanery.storage.organizations import Counts
from gleanery.values import timestamps

app = typer.Typer()
organization_app = typer.Typer(help="List, rename and delete organizations.", no_args_is_help=True)
app.add_typer(organization_app, name="organization")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the organization.")]
_COLUMNS = ("ID", "Name", "Created", "Groups", "Outputs", "Files", "Cookies", "Local storage")


@organization_app.command("list")
@settings_options("data", "database")
def list_organizations(
    settings: Settings,
    deleted: Annotated[bool, option("deleted", "List the deletions instead.")] = False,
) -> None:
    """List the organizations, with the number of their records."""
    print_table(_deletions(settings) if deleted else _organizations(settings))


def _organizations(settings: Settings) -> Table:
    table = Table(*_COLUMNS, "Tokens", "State", box=None)
    for found in with_database(settings, organizations.list_all):
        created = timestamps.render_microseconds(found.created_at)
        state = "being deleted" if found.is_being_deleted else "active"
        table.add_row(str(found.id), Text(found.name), created, *map(str, found.counts), state)
    return table


def _deletions(settings: Settings) -> Table:
    table = Table("ID", "Name", "Outputs", "Files", "Started", "Finished", box=None)
    for found in with_database(settings, organizations.list_deleted):
        started = timestamps.render_microseconds(found.started_at)
        finished = "not yet"
        if found.finished_at is not None:
            finished = timestamps.render_microseconds(found.finished_at)
        counts = (str(found.output_count), str(found.file_count))
        table.add_row(str(found.id), Text(found.name), *counts, started, finished)
    return table


@organization_app.command("rename")
@settings_options("data", "database")
def rename_organization(
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="Name that no other has.")],
    settings: Settings,
) -> None:
    """Rename an organization. Its tokens and its data stay as they are."""
    check_name("NEW_NAME", new_name)
    now = timestamps.now()
    with_database(settings, lambda engine: organizations.rename(engine, name, new_name, now))
    typer.echo("The organization is renamed.")


@organization_app.command("delete")
@settings_options("data", "database", "blobs")
def delete_organization(
    name: Name,
    settings: Settings,
    yes: Annotated[bool, confirmation("yes", "Do not ask.")] = False,
    ignore_missing_files: Annotated[
        bool,
        confirmation("ignore-missing-files", "Delete it although its files are not in --blobs."),
    ] = False,
) -> None:
    """Delete an organization with all its data, while the service runs.

    Its tokens stop working at once. If the command is interrupted, run it again. Its audit log is
    kept for --audit-days of the service.
    """
    if not yes:
        _confirm(name, with_database(settings, partial(_count, name)))
    with progress_bars() as progress:
        work = partial(admin.delete, settings, name, ignore_missing_files, progress)
        counts = with_database(settings, work)
    typer.echo(f"Deleted the organization with {_describe(counts)}.")


async def _count(name: str, engine: Engine) -> Counts:
    return await organizations.count_records(
        engine.for_tenant(await organizations.find(engine, name))
    )


def _confirm(name: str, counts: Counts) -> None:
    """Ask for the name of the organization. Raises SettingsError unless it is typed."""
    if not sys.stdin.isatty():
        raise SettingsError("There is no terminal to ask for confirmation: give --yes to delete")
    typer.echo(f"The organization has {_describe(counts)}. All of it will be deleted.", err=True)
    typed = typer.prompt("Type the name of the organization to delete it", err=True)
    if typed != name:
        raise SettingsError("That is not the name of the organization: nothing is deleted")


def _describe(counts: Counts) -> str:
    return (
        f"{pluralize(counts.groups, 'group')}, {pluralize(counts.outputs, 'output')}, "
        f"{pluralize(counts.files, 'file')}, {pluralize(counts.cookies, 'cookie')} and "
        f"{pluralize(counts.local_storage, 'local-storage record')}"
    )

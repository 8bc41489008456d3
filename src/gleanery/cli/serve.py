"""``gleanery serve`` and ``gleanery migrate``."""

from __future__ import annotations

import typer

from gleanery.cli.database import with_database
from gleanery.cli.options import all_settings_options, settings_options
from gleanery.server.start import serve
from gleanery.settings import Settings
from gleanery.storage.database import Engine

app = typer.Typer()


@app.command("serve")
@all_settings_options()
def serve_command(settings: Settings) -> None:
    """Run the service on SQLite under --data, or on PostgreSQL with --database.

    Plain HTTP is served on loopback addresses only, unless --behind-proxy is given.
    With --database, the variable GLEANERY_SECRET_KEY must hold the key for cookie and
    local-storage values.
    """
    serve(settings.check())


@app.command("migrate")
@settings_options("data", "database")
def migrate_command(settings: Settings) -> None:
    """Update the database schema. The command serve does this at its start."""
    with_database(settings, Engine.schema_number, create=True)
    typer.echo("The schema is up to date.")

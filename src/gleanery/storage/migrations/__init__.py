"""Migrations: numbered SQL files per engine, applied in order, each once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gleanery.errors import SettingsError
from gleanery.storage.database import Transaction
from gleanery.values import timestamps

NEWEST_APPLIED = "SELECT coalesce(max(number), 0) FROM migrations"
CHANGED = "The schema of the database does not match this program; try again"
"""The message for a write that is refused, because the schema is not this program's."""
FOREIGN = (
    "The database contains the data of another program: its table migrations is not Gleanery's. "
    "Give Gleanery a database of its own"
)

_DEFINITION = re.compile(
    r"^(CREATE|DROP)\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|TRIGGER)\s+(?:IF EXISTS\s+)?(\w+)", re.MULTILINE
)
_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at BIGINT NOT NULL
)
"""
_APPLIED = "SELECT number, name FROM migrations"
_RECORD = "INSERT INTO migrations (number, name, applied_at) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


@cache
def known(engine: str) -> tuple[Migration, ...]:
    """Returns all migrations of an engine by number; ``0001_initial.sql`` is number 1."""
    found = []
    for file in files(__package__).joinpath(engine).iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


def newest(engine: str) -> int:
    return known(engine)[-1].number


def pending(engine: str, applied: int) -> tuple[Migration, ...]:
    """Returns the migrations that are missing after this many."""
    return known(engine)[applied:]


def mismatch(engine: str, applied: int) -> str | None:
    """Returns how the schema differs from this program's; None if it is the same."""
    needed = newest(engine)
    if applied == needed:
        return None
    numbers = f"The database has schema {applied}, and this program needs schema {needed}"
    if applied > needed:
        return f"{numbers}: upgrade the program"
    return f"{numbers}: run gleanery migrate, or use the version of Gleanery that served it last"


def reject_newer(engine: str, applied: int) -> None:
    """Raises SettingsError if the schema is newer than this program."""
    if applied > newest(engine):
        raise SettingsError(mismatch(engine, applied))


async def _reject_other_history(engine: str, transaction: Transaction) -> None:
    """Raises SettingsError if other migrations were applied under the same numbers."""
    names = {migration.number: migration.name for migration in known(engine)}
    for number, name in await transaction.fetch(_APPLIED):
        if names.get(number, name) != name:
            raise SettingsError(
                "The database was written by a development version of Gleanery, and this program "
                "cannot read it: start with a new database"
            )


def expected_names(engine: str, applied: int) -> set[str]:
    """Returns the tables, indexes and triggers that exist after this many migrations."""
    names = set[str]()
    for migration in known(engine)[:applied]:
        for action, name in _DEFINITION.findall(migration.sql):
            (names.add if action == "CREATE" else names.discard)(name)
    return names


async def apply(engine: str, transaction: Transaction) -> None:
    """Applies missing migrations. The caller excludes other processes that do the same."""
    await transaction.run_script(_CREATE_TABLE)
    await _reject_other_history(engine, transaction)
    [[applied]] = await transaction.fetch(NEWEST_APPLIED)
    reject_newer(engine, applied)
    for migration in pending(engine, applied):
        await transaction.run_script(migration.sql)
        row = (migration.number, migration.name, timestamps.now())
        await transaction.fetch(_RECORD, *row)

"""Migrations: numbered SQL files per engine, applied in order, each once.

The first line of a migration says which older programs can go on beside it:
``-- compatible from schema 13``. The number is stored with the applied migration, so that an older
program, which does not have the migration, can read it. See
``docs/decisions/0231-a-migration-says-which-programs-can-go-on.md``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.database import Row, SchemaState, Transaction

NEWEST_APPLIED = "SELECT coalesce(max(number), 0) FROM migrations"
COMPATIBLE_FROM = "SELECT max(coalesce(compatible_from, number)) FROM migrations"
"""Reads the schema of the oldest program that can serve the database; needs a newer schema."""
CHANGED = "The schema of the database does not match this program; try again"
"""The message for a write that is refused, because this program cannot serve the schema."""
FOREIGN = (
    "The database contains the data of another program: its table migrations is not Gleanery's. "
    "Give Gleanery a database of its own"
)

_DEFINITION = re.compile(
    r"^(CREATE|DROP)\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|TRIGGER)\s+(?:IF EXISTS\s+)?(\w+)", re.MULTILINE
)
_DECLARATION = re.compile(r"-- compatible from schema (\d+)\n")
_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at BIGINT NOT NULL
)
"""
_APPLIED = "SELECT number, name FROM migrations"
_RECORD = "INSERT INTO migrations (number, name, applied_at) VALUES ($1, $2, $3)"
_RECORD_COMPATIBILITY = "UPDATE migrations SET compatible_from = $2 WHERE number = $1"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str
    compatible_from: int | None = None
    """Schema of the oldest program that can go on; None if no older program can."""


@cache
def known(engine: str) -> tuple[Migration, ...]:
    """Return all migrations of an engine by number; ``0001_initial.sql`` is number 1."""
    found = []
    for file in files(__package__).joinpath(engine).iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            sql = file.read_text("utf-8")
            found.append(Migration(int(number), name, sql, declared_compatibility(sql)))
    return tuple(sorted(found, key=lambda migration: migration.number))


def declared_compatibility(sql: str) -> int | None:
    """Return the number in the first line of a migration; None if there is none."""
    declaration = _DECLARATION.match(sql)
    return None if declaration is None else int(declaration[1])


def newest(engine: str) -> int:
    return known(engine)[-1].number


def pending(engine: str, applied: int) -> tuple[Migration, ...]:
    """Return the migrations that are missing after this many."""
    return known(engine)[applied:]


async def read_state(engine: str, fetch: Callable[[str], Awaitable[Sequence[Row]]]) -> SchemaState:
    """Read the schema from the table of migrations."""
    [[number]] = await fetch(NEWEST_APPLIED)
    if number <= newest(engine):  # an older schema may lack the column
        return SchemaState(number, number)
    [[compatible_from]] = await fetch(COMPATIBLE_FROM)
    return SchemaState(number, compatible_from)


def is_newer_and_compatible(engine: str, schema: SchemaState) -> bool:
    """Return True if this program can serve a schema that it does not know."""
    return schema.compatible_from <= newest(engine) < schema.number


def difference(engine: str, schema: SchemaState) -> str | None:
    """Return how the schema differs from this program's; None if it is the same."""
    needed = newest(engine)
    if schema.number == needed:
        return None
    numbers = f"The database has schema {schema.number}, and this program needs schema {needed}"
    if is_newer_and_compatible(engine, schema):
        return f"{numbers}: it can serve the database, but do nothing else. Upgrade the program"
    if schema.number > needed:
        return f"{numbers}: upgrade the program"
    return f"{numbers}: run gleanery migrate, or use the version of Gleanery that served it last"


def mismatch(engine: str, schema: SchemaState) -> str | None:
    """Return why this program cannot serve the schema; None if it can."""
    return None if is_newer_and_compatible(engine, schema) else difference(engine, schema)


def compatibility_warning(engine: str, schema: SchemaState) -> str | None:
    """Return a sentence about a newer schema that this program can serve."""
    return difference(engine, schema) if is_newer_and_compatible(engine, schema) else None


def check(engine: str, schema: SchemaState, accept_compatible: bool) -> None:
    """Raise SettingsError unless the schema is this program's, or compatible if accepted."""
    find = mismatch if accept_compatible else difference
    if problem := find(engine, schema):
        raise SettingsError(problem)


def reject_newer(engine: str, schema: SchemaState, accept_compatible: bool) -> None:
    """Do the same, but accept an older schema."""
    if schema.number > newest(engine):
        check(engine, schema, accept_compatible)


async def _reject_other_history(engine: str, transaction: Transaction) -> None:
    """Raise SettingsError if other migrations were applied under the same numbers."""
    names = {migration.number: migration.name for migration in known(engine)}
    for number, name in await transaction.fetch(_APPLIED):
        if names.get(number, name) != name:
            raise SettingsError(
                "The database was written by a development version of Gleanery, and this program "
                "cannot read it: start with a new database"
            )


def expected_names(engine: str, applied: int) -> set[str]:
    """Return the tables, indexes and triggers that exist after this many migrations."""
    names = set[str]()
    for migration in known(engine)[:applied]:
        for action, name in _DEFINITION.findall(migration.sql):
            (names.add if action == "CREATE" else names.discard)(name)
    return names


async def apply(engine: str, transaction: Transaction, accept_compatible: bool) -> int:
    """Apply missing migrations. The caller excludes other processes that do the same.

    Return the number of the newest one that was already applied.
    """
    await transaction.run_script(_CREATE_TABLE)
    await _reject_other_history(engine, transaction)
    schema = await read_state(engine, transaction.fetch)
    reject_newer(engine, schema, accept_compatible)
    for migration in pending(engine, schema.number):
        await transaction.run_script(migration.sql)
        await _record(transaction, migration)
    return schema.number


async def _record(transaction: Transaction, migration: Migration) -> None:
    row = (migration.number, migration.name, timestamps.now())
    await transaction.fetch(_RECORD, *row)
    if migration.compatible_from is not None:  # the first migrations had no such column
        await transaction.fetch(_RECORD_COMPATIBILITY, migration.number, migration.compatible_from)

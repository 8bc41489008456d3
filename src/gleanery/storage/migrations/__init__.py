"""The schema's history: numbered SQL files per engine, applied in order, each once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gleanery.errors import SettingsError
from gleanery.storage.database import Transaction
from gleanery.values import timestamps

NEWEST_APPLIED = "SELECT coalesce(max(number), 0) FROM migrations"

_BOOKKEEPING = """
CREATE TABLE IF NOT EXISTS migrations (
    number  INTEGER PRIMARY KEY,
    name    TEXT NOT NULL,
    applied BIGINT NOT NULL
)
"""
_NOTE = "INSERT INTO migrations (number, name, applied) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


@cache
def known(engine: str) -> tuple[Migration, ...]:
    """All migrations of an engine, by number; ``0001_start.sql`` is number 1."""
    found = []
    for file in files(__package__).joinpath(engine).iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text("utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


def newest(engine: str) -> int:
    return known(engine)[-1].number


def refuse_newer(engine: str, applied: int) -> None:
    if applied > newest(engine):
        raise SettingsError(
            f"The database was written by a newer Gleanery (its schema is number {applied}, "
            f"this program knows {newest(engine)}): upgrade the program"
        )


async def apply(engine: str, transaction: Transaction) -> None:
    """Applies what is missing. The caller sees to it that nobody else does at the same time."""
    await transaction.run_script(_BOOKKEEPING)
    [[applied]] = await transaction.fetch(NEWEST_APPLIED)
    refuse_newer(engine, applied)
    for migration in known(engine)[applied:]:
        await transaction.run_script(migration.sql)
        await transaction.fetch(_NOTE, migration.number, migration.name, timestamps.now())

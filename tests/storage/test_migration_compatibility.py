"""Migrations say which older programs can go on, and are additive if any can."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gleanery.service.storage import migrations
from gleanery.service.storage.database import SchemaState
from gleanery.service.storage.engines import open_engine
from tests.support.migration_rules import not_additive
from tests.support.settings import fresh_settings

NEWEST = migrations.newest("sqlite")
FIRST_NUMBER = next(
    each.number for each in migrations.known("sqlite") if each.name == "compatibility"
)


def test_every_migration_says_which_programs_can_go_on(engine: str) -> None:
    """Its first line is: -- compatible from schema NUMBER."""
    for migration in migrations.known(engine):
        declared = migration.compatible_from
        if migration.number < FIRST_NUMBER:
            assert declared is None
        else:
            assert declared is not None, f"{migration.name} needs its first line"
            assert FIRST_NUMBER <= declared <= migration.number


def test_both_engines_say_the_same() -> None:
    declared = [
        [migration.compatible_from for migration in migrations.known(engine)]
        for engine in ("sqlite", "postgres")
    ]
    assert declared[0] == declared[1]


def test_a_migration_that_is_not_additive_lets_no_older_program_go_on(engine: str) -> None:
    for migration in migrations.known(engine):
        if migration.compatible_from not in (None, migration.number):
            assert not_additive(migration.sql) == [], migration.name


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE outputs ADD COLUMN a INTEGER NOT NULL",
        "ALTER TABLE outputs ADD COLUMN a INTEGER UNIQUE",
        "ALTER TABLE outputs ADD COLUMN a INTEGER, ADD COLUMN b INTEGER NOT NULL",
        "ALTER TABLE outputs RENAME COLUMN item TO item_text",
        "ALTER TABLE outputs RENAME TO items",
        "ALTER TABLE outputs DROP COLUMN item",
        "ALTER TABLE outputs ALTER COLUMN item SET NOT NULL",
        "ALTER TABLE outputs ALTER COLUMN item TYPE TEXT",
        "ALTER TABLE outputs ADD CONSTRAINT positive CHECK (seq > 0)",
        "CREATE UNIQUE INDEX one ON outputs (seq)",
        "CREATE TABLE notes (organization_id BIGINT REFERENCES organizations (id))",
        "CREATE TRIGGER t BEFORE INSERT ON outputs BEGIN SELECT 1; END",
        "DROP TABLE outputs",
        "DROP INDEX outputs_by_approval",
        "UPDATE outputs SET approved = 1",
        "DELETE FROM outputs",
        "INSERT INTO metadata (name, value) VALUES ('a', 'b')",
    ],
)
def test_statements_that_are_not_additive_are_found(statement: str) -> None:
    script = f"-- compatible from schema 13\nCREATE TABLE new (a INTEGER);\n{statement};\n"
    assert not_additive(script)


def test_statements_that_are_additive_are_accepted() -> None:
    script = """
    -- DROP TABLE outputs;
    CREATE TABLE notes (
        organization_id BIGINT NOT NULL REFERENCES organizations (id) ON DELETE CASCADE,
        note TEXT NOT NULL
    );
    CREATE UNIQUE INDEX notes_by_text ON notes (note);
    INSERT INTO notes (organization_id, note) SELECT id, name FROM organizations;
    ALTER TABLE outputs ADD COLUMN a INTEGER;
    ALTER TABLE outputs ADD COLUMN b INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX outputs_by_a ON outputs (organization_id, a);
    """
    assert not_additive(script) == []


@pytest.mark.parametrize(
    ("number", "compatible_from", "can_serve"),
    [
        (NEWEST, NEWEST, True),
        (NEWEST - 1, NEWEST - 1, False),
        (0, 0, False),
        (NEWEST + 1, NEWEST + 1, False),
        (NEWEST + 1, NEWEST, True),
        (NEWEST + 3, NEWEST - 2, True),
        (NEWEST + 3, NEWEST + 1, False),
    ],
)
def test_which_schemas_a_program_serves(number: int, compatible_from: int, can_serve: bool) -> None:
    schema = SchemaState(number, compatible_from)
    assert (migrations.mismatch("sqlite", schema) is None) == can_serve
    assert (migrations.difference("sqlite", schema) is None) == (number == NEWEST)


def test_the_number_is_stored_with_the_migration(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    added = (
        migrations.Migration(NEWEST + 1, "one", "SELECT 1", NEWEST + 1),
        migrations.Migration(NEWEST + 2, "two", "SELECT 1", NEWEST),
    )

    async def run() -> list[SchemaState]:
        async with open_engine(settings) as database:
            await database.migrate()
            found = [await database.schema_state()]
            for count in (1, 2):
                known = (*migrations.known(database.engine), *added[:count])
                with monkeypatch.context() as patched:
                    patched.setattr(migrations, "known", lambda engine, known=known: known)
                    await database.migrate()
                found.append(await database.schema_state())
            return found

    assert asyncio.run(run()) == [
        (NEWEST, NEWEST),
        (NEWEST + 1, NEWEST + 1),
        (NEWEST + 2, NEWEST + 1),  # the program before both cannot go on, whatever the second says
    ]

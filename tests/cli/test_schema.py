"""The schema and the commands: which update it, and which refuse another one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gleanery.common.settings import Settings
from gleanery.service.storage import migrations
from gleanery.service.storage.engines import open_engine
from tests.support.databases import (
    pretend_newer_schema,
    run_script,
    undo_migrations,
    undo_newest_migration,
    use_identity_format,
)
from tests.support.outputs import output
from tests.support.postgres_server import PostgresServer
from tests.support.process import (
    database_options,
    gleanery,
    gleanery_in_process,
    new_token,
    run_successfully,
)
from tests.support.service import SECRET_KEY, Service
from tests.support.settings import fresh_settings

NEWEST = migrations.newest("sqlite")
PENDING = f"Pending: {NEWEST:04} {migrations.known('sqlite')[-1].name}"
COMPATIBLE = (
    "Compatible: running services of schema {} or newer go on, and can be replaced one after the "
    "other. Older ones answer 503 from then on."
)
NOT_COMPATIBLE = (
    "Not compatible: running services answer 503 from then on, until they are replaced."
)
OTHERS = (
    ("token", "create", "--organization", "b"),
    ("token", "list"),
    ("token", "revoke", "1"),
    ("organization", "list"),
    ("organization", "rename", "a", "b"),
    ("organization", "delete", "a", "--yes"),
    ("keys", "list"),
    ("keys", "rotate"),
    ("keys", "retire"),
    ("keys", "forget", "--yes"),
)
MIGRATING = (("migrate",), ("migrate", "--check"), ("restored", "--yes"), ("serve", "--port", "0"))


@pytest.fixture
def settings(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of a database with an organization."""
    settings = fresh_settings(engine, request, tmp_path / "data")
    new_token(database_options(settings))
    return settings


def schema_number(settings: Settings) -> int:
    async def read() -> int:
        async with open_engine(settings) as database:
            return (await database.schema_state()).number

    return asyncio.run(read())


def refusal(settings: Settings, *command: str) -> str:
    """Runs a command, which must fail with one sentence, and returns that."""
    options = database_options(settings)
    run = gleanery if command[0] == "serve" else gleanery_in_process
    refused = run(*command, *options, GLEANERY_SECRET_KEY=SECRET_KEY)
    assert refused.returncode == 2, refused.stdout
    [sentence] = refused.stderr.strip().splitlines()
    return sentence


def test_commands_refuse_an_older_schema_and_do_not_change_it(settings: Settings) -> None:
    undo_newest_migration(settings)
    for command in OTHERS:
        sentence = refusal(settings, *command)
        assert f"has schema {NEWEST - 1}, and this program needs schema {NEWEST}" in sentence
        assert "run gleanery migrate" in sentence
    assert schema_number(settings) == NEWEST - 1


@pytest.mark.thorough
def test_commands_refuse_a_newer_schema(settings: Settings) -> None:
    pretend_newer_schema(settings)
    for command in (*OTHERS, *MIGRATING):
        sentence = refusal(settings, *command)
        assert f"has schema {NEWEST + 1}, and this program needs schema {NEWEST}" in sentence
        assert "upgrade the program" in sentence


def test_only_serve_and_migrate_accept_a_newer_schema_that_is_compatible(
    settings: Settings,
) -> None:
    pretend_newer_schema(settings, NEWEST)
    difference = f"has schema {NEWEST + 1}, and this program needs schema {NEWEST}"
    for command in (*OTHERS, ("restored", "--yes")):
        sentence = refusal(settings, *command)
        assert difference in sentence
        assert "it can serve the database, but do nothing else" in sentence
    options = database_options(settings)
    assert difference in run_successfully("migrate", *options)
    assert run_successfully("migrate", "--check", *options).splitlines() == [
        f"The database has schema {NEWEST + 1}. This program needs schema {NEWEST}.",
        "A service with this version of the program can go on until it is upgraded.",
    ]
    assert schema_number(settings) == NEWEST + 1


def test_no_backup_is_made_of_a_newer_schema_that_is_compatible(tmp_path: Path) -> None:
    settings, file = Settings(data=tmp_path / "data"), tmp_path / "backup"
    new_token(["--data", str(settings.data)])
    pretend_newer_schema(settings, NEWEST)
    assert f"has schema {NEWEST + 1}, and" in refusal(settings, "backup", str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_backup_is_made_only_by_the_program_that_fits(tmp_path: Path) -> None:
    settings, file = Settings(data=tmp_path / "data"), tmp_path / "backup"
    new_token(["--data", str(settings.data)])
    undo_newest_migration(settings)
    assert f"has schema {NEWEST - 1}, and" in refusal(settings, "backup", str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_migrate_check_prints_what_would_be_applied_and_changes_nothing(
    settings: Settings,
) -> None:
    options = database_options(settings)
    undo_newest_migration(settings)
    compatible_from = migrations.known("sqlite")[-1].compatible_from
    is_compatible = compatible_from != NEWEST
    effect = COMPATIBLE.format(compatible_from) if is_compatible else NOT_COMPATIBLE
    for _ in range(2):
        checked = gleanery_in_process("migrate", "--check", *options)
        assert checked.returncode == 1
        assert checked.stdout.splitlines() == [
            f"The database has schema {NEWEST - 1}. This program needs schema {NEWEST}.",
            PENDING,
            effect,
        ]
    applied = PENDING.replace("Pending", "Applied")
    assert run_successfully("migrate", *options) == f"{applied}\nThe schema is up to date.\n"
    assert run_successfully("migrate", *options) == "The schema is up to date.\n"
    told = run_successfully("migrate", "--check", *options)
    assert told == f"The database has schema {NEWEST}. This program needs schema {NEWEST}.\n"


def test_migrate_check_says_that_running_services_can_go_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations.known
    effects = {number: COMPATIBLE.format(number) for number in (NEWEST - 1, NEWEST)}
    for compatible_from, effect in (effects | {NEWEST + 1: NOT_COMPATIBLE}).items():
        added = migrations.Migration(NEWEST + 1, "next", "SELECT 1", compatible_from)
        monkeypatch.setattr(migrations, "known", lambda name, new=added: (*known(name), new))
        checked = gleanery_in_process("migrate", "--check", *database_options(settings))
        assert checked.returncode == 1
        assert checked.stdout.splitlines()[1:] == [f"Pending: {NEWEST + 1:04} next", effect]


def test_an_empty_database_has_no_services_and_gets_all_migrations(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    options = database_options(fresh_settings("postgres", request, tmp_path / "data"))
    names = [f"{each.number:04} {each.name}" for each in migrations.known("postgres")]
    checked = gleanery_in_process("migrate", "--check", *options)
    assert checked.returncode == 1
    assert checked.stdout.splitlines() == [
        f"The database is empty. This program needs schema {NEWEST}.",
        *(f"Pending: {name}" for name in names),
    ]
    assert run_successfully("migrate", *options).splitlines() == [
        *(f"Applied: {name}" for name in names),
        "The schema is up to date.",
    ]


def test_migrate_check_creates_no_database(tmp_path: Path) -> None:
    checked = gleanery_in_process("migrate", "--check", "--data", str(tmp_path / "data"))
    assert checked.returncode == 2
    assert "There is no database" in checked.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.thorough
def test_the_database_of_another_program_is_refused(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path / "data")
    run_script(settings, "CREATE TABLE migrations (id INTEGER, migration TEXT)")
    for command in (*OTHERS, *MIGRATING):
        assert "data of another program" in refusal(settings, *command)


def test_an_error_of_migrate_check_has_another_status_than_pending_migrations(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The user of the URL may not read the tables of their owner."""
    settings = fresh_settings("postgres", request, tmp_path / "data")
    new_token(database_options(settings))
    assert settings.database is not None
    stranger = settings.database.replace("//postgres:", f"//{postgres.new_user('')}:")
    refused = refusal(replace(settings, database=stranger), "migrate", "--check")
    assert "has no rights on them" in refused


def test_a_user_who_may_not_create_tables_is_told_so(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path
) -> None:
    settings = fresh_settings("postgres", request, tmp_path / "data")
    assert settings.database is not None
    user = settings.database.replace("//postgres:", f"//{postgres.new_user('')}:")
    for command in (("migrate",), ("token", "create", "--organization", "a")):
        refused = refusal(replace(settings, database=user), *command)
        assert "may not update the schema (permission denied for schema public)" in refused


@pytest.mark.thorough
def test_a_damaged_database_is_no_pending_migration(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    new_token(["--data", str(settings.data)])
    with settings.sqlite_file.open("r+b") as file:
        file.seek(16 * 1024)  # the second page and all others
        file.write(bytes(settings.sqlite_file.stat().st_size))
    checked = gleanery("migrate", "--check", "--data", str(settings.data))
    assert checked.returncode == 2, checked.stdout


@pytest.mark.thorough
def test_commands_that_restore_update_the_schema(settings: Settings) -> None:
    undo_newest_migration(settings)
    run_successfully("restored", "--yes", *database_options(settings))
    assert schema_number(settings) == NEWEST


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("identity_format", "migration", "starts"),
    [(0, "identity_format", (2, 2)), (1, "job_prefix", (1, 2))],
)
def test_a_group_of_an_earlier_program_keeps_its_output_ids(
    settings: Settings, identity_format: int, migration: str, starts: tuple[int, int]
) -> None:
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        client.put("/v1/groups/group", json={})
        use_identity_format(settings, identity_format)
        stored = client.store("group", output(1), output(2))["results"]
        found = [{result["output_id"][:digits] for result in stored} for digits in (8, 12)]
        assert (len(found[0]), len(found[1])) == starts
    service.stop()
    undo_migrations(settings, migration)
    service = Service(settings)
    with service.client(token) as client:
        again = client.store("group", *(output(n) for n in range(1, 20)))["results"]
        assert again[:2] == [{**result, "change": "unchanged"} for result in stored]
        large = output(20, data={"text": "x" * 5_000_000})  # it is prepared in another process
        again += client.store("group", large)["results"]
        for number in (1, 2, 19, 20):
            [found] = client.items("group", url=f"https://shop.example/{number}")
            assert found["output_id"] == again[number - 1]["output_id"]
        client.delete("/v1/groups/group")
        client.store("group", output(1))
        assert [item["output_id"] for item in client.items("group")] == [stored[0]["output_id"]]
    service.stop()


@pytest.mark.thorough
def test_outputs_of_an_earlier_program_are_in_the_approved_view(settings: Settings) -> None:
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        client.put("/v1/groups/group", json={})
        use_identity_format(settings, 0)
        client.store("group", output(1), output(2, job_id="other"))
        client.post("/v1/reviews/group", json={"job_id": "other", "status": "approved"})
        cursor = client.get("/v1/groups/group").json()["cursor"]
    service.stop()
    undo_migrations(settings, "history_and_approved_view")
    service = Service(settings)
    with service.client(token) as client:
        client.store("group", output(1, data={"number": 11}), output(2, job_id="other", data={}))
        [shown] = client.items("group", view="approved")
        assert shown["data"] == {"number": 2}
        [first] = [item for item in client.items("group") if item["data"]]
        before = client.get(f"/v1/outputs/group/{first['output_id']}", params={"at": cursor})
        assert before.json()["data"] == {"number": 1}
    service.stop()


@pytest.mark.thorough
def test_outputs_under_an_earlier_name_of_their_country_are_found(settings: Settings) -> None:
    service = Service(settings)
    token = service.token()
    stored = [output(1, tags={"country": "Kosovo"}), output(2, tags={"country": "XK"})]
    with service.client(token) as client:
        client.store("group", *stored, output(3, tags={"country": "Peru"}))
        client.post("/v1/reviews/group", json={"job_id": stored[0]["job_id"], "status": "approved"})
    service.stop()
    undo_migrations(settings, "country_names")
    for table in ("outputs", "approved_versions", "country_counts"):
        run_script(settings, f"UPDATE {table} SET country = 'kosovo' WHERE country = 'XK'")
    service = Service(settings)
    with service.client(token) as client:
        for name in ("Kosovo", "xk", "Republic of Kosovo"):
            for view in ({}, {"view": "approved"}):
                found = client.items("group", country=name, **view)
                assert [item["tags"] for item in found] == [each["tags"] for each in stored]
        client.store("group", output(1, tags={"country": "Peru"}))
        assert len(client.items("group", country="Peru")) == 2
    service.stop()

"""SQL that a test runs in the database of a service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg

from gleanery.common.settings import Settings
from gleanery.service.storage import migrations
from gleanery.service.storage.database import Transaction
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.postgres.citus.statements import split_script
from tests.support.citus import citus_workers

_BUSY_TIMEOUT_MS = 10_000


def open_sqlite(file: Path) -> apsw.Connection:
    """Return a connection that waits for its turn: a service may write at the same time."""
    connection = apsw.Connection(str(file))
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    return connection


def execute_sql(settings: Settings, sql: str, *values: Any) -> None:
    """Runs one statement over the rows of all organizations."""

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(sql, *values)

    async def run() -> None:
        async with open_engine(settings) as database:
            await database.for_all_tenants().write(work)

    asyncio.run(run())


def run_script(settings: Settings, sql: str) -> None:
    """Runs statements as the owner of the tables, whatever the schema of the database is."""
    settings.data.mkdir(parents=True, exist_ok=True)
    if settings.database is None:
        open_sqlite(settings.sqlite_file).execute(sql)
        return

    async def run() -> None:
        connection = await asyncpg.connect(settings.database)
        # Citus does not accept several statements in a query.
        for statement in split_script(sql) if citus_workers() else [sql]:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(run())


def use_identity_format(settings: Settings, identity_format: int) -> None:
    """Lets the groups identify outputs as an earlier program did; 0 is without a prefix."""
    run_script(settings, f"UPDATE groups SET identity_format = {identity_format}")


def undo_newest_migration(settings: Settings) -> None:
    """Gives the database the schema before the newest migration."""
    undo_migrations(settings, migrations.known("sqlite")[-1].name)


def undo_migrations(settings: Settings, first: str) -> None:
    """Undoes the migrations from the one with this name on, the newest first."""
    for migration in reversed(migrations.known("sqlite")):
        undo = _UNDO[migration.name]
        run_script(settings, f"DELETE FROM migrations WHERE number = {migration.number}")
        only_in_postgres = undo.postgres_indexes if settings.database is not None else ""
        for index in f"{undo.indexes} {only_in_postgres}".split():
            run_script(settings, f"DROP INDEX {index}")
        for table in undo.tables.split():
            run_script(settings, f"DROP TABLE {table}")
        for table, columns in undo.columns.items():
            for column in columns.split():
                run_script(settings, f"ALTER TABLE {table} DROP COLUMN {column}")
        if undo.script:
            run_script(settings, with_types(undo.script, settings))
        if migration.name == first:
            return


def with_types(script: str, settings: Settings) -> str:
    """Return a script for PostgreSQL with the types of the engine."""
    if settings.database is not None:
        return script
    return script.replace("BIGINT", "INTEGER").replace("BYTEA", "BLOB")


class _Undo(NamedTuple):
    """What a migration has added, and the script that restores what it has removed."""

    columns: dict[str, str]
    tables: str = ""
    indexes: str = ""
    postgres_indexes: str = ""
    script: str = ""


_UNDO = {
    "sessions": _Undo(
        {
            "cookies": "profile revision host_only same_site partition_site cross_site_ancestor",
            "local_storage": "profile revision origin",
        },
        "session_leases",
        "cookies_by_host cookies_by_expiry cookies_partitioned "
        "local_storage_by_host local_storage_by_expiry local_storage_with_origin",
        "cookies_by_identity local_storage_by_identity",
    ),
    "history_and_approved_view": _Undo(
        {
            "outputs": "version_seq history_seq view_seq",
            "groups": "keep_versions keep_days view_purged_seq",
        },
        "output_history approved_versions view_tombstones",
        "outputs_approved_by_job",
    ),
    "field_statistics": _Undo({"outputs": "shape"}, "job_scrapes job_shapes job_statistics"),
    "review_findings": _Undo(
        {"reviews": "as_of output_ids skipped_output_ids findings", "bulk_jobs": "as_of"},
        indexes="reviews_by_review_id",
    ),
    "console": _Undo(
        {
            "reviews": "person",
            "jobs": "waits_since approved_seq",
            "groups": "approved_count daily_changes",
        },
        "login_links console_sessions",
        "jobs_waiting tokens_of_organization",
    ),
    "console_indexes": _Undo(
        {},
        indexes="reviews_of_job reviews_approving_job cookies_expiring local_storage_expiring",
        script="CREATE INDEX reviews_of_job ON reviews (group_id, job_id)",
    ),
    "identity_format": _Undo({"groups": "identity_format"}),
    "session_revisions": _Undo(
        {},
        "session_revisions",
        script="ALTER TABLE organizations ADD COLUMN session_revision INTEGER NOT NULL DEFAULT 0",
    ),
    "compatibility": _Undo({"migrations": "compatible_from"}),
    "job_prefix": _Undo({}),
    "organization_usage": _Undo({}, "organization_usage"),
    "field_counts": _Undo(
        {"outputs": "fields", "job_statistics": "field_counts"},
        "deleted_in_scrape",
        script="""
            ALTER TABLE job_statistics ADD COLUMN shape_counts TEXT NOT NULL DEFAULT '[]';
            CREATE TABLE job_shapes (
                organization_id BIGINT NOT NULL, group_id BIGINT NOT NULL, job_id BIGINT NOT NULL,
                shape BIGINT NOT NULL, fields TEXT,
                PRIMARY KEY (organization_id, group_id, job_id, shape));
        """,
    ),
    "country_names": _Undo({}),
    "host_only_stated": _Undo({"cookies": "host_only_stated"}),
    "runs": _Undo(
        {
            "outputs": "run_id run_change missing_since",
            "tombstones": "reason",
            "view_tombstones": "reason",
            "jobs": "complete_runs kept_runs",
            "groups": "run_timeout_minutes missing_after_runs missing_max_share",
        },
        "runs run_sightings",
        "outputs_by_missing outputs_missing_by_job",
        script="""
            ALTER TABLE job_statistics ADD COLUMN scrape_started_at BIGINT NOT NULL DEFAULT 0;
            ALTER TABLE job_statistics ADD COLUMN scrape_seen_at BIGINT NOT NULL DEFAULT 0;
            ALTER TABLE job_statistics ADD COLUMN scrape_counts TEXT NOT NULL DEFAULT '[]';
            CREATE TABLE job_scrapes (
                organization_id BIGINT NOT NULL, group_id BIGINT NOT NULL, job_id BIGINT NOT NULL,
                started_at BIGINT NOT NULL, seen_at BIGINT NOT NULL, counts TEXT NOT NULL,
                PRIMARY KEY (organization_id, group_id, job_id, started_at));
            CREATE TABLE deleted_in_scrape (
                organization_id BIGINT NOT NULL, group_id BIGINT NOT NULL, job_id BIGINT NOT NULL,
                identity BYTEA NOT NULL, fields BYTEA NOT NULL,
                PRIMARY KEY (organization_id, group_id, job_id, identity));
        """,
    ),
    "webhooks": _Undo(
        {}, "webhooks webhook_secrets webhook_headers webhook_deliveries webhook_positions"
    ),
    "monitors": _Undo(
        {"groups": "monitors", "jobs": "run_due_at", "runs": "monitoring has_alert sample"},
        "alerts",
        "jobs_due runs_usual",
    ),
}


def pretend_newer_schema(settings: Settings, *compatible_from: int) -> None:
    """Gives the database a schema that this program does not know.

    One migration for each number says that programs from this schema on can go on. Without a
    number, one migration says that only its own program can.
    """
    first = migrations.newest("sqlite") + 1
    for number, oldest in enumerate(compatible_from or (first,), first):
        record = f"INSERT INTO migrations VALUES ({number}, 'of_tomorrow', 0, {oldest})"
        run_script(settings, record)

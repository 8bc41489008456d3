"""Which suite a test belongs to: the rules of ``make quick``, ``make test`` and ``make extended``.

``make test`` is the whole suite on SQLite, the contract of each resource on PostgreSQL, and some
journeys in a browser. The rest has the mark ``extended``: it repeats a test on another engine or
server, or it needs a package that only ``make extended`` installs. A single test can have the
mark in its module: this file states the rules for groups of tests.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.citus import citus_workers

TESTS = Path(__file__).parent.parent

WITH_OTHER_PROGRAMS = ("distributed", "generators", "integrations")
"""Folders whose tests need frameworks, connectors, or several servers of PostgreSQL."""

ASGI = "asgi"
ASGI_ITSELF = "asgi/test_adapter.py"
"""The other modules of that folder repeat the tests of ``tests/api`` through the adapter."""

CONTRACTS = {
    "outputs": (
        "api/test_ingest.py",
        "api/test_outputs.py",
        "api/test_resend.py",
        "api/test_history.py",
        "api/test_field_statistics.py",
    ),
    "changes": ("api/test_changes.py", "api/test_approved_feed.py"),
    "exports": ("api/test_exports.py", "api/test_export_links.py"),
    "files": ("api/test_files.py",),
    "blobs": ("api/test_files.py",),
    "groups": ("api/test_groups.py", "storage/test_bulk_jobs.py"),
    "runs": ("api/test_runs.py",),
    "monitors": ("api/test_monitors.py",),
    "alerts": ("api/test_alert_webhooks.py",),
    "reviews": (
        "api/test_reviews.py",
        "api/test_review_samples.py",
        "api/test_single_output_reviews.py",
    ),
    "cookies": ("api/test_cookies.py",),
    "local-storage": ("api/test_local_storage.py",),
    "sessions": (
        "api/test_session_export.py",
        "api/test_session_import.py",
        "api/test_session_leases.py",
        "api/test_session_versions.py",
        "api/test_sessions.py",
    ),
    "webhooks": (
        "api/test_webhook_headers.py",
        "api/test_webhook_retries.py",
        "api/test_webhooks.py",
    ),
    "tokens": ("security/test_tokens.py", "cli/test_organizations.py"),
    "audit": ("api/test_audit.py",),
    "console": (
        "api/console/test_audit.py",
        "api/console/test_groups.py",
        "api/console/test_inbox.py",
        "api/console/test_login.py",
        "api/console/test_output_detail.py",
        "api/console/test_rows.py",
        "api/console/test_runs.py",
        "api/console/test_sample.py",
        "api/console/test_session_records.py",
        "api/console/test_tokens.py",
    ),
    "system": ("api/test_readiness.py", "cli/test_schema.py", "storage/test_database.py"),
}
"""Modules that ``make test`` runs on PostgreSQL as well as on SQLite, by resource.

A test that takes seconds runs on SQLite only.
"""

_IN_CONTRACTS = frozenset(module for modules in CONTRACTS.values() for module in modules)

LONG = (
    "admin/test_backup.py",
    "admin/test_backup_output.py",
    "admin/test_demo.py",
    "api/test_contract.py",
    "api/test_field_statistics.py",
    "api/test_files.py",
    "cli/test_closed_streams.py",
    "cli/test_encoding.py",
    "cli/test_organizations.py",
    "project/test_base_install.py",
    "project/test_container.py",
    "project/test_dependencies.py",
    "project/test_docs.py",
    "project/test_examples.py",
    "project/test_faults.py",
    "project/test_interrupted_runs.py",
    "server/test_supervisor.py",
    "storage/test_clock_jumps.py",
    "storage/test_field_statistics_model.py",
    "storage/test_isolation.py",
    "storage/test_query_plans.py",
)
"""Modules with hundreds of combinations, many processes, a model or whole pages: long tests."""

IS_POSTGRES_SPECIAL = "GLEANERY_TEST_POOLING" in os.environ or citus_workers() > 0
"""``make distributed`` repeats the tests of the API on PgBouncer and Citus: all that use SQL."""

WITHOUT_SQL = ("api/test_contract.py", "api/test_reference_page.py")
"""Modules whose long tests find little on a second engine."""

NEEDS = ("crawlee", "dlt", "duckdb", "nbclient", "pandas", "polars", "scrapy")
"""Modules of the extra ``extended``. Without them, ``integrations`` cannot be imported."""


def missing() -> list[str]:
    """Return the modules that the extra ``extended`` would install."""
    return [name for name in NEEDS if find_spec(name) is None]


def is_ignored(path: Path, config: pytest.Config) -> bool:
    """Whether no test below this path runs, so that importing it is waste, or fails."""
    folder = _below_tests(path).partition("/")[0]
    if folder == "integrations" and missing():
        return True
    return _is_deselected(config) and _is_extended_file(path)


def _is_deselected(config: pytest.Config) -> bool:
    return "not extended" in config.option.markexpr


def _below_tests(path: Path) -> str:
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""


def _is_extended_file(path: Path) -> bool:
    """Whether all tests of a file are extended, whatever they are."""
    name = _below_tests(path)
    folder = name.partition("/")[0]
    if folder == ASGI:
        return path.name.startswith("test_") and name != ASGI_ITSELF
    return folder in WITH_OTHER_PROGRAMS


def mark(items: list[pytest.Item]) -> None:
    """Add the marks that follow from the rules of this file."""
    names = {item.nodeid for item in items}
    for item in items:
        takes_seconds = item.get_closest_marker("thorough") is not None
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.thorough)
        if _is_extended(item, takes_seconds, names):
            item.add_marker(pytest.mark.extended)


def _is_extended(item: pytest.Item, takes_seconds: bool, names: set[str]) -> bool:
    module = _below_tests(item.path)
    if "browser" in getattr(item, "fixturenames", ()):
        return item.get_closest_marker("journey") is None
    if _is_extended_file(item.path) or (module in LONG and takes_seconds):
        return True
    if _engine(item) != "postgres" or _on_sqlite(item.nodeid) not in names:
        return False
    if IS_POSTGRES_SPECIAL:
        return takes_seconds and module in WITHOUT_SQL
    return takes_seconds or module not in _IN_CONTRACTS


def _engine(item: pytest.Item) -> str | None:
    parameters = getattr(item, "callspec", None)
    return None if parameters is None else parameters.params.get("engine")


def _on_sqlite(name: str) -> str:
    """Return the name of the same test on the other engine."""
    test, _, parameters = name.partition("[")
    return f"{test}[{parameters.replace('postgres', 'sqlite', 1)}"

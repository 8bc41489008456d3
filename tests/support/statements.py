"""All SQL statements of the service."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from gleanery.service import admin, maintenance, resources, storage
from gleanery.service.resources.changes.feed import FeedSource
from gleanery.service.resources.outputs import search_statements
from gleanery.service.resources.sessions.kinds import RecordKind
from gleanery.service.storage.database import Sql, Statement

FILTERS = ("job_id", "url_hash", "country", "region", "approved")
FILTERS_OF_VIEW = FILTERS[:-1]
MISSING = "missing_since"
"""A filter like the others, whose index has only the outputs that it finds."""
_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b")
_NO_QUERIES = (
    "postgres.row_security",
    "postgres.citus.distribution",
    "migrations",
)  # they define tables and policies


def modules_with_statements() -> Iterator[tuple[str, ModuleType]]:
    """Every module that can have SQL, by its name without that of the storage or the resources."""
    for package in (storage, resources, maintenance, admin):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            name = module.name.removeprefix("gleanery.service.")
            yield (
                name.removeprefix("storage.").removeprefix("resources."),
                importlib.import_module(module.name),
            )


def page_statements() -> dict[tuple[str, ...], Sql]:
    """The statement of a page for each combination of filters, some of them with missing ones."""
    return {filters: search_statements.statements(filters).items for filters in _searches()}


def _searches() -> Iterator[tuple[str, ...]]:
    yield from _combinations(FILTERS)
    for others in ((), *((name,) for name in FILTERS), FILTERS):
        yield (*others, MISSING)


def _combinations(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(names) + 1):
        yield from itertools.combinations(names, size)


def statements(engine: str) -> dict[str, str]:
    """The text for one engine of every statement, and of each search."""
    return {
        name: getattr(sql, engine) if isinstance(sql, Sql) else sql
        for name, sql in all_statements().items()
    }


def all_statements() -> dict[str, Statement]:
    """Every statement, and each form of a page's statement."""
    found: dict[str, Statement] = {}
    for names, in_view in [
        *((names, False) for names in _searches()),
        *((names, True) for names in [(), *((name,) for name in FILTERS_OF_VIEW), FILTERS_OF_VIEW]),
    ]:
        subject = f"{'+'.join(names) or 'all'}{' in the view' if in_view else ''}"
        searched = search_statements.statements(names, in_view)
        found[f"page of {subject}"] = searched.items
        found[f"sizes of {subject}"] = searched.sizes
        found[f"export of {subject}"] = searched.lines
        found[f"versions of {subject}"] = searched.versions
        reversed_ = search_statements.statements(names, in_view, search_statements.NEWEST_FIRST)
        found[f"newest sizes of {subject}"] = reversed_.sizes
        found[f"newest versions of {subject}"] = reversed_.versions
    for module_name, module in modules_with_statements():
        if module_name in _NO_QUERIES:
            continue
        for name, value in vars(module).items():
            for part, text in _parts(value).items():
                first_text = text.sqlite if isinstance(text, Sql) else text
                if isinstance(first_text, str) and _STATEMENT.match(first_text):
                    found[f"{module_name}.{name}{part}"] = text
    return found


def _parts(value: Any) -> dict[str, Any]:
    if isinstance(value, RecordKind):
        return value.statements._asdict()
    if isinstance(value, dict):
        return {f"[{key}]": text for key, text in value.items()}
    if isinstance(value, FeedSource):
        return {f".{name}": text for name, text in value._asdict().items()}
    if isinstance(value, search_statements._Dialect):
        return {}  # parts of statements
    if isinstance(value, (list, tuple)) and not isinstance(value, Sql):
        return {f"[{number}]": text for number, text in enumerate(value)}
    return {"": value}

"""All SQL statements of the storage package."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from gleanery import storage
from gleanery.storage.outputs import search
from gleanery.storage.sessions.kinds import RecordKind

FILTERS = ("job_id", "url_hash", "country", "region", "approved")
_NO_QUERIES = ("postgres.row_security", "migrations")  # they define tables and policies


def storage_modules() -> Iterator[tuple[str, ModuleType]]:
    """Every module of the storage package, by its name inside the package."""
    for module in pkgutil.walk_packages(storage.__path__, "gleanery.storage."):
        yield module.name.removeprefix("gleanery.storage."), importlib.import_module(module.name)


def page_statements() -> dict[tuple[str, ...], str]:
    """The statement of a page for each combination of filters."""
    return {
        filters: search.statements(filters).items
        for size in range(len(FILTERS) + 1)
        for filters in itertools.combinations(FILTERS, size)
    }


def statements() -> dict[str, str]:
    """Every statement in the storage package, and each form of a page's statement."""
    found = {f"page of {'+'.join(names) or 'all'}": s for names, s in page_statements().items()}
    for names in page_statements():
        found[f"sizes of {'+'.join(names) or 'all'}"] = search.statements(names).sizes
        found[f"export of {'+'.join(names) or 'all'}"] = search.statements(names).lines
    for module_name, module in storage_modules():
        if module_name in _NO_QUERIES:
            continue
        for name, value in vars(module).items():
            for part, text in _parts(value).items():
                if isinstance(text, str) and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", text):
                    found[f"{module_name}.{name}{part}"] = text
    return found


def _parts(value: Any) -> dict[str, Any]:
    if isinstance(value, RecordKind):
        return value.statements._asdict()
    if isinstance(value, dict):
        return {f"[{key}]": text for key, text in value.items()}
    if isinstance(value, tuple):
        return {f"[{number}]": text for number, text in enumerate(value)}
    return {"": value}

"""Changes of the settings of a group."""

from __future__ import annotations

import json

from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.groups.models import GroupSettings
from gleanery.service.resources.outputs import bulk_jobs, rules
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database
from gleanery.service.storage.group_lock import (
    DEFAULT_KEEP_DAYS,
    DEFAULT_KEEP_VERSIONS,
    Clock,
    LockedGroup,
)

_NAMES = ("display_name", "key_fields", "schema", "retain_days", "keep_versions", "keep_days")
_DEFAULTS = (None, None, None, None, DEFAULT_KEEP_VERSIONS, DEFAULT_KEEP_DAYS)
_READ = f"SELECT {', '.join(_NAMES)} FROM groups WHERE organization_id = $1 AND id = $2"
_SAVE = """
UPDATE groups
SET display_name = $3, key_fields = $4, schema = $5, retain_days = $6, next_expiry_at = 0,
    keep_versions = $7, keep_days = $8
WHERE organization_id = $1 AND id = $2
"""
_Values = tuple[str | int | None, ...]


async def set_group(
    database: Database,
    validator: SchemaValidator,
    group: str,
    settings: GroupSettings,
    clock: Clock,
    actor: Actor,
) -> None:
    """Replace the settings of a group, which is created if it does not exist."""
    key_fields = None if settings.key_fields is None else _encode(settings.key_fields)
    schema = None if settings.schema_ is None else _encode(settings.schema_)
    await rules.check_schema(validator, database.organization_id, schema)
    limits = (settings.retain_days, settings.keep_versions, settings.keep_days)
    values = (settings.display_name, key_fields, schema, *limits)

    async def save(locked: LockedGroup) -> bool:
        group_key = (locked.organization_id, locked.group_id)
        [before] = await locked.transaction.fetch(_READ, *group_key)
        await locked.transaction.fetch(_SAVE, *group_key, *values)
        await _audit(locked, _changed(tuple(before), values), actor)
        return True

    # Waits for a bulk job: the end of a removal would delete settings that are saved before it.
    await bulk_jobs.run_and_finish_bulk_job(database, group, clock, save, group_lock.lock_or_create)


def _encode(value: object) -> str:
    """Encode as ASCII, so that NUL stays an escape; PostgreSQL cannot store NUL in text."""
    return json.dumps(value)


def _changed(before: _Values, after: _Values) -> list[str]:
    """Return the names of the settings that differ."""
    pairs = zip(_with_defaults(before), _with_defaults(after), strict=True)
    return [name for name, (old, new) in zip(_NAMES, pairs, strict=True) if old != new]


def _with_defaults(values: _Values) -> list[str | int | None]:
    pairs = zip(values, _DEFAULTS, strict=True)
    return [default if value is None else value for value, default in pairs]


async def _audit(locked: LockedGroup, changed: list[str], actor: Actor) -> None:
    """Append an entry. Scrapers repeat their settings at each start, which changes nothing."""
    if changed:
        about = AuditAbout(group_id=locked.name, settings=changed)
        await log.append(locked.transaction, actor, locked.now, "set_group", about)

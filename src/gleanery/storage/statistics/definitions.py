"""The fields of each shape of a job: written when the job has the shape for the first time."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.statistics.shapes import (
    OTHER,
    Field,
    decode_fields,
    encode_fields,
)

_INSERT = """
INSERT INTO job_shapes (organization_id, group_id, job_id, shape, fields)
VALUES ($1, $2, $3, $4, $5)
"""
_SELECT_OTHER = """
SELECT fields FROM job_shapes
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND shape = $4
"""
_SAVE_OTHER = """
INSERT INTO job_shapes (organization_id, group_id, job_id, shape, fields)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (organization_id, group_id, job_id, shape) DO UPDATE SET fields = excluded.fields
"""
_DELETE = """
DELETE FROM job_shapes
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND shape = $4
"""


async def add(locked: LockedGroup, job_id: int, shapes: Iterable[tuple[int, str]]) -> None:
    """Stores new shapes of a job, each with its fields."""
    key = (locked.organization_id, locked.group_id, job_id)
    await locked.transaction.execute_many(_INSERT, [(*key, *shape) for shape in shapes])


async def add_to_other(locked: LockedGroup, job_id: int, fields: Collection[Field] | None) -> bool:
    """Adds fields of shapes that are not counted separately; None stands for any field.

    The shape ``OTHER`` has every field and kind that any of these shapes has. So a suggested
    schema accepts their outputs, too. Returns False if it now stands for outputs with any field.
    """
    key = (locked.organization_id, locked.group_id, job_id, OTHER)
    rows = await locked.transaction.fetch(_SELECT_OTHER, *key)
    stored = decode_fields(rows[0][0] if rows else "[]")
    united = None
    if stored is not None and fields is not None:
        united = encode_fields([*{*stored, *fields}])
    await locked.transaction.fetch(_SAVE_OTHER, *key, united)
    return united is not None


async def delete(locked: LockedGroup, shapes: Iterable[tuple[int, int]]) -> None:
    """Deletes the fields of shapes that nothing refers to, each with its job."""
    key = (locked.organization_id, locked.group_id)
    await locked.transaction.execute_many(_DELETE, [(*key, *shape) for shape in shapes])

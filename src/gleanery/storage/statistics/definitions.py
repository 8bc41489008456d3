"""The fields of each shape of a job: written when the job has the shape for the first time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.statistics.shapes import (
    MAX_PATHS,
    OTHER,
    Field,
    Shape,
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


async def add(locked: LockedGroup, shapes: Iterable[tuple[int, Shape]]) -> None:
    """Stores the fields of new shapes, each with its job."""
    key = (locked.organization_id, locked.group_id)
    rows = [(*key, job_id, shape.number, shape.fields_json) for job_id, shape in shapes]
    await locked.transaction.execute_many(_INSERT, rows)


async def add_to_other(locked: LockedGroup, job_id: int, shapes: Collection[Shape]) -> None:
    """Adds the fields of shapes that are not counted separately.

    The shape ``OTHER`` has every field and kind that any of these shapes has. So a suggested
    schema accepts their outputs, too.
    """
    key = (locked.organization_id, locked.group_id, job_id, OTHER)
    rows = await locked.transaction.fetch(_SELECT_OTHER, *key)
    stored = rows[0][0] if rows else "[]"
    united = _unite([stored, *(shape.fields_json for shape in shapes)])
    if not rows or united != stored:
        await locked.transaction.fetch(_SAVE_OTHER, *key, united)


def _unite(texts: Sequence[str | None]) -> str | None:
    """Returns the fields of all texts; None, which stands for any field, if they are too many.

    It stops at the first text with which they are too many, because a text takes time to decode.
    """
    united: set[Field] = set()
    for text in texts:
        united.update(decode_fields(text) or ())
        if text is None or len(united) > MAX_PATHS:
            return None
    return encode_fields([*united])


async def delete(locked: LockedGroup, shapes: Iterable[tuple[int, int]]) -> None:
    """Deletes the fields of shapes that nothing refers to, each with its job."""
    key = (locked.organization_id, locked.group_id)
    await locked.transaction.execute_many(_DELETE, [(*key, *shape) for shape in shapes])

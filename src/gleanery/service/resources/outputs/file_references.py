"""The files that outputs reference: checks that they exist and counts the references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from gleanery.service.foundation.errors import MAX_DETAILS, ErrorDetail, ReferenceNotFound
from gleanery.service.resources.files import references
from gleanery.service.resources.outputs.preparation import PreparedOutput
from gleanery.service.resources.outputs.rows import OutputRow
from gleanery.service.storage.group_lock import LockedGroup

_FILE_NOT_FOUND = "Your organization has no file with this id"


async def reference_files(
    locked: LockedGroup, stored: Collection[OutputRow], changed: Sequence[PreparedOutput]
) -> None:
    """Render the files that the new values reference, and update the files' reference counts."""
    requested = {file.id for output in changed for file in output.files if file.id is not None}
    affected = [
        (row, row.new_value)
        for row in stored
        if row.new_value is not None and (row.new_value.files or row.file_ids)
    ]
    if not affected and not requested:
        return
    count_changes = Counter(dict.fromkeys(requested, 0))
    for row, value in affected:
        count_changes.update(file.id for file in value.files if file.id is not None)
        if not row.replaces_approved:  # else the copy in the approved view keeps the references
            count_changes.subtract(references.split_ids(row.file_ids))
    found = await references.change_reference_counts(locked, count_changes) if count_changes else {}
    _check_existence(changed, found)
    renderer = references.FileRenderer(found, locked.now)
    for row, value in affected:
        row.files_json, row.file_ids = renderer.render(value.files)


def _check_existence(changed: Sequence[PreparedOutput], found: Collection[bytes]) -> None:
    positions = {output.position for output in changed if any(_missing_files(output, found))}
    if positions:
        details = (detail for output in changed for detail in _missing_files(output, found))
        first = islice(details, MAX_DETAILS + 1)  # one more, so that the error can say so
        raise ReferenceNotFound(*first, positions=positions)


def _missing_files(output: PreparedOutput, found: Collection[bytes]) -> Iterator[ErrorDetail]:
    for index, file in enumerate(output.files):
        if file.id is not None and file.id not in found:
            loc = ("body", str(output.position), "files", str(index), "id")
            yield ErrorDetail(loc, _FILE_NOT_FOUND, "not_found")

"""Outputs that a review names: finds them in the reviewed job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gleanery.errors import MAX_DETAILS, ErrorDetail, InvalidRequest
from gleanery.models.requests import FindingIn
from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.outputs.hashes import parse_output_id

# The plus signs prevent planners from scanning the whole group to find one identity in it.
_FIND = """
SELECT identity FROM outputs
WHERE organization_id = $1 AND +group_id = $2 AND +job_id = $3 AND identity = $4
"""


async def check_findings(locked: LockedGroup, job_id: int, findings: Sequence[FindingIn]) -> None:
    """Raises InvalidRequest if a finding is about an output that the job does not have."""
    known = await _find(locked, job_id, (finding.output_id for finding in findings))
    unknown = [
        _unknown("findings", str(position), "output_id")
        for position, finding in enumerate(findings)
        if finding.output_id not in known
    ]
    if unknown:
        raise InvalidRequest(*unknown[:MAX_DETAILS])


async def _find(locked: LockedGroup, job_id: int, output_ids: Iterable[str]) -> set[str]:
    identities = {parse_output_id(output_id) for output_id in output_ids}
    job_key = (locked.organization_id, locked.group_id, job_id)
    rows = await locked.transaction.fetch_by_keys(identities, _FIND, *job_key)
    return {row[0].hex() for row in rows}


def _unknown(*loc: str) -> ErrorDetail:
    msg = "The job has no output with this output_id"
    return ErrorDetail(("body", *loc), msg, "unknown_output")

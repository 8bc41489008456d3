"""Outputs that a review names: finds them in the reviewed job, and sets their approval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, first_problems
from gleanery.service.resources.outputs import mutations
from gleanery.service.resources.outputs.elements import parse_output_id
from gleanery.service.resources.reviews.models import FindingIn
from gleanery.service.storage import paging
from gleanery.service.storage.database import Row
from gleanery.service.storage.group_lock import LockedGroup

# The plus signs prevent planners from scanning the whole group to find one identity in it.
_FIND = """
SELECT identity, version_seq, octet_length(item) FROM outputs
WHERE organization_id = $1 AND +group_id = $2 AND +job_id = $3 AND identity = $4
"""


async def check_findings(locked: LockedGroup, job_id: int, findings: Sequence[FindingIn]) -> None:
    """Raise InvalidRequest if a finding is about an output that the job does not have."""
    known = await _find(locked, job_id, (finding.output_id for finding in findings))
    _reject_unknown(
        _unknown("findings", str(position), "output_id")
        for position, finding in enumerate(findings)
        if finding.output_id not in known
    )


async def find_later(
    locked: LockedGroup, job_id: int, output_ids: Sequence[str], as_of: int | None
) -> list[str]:
    """Return the outputs whose values were stored after ``as_of``.

    Raise InvalidRequest if the job lacks an output, or if all together are too large.
    """
    known = await _find(locked, job_id, output_ids)
    _reject_unknown(
        _unknown("output_ids", str(position))
        for position, output_id in enumerate(output_ids)
        if output_id not in known
    )
    _check_size([known[output_id][2] for output_id in output_ids])
    return [one for one in output_ids if as_of is not None and known[one][1] > as_of]


async def set_approval(
    locked: LockedGroup, output_ids: Sequence[str], approved: bool, as_of: int | None
) -> None:
    identities = [parse_output_id(output_id) for output_id in output_ids]
    position = locked.last_seq if as_of is None else as_of
    await mutations.approve_outputs(locked, identities, approved, position)


async def _find(locked: LockedGroup, job_id: int, output_ids: Iterable[str]) -> dict[str, Row]:
    identities = {parse_output_id(output_id) for output_id in output_ids}
    job_key = (locked.organization_id, locked.group_id, job_id)
    rows = await locked.transaction.fetch_by_keys(identities, _FIND, *job_key)
    return {row[0].hex(): row for row in rows}


def _unknown(*loc: str) -> ErrorDetail:
    msg = "The job has no output with this output_id"
    return ErrorDetail(("body", *loc), msg, "unknown_output")


def _reject_unknown(problems: Iterable[ErrorDetail]) -> None:
    unknown = [*problems]
    if unknown:
        raise InvalidRequest(*first_problems(unknown))


def _check_size(sizes: Sequence[int]) -> None:
    """Raise InvalidRequest if one transaction would change too many bytes."""
    count = paging.count_fitting(sizes, mutations.MAX_BYTES)
    if count < len(sizes):
        limit = mutations.MAX_BYTES // 1024**2
        msg = f"The outputs up to this one have more than {limit} MiB: send fewer in each review"
        raise InvalidRequest(ErrorDetail(("body", "output_ids", str(count)), msg, "too_large"))

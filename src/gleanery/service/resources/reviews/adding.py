"""Adding a review: an append-only history per job, and its effect on the job's outputs.

A review is about the whole job, or about outputs that it names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, cast

from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    NotFound,
    ReviewedStateLost,
    first_problems,
)
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.events import storing
from gleanery.service.resources.outputs import bulk_jobs, mutations
from gleanery.service.resources.outputs.elements import parse_output_id
from gleanery.service.resources.outputs.positions import Position
from gleanery.service.resources.reviews.models import AddedReview, FindingIn, FindingOut, ReviewIn
from gleanery.service.resources.reviews.reading import to_response
from gleanery.service.storage import group_lock, metadata, paging
from gleanery.service.storage.database import Database, Row, indexed
from gleanery.service.storage.group_lock import LockedGroup
from gleanery.service.storage.idempotency import IdempotentRequest

_APPEND = """
INSERT INTO reviews
    (organization_id, group_id, job_id, review_id, status, comment, created_at, as_of, output_ids,
     skipped_output_ids, findings, person)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
RETURNING id
"""
# A decision about the whole job ends the wait, unless there are values that it does not cover.
_SET_DECISION = """
UPDATE jobs SET latest_review_id = $3, approved_seq = coalesce($5, approved_seq),
    waits_since = CASE WHEN $6 = 0 OR output_count > approved_count THEN CAST($4 AS BIGINT) END
WHERE organization_id = $1 AND id = $2
"""
_SET_LATEST = """
UPDATE jobs SET latest_review_id = $3,
    waits_since = CASE WHEN output_count > approved_count THEN coalesce(waits_since, $4) END
WHERE organization_id = $1 AND id = $2
"""
# Approvals give outputs new numbers as well. So it looks at several of the newest ones.
_LOOKED_AT = 1000
_LATER_VALUE = indexed(
    f"""
SELECT min(CASE WHEN version_seq > $4 THEN version_seq END), count(*) FROM (
    SELECT version_seq FROM {{outputs}}
    WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND seq > $4
    ORDER BY seq DESC LIMIT {_LOOKED_AT}) AS later
""",
    outputs="outputs_by_job",
)
# The plus signs prevent planners from scanning the whole group to find one identity in it.
_FIND_OUTPUTS = """
SELECT identity, version_seq, octet_length(item) FROM outputs
WHERE organization_id = $1 AND +group_id = $2 AND +job_id = $3 AND identity = $4
"""
_COMMENT_IN_EVENT = 2000  # characters: receivers of webhooks expect less than 20 kB
# The bulk job that a status starts. Other statuses leave the outputs as they are.
_BULK_JOB_OF_STATUS: dict[str, group_lock.BulkJobKind] = {
    "approved": "approve",
    "changes_requested": "unapprove",
    "rejected": "unapprove",
}


async def add_review(
    database: Database,
    group: str,
    review: ReviewIn,
    clock: group_lock.Clock,
    actor: Actor,
    idempotency_key: str | None = None,
) -> AddedReview:
    """Append the review and apply its status to the outputs that the job has at that time.

    A repeated request with the same idempotency key gets the response of the first one, and also
    not before the status is applied.
    """
    request = None
    if idempotency_key is not None:
        request = _idempotent_request(group, idempotency_key, review)
        stored: AddedReview | None = await request.read_response(database)
        if stored is not None:
            await bulk_jobs.finish_bulk_job(database, group, clock)
            return stored
    action = partial(_append_once, review=review, actor=actor, request=request)
    return await bulk_jobs.run_and_finish_bulk_job(database, group, clock, action)


def _idempotent_request(group: str, idempotency_key: str, review: ReviewIn) -> IdempotentRequest:
    content = json_text.canonical(review.model_dump(exclude_none=True))
    return IdempotentRequest(hash_parts("reviews", group, idempotency_key), hash_parts(content))


async def _append_once(
    locked: LockedGroup, review: ReviewIn, actor: Actor, request: IdempotentRequest | None
) -> AddedReview:
    """Append the review, unless a concurrent repetition of the request was faster."""
    if request is None:
        return await _append(locked, review, actor)
    response: AddedReview | None = await request.fetch_response(locked.transaction)
    if response is None:
        response = await _append(locked, review, actor)
        await request.save_response(locked.transaction, response, locked.now)
    return response


class _Job(NamedTuple):
    """The reviewed job, and the position up to which the review applies; None: the present."""

    id: int
    as_of: int | None


async def _append(locked: LockedGroup, review: ReviewIn, actor: Actor) -> AddedReview:
    job = await _find_job(locked, review)
    await _check_findings(locked, job.id, review.findings or ())
    skipped = None
    if review.output_ids is None:
        await _apply_to_job(locked, review, job)
    else:
        skipped = await _apply_to_outputs(locked, review.output_ids, review, job)
    response = await _insert(locked, review, job, skipped, actor.person)
    about = AuditAbout(
        group_id=locked.name,
        job_id=review.job_id,
        review_id=response["review_id"],
        status=review.status,
    )
    if review.output_ids is not None:
        about["outputs"] = len(review.output_ids)
    await log.append(locked.transaction, actor, locked.now, "add_review", about)
    await _store_event(locked, response)
    return response


async def _store_event(locked: LockedGroup, review: AddedReview) -> None:
    """Store ``review.created`` for the webhooks that want it."""
    wanting = await storing.wanting(locked.transaction, "review.created", locked.name)
    if wanting:
        data = {"group_id": locked.name, **review}
        data["comment"] = review["comment"][:_COMMENT_IN_EVENT]
        data.pop("skipped_output_ids", None)
        await storing.store(locked.transaction, wanting, "review.created", data, locked.now)


async def _find_job(locked: LockedGroup, review: ReviewIn) -> _Job:
    job_id = await locked.find_job(review.job_id)
    if job_id is None:
        raise NotFound(("body", "job_id"), "This group has no job with this job_id")
    as_of = None if review.as_of is None else await _check_position(locked, review.as_of)
    return _Job(job_id, as_of)


async def _check_position(locked: LockedGroup, cursor: int) -> int:
    """Return the position of a cursor. Raise an error if the group has no such state."""
    seq = Position.from_cursor(cursor, locked.now).seq
    if seq > locked.last_seq:
        msg = "This position is after the last change of the group: send a cursor of this group"
        raise InvalidRequest(ErrorDetail(("body", "as_of"), msg, "unknown_cursor"))
    if seq < await metadata.restore_time(locked.transaction):
        raise ReviewedStateLost
    return seq


async def _apply_to_job(locked: LockedGroup, review: ReviewIn, job: _Job) -> None:
    kind = _BULK_JOB_OF_STATUS.get(review.status)
    if kind is not None:
        await bulk_jobs.create(locked, kind, job.id, job.as_of)


async def _apply_to_outputs(
    locked: LockedGroup, output_ids: list[str], review: ReviewIn, job: _Job
) -> list[str]:
    """Apply the review to these outputs. Return those that have a later value."""
    later = await _find_later(locked, job.id, output_ids, job.as_of)
    kind = _BULK_JOB_OF_STATUS.get(review.status)
    if kind is not None:
        await _set_approval(locked, output_ids, kind == "approve", job.as_of)
    return later


async def _insert(
    locked: LockedGroup,
    review: ReviewIn,
    job: _Job,
    skipped: list[str] | None,
    person: str | None,
) -> AddedReview:
    """Store the review. That of a whole job becomes the latest review of the job."""
    review_id, comment = uuid.uuid4().hex, review.comment or ""
    job_key = (locked.organization_id, locked.group_id, job.id)
    texts = (_as_text(review.output_ids), _as_text(skipped), _as_text(_findings(review)))
    [[row_id]] = await locked.transaction.fetch(
        _APPEND, *job_key, review_id, review.status, comment, locked.now, job.as_of, *texts, person
    )
    response = to_response(review.job_id, review_id, locked.now, review.status, comment)
    added = cast(AddedReview, response)
    if skipped is None:
        await _set_latest(locked, review, job, row_id)
    else:
        added["skipped_output_ids"] = skipped
    return added


async def _set_latest(locked: LockedGroup, review: ReviewIn, job: _Job, row_id: int) -> None:
    """Make the review the latest one of its job, and say whether the job still waits for one."""
    key = (locked.organization_id, job.id, row_id)
    if review.status not in _BULK_JOB_OF_STATUS:
        await locked.transaction.fetch(_SET_LATEST, *key, locked.now)
        return
    waits_since = None
    if job.as_of is not None:
        job_key = (locked.organization_id, locked.group_id, job.id)
        [[waits_since, count]] = await locked.transaction.fetch(_LATER_VALUE, *job_key, job.as_of)
        if waits_since is None and count == _LOOKED_AT:
            waits_since = locked.now  # there may be more: the job waits, unless all are approved
    position = job.as_of or locked.last_seq
    approved_seq = position if review.status == "approved" else None
    is_approval = int(approved_seq is not None)
    await locked.transaction.fetch(_SET_DECISION, *key, waits_since, approved_seq, is_approval)


def _findings(review: ReviewIn) -> list[FindingOut]:
    return [
        FindingOut(output_id=finding.output_id, path=finding.path, note=finding.note or "")
        for finding in review.findings or ()
    ]


def _as_text(value: list[str] | list[FindingOut] | None) -> str | None:
    """Return an array as JSON text, as a client gets it."""
    return None if value is None else json_text.encode(value).decode()


# --- the outputs that a review names ------------------------------------------------------------


async def _check_findings(locked: LockedGroup, job_id: int, findings: Sequence[FindingIn]) -> None:
    """Raise InvalidRequest if a finding is about an output that the job does not have."""
    known = await _find_outputs(locked, job_id, (finding.output_id for finding in findings))
    _reject_unknown(
        _unknown("findings", str(position), "output_id")
        for position, finding in enumerate(findings)
        if finding.output_id not in known
    )


async def _find_later(
    locked: LockedGroup, job_id: int, output_ids: Sequence[str], as_of: int | None
) -> list[str]:
    """Return the outputs whose values were stored after ``as_of``.

    Raise InvalidRequest if the job lacks an output, or if all together are too large.
    """
    known = await _find_outputs(locked, job_id, output_ids)
    _reject_unknown(
        _unknown("output_ids", str(position))
        for position, output_id in enumerate(output_ids)
        if output_id not in known
    )
    _check_size([known[output_id][2] for output_id in output_ids])
    return [one for one in output_ids if as_of is not None and known[one][1] > as_of]


async def _set_approval(
    locked: LockedGroup, output_ids: Sequence[str], approved: bool, as_of: int | None
) -> None:
    identities = [parse_output_id(output_id) for output_id in output_ids]
    position = locked.last_seq if as_of is None else as_of
    await mutations.approve_outputs(locked, identities, approved, position)


async def _find_outputs(
    locked: LockedGroup, job_id: int, output_ids: Iterable[str]
) -> dict[str, Row]:
    identities = {parse_output_id(output_id) for output_id in output_ids}
    job_key = (locked.organization_id, locked.group_id, job_id)
    rows = await locked.transaction.fetch_by_keys(identities, _FIND_OUTPUTS, *job_key)
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

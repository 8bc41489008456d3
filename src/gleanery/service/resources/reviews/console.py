"""The console's part of reviews: samples next to approved versions, and the reviews of one job.

A sample keeps its position (``as_of``) and its outputs until its review is sent. The browser sends
both after a reload, and asks for what was stored later. So nothing that a reviewer has decided
moves to another output or to another version.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from gleanery.service.api.context import RequestContext
from gleanery.service.api.response import Response
from gleanery.service.console import values
from gleanery.service.foundation.errors import NotFound, VersionExpired, no_output
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import canonical_hash, encode, path_of_member
from gleanery.service.resources.files.links import with_links
from gleanery.service.resources.files.references import (
    BLOB_URL_MARKER,
    FILE_URL_MARKER,
    SIGNATURE_MARKER,
)
from gleanery.service.resources.outputs import console_output_details
from gleanery.service.resources.reviews import reading, sample
from gleanery.service.resources.reviews.handlers import read_sample
from gleanery.service.resources.reviews.models import (
    ChosenOutputs,
    ConsoleSample,
    FieldPage,
    FieldRow,
    FieldsQuery,
    JobReviewOut,
    JobReviews,
    JobReviewsQuery,
    LastApproval,
    LaterQuery,
    LaterValues,
    NamedRow,
    SampleFile,
    SampleOutput,
    SampleQuery,
    SampleReason,
)

MAX_ROWS = 100
"""The most fields of one output."""
MAX_FIELDS = 1000
"""The most fields of a sample. Data can have ids as names of members."""
MAX_BYTES = 4 * 1024**2
"""About the largest sample. The outputs that do not fit are left out; they are of every reason."""
_PAGE_ROWS = 500
_PAGE_BYTES = 1024**2
_MAX_FLAGGED_PATH = 1000  # of a finding
_CELL = values.Limits(text=400, children=20, depth=3, nodes=40)
_MAX_FILES = 20
_MAX_TEXT = 2000  # of a URL or a detail
_MAX_PATH = 300
_SHOWN_FINDINGS = 50
_FLATTENED_DEPTH = 2  # as the field statistics


async def get_sample(context: RequestContext[SampleQuery, None]) -> Response:
    query = context.query
    seed, found = await read_sample(context, query.job_id, query.seed, query.size, query.as_of)
    return await _respond(context, query.job_id, seed, found)


async def read_sample_again(context: RequestContext[None, ChosenOutputs]) -> Response:
    body = context.body
    found = await _read_chosen(context, body.job_id, body.outputs, body.as_of)
    return await _respond(context, body.job_id, "", found)


async def get_later_values(context: RequestContext[None, LaterQuery]) -> Response:
    body, group = context.body, context.path["group_id"]
    found = await sample.find_later(
        context.database, group, body.job_id, body.output_ids, body.as_of
    )
    later = LaterValues(outputs=found.output_count, later=found.positions, deleted=found.deleted)
    return Response(encode(later))


async def get_fields(context: RequestContext[FieldsQuery, None]) -> Response:
    query = context.query
    found = await _read_chosen(context, query.job_id, {context.path["output_id"]: "random"}, None)
    if not found.outputs:
        raise no_output()
    [output] = found.outputs
    console_output_details.check_version(output.value_seq, query.stored)
    output = await _with_version_before(context, output, query.as_of)
    item = bytes(await with_links(context, output.item))
    run = context.services.computations.run
    return Response(await run(context.organization_id, _field_page, output, item, query.offset))


async def _read_chosen(
    context: RequestContext[Any, Any],
    job: str,
    chosen: Mapping[str, SampleReason],
    as_of: int | None,
) -> sample.Sample:
    return await sample.read_chosen(
        context.database,
        context.services.computations,
        context.path["group_id"],
        job,
        chosen,
        as_of,
        context.services.settings.max_page_bytes,
    )


async def _respond(
    context: RequestContext[Any, Any], job_id: str, seed: str, found: sample.Sample
) -> Response:
    group, database = context.path["group_id"], context.database
    job = await reading.find_job(database, group, job_id)
    computations = context.services.computations
    shown: list[_Shown] = []
    for sampled in found.outputs:
        output = await _with_version_before(context, sampled, found.cursor)
        item = bytes(await with_links(context, output.item))
        shown.append(await computations.run(context.organization_id, _compare, output, item))
    head = ConsoleSample(
        seed=seed,
        job_id=job_id,
        cursor=found.cursor,
        outputs=found.output_count,
        last_approval=_describe_approval(await reading.last_approval(database, job)),
        fields=_order(shown),
        sample=[],
    )
    return Response(await computations.run(context.organization_id, _render, head, shown))


async def _with_version_before(
    context: RequestContext[Any, Any], output: sample.SampledOutput, as_of: int
) -> sample.SampledOutput:
    """Add the version before, if the value was approved after the sample.

    Without it, somebody's approval would hide from other reviewers what has changed.
    """
    if not output.is_approved or not output.value_seq <= as_of < output.seq:
        return output
    with suppress(NotFound, VersionExpired):  # there was none, or it is no longer kept
        before = await console_output_details.read_version_before(
            context, output.identity, output.value_seq
        )
        return output._replace(approved_item=before)
    return output


async def get_job_reviews(context: RequestContext[JobReviewsQuery, None]) -> Response:
    database = context.database
    job = await reading.find_job(database, context.path["group_id"], context.query.job_id)
    reviews = await reading.newest_reviews(database, job)
    body = JobReviews(
        outputs=job.output_count,
        approved=job.approved_count,
        last_approval=_describe_approval(await reading.last_approval(database, job)),
        reviews=[_describe_review(review) for review in reviews],
    )
    return Response(encode(body))


def _describe_review(review: reading.JobReview) -> JobReviewOut:
    findings = json.loads(review.findings or "[]")
    return JobReviewOut(
        review_id=review.review_id,
        review_date=timestamps.render_microseconds(review.created_at),
        status=review.status,
        comment=review.comment,
        person=review.person,
        is_of_job=bool(review.is_of_job),
        findings=findings[:_SHOWN_FINDINGS],
        has_more_findings=review.findings is None or len(findings) > _SHOWN_FINDINGS,
    )


def _describe_approval(approval: reading.Approval | None) -> LastApproval | None:
    if approval is None:
        return None
    date = timestamps.render_microseconds(approval.created_at)
    return LastApproval(review_id=approval.review_id, review_date=date, person=approval.person)


# --- the fields of a sample ---------------------------------------------------------------------

_ABSENT = object()
_Fields = dict[str, Any]
"""Values by path."""


class _Shown(NamedTuple):
    """An output whose rows have no place yet."""

    output: SampleOutput
    rows: dict[str, FieldRow]


class _Versions:
    """The fields of an output, beside those of its last approved version."""

    def __init__(self, found: sample.SampledOutput, item_text: bytes) -> None:
        self.item = values.parse(item_text)
        text = found.approved_item
        approved = None if text is None else values.parse(_without_markers(text))
        self.before: Literal["approved", "before"] | None = None
        self._now = dict(_flatten(self.item))
        self._then = self._now
        if approved is not None:
            self.before = "before" if self.item["is_approved"] else "approved"
            self._then = dict(_flatten(approved))
        self.paths = [*{**self._now, **self._then}]
        self._changed = _changed_among(self.paths, _changed_paths(found.fields))

    @property
    def approval(self) -> str:
        if self.before == "approved":
            return "older"
        return "current" if self.item["is_approved"] else "none"

    def is_changed(self, path: str) -> bool:
        now, then = self._now, self._then
        if now is then:
            return False
        if self._changed is None or (path in now) != (path in then):
            before, after = then.get(path, _ABSENT), now.get(path, _ABSENT)
            return type(before) is not type(after) or bool(before != after)
        return path in self._changed

    def row(self, path: str) -> FieldRow:
        is_changed = self.is_changed(path)
        if is_changed and path in self._now and path in self._then:
            before, after = values.truncate_pair(self._then[path], self._now[path], _CELL)
            return FieldRow(at=0, after=after, before=before, is_changed=True)
        before_, after_ = _node(path, self._then), _node(path, self._now)
        return FieldRow(
            at=0, after=after_, before=before_ if is_changed else None, is_changed=is_changed
        )


def _compare(found: sample.SampledOutput, item_text: bytes) -> _Shown:
    """Put the fields of an output beside those of its last approved version."""
    versions = _Versions(found, item_text)
    item = versions.item
    output = SampleOutput(
        output_id=item["output_id"],
        version=_version(item),
        stored=found.value_seq,
        source_url=item["source_url"][:_MAX_TEXT],
        last_scraped_date=item["last_scraped_date"],
        reason=found.reason,
        detail=None if found.detail is None else found.detail[:_MAX_TEXT],
        approval=versions.approval,
        before=versions.before,
        rows=[],
        left_out=len(versions.paths),
        files=[_file(file) for file in item["files"][:_MAX_FILES]],
    )
    return _Shown(output, {path: versions.row(path) for path in _choose(versions)})


def _field_page(found: sample.SampledOutput, item_text: bytes, offset: int) -> bytes:
    """Write fields of an output from a place on, as many as fit, and at least one."""
    versions = _Versions(found, item_text)
    paths = [path for path in versions.paths if len(path) <= _MAX_FLAGGED_PATH]
    rows: list[NamedRow] = []
    left = _PAGE_BYTES
    for path in paths[offset : offset + _PAGE_ROWS]:
        row = versions.row(path)
        left -= len(encode(row))
        if rows and left < 0:
            break
        after, before = row["after"], row["before"]
        rows.append(NamedRow(path=path, after=after, before=before, is_changed=row["is_changed"]))
    end = offset + len(rows)
    return encode(FieldPage(rows=rows, next_offset=end if end < len(paths) else None))


def _version(item: dict[str, Any]) -> str:
    """Identify what a reviewer sees. An approval changes update_date, but not this."""
    names = ("id", "field", "file_checksum", "source_url")
    files = [[file[name] for name in names] for file in item["files"]]
    shown = [item["value_hash"], item["source_url"], item["tags"], files]
    return canonical_hash(shown).hex()[:16]


def _choose(versions: _Versions) -> list[str]:
    """Return the paths to show in their order. Changed fields are left out last."""
    short = [path for path in versions.paths if len(path) <= _MAX_PATH]
    if len(short) <= MAX_ROWS:
        return short
    important = sorted(short, key=lambda path: not versions.is_changed(path))
    chosen = {*important[:MAX_ROWS]}
    return [path for path in short if path in chosen]


def _file(file: dict[str, Any]) -> SampleFile:
    url = file["blob_url"] or file["file_url"] or file["source_url"] or ""
    texts = (file["field"] or "", file["file_type"] or "")
    field, file_type = (text[:_MAX_TEXT] for text in texts)
    return SampleFile(field=field, file_type=file_type, url=url[: 2 * _MAX_TEXT])


def _flatten(item: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from _members("", item["data"], _FLATTENED_DEPTH)
    yield from _members("$.tags", item["tags"], 1)


def _members(parent: str, value: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        path = path_of_member(parent, name)
        if isinstance(inner, dict) and inner and depth > 1:
            yield from _members(path, inner, depth - 1)
        else:
            yield path, inner


def _changed_paths(text: bytes | None) -> list[str] | None:
    """Return the paths of the changed fields; None if there are too many to list."""
    return (
        None if text is None else [change["path"] for change in json.loads(_without_markers(text))]
    )


def _without_markers(text: bytes) -> bytes:
    return text.translate(None, SIGNATURE_MARKER + BLOB_URL_MARKER + FILE_URL_MARKER)


def _changed_among(paths: Sequence[str], changed: Sequence[str] | None) -> set[str] | None:
    """Return the paths that are a changed field, or inside one, or above one.

    An output can have many thousands of fields, so they are not compared one by one.
    """
    if changed is None:
        return None
    exact, above = {*changed}, {part for one in changed for part in _prefixes(one)}
    has_new_data = "$.data" in exact
    return {
        path
        for path in paths
        if path in above
        or (has_new_data and not path.startswith("$."))
        or any(part in exact for part in _prefixes(path))
    }


def _prefixes(path: str) -> Iterator[str]:
    """Yield the path, and the paths of the values that contain it."""
    yield path
    for at, letter in enumerate(path):
        if letter in ".[":
            yield path[:at]


def _node(path: str, fields: _Fields) -> values.Node | None:
    return values.truncate(fields[path], _CELL) if path in fields else None


def _order(shown: Sequence[_Shown]) -> list[str]:
    """Return the fields of a sample: first those of most outputs, in the order of their data."""
    found = Counter(path for one in shown for path in one.rows)
    counts = dict(found.most_common(MAX_FIELDS))
    order = {path: place for place, path in enumerate(_first_appearances(shown))}
    half = len(shown) / 2

    def rank(path: str) -> tuple[bool, bool, int]:
        return path.startswith("$."), counts[path] < half, order[path]

    return sorted(counts, key=rank)


def _first_appearances(shown: Sequence[_Shown]) -> dict[str, None]:
    """Return the paths, those of the outputs with the most fields first."""
    fullest = sorted(shown, key=lambda one: -len(one.rows))
    return {path: None for one in fullest for path in one.rows}


def _render(head: ConsoleSample, shown: Sequence[_Shown]) -> bytes:
    """Write as many outputs as fit, and at least one."""
    places = {path: place for place, path in enumerate(head["fields"])}
    texts: list[bytes] = []
    left = MAX_BYTES
    for output, rows in shown:
        known = [path for path in rows if path in places]
        placed = [FieldRow({**rows[path], "at": places[path]}) for path in known]
        output["rows"] = sorted(placed, key=lambda row: row["at"])
        output["left_out"] -= len(placed)
        text = encode(output)
        left -= len(text)
        if texts and left < 0:
            break
        texts.append(text)
    return encode(head).removesuffix(b"]}") + b",".join(texts) + b"]}"

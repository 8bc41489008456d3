"""The handler of the console's sample: outputs to review, beside their approved versions."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.api.console import values
from gleanery.api.context import RequestContext, Response
from gleanery.models.fields import StoredName, Text, WholeNumber
from gleanery.models.inputs import Query
from gleanery.storage.files.references import BLOB_URL_MARKER, FILE_URL_MARKER, SIGNATURE_MARKER
from gleanery.storage.reviews import job_history, sample
from gleanery.values import field_paths, timestamps
from gleanery.values.json_text import canonical_hash, encode

MAX_ROWS = 100
"""The most fields of one output."""
MAX_FIELDS = 1000
"""The most fields of a sample. Data can have ids as names of members."""
MAX_BYTES = 4 * 1024**2
"""About the largest sample. The outputs that do not fit are left out; they are of every reason."""
_CELL = values.Limits(text=400, children=20, depth=3, nodes=40)
_MAX_FILES = 20
_MAX_TEXT = 2000  # of a URL or a detail
_MAX_PATH = 300
_FLATTENED_DEPTH = 2  # as the field statistics


class SampleQuery(Query):
    """Job and size of a sample of outputs."""

    job_id: StoredName
    seed: Text | None = Field(default=None, max_length=200)
    size: WholeNumber = Field(default=100, ge=1, le=300)


class FieldRow(TypedDict):
    """A field of an output."""

    at: int
    """Its place in the fields of the sample."""
    after: values.Node | None
    """The present value; null if there is none."""
    before: values.Node | None
    """The last approved value, if the field has changed since then."""
    is_changed: bool


class SampleFile(TypedDict):
    """A file of an output."""

    field: str
    file_type: str
    url: str
    """Works without a session for some minutes."""


class SampleOutput(TypedDict):
    """An output to review."""

    output_id: str
    version: str
    """Differs between two versions of the output; an approval does not change it."""
    source_url: str
    last_scraped_date: str
    reason: sample.Reason
    detail: str | None
    approval: str
    """``current``: the present value is approved. ``older``: an earlier one is. ``none``."""
    rows: list[FieldRow]
    left_out: int
    """Number of fields that are not in the rows."""
    files: list[SampleFile]


class LastApproval(TypedDict):
    """The last approval of the whole job."""

    review_id: str
    review_date: str
    person: str | None


class ConsoleSample(TypedDict):
    """A sample of the outputs of a job."""

    seed: str
    job_id: str
    cursor: int
    """``as_of`` of the review."""
    outputs: int
    last_approval: LastApproval | None
    fields: list[str]
    """Paths in the order in which they are shown. Those outside ``data`` begin with ``$.``."""
    sample: list[SampleOutput]


async def get_sample(context: RequestContext[SampleQuery, None]) -> Response:
    query, group, database = context.query, context.path["group_id"], context.database
    seed = secrets.token_hex(8) if query.seed is None else query.seed
    job = await job_history.find_job(database, group, query.job_id)
    computations = context.services.computations
    max_bytes = context.services.settings.max_page_bytes
    found = await sample.read_sample(
        database, computations, group, query.job_id, seed, query.size, max_bytes
    )
    shown: list[_Shown] = []
    for output in found.outputs:
        item = bytes(await context.with_links(output.item))
        shown.append(await computations.run(context.organization_id, _compare, output, item))
    head = ConsoleSample(
        seed=seed,
        job_id=query.job_id,
        cursor=found.cursor,
        outputs=found.output_count,
        last_approval=describe(await job_history.last_approval(database, job)),
        fields=_order(shown),
        sample=[],
    )
    return Response(await computations.run(context.organization_id, _render, head, shown))


def describe(approval: job_history.Approval | None) -> LastApproval | None:
    if approval is None:
        return None
    date = timestamps.render_microseconds(approval.created_at)
    return LastApproval(review_id=approval.review_id, review_date=date, person=approval.person)


_ABSENT = object()
_Fields = dict[str, Any]
"""Values by path."""


class _Shown(NamedTuple):
    """An output whose rows have no place yet."""

    output: SampleOutput
    rows: dict[str, FieldRow]


def _compare(found: sample.SampledOutput, item_text: bytes) -> _Shown:
    """Puts the fields of an output beside those of its last approved version."""
    item = values.parse(item_text)
    approved = None if found.approved_item is None else _parse_stored(found.approved_item)
    now = dict(_flatten(item))
    then = now if approved is None else dict(_flatten(approved))
    paths = [*{**now, **then}]
    changed = _changed_among(paths, _changed_paths(found.fields))
    rows = {path: _row(path, changed, now, then) for path in _choose(paths, changed, now, then)}
    approval = "older" if approved is not None else "current" if item["is_approved"] else "none"
    output = SampleOutput(
        output_id=item["output_id"],
        version=_version(item),
        source_url=item["source_url"][:_MAX_TEXT],
        last_scraped_date=item["last_scraped_date"],
        reason=found.reason,
        detail=None if found.detail is None else found.detail[:_MAX_TEXT],
        approval=approval,
        rows=[],
        left_out=len(paths),
        files=[_file(file) for file in item["files"][:_MAX_FILES]],
    )
    return _Shown(output, rows)


def _version(item: dict[str, Any]) -> str:
    """Identifies what a reviewer sees. An approval changes update_date, but not this."""
    names = ("id", "field", "file_checksum", "source_url")
    files = [[file[name] for name in names] for file in item["files"]]
    shown = [item["value_hash"], item["source_url"], item["tags"], files]
    return canonical_hash(shown).hex()[:16]


def _choose(
    paths: Sequence[str], changed: set[str] | None, now: _Fields, then: _Fields
) -> list[str]:
    """Returns the paths to show in their order. Changed fields are left out last."""
    short = [path for path in paths if len(path) <= _MAX_PATH]
    if len(short) <= MAX_ROWS:
        return short
    important = sorted(short, key=lambda path: not _is_changed(path, changed, now, then))
    chosen = {*important[:MAX_ROWS]}
    return [path for path in short if path in chosen]


def _parse_stored(text: bytes) -> Any:
    """Parses an output as it is stored, with markers instead of links, which are not shown."""
    return values.parse(_without_markers(text))


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
        path = field_paths.member(parent, name)
        if isinstance(inner, dict) and inner and depth > 1:
            yield from _members(path, inner, depth - 1)
        else:
            yield path, inner


def _changed_paths(text: bytes | None) -> list[str] | None:
    """Returns the paths of the changed fields; None if there are too many to list."""
    return (
        None if text is None else [change["path"] for change in json.loads(_without_markers(text))]
    )


def _without_markers(text: bytes) -> bytes:
    return text.translate(None, SIGNATURE_MARKER + BLOB_URL_MARKER + FILE_URL_MARKER)


def _changed_among(paths: Sequence[str], changed: Sequence[str] | None) -> set[str] | None:
    """Returns the paths that are a changed field, or inside one, or above one.

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
    """Yields the path, and the paths of the values that contain it."""
    yield path
    for at, letter in enumerate(path):
        if letter in ".[":
            yield path[:at]


def _is_changed(path: str, changed: set[str] | None, now: _Fields, then: _Fields) -> bool:
    if now is then:
        return False
    if changed is None or (path in now) != (path in then):
        before, after = then.get(path, _ABSENT), now.get(path, _ABSENT)
        return type(before) is not type(after) or bool(before != after)
    return path in changed


def _row(path: str, changed: set[str] | None, now: _Fields, then: _Fields) -> FieldRow:
    is_changed = _is_changed(path, changed, now, then)
    return FieldRow(
        at=0,
        after=_node(path, now),
        before=_node(path, then) if is_changed else None,
        is_changed=is_changed,
    )


def _node(path: str, fields: _Fields) -> values.Node | None:
    return values.truncate(fields[path], _CELL) if path in fields else None


def _order(shown: Sequence[_Shown]) -> list[str]:
    """Returns the fields of a sample: first those of most outputs, in the order of their data."""
    found = Counter(path for one in shown for path in one.rows)
    counts = dict(found.most_common(MAX_FIELDS))
    order = {path: place for place, path in enumerate(_first_appearances(shown))}
    half = len(shown) / 2

    def rank(path: str) -> tuple[bool, bool, int]:
        return path.startswith("$."), counts[path] < half, order[path]

    return sorted(counts, key=rank)


def _first_appearances(shown: Sequence[_Shown]) -> dict[str, None]:
    """Returns the paths, those of the outputs with the most fields first."""
    fullest = sorted(shown, key=lambda one: -len(one.rows))
    return {path: None for one in fullest for path in one.rows}


def _render(head: ConsoleSample, shown: Sequence[_Shown]) -> bytes:
    """Writes as many outputs as fit, and at least one."""
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

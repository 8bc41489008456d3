"""The handlers of one output in the console: its details, the whole of a value, its versions."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from gleanery.service.api.context import AnyContext, RequestContext, limits_of
from gleanery.service.api.response import Response
from gleanery.service.console.values import (
    DETAILS,
    Limits,
    Node,
    names_in_item,
    parse,
    truncate,
    truncate_pair,
)
from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest, NotFound
from gleanery.service.foundation.field_types import (
    MAX_INT64,
    Text,
    WholeNumber,
    as_validation_error,
)
from gleanery.service.foundation.models import Query
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.files.references import decode_item, escape_markers
from gleanery.service.resources.history import field_changes, reading, version_pages
from gleanery.service.resources.outputs import search
from gleanery.service.resources.outputs.elements import parse_output_id
from gleanery.service.storage.paging import ListPage

_MAX_FILES = 100
_MAX_URL = 2000
_MAX_VALUE_BYTES = 5_000_000
_SHARED_NODES = 400  # of all changed fields of a version together
_TEXT_HEADERS = ((b"content-security-policy", b"default-src 'none'; sandbox"),)
_WITH_VALUES = ("data", "tags", "source_url")


def _field(path: str) -> str:
    names_in_item(path)
    return path


class ValueQuery(Query):
    """Choice of one value of an output."""

    path: Text = Field(
        default="",
        description="JSON pointer in the output, such as `/data/title`. The segment `~#2` is the "
        "third member of an object, whatever its name is.",
    )
    field: Annotated[Text, AfterValidator(as_validation_error("field", _field))] | None = Field(
        default=None, description="Field from which the pointer starts, such as `offer.price`."
    )
    part: Literal["value", "name"] = Field(
        default="value", description="The value, or the name of the member that has it."
    )
    version: Literal["current", "approved", "before"] = Field(
        default="current",
        description="The current value, the last approved one, or the one before the current one.",
    )
    stored: WholeNumber | None = Field(
        default=None,
        ge=0,
        le=MAX_INT64,
        description="Position of the value that the person sees. Another one is not returned.",
    )


class HistoryQuery(Query):
    """Page of an output's versions."""

    limit: WholeNumber = Field(default=10, ge=1, le=50, description="Page size.")
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Only what is before this position."
    )


class FileSummary(TypedDict):
    """File of an output. Only stored ones can be read from the service."""

    id: str
    field: str
    is_stored: bool
    name: str
    media_type: str
    size: int | None
    source_url: str
    file_url: str | None
    """Only of a file that is not stored here."""
    checksum: str
    metadata: Node


class ChangedField(TypedDict):
    """Field with its old and its new value; null if it did not exist."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Node | None
    after: Node | None


class ApprovedVersion(TypedDict):
    """Last approved version, if the output has a newer value."""

    update_date: str
    data: Node
    tags: Node
    fields: list[ChangedField]
    """What has changed since then."""


class OutputDetails(TypedDict):
    """One output, with long values truncated."""

    output_id: str
    job_id: str
    source_url: str
    create_date: str
    update_date: str
    value_date: str
    """Time of the value. A later ``update_date`` is of its approval."""
    last_scraped_date: str
    is_approved: bool
    key_hash: str
    value_hash: str
    data: Node
    tags: Node
    files: list[FileSummary]
    file_count: int
    approved_version: ApprovedVersion | None


class Version(TypedDict):
    """Version of an output, or its deletion."""

    change: Literal["create", "update", "delete"]
    cursor: int
    version_date: str
    is_approved: bool | None
    fields: list[ChangedField] | None
    """null if the version before is no longer kept."""


class VersionPage(TypedDict):
    """Versions, newest first."""

    versions: list[Version]
    next_cursor: int | None


# --- details ------------------------------------------------------------------------------------


async def output_details(context: AnyContext) -> Response:
    group, output_id = context.path["group_id"], context.path["output_id"]
    item = await search.read_output(context.database, group, output_id)
    approved = await search.read_approved_version(context.database, group, output_id)
    value_seq = await search.read_value_seq(context.database, output_id)
    run = context.services.computations.run
    return Response(await run(context.organization_id, _details, item, approved, value_seq))


def _details(item: bytes, approved: bytes | None, value_seq: int) -> bytes:
    output = parse(escape_markers(item))
    details = OutputDetails(
        output_id=output["output_id"],
        job_id=output["root_job_id"],
        source_url=output["source_url"][:_MAX_URL],
        create_date=output["create_date"],
        update_date=output["update_date"],
        value_date=timestamps.render(value_seq // timestamps.SECOND),
        last_scraped_date=output["last_scraped_date"],
        is_approved=output["is_approved"],
        key_hash=output["key_hash"],
        value_hash=output.get("value_hash")
        or json_text.canonical_hash(decode_item(item)["data"]).hex(),
        data=truncate(output["data"], DETAILS),
        tags=truncate(output["tags"], DETAILS),
        files=[_file(file) for file in output["files"][:_MAX_FILES]],
        file_count=len(output["files"]),
        approved_version=None if approved is None else _approved_version(approved, item),
    )
    return json_text.encode(details)


def _file(file: dict[str, Any]) -> FileSummary:
    is_stored = bool(file["blob_key"])
    metadata = file["file_metadata"]
    name, size = metadata.get("filename"), metadata.get("size")
    return FileSummary(
        id=file["id"],
        field=file["field"][:_MAX_URL],
        is_stored=is_stored,
        name=name[:_MAX_URL] if isinstance(name, str) else "",
        media_type=file["file_type"][:_MAX_URL],
        size=int(size) if is_stored else None,
        source_url=file["source_url"][:_MAX_URL],
        file_url=None if is_stored else file["file_url"][:_MAX_URL],
        checksum=file["file_checksum"][:_MAX_URL],
        metadata=truncate(metadata, Limits(nodes=100)),
    )


def _approved_version(approved: bytes, item: bytes) -> ApprovedVersion:
    version = parse(escape_markers(approved))
    changes = field_changes.compare(decode_item(approved), decode_item(item))
    # The text of a number is the same here as in the item, because both are encoded alike.
    fields = parse(escape_markers(json_text.encode(changes)))
    return ApprovedVersion(
        update_date=version["update_date"],
        data=truncate(version["data"], DETAILS),
        tags=truncate(version["tags"], DETAILS),
        fields=_changed_fields(fields),
    )


def _changed_fields(fields: list[dict[str, Any]]) -> list[ChangedField]:
    nodes = max(_SHARED_NODES // (2 * len(fields) or 1), 2)
    limits = Limits(text=300, children=20, depth=4, nodes=nodes, characters=20_000)
    return [_changed_field(field, limits) for field in fields]


def _changed_field(field: dict[str, Any], limits: Limits) -> ChangedField:
    kind, before, after = field["kind"], field["before"], field["after"]
    if field["path"] == "$.files":
        before, after = ([_file_in_words(file) for file in files] for files in (before, after))
    if kind == "changed":
        old, new = truncate_pair(before, after, limits)
    else:
        old, new = truncate(before, limits), truncate(after, limits)
    return ChangedField(
        path=field["path"],
        kind=kind,
        before=None if kind == "added" else old,
        after=None if kind == "removed" else new,
    )


def _file_in_words(file: dict[str, Any]) -> str:
    """Return what a person knows a file by. Its links mean nothing, and expire."""
    name = file["file_metadata"].get("filename") or file["source_url"] or file["file_url"]
    return f"{name} ({file['file_checksum'][:8]})" if file["blob_key"] else str(name)


# --- one value ----------------------------------------------------------------------------------


async def output_value(context: RequestContext[ValueQuery, None]) -> Response:
    group, output_id, query = context.path["group_id"], context.path["output_id"], context.query
    item: bytes | None = await search.read_output(context.database, group, output_id)
    if query.version == "approved":
        item = await search.read_approved_version(context.database, group, output_id)
    elif query.version == "before":
        value_seq = await search.read_value_seq(context.database, output_id)
        item = await read_version_before(context, parse_output_id(output_id), value_seq)
    if item is None:
        raise NotFound(("query", "version"), "The output has no other approved version")
    if query.stored is not None:  # read after the value, so that it is not older
        check_version(await search.read_value_seq(context.database, output_id), query.stored)
    text = await context.services.computations.run(
        context.organization_id, _value_text, item, _pointer(query), query.part
    )
    return Response(text, content_type=b"text/plain; charset=utf-8", headers=_TEXT_HEADERS)


async def read_version_before(
    context: RequestContext[Any, Any], identity: bytes, value_seq: int
) -> bytes:
    """Return the item before its present value. Raise NotFound and VersionExpired."""
    return await reading.read_item(
        context.database,
        context.services.computations,
        context.path["group_id"],
        identity,
        value_seq - 1,
        context.services.clock(),
    )


def _pointer(query: ValueQuery) -> str:
    names = [] if query.field is None else names_in_item(query.field)
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names) + query.path


def check_version(value_seq: int, expected: int) -> None:
    """Raise NotFound if the output has another value than the one that a person sees."""
    if value_seq != expected:
        msg = "The output has a newer value: the one that you see is in its history"
        raise NotFound(("query", "stored"), msg)


def _value_text(item: bytes, path: str, part: str) -> bytes:
    name, value = _find(decode_item(item), path)
    if part == "name":
        value = name
    text = value.encode() if isinstance(value, str) else json_text.encode(value)
    if len(text) > _MAX_VALUE_BYTES:
        msg = f"The value has {len(text) / 1e6:.1f} MB, too much to show: download the output"
        raise InvalidRequest(ErrorDetail(("query", "path"), msg, "too_large"))
    return text


def _find(output: dict[str, Any], pointer: str) -> tuple[str, Any]:
    """Return the value at a JSON pointer (RFC 6901), and its name. Raise NotFound."""
    name, value = "", {name: output[name] for name in _WITH_VALUES}
    for part in pointer.split("/")[1:]:
        name = _name_of(part, value)
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdecimal() and _has(value, name):
            value = value[int(name)]
        else:
            raise NotFound(("query", "path"), "The output has no such value now: reload the page")
    return name, value


def _name_of(part: str, value: Any) -> str:
    index = part.removeprefix("~#")
    if part.startswith("~#") and index.isascii() and index.isdecimal() and isinstance(value, dict):
        return next(islice(value, min(int(index), len(value)), None), part)
    return part.replace("~1", "/").replace("~0", "~")


def _has(value: list[Any], index: str) -> bool:
    return len(index) < 12 and int(index) < len(value)


# --- versions -----------------------------------------------------------------------------------


async def output_versions(context: RequestContext[HistoryQuery, None]) -> Response:
    computations = context.services.computations
    page = await version_pages.read_page(
        context.database,
        computations,
        context.path["group_id"],
        parse_output_id(context.path["output_id"]),
        limits_of(context),
        context.services.clock(),
    )
    return Response(await computations.run(context.organization_id, _encode_versions, page))


def _encode_versions(page: ListPage) -> bytes:
    versions = [_version(parse(escape_markers(record))) for record in page.records]
    return json_text.encode(VersionPage(versions=versions, next_cursor=page.next_cursor))


def _version(version: dict[str, Any]) -> Version:
    fields = version.get("fields")
    return Version(
        change=version["change"],
        cursor=int(version["cursor"]),
        version_date=version["version_date"],
        is_approved=version.get("is_approved"),
        fields=None if fields is None else _changed_fields(fields),
    )

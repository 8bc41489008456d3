"""The operations of exports, with their examples."""

from __future__ import annotations

import json

from gleanery.service.api.examples import (
    COFFEE_OUT,
    GROUP_ID,
    IN_GROUP,
    JOB_ID,
    REVIEW_DATE,
    TEA_OUT,
)
from gleanery.service.api.operation import SERVICE_URL, Example, Operation, Resource
from gleanery.service.resources.exports import handlers
from gleanery.service.resources.exports.models import (
    ExportLink,
    ExportLinkQuery,
    ExportQuery,
    SignedExportQuery,
)

_TABLE_TYPES = ("text/csv", "application/vnd.apache.parquet")
_EXPORT_HEADERS = {"Gleanery-Cursor": "Position at which the change feed continues."}
_APPROVED = {"is_approved": True, "update_date": REVIEW_DATE}
_EXPORT = "".join(json.dumps(output | _APPROVED) + "\n" for output in (COFFEE_OUT, TEA_OUT))
_EXPORT_PARAMETERS = {
    "job_id": JOB_ID,
    "organization": "1",
    "token": "5",
    "expires": "1772452800",
    "signature": "5f2b8c0d9e1a7f364b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2",
}

_OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/exports/{group_id}",
        handler=handlers.export_outputs,
        title="Export a group",
        description="All outputs of the group in one response, as NDJSON: one output per line, as "
        "on a page, and in no particular order. Every output that exists from the beginning to the "
        "end of the export is there exactly once, even while others write. To continue, pass the "
        "header `Gleanery-Cursor` of the response as `cursor` to `GET /v1/changes/{group_id}`, "
        "with the same `view`. The response is sent in chunks: if the last chunk is missing, the "
        "export is incomplete. With `format=csv` or `format=parquet`, the response is a table. The "
        "service converts it first, and sends it with a length; Parquet needs the extra `parquet` "
        "where the service is installed. For a large group, `gleanery export` is the better way: "
        "it converts where it runs.",
        scopes=("outputs:read",),
        query=ExportQuery,
        response=str,
        media_type="application/x-ndjson",
        other_media_types=_TABLE_TYPES,
        response_headers=_EXPORT_HEADERS,
        extra_errors=(505,),
        example=Example(
            path=IN_GROUP, query={"job_id": JOB_ID, "approved": "true"}, response=_EXPORT
        ),
    ),
    Operation(
        method="POST",
        path="/v1/exports/{group_id}/links",
        handler=handlers.create_export_link,
        title="Create a link to an export",
        description="A signed URL of the export with these filters. It works without a token, so "
        "tools without own headers can read it. It is valid for the given time, but not longer "
        "than the token that creates it: a revoked or expired token ends its links. Whoever has "
        "the URL can read the outputs.",
        scopes=("outputs:read",),
        query=ExportLinkQuery,
        response=ExportLink,
        example=Example(
            path=IN_GROUP,
            query={"job_id": JOB_ID, "valid_seconds": 3600},
            response={
                "url": f"{SERVICE_URL}/v1/exports/{GROUP_ID}/outputs.jsonl?"
                + "&".join(f"{name}={value}" for name, value in _EXPORT_PARAMETERS.items()),
                "expires": "2026-03-02T12:00:00Z",
            },
        ),
    ),
    Operation(
        method="GET",
        path="/v1/exports/{group_id}/{file_name}",
        handler=handlers.get_signed_export,
        title="Export a group by a signed link",
        description="The export of a signed link, without a token. The name of the file ends with "
        "its format: `outputs.jsonl`, `outputs.csv` or `outputs.parquet`.",
        query=SignedExportQuery,
        response=str,
        media_type="application/x-ndjson",
        other_media_types=_TABLE_TYPES,
        response_headers=_EXPORT_HEADERS,
        extra_errors=(403, 505),
        example=Example(
            path=IN_GROUP | {"file_name": "outputs.jsonl"},
            query=_EXPORT_PARAMETERS,
            response=_EXPORT,
        ),
    ),
)

RESOURCE = Resource(
    tags={"exports": "Whole groups in one response, and links to them for tools without headers."},
    operations=_OPERATIONS,
)

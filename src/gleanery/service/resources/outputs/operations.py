"""The operations of outputs, with their examples."""

from __future__ import annotations

import json

from gleanery.service.api.examples import (
    COFFEE_IN,
    COFFEE_OUT,
    DELETED,
    FIRST_CURSOR,
    GROUP_ID,
    IN_GROUP,
    JOB_ID,
    LAST_CURSOR,
    LAST_PAGE,
    SCRAPE_DATE,
    TEA_IN,
    TEA_OUT,
)
from gleanery.service.api.operation import SERVICE_URL, Example, Operation, Resource
from gleanery.service.foundation.models import Deleted
from gleanery.service.resources.history.models import VersionPage
from gleanery.service.resources.outputs import console_output_details, console_rows, handlers
from gleanery.service.resources.outputs.batches import bind_json
from gleanery.service.resources.outputs.models import (
    IngestQuery,
    IngestResult,
    NdjsonResult,
    OutputIn,
    OutputOut,
    OutputPage,
    OutputQuery,
    OutputTime,
    VersionQuery,
)

_OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/outputs/{group_id}",
        handler=handlers.get_outputs,
        title="Get outputs for a scraping group",
        description="One page of the group's outputs, oldest change first. For the next page, pass "
        "`next_cursor` as `cursor`, or follow `next_url`. Both are null on the last page, and only "
        "there. A page is limited in bytes, so it can have fewer items than `limit`. With several "
        "filters it can even be empty before the last page. An output that changes during paging "
        "appears again on a later page.",
        scopes=("outputs:read",),
        query=OutputQuery,
        response=OutputPage,
        batched_page=handlers.BATCHED_PAGE,
        example=Example(
            path=IN_GROUP,
            query={"job_id": JOB_ID, "limit": 1},
            response={
                "metadata": {
                    "next_url": f"{SERVICE_URL}/v1/outputs/{GROUP_ID}?job_id={JOB_ID}&limit=1"
                    f"&cursor={FIRST_CURSOR}",
                    "next_cursor": FIRST_CURSOR,
                },
                "items": [COFFEE_OUT],
            },
        ),
    ),
    Operation(
        method="POST",
        path="/v1/outputs/{group_id}",
        handler=handlers.store_outputs,
        title="Store outputs",
        description="Stores a batch of outputs, completely or not at all. New groups and jobs are "
        "created. A job is a lasting source such as one site or one spider, not one run of it. "
        "Two outputs with the same job and key are the same output. The key is `key`, or "
        "else the group's `key_fields`, or else `source_url`. If the content is the same, only "
        "`last_scraped_date` changes. If a batch has an output several times, each value is a "
        "version, as in several requests. Of more than 100 such versions of an output, only the "
        "first and the last 99 are kept."
        "\n\n"
        "The body is an array of outputs. An object instead of the array is a batch of one. Its "
        "response is that of an array with one element."
        "\n\n"
        "A body in NDJSON (`application/x-ndjson`, one output per line) can have any length. It is "
        "stored in steps of a thousand lines. The response has the counts and `lines`, but no "
        "`results`. An error says how many lines are stored. With an `Idempotency-Key`, a repeated "
        "request gets the first response again for one day."
        "\n\n"
        "With `job_id` and `url_field`, each element of the batch, or each line, is a bare item. "
        "That is an object as a scraper writes it. It becomes the `data` of an output. `url_field` "
        "names the member of the item that is its `source_url`, and `key_field` the one that is "
        "its `key`. Both stay in `data`. An item in which such a member is missing, null or empty "
        "is invalid."
        "\n\n"
        "With `on_error=skip`, the valid elements are stored. `skipped` counts the others, and "
        "`errors` lists the first 100 errors. `results` still has one entry per element: null for "
        "a skipped one. An element is skipped if it is invalid, violates the group's schema or "
        "references an unknown file; a line also if it is not JSON.",
        scopes=("outputs:write",),
        creates_resource=True,
        query=IngestQuery,
        body=list[OutputIn],
        ndjson_handler=handlers.store_ndjson,
        accepts_idempotency_key=True,
        ndjson_response=NdjsonResult,
        response=IngestResult,
        extra_errors=(404,),  # an output may reference an unknown file
        example=Example(
            path=IN_GROUP,
            headers={"Idempotency-Key": "shop-prices-2026-03-02"},
            body=[TEA_IN],  # without a file, so that it works without the examples before
            response={
                "created": 1,
                "updated": 0,
                "unchanged": 0,
                "results": [
                    {"id": TEA_OUT["id"], "output_id": TEA_OUT["output_id"], "change": "created"}
                ],
            },
        ),
        ndjson_example=Example(
            path=IN_GROUP,
            body=json.dumps(COFFEE_IN) + "\n",
            response={"created": 1, "updated": 0, "unchanged": 0, "lines": 1},
        ),
        bind_json=bind_json,
    ),
    Operation(
        method="GET",
        path="/v1/outputs/{group_id}/{output_id}",
        handler=handlers.get_output,
        title="Get an output",
        description="One output, as on a page of the group. With `at`, the output as it was then. "
        "Its `last_scraped_date` is the last one of that version. The service knows only the "
        "last change of a version's approval. If `at` is before that change, `is_approved` is the "
        "other value. If the output did not exist then, the response is 404. If the version is no "
        "longer kept, it is 410.",
        scopes=("outputs:read",),
        query=OutputTime,
        response=OutputOut,
        extra_errors=(410,),
        example=Example(
            path={**IN_GROUP, "output_id": str(TEA_OUT["output_id"])}, response=TEA_OUT
        ),
    ),
    Operation(
        method="GET",
        path="/v1/outputs/{group_id}/{output_id}/history",
        handler=handlers.get_history,
        title="Get the history of an output",
        description="The versions of an output, newest first, each with the fields that it "
        "changed. A new version begins when the data, `source_url`, the tags or the files change. "
        "The group's `keep_versions` and `keep_days` say which versions are kept; the last "
        "approved one always is. At most 100 fields of a version are listed, with paths "
        "of at most 1000 characters: an object with more of them, or with a longer path in it, is "
        "one changed field. A page is limited in bytes, and so are the versions that it compares. "
        "For the next page, "
        "pass `next_cursor` as `cursor`, or follow `next_url`. A deleted output has its history "
        "as long as the change feed keeps its deletion. Files of earlier versions may be deleted.",
        scopes=("outputs:read",),
        query=VersionQuery,
        response=VersionPage,
        example=Example(
            path={**IN_GROUP, "output_id": str(TEA_OUT["output_id"])},
            query={"limit": 20},
            response={
                "metadata": LAST_PAGE,
                "versions": [
                    {
                        "change": "create",
                        "cursor": LAST_CURSOR,
                        "version_date": SCRAPE_DATE,
                        "replaced_date": None,
                        "key_hash": TEA_OUT["key_hash"],
                        "value_hash": TEA_OUT["value_hash"],
                        "is_approved": False,
                        "fields": [],
                    }
                ],
            },
        ),
    ),
    Operation(
        method="DELETE",
        path="/v1/outputs/{group_id}/{output_id}",
        handler=handlers.delete_output,
        title="Delete an output",
        description="Deletes one output. The change feed reports the deletion.",
        scopes=("outputs:write",),
        response=Deleted,
        example=Example(
            path={**IN_GROUP, "output_id": str(TEA_OUT["output_id"])}, response=DELETED
        ),
    ),
)

_CONSOLE_OPERATIONS = (
    Operation(
        method="GET",
        path="/console/api/outputs/{group_id}/{output_id}",
        handler=console_output_details.output_details,
        title="Output",
        description="One output, with long values truncated.",
        needs_session=True,
        scopes=("outputs:read",),
        response=console_output_details.OutputDetails,
    ),
    Operation(
        method="GET",
        path="/console/api/outputs/{group_id}/{output_id}/value",
        handler=console_output_details.output_value,
        title="Value of an output",
        description="The whole of one value, as text.",
        needs_session=True,
        scopes=("outputs:read",),
        query=console_output_details.ValueQuery,
        media_type="text/plain",
        response=str,
    ),
    Operation(
        method="GET",
        path="/console/api/outputs/{group_id}/{output_id}/history",
        handler=console_output_details.output_versions,
        title="Versions of an output",
        description="Its versions, newest first, with truncated values.",
        needs_session=True,
        scopes=("outputs:read",),
        query=console_output_details.HistoryQuery,
        response=console_output_details.VersionPage,
    ),
    Operation(
        method="GET",
        path="/console/api/rows/{group_id}",
        handler=console_rows.get_rows,
        title="Rows",
        description="A page of the grid of outputs, around a position.",
        scopes=("outputs:read",),
        needs_session=True,
        query=console_rows.RowQuery,
        response=console_rows.GridRows,
    ),
)

RESOURCE = Resource(
    tags={"outputs": "Scraped outputs of a group: read, store and delete them."},
    operations=_OPERATIONS,
    console_operations=_CONSOLE_OPERATIONS,
)

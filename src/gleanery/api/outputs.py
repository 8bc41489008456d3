"""The output operations."""

from __future__ import annotations

import asyncio
from urllib.parse import quote, urlencode

from pydantic import TypeAdapter

from gleanery import jsontext
from gleanery.api.calls import Answer, Call
from gleanery.records import IngestAnswer, OutputIn, OutputQuery
from gleanery.store import outputs

_ANSWER = TypeAdapter(IngestAnswer)


async def get_outputs(call: Call[OutputQuery, None]) -> Answer:
    page = await outputs.read_page(
        call.services.database, call.organization_id, call.path["group_id"], call.query
    )
    metadata = {"next_url": _next_url(call, page.next_cursor), "next_cursor": page.next_cursor}
    return Answer(
        b'{"metadata":%s,"items":[%s]}' % (jsontext.encode(metadata), b",".join(page.items))
    )


def _next_url(call: Call[OutputQuery, None], next_cursor: int | None) -> str | None:
    if next_cursor is None:
        return None
    repeated = {name: call.asked[name] for name in OutputQuery.model_fields if name in call.asked}
    query = urlencode(repeated | {"cursor": str(next_cursor)})
    group = quote(call.path["group_id"], safe="")
    return f"{call.services.settings.address}/v1/outputs/{group}?{query}"


async def delete_output(call: Call[None, None]) -> Answer:
    s = call.services
    deleted = await outputs.delete_output(
        s.database, call.organization_id, call.path["group_id"], call.path["output_id"], s.clock
    )
    return Answer(b'{"deleted":%d}' % deleted)


async def store_outputs(call: Call[None, list[OutputIn]]) -> Answer:
    group = call.path["group_id"]
    # Hashing and rendering is work: in a thread, so that other requests get their turns.
    drafts = await asyncio.to_thread(
        lambda: [outputs.draft(call.organization_id, group, output) for output in call.body]
    )
    answer = await outputs.store_outputs(
        call.services.database, call.organization_id, group, drafts, call.services.clock
    )
    return Answer(_ANSWER.dump_json(answer))

"""What the service tells of itself, to anyone: is it well, what does it count, what can it do."""

from __future__ import annotations

from gleanery.api.context import Answer, AnyCall
from gleanery.errors import Unavailable
from gleanery.storage import migrations

_PAGE_POLICY = b"default-src 'none'; style-src 'unsafe-inline'"


async def healthz(call: AnyCall) -> Answer:
    return Answer(b'{"status":"ok"}')


async def readyz(call: AnyCall) -> Answer:
    database = call.services.database
    if await database.schema_number() != migrations.newest(database.engine):
        raise Unavailable("The database's schema is not this program's: run gleanery migrate")
    return Answer(b'{"status":"ready"}')


async def metrics(call: AnyCall) -> Answer:
    return Answer(
        call.services.telemetry.exposition(),
        content_type=b"text/plain; version=0.0.4; charset=utf-8",
    )


async def openapi(call: AnyCall) -> Answer:
    return Answer(call.services.contract())


async def docs(call: AnyCall) -> Answer:
    return Answer(
        call.services.reference(),
        content_type=b"text/html; charset=utf-8",
        headers=((b"content-security-policy", _PAGE_POLICY),),
    )

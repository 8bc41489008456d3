"""Program that fills one group job by job, and prints the write-ahead log that each output takes.

Run it with the URL of an empty PostgreSQL database, on a server that nobody else uses. The result
depends on the settings of that server, so it is not a part of ``make bench``.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import islice

import asyncpg

from bench import dataset
from gleanery.common.settings import Settings
from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import organizations
from gleanery.service.resources.outputs.batches import from_outputs
from gleanery.service.resources.outputs.ingest import store_batch
from gleanery.service.resources.outputs.models import Output
from gleanery.service.storage.database import Database
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.group_lock import IDENTITY_FORMAT, lock_or_create

_GROUP = "large"
_BATCH = 1000
_WRITTEN = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, wal_fpi FROM pg_stat_wal"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large_group", description=__doc__)
    parser.add_argument("database", metavar="URL", help="an empty database")
    parser.add_argument("--outputs", type=int, default=300_000)
    parser.add_argument("--interval", type=int, default=50_000, help="outputs per printed line")
    parser.add_argument("--job-size", type=int, default=5000, help="outputs of each job")
    parser.add_argument("--identity-format", type=int, default=IDENTITY_FORMAT)
    asyncio.run(_run(parser.parse_args()))


async def _run(arguments: argparse.Namespace) -> None:
    async with open_engine(Settings(database=arguments.database)) as engine:
        await engine.migrate()
        now = timestamps.now()
        token = await organizations.create_token(engine, "bench", frozenset(), now, None)
        grant = await organizations.find_grant(engine, tokens.digest(token))
        assert grant is not None
        database = engine.for_tenant(grant.organization_id)
        await database.write(partial(lock_or_create, name=_GROUP, clock=timestamps.now))
        server = await asyncpg.connect(arguments.database)
        await server.execute("SET gleanery.organization = -1")
        await server.execute("UPDATE groups SET identity_format = $1", arguments.identity_format)
        await _fill(database, server, arguments)
        await server.close()


async def _fill(
    database: Database, server: asyncpg.Connection, options: argparse.Namespace
) -> None:
    outputs = _outputs(options.outputs, options.job_size)
    [(wal_bytes, images)] = await server.fetch(_WRITTEN)
    print("  outputs  WAL bytes per output  full-page images per output")
    for start in range(0, options.outputs, options.interval):
        count = min(options.interval, options.outputs - start)
        await _store(database, islice(outputs, count))
        before = wal_bytes, images
        [(wal_bytes, images)] = await server.fetch(_WRITTEN)
        rates = (wal_bytes - before[0]) / count, (images - before[1]) / count
        print(f"{start + count:9,}  {rates[0]:20,.0f}  {rates[1]:27.2f}", flush=True)


async def _store(database: Database, outputs: Iterator[Output]) -> None:
    validator, threads = SchemaValidator(), FairThread()
    while batch := [*islice(outputs, _BATCH)]:
        await store_batch(database, validator, threads, _GROUP, from_outputs(batch), timestamps.now)


def _outputs(count: int, job_size: int) -> Iterator[Output]:
    """Generates the outputs of one job after the other."""
    for number, members in enumerate(dataset.outputs(count)):
        yield Output(**{**members, "job_id": f"job-{number // job_size}"})


if __name__ == "__main__":
    main()

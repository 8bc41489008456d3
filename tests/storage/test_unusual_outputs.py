"""Outputs of rare shapes and with extreme values are found, as long as they are so."""

from __future__ import annotations

import asyncio
from typing import Any

from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.security import tokens
from gleanery.service.resources.access.organizations import find_grant
from gleanery.service.resources.fields.unusual import UnusualOutput, unusual_outputs
from gleanery.service.storage import group_lock
from gleanery.service.storage.engines import open_engine
from tests.support.outputs import output
from tests.support.service import Client, Service

LIMIT = 10


def unusual(service: Service, client: Client, limit: int = LIMIT) -> list[UnusualOutput]:
    async def run() -> list[UnusualOutput]:
        async with open_engine(service.settings) as engine:
            assert client.token is not None
            grant = await find_grant(engine, tokens.digest(client.token))
            assert grant is not None
            database = engine.for_tenant(grant.organization_id)
            group_id = await group_lock.require_group(database, "group")
            jobs = "SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2"
            [[job_id]] = await database.read(jobs, grant.organization_id, group_id)
            return await unusual_outputs(database, FairThread(), group_id, job_id, limit)

    return asyncio.run(run())


def product(number: int, **data: Any) -> dict[str, Any]:
    return output(number, data={"title": f"Product {number:04}", "price": 10 + number % 7} | data)


def test_rare_shapes_come_before_extreme_values(service: Service, client: Client) -> None:
    client.store("group", *(product(number) for number in range(98)))
    stored = client.store(
        "group", product(98, price="on request"), product(99, price=99_000, title="A title")
    )
    rare, extreme = (bytes.fromhex(result["output_id"]) for result in stored["results"])
    assert unusual(service, client) == [
        (rare, "rare_shape", "price is a string (1 of 100 outputs)"),
        (extreme, "outlier", "price is unusually large: 99000"),
    ]
    assert len(unusual(service, client, limit=1)) == 1

    client.store("group", product(98), product(99))
    assert unusual(service, client) == []


def test_common_values_and_kinds_of_numbers_are_usual(service: Service, client: Client) -> None:
    shipping = (0, 4.9)
    products = [
        product(number, price=3.5 + number % 37, stock=number % 51, shipping=shipping[number % 2])
        for number in range(200)
    ]
    client.store("group", *products)
    assert unusual(service, client) == []
    stored = client.store("group", product(0, price=999, stock=1, shipping=0))
    [expensive] = (bytes.fromhex(result["output_id"]) for result in stored["results"])
    assert unusual(service, client) == [
        (expensive, "outlier", "price is unusually large: 999"),
    ]

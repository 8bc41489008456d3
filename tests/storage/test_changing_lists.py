"""Pages that are read in several statements stay complete while other clients change the data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.security.vault import encrypted_length
from gleanery.service.resources.access.organizations import find_grant
from gleanery.service.resources.outputs import console_rows, search
from gleanery.service.resources.outputs.models import OutputFilters, OutputQuery
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.kinds import RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.state_models import (
    DEFAULT_PROFILE,
    Cookie,
    LocalStorageEntry,
)
from gleanery.service.storage import paging
from gleanery.service.storage.database import Database, Row
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.paging import ListPage, ListQuery, PageLimits
from tests.support.outputs import output
from tests.support.service import Client, Service

T = TypeVar("T")
MAX_BYTES = 50_000
MIB = 1024**2


class Observed:
    """A handle that does something before one of its reads, and measures the rows of each."""

    def __init__(self, database: Database, before_read: int, action: Callable[[], Any]) -> None:
        self._database = database
        self._before_read = before_read
        self._action = action
        self.sizes: list[int] = []
        """The bytes of each read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        return self._measured(await self._act_and(self._database.read, sql, *values))

    async def read_large(self, sql: str, *values: Any) -> Sequence[Row]:
        return self._measured(await self._act_and(self._database.read_large, sql, *values))

    async def _act_and(
        self, read: Callable[..., Awaitable[Sequence[Row]]], *arguments: Any
    ) -> Sequence[Row]:
        if len(self.sizes) == self._before_read:
            self._action()
        return await read(*arguments)

    def _measured(self, rows: Sequence[Row]) -> Sequence[Row]:
        values = [value for row in rows for value in row if isinstance(value, str | bytes)]
        self.sizes.append(sum(map(len, values)))
        return rows


def observe(
    service: Service,
    client: Client,
    before_read: int,
    action: Callable[[], Any],
    work: Callable[[Any], Awaitable[T]],
) -> tuple[T, Observed]:
    """Runs ``work`` with the handle of the client's organization."""

    async def run() -> tuple[T, Observed]:
        async with open_engine(service.settings) as engine:
            assert client.token is not None
            grant = await find_grant(engine, tokens.digest(client.token))
            assert grant is not None
            database = engine.for_tenant(grant.organization_id)
            observed = Observed(database, before_read, action)
            return await work(observed), observed

    return asyncio.run(run())


def read_list(database: Any, kind: RecordKind[Any, Any], limits: PageLimits) -> Awaitable[ListPage]:
    """Reads a page of session records; a record is rendered as its name."""
    position = 2 + kind.columns.index(kind.name_column)
    values = (DEFAULT_PROFILE, None) if kind.has_groups else (DEFAULT_PROFILE,)
    statements = kind.statements
    query = ListQuery(
        database,
        statements.sizes_of_all,
        statements.list_all,
        values,
        lambda row: str(row[position]).encode(),
    )
    return paging.read_page(query, limits)


def test_a_list_does_not_end_early_if_a_record_is_deleted_meanwhile(
    service: Service, client: Client
) -> None:
    cookies = [{"domain": "a.example", "name": f"c{n}", "value": ""} for n in range(5)]
    client.post("/v1/cookies", json=cookies)

    def delete() -> None:
        client.delete("/v1/cookies", params={"domain": "a.example", "name": "c1"})

    page, _ = observe(
        service,
        client,
        1,
        delete,
        lambda database: read_list(database, COOKIES, PageLimits(0, 2, MAX_BYTES)),
    )
    assert page.records == [b"c0", b"c2"]
    assert page.next_cursor is not None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("url", "kind", "member"),
    [
        ("/v1/cookies", COOKIES, "name"),
        ("/v1/cookies", COOKIES, "path"),
        ("/v1/local-storage", LOCAL_STORAGE, "key"),
        ("/v1/local-storage", LOCAL_STORAGE, "path"),
    ],
)
def test_a_list_of_records_with_long_names_is_read_in_parts(
    service: Service, client: Client, url: str, kind: RecordKind[Any, Any], member: str
) -> None:
    record = {"domain": "a.example", "value": "", kind.name_column: "n"}
    records = [record | {member: str(number) + "x" * MIB} for number in range(6)]
    assert client.post(url, json=records).status_code == 200
    page, observed = observe(
        service,
        client,
        -1,
        lambda: None,
        lambda database: read_list(database, kind, PageLimits(0, None, 16 * MIB)),
    )
    assert len(page.records) == 6
    assert max(observed.sizes) < 2 * MIB


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [COOKIES, LOCAL_STORAGE])
@pytest.mark.parametrize("count", [3, 12])
def test_large_values_are_not_read_to_replace_them(
    service: Service, client: Client, kind: RecordKind[Any, Any], count: int
) -> None:
    url = "/v1/cookies" if kind is COOKIES else "/v1/local-storage"
    name = kind.name_column
    records = [{"domain": "a.example", name: f"n{n}", "value": "x" * MIB} for n in range(count)]
    assert client.post(url, json=records).json()["created"] == count
    assert client.post(url, json=records).json()["unchanged"] == count
    length = encrypted_length("small")
    one = Cookie if kind is COOKIES else LocalStorageEntry

    async def find(database: Any) -> Sequence[Row]:
        id_ = database.organization_id
        inputs = [one("a.example", f"n{n}", "small") for n in range(count)]
        keys = [(id_, kind.prepare(id_, given).identity, length) for given in inputs]
        return await database.write(
            lambda transaction: transaction.fetch_many(kind.statements.find, keys)
        )

    rows, _ = observe(service, client, -1, lambda: None, find)
    assert [row[1] for row in rows] == [None] * count
    small = [record | {"value": "small"} for record in records]
    assert client.post(url, json=small).json()["updated"] == count
    assert {record["value"] for record in client.get(url).json()} == {"small"}


def test_a_large_page_does_not_hide_an_output_that_changes_meanwhile(
    service: Service, client: Client
) -> None:
    client.store("group", *(output(n, data={"text": "x" * 20_000}) for n in range(2)))

    def change() -> None:
        client.store("group", output(0, data={"text": "changed"}))

    query = OutputQuery()
    page, _ = observe(
        service,
        client,
        1,
        change,
        lambda database: search.read_page(database, "group", query, 0, MAX_BYTES),
    )
    assert page.next_cursor is not None
    rest = client.items("group", cursor=page.next_cursor)
    assert [item["data"] for item in rest] == [{"text": "changed"}]


@pytest.mark.parametrize("is_up", [False, True])
def test_a_grid_page_reads_nothing_beyond_its_part_if_outputs_change_meanwhile(
    service: Service, client: Client, is_up: bool
) -> None:
    """Both outputs of the page are deleted. Large ones would take their places."""
    small, large = {"text": "small"}, {"text": "x" * MAX_BYTES}
    order = [small, small, large, large] if is_up else [large, large, small, small]
    stored = [client.store("group", output(n, data=data)) for n, data in enumerate(order)]
    ids = [one["results"][0]["output_id"] for one in stored]

    def change() -> None:
        for output_id in ids[:2] if is_up else ids[2:]:
            assert client.delete(f"/v1/outputs/group/{output_id}").status_code == 200

    found: list[console_rows.Version] = []

    async def visit(versions: Sequence[console_rows.Version]) -> None:
        found.extend(versions)

    async def read(database: Any) -> console_rows.GridRange:
        read_page = console_rows.read_newer if is_up else console_rows.read_older
        start = 0 if is_up else console_rows.END
        return await read_page(database, "group", OutputFilters(), start, 2, MAX_BYTES, visit)

    page, observed = observe(service, client, 1, change, read)
    assert found == []
    assert sum(observed.sizes) < MAX_BYTES
    assert (page.newer if is_up else page.older) is not None

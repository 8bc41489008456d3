"""Single cookies and local-storage entries with the client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.pretty import pretty_repr

from gleanery import AsyncClient, Client
from gleanery.client import Conflict, Invalid, NewCookie, NewEntry, StoredCookie
from tests.support.service import Service
from tests.support.settings import fresh_settings

SECRET = "planted-s3cret"


def cookie(name: str, domain: str = "shop.example") -> NewCookie:
    return NewCookie(domain=domain, name=name, value=SECRET, path="/")


def test_a_cookie_is_stored_and_listed(gleanery: Client) -> None:
    expires = datetime(2031, 1, 1, tzinfo=UTC)
    sid = NewCookie(
        domain=".shop.example", name="sid", value=SECRET, secure=True, expires=expires, path="/"
    )
    counts = gleanery.store_cookies([sid, {"domain": "a.test", "name": "b", "value": ""}])
    assert (counts.created, counts.updated, counts.unchanged) == (2, 0, 0)
    [found] = gleanery.cookies("www.shop.example")
    assert (found.domain, found.name, found.value) == (".shop.example", "sid", SECRET)
    assert found.expires == expires.timestamp()
    assert found.secure
    assert len(gleanery.cookies()) == 2


def test_listed_records_can_be_stored_again(gleanery: Client) -> None:
    gleanery.store_cookies([cookie("a")])
    gleanery.store_local_storage([NewEntry(domain="shop.example", key="k", value=SECRET)])
    assert gleanery.store_cookies(gleanery.cookies()).unchanged == 1
    assert gleanery.store_local_storage(gleanery.local_storage()).unchanged == 1


def test_an_entry_is_stored_listed_and_deleted(gleanery: Client) -> None:
    gleanery.store_local_storage([NewEntry(domain="shop.example", key="k", value=SECRET)])
    [found] = gleanery.local_storage("shop.example", for_group=7)
    assert (found.key, found.value, found.group_id, found.expires) == ("k", SECRET, 0, None)
    assert gleanery.delete_local_storage("shop.example", key="other") == 0
    assert gleanery.delete_local_storage("shop.example", key="k") == 1
    assert gleanery.local_storage() == []


def test_cookies_are_deleted_by_name(gleanery: Client) -> None:
    gleanery.store_cookies([cookie("a"), cookie("b"), cookie("c")])
    assert gleanery.delete_cookies("shop.example", name="a") == 1
    assert gleanery.delete_cookies("shop.example") == 2


@pytest.mark.thorough
def test_all_pages_of_a_list_are_read(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = replace(fresh_settings(engine, request, tmp_path), max_page_bytes=1000)
    service = Service(settings)
    with Client(service.url, service.token()) as client:
        client.store_cookies(cookie(f"c{number}") for number in range(20))
        assert [found.name for found in client.cookies()] == [f"c{n}" for n in range(20)]
    service.stop()


def test_a_write_with_an_old_version_changes_nothing(gleanery: Client) -> None:
    gleanery.store_cookies([cookie("a")])
    version = gleanery.cookies().etag
    gleanery.store_cookies([cookie("b")], if_match=version)
    with pytest.raises(Conflict):
        gleanery.store_cookies([cookie("c")], if_match=version)
    with pytest.raises(Conflict):
        gleanery.delete_cookies("shop.example", if_match=version)
    assert len(gleanery.cookies()) == 2


def test_no_representation_and_no_error_has_a_value(gleanery: Client) -> None:
    entry = NewEntry(domain="shop.example", key="k", value=SECRET)
    gleanery.store_cookies([cookie("a")])
    gleanery.store_local_storage([entry])
    for record in (cookie("a"), entry, gleanery.cookies(), gleanery.local_storage()):
        assert SECRET not in repr(record) + pretty_repr(record)
    with pytest.raises(Invalid) as rejected:
        gleanery.store_cookies([NewCookie(domain="a b", name="a", value=SECRET)])
    with pytest.raises(ValueError, match="Unicode") as damaged:
        gleanery.store_cookies([NewCookie(domain="a.test", name="a", value=SECRET + "\udc80")])
    assert SECRET not in repr(rejected.value) + repr(damaged.value)


def test_the_asynchronous_client_has_the_same_methods(service: Service) -> None:
    async def run(token: str) -> list[StoredCookie]:
        async with AsyncClient(service.url, token) as client:
            await client.store_cookies([cookie("a")])
            await client.store_local_storage([NewEntry(domain="a.test", key="k", value="v")])
            assert await client.delete_local_storage("a.test") == 1
            return await client.cookies("shop.example")

    assert [found.name for found in asyncio.run(run(service.token()))] == ["a"]

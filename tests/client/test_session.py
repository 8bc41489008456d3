"""Sessions with the client: export, import, conversion and deletion."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

from gleanery import AsyncClient, Client, sessions
from gleanery.client import Conflict, Invalid
from gleanery.sessions import Cookie, SessionState, StorageEntry
from tests.support.service import Client as HttpClient
from tests.support.service import Service

SECRET = "planted-s3cret"
STATE = SessionState(
    (
        Cookie("sid", SECRET, "shop.example", host_only=False, secure=True, same_site="Lax"),
        Cookie("lang", SECRET, "shop.example"),
    ),
    (StorageEntry("https://shop.example", "token", SECRET),),
)


@pytest.fixture
def stored(gleanery: Client) -> Client:
    gleanery.session("shop.example").store(STATE)
    return gleanery


def names(state: SessionState) -> list[str]:
    return sorted(cookie.name for cookie in state.cookies)


def test_a_state_is_stored_and_returned_without_a_loss(gleanery: Client) -> None:
    session = gleanery.session("shop.example")
    result = session.store(STATE)
    assert (result.cookies.created, result.local_storage.created) == (2, 1)
    assert result.losses == []
    assert session.state() == STATE


def test_a_session_is_exported_for_each_tool(stored: Client) -> None:
    session = stored.session("shop.example")
    assert {cookie["name"] for cookie in session.playwright()["cookies"]} == {"sid", "lang"}
    assert {cookie.name for cookie in session.cookiejar()} == {"sid", "lang"}
    assert session.header("https://www.shop.example/") == {"Cookie": f"sid={SECRET}"}
    assert session.header("https://other.example/") == {}
    exported = session.export("netscape")
    assert exported.content == exported.text
    assert any("SameSite is lost" in loss for loss in exported.losses)


def test_a_domain_can_be_international(gleanery: Client) -> None:
    session = gleanery.session("b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example")
    session.store(f"Cookie: sid={SECRET}")
    assert [cookie.host for cookie in session.state().cookies] == ["xn--bcher-kva.example"]
    with session.lease(60) as lease:
        assert names(lease.state) == ["sid"]


def test_a_url_selects_what_one_page_sees(stored: Client) -> None:
    page = stored.session("shop.example", url="http://shop.example/")
    assert names(page.state()) == ["lang"]


DOCUMENTS: dict[str, Any] = {
    "value": {"cookies": [{"name": "sid", "value": SECRET, "domain": "shop.example"}]},
    "text": f"Cookie: sid={SECRET}",
    "bytes": f"shop.example\tFALSE\t/\tFALSE\t0\tsid\t{SECRET}\n".encode(),
    "read": sessions.read(
        {"cookies": [{"name": "sid", "value": SECRET, "domain": "shop.example"}]}
    ),
    "jar": sessions.to_cookiejar(SessionState((Cookie("sid", SECRET, "shop.example"),))).content,
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_kind_of_document_is_stored(gleanery: Client, kind: str) -> None:
    session = gleanery.session("shop.example")
    session.store(DOCUMENTS[kind])
    assert session.header("https://shop.example/") == {"Cookie": f"sid={SECRET}"}


def test_a_file_is_stored(gleanery: Client, tmp_path: Path) -> None:
    file = tmp_path / "cookies.txt"
    file.write_text(f"shop.example\tFALSE\t/\tFALSE\t0\tsid\t{SECRET}\n")
    assert gleanery.import_session(file).format == "netscape"
    assert names(gleanery.session("shop.example").state()) == ["sid"]


def test_an_open_file_is_stored(gleanery: Client) -> None:
    session = gleanery.session("shop.example")
    session.store(io.BytesIO(f"sid={SECRET}; Path=/; Secure".encode()), format="set-cookie")
    assert [cookie.secure for cookie in session.state().cookies] == [True]


def test_the_jar_of_an_http_client_is_stored(gleanery: Client) -> None:
    browser = HttpClient("http://shop.example", None)
    browser.cookies.set("sid", SECRET)
    gleanery.session("shop.example").store(browser.cookies)
    jar: CookieJar = gleanery.session("shop.example").cookiejar()
    assert [(found.name, found.value) for found in jar] == [("sid", SECRET)]


def test_profiles_are_separate_and_listed(stored: Client) -> None:
    stored.session("shop.example", profile="second").store(f"Cookie: sid={SECRET}")
    found = {(one.domain, one.profile): one for one in stored.sessions()}
    assert found["shop.example", "default"].cookies == 2
    assert found["shop.example", "default"].local_storage == 1
    assert found["shop.example", "second"].cookies == 1
    assert [one.profile for one in stored.sessions("shop.example", profile="second")] == ["second"]
    assert stored.session("shop.example", profile="second").delete() == 1
    assert len(stored.sessions()) == 1


@pytest.mark.thorough
def test_all_pages_of_summaries_are_read(gleanery: Client) -> None:
    cookies = tuple(Cookie("sid", SECRET, f"host{number}.example") for number in range(1001))
    gleanery.import_session(SessionState(cookies))
    assert len(gleanery.sessions()) == 1001


def test_a_group_has_its_own_entries(service: Service) -> None:
    with service.client() as http, Client(service.url, http.token) as client:
        for group in ("prices", "news"):
            http.store(group, {"job_id": "j", "source_url": "https://shop.example/", "data": {}})
        client.session("shop.example", group="prices").store(STATE)
        assert client.session("shop.example", group="prices").state() == STATE
        assert client.session("shop.example", group="news").playwright()["origins"] == []


def test_a_dry_run_stores_nothing(gleanery: Client) -> None:
    result = gleanery.session("shop.example").store(STATE, dry_run=True)
    assert {record.name for record in result.records} == {"sid", "lang", "token"}
    assert SECRET not in repr(result)
    assert gleanery.sessions() == []


def test_a_replacement_deletes_the_other_records(stored: Client) -> None:
    document = {"cookies": [{"name": "new", "value": "1", "domain": "shop.example"}], "origins": []}
    result = stored.session("shop.example").store(document, replace=True)
    assert (result.cookies.created, result.cookies.deleted) == (1, 2)
    assert names(stored.session("shop.example").state()) == ["new"]


def test_a_store_with_an_old_version_is_a_conflict(stored: Client) -> None:
    session = stored.session("shop.example")
    version = session.export().etag
    later = session.store("Cookie: lang=de", if_match=version).etag
    with pytest.raises(Conflict):
        session.store("Cookie: lang=fr", if_match=version)
    with pytest.raises(Conflict):
        session.delete(if_match=version)
    session.store("Cookie: lang=fr", if_match=later)
    assert "lang=fr" in session.header("https://shop.example/")["Cookie"]


def test_no_value_is_in_a_representation_an_error_or_the_log(
    stored: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="gleanery")
    session = stored.session("shop.example")
    shown = [session, session.export(), session.state(), session.store(STATE)]
    documents = [f'{{"cookies": [{SECRET}', {"cookies": [{"name": "a", "value": [SECRET]}]}]
    for document in (*documents, f"{SECRET}\udc80"):
        with pytest.raises((Invalid, ValueError)) as rejected:
            session.store(document)
        shown += [rejected.value, str(rejected.value)]
    assert SECRET not in "".join(map(repr, shown)) + caplog.text


def test_the_asynchronous_client_has_the_same_methods(service: Service) -> None:
    async def run(token: str) -> str:
        async with AsyncClient(service.url, token) as client:
            session = client.session("shop.example")
            await session.store(STATE)
            assert await session.state() == STATE
            assert len(await client.sessions()) == 1
            return json.dumps(await session.playwright())

    assert SECRET in asyncio.run(run(service.token()))

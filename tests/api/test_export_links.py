"""Signed links to exports: valid for a time, as long as their token, and only as they were made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import organizations
from gleanery.service.storage.engines import open_engine
from tests.support.exports import export_link
from tests.support.outputs import output
from tests.support.raw_http import exchange
from tests.support.service import Client, Clock, Service


@pytest.fixture
def nobody(service: Service) -> Iterator[Client]:
    with service.stranger() as stranger:
        yield stranger


def names(response: httpx2.Response) -> list[str]:
    """The source URLs of an export."""
    assert response.status_code == 200, response.text
    return [json.loads(line)["source_url"] for line in response.text.splitlines()]


def test_a_link_is_the_export_without_a_token(client: Client, nobody: Client) -> None:
    client.store("group", output(1), output(2, job_id="other"))
    linked, direct = nobody.get(export_link(client)), client.get("/v1/exports/group")
    assert linked.text == direct.text
    for header in ("gleanery-cursor", "content-type", "transfer-encoding"):
        assert linked.headers[header] == direct.headers[header]
    filtered = export_link(client, job_id="other", created_after="2020-01-01T00:00:00+01:00")
    assert names(nobody.get(filtered)) == ["https://shop.example/2"]


def test_a_link_ends_with_a_file_name_and_names_the_file(client: Client, nobody: Client) -> None:
    group = "a b?c&d é"
    client.store(quote(group, safe=""), output(1))
    link = export_link(client, quote(group, safe=""))
    assert urlsplit(link).path.endswith("/outputs.jsonl")
    response = nobody.get(link)
    assert len(names(response)) == 1
    name = quote(f"{group}.jsonl", safe="")
    expected = f"attachment; filename*=UTF-8''{name}"
    assert response.headers["content-disposition"] == expected


@pytest.mark.parametrize(
    ("range_", "status"),
    [("bytes=0-", 200), ("bytes=0-99", 200), ("bytes=5-", 422), ("bytes=-5", 422)],
)
def test_a_client_cannot_join_parts_of_two_exports(
    client: Client, nobody: Client, range_: str, status: int
) -> None:
    client.store("group", output(1))
    for path in (export_link(client), "/v1/exports/group"):
        response = client.get(path, headers={"Range": range_})
        assert response.status_code == status
    assert nobody.head(export_link(client)).headers["accept-ranges"] == "none"


@pytest.mark.parametrize(
    "changed",
    [
        {"job_id": "other"},
        {"country": "DE"},
        {"organization": "1"},
        {"token": "1"},
        {"expires": "99999999999"},
        {"signature": "0" * 64},
        {"signature": "é"},
        {"job_id": None},
    ],
)
def test_a_changed_link_is_rejected(
    client: Client, nobody: Client, changed: dict[str, str | None]
) -> None:
    client.store("group", output(1), output(2, job_id="other"))
    client.store("second", output(1))
    link = export_link(client, job_id="job")
    query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    sent = {name: value for name, value in (query | changed).items() if value is not None}
    path = urlsplit(link).path
    response = nobody.get(path, params=sent)
    assert response.status_code == 403, response.text
    assert "/links" in response.json()["detail"][0]["msg"]
    assert nobody.get(path.replace("group", "second"), params=query).status_code == 403
    assert nobody.get(path, params=query).status_code == 200


def test_the_validity_of_a_link_is_limited(timed: Client, clock: Clock) -> None:
    timed.store("group", output(1))
    link = export_link(timed, valid_seconds="60")
    created = timed.post("/v1/exports/group/links").json()
    [expires] = parse_qs(urlsplit(created["url"]).query)["expires"]
    assert created["expires"] == timestamps.render(int(expires))
    clock.move(seconds=58)
    assert httpx2.get(link, verify=False).status_code == 200
    clock.move(seconds=3)
    assert httpx2.get(link, verify=False).status_code == 403
    assert httpx2.get(created["url"], verify=False).status_code == 200
    clock.move(seconds=3600)
    assert httpx2.get(created["url"], verify=False).status_code == 403


@pytest.mark.parametrize("seconds", ["59", "604801", "0", "x"])
def test_the_time_of_a_link_has_bounds(client: Client, seconds: str) -> None:
    client.store("group", output(1))
    response = client.post("/v1/exports/group/links", params={"valid_seconds": seconds})
    assert response.status_code == 422


def test_a_link_needs_a_group_and_the_scope(client: Client, service: Service) -> None:
    assert client.post("/v1/exports/unknown/links").status_code == 404
    with service.client(scopes=frozenset({"outputs:write"})) as writer:
        assert writer.post("/v1/exports/group/links").status_code == 403


def test_a_link_ends_with_its_token(service: Service, client: Client, nobody: Client) -> None:
    client.store("group", output(1))
    link = export_link(client)
    assert nobody.get(link).status_code == 200
    token_id = int(parse_qs(urlsplit(link).query)["token"][0])

    async def revoke() -> None:
        async with open_engine(service.settings) as database:
            await organizations.revoke_token(database, token_id, timestamps.now())

    asyncio.run(revoke())
    assert nobody.get(link).status_code == 403


def test_a_link_ends_when_its_token_expires(timed_service: Service, clock: Clock) -> None:
    expires = clock() + 600 * timestamps.SECOND
    with timed_service.client(expires=expires) as client, timed_service.stranger() as nobody:
        client.store("group", output(1))
        link = export_link(client)
        assert nobody.get(link).status_code == 200
        clock.move(seconds=601)
        assert nobody.get(link).status_code == 403


def test_the_creation_of_a_link_is_in_the_audit_log(client: Client) -> None:
    client.store("group", output(1))
    token = int(parse_qs(urlsplit(export_link(client)).query)["token"][0])
    *_, entry = client.get("/v1/audit").json()["entries"]
    assert (entry["action"], entry["about"]) == (
        "create_export_link",
        {"group_id": "group", "format": "jsonl"},
    )
    assert entry["token_id"] == token


def test_a_link_needs_http_1_1_too(client: Client) -> None:
    client.store("group", output(1))
    parts = urlsplit(export_link(client))
    request = f"GET {parts.path}?{parts.query} HTTP/1.0\r\nHost: x\r\n\r\n"
    assert exchange(str(client.base_url), request.encode()).status == 505


def test_a_body_does_not_create_a_link_without_its_filters(client: Client) -> None:
    response = client.post("/v1/exports/group/links", json={"approved": "true"})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body"]

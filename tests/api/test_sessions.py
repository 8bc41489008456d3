"""The list of sessions, their deletion, and the metric of their expiry, on both engines."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.foundation.values import timestamps
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until


def state(*hosts: str, **members: Any) -> dict[str, Any]:
    """A storage state with a cookie and an entry for each host."""
    cookie = {"name": "sid", "value": "s3cret", "path": "/", "expires": -1}
    return {
        "cookies": [cookie | {"domain": host} | members for host in hosts],
        "origins": [
            {
                "origin": f"https://{host.removeprefix('.')}",
                "localStorage": [{"name": "k", "value": "s3cret"}],
            }
            for host in hosts
        ],
    }


def fill(client: Client, profile: str, *hosts: str, **members: Any) -> None:
    answer = client.post(
        "/v1/sessions/import", params={"profile": profile}, json=state(*hosts, **members)
    )
    assert answer.status_code == 200, answer.text


def listed(client: Client, **query: Any) -> list[dict[str, Any]]:
    """The sessions on all pages."""
    answer = client.get("/v1/sessions", params=query)
    found: list[dict[str, Any]] = []
    while True:
        assert answer.status_code == 200, answer.text
        assert "s3cret" not in answer.text
        found += answer.json()
        if "link" not in answer.headers:
            return found
        [url] = re.findall("<(.*)>", answer.headers["link"])
        answer = client.get(url)


def test_a_session_is_counted_per_host_and_profile(timed: Client, clock: Clock) -> None:
    now = clock() // timestamps.SECOND
    cookie: dict[str, object] = {"domain": "a.com", "name": "x", "value": "s3cret"}
    expiries = (now - 10, now + 100, now + DAY - 100, now + DAY + 100, -1)
    cookies = [cookie | {"name": f"c{n}", "expires": at} for n, at in enumerate(expiries)]
    timed.post("/v1/cookies", json=[*cookies, cookie | {"domain": ".a.com"}])
    timed.post(
        "/v1/local-storage",
        json=[{"domain": "a.com", "key": "k", "value": "s3cret", "expires": now - 20}],
    )
    fill(timed, "second", "a.com")
    [first, second] = listed(timed)
    assert first.pop("last_change")[:4] == second.pop("last_change")[:4]
    assert first == {
        "domain": "a.com",
        "profile": "default",
        "cookies": 6,
        "local_storage": 1,
        "expired": 2,
        "expiring": 2,
        "first_expiry": timestamps.render(now - 20),
    }
    assert second == {
        "domain": "a.com",
        "profile": "second",
        "cookies": 1,
        "local_storage": 1,
        "expired": 0,
        "expiring": 0,
        "first_expiry": None,
    }
    clock.move(seconds=DAY)
    [first, _] = listed(timed)
    assert (first["expired"], first["expiring"]) == (4, 1)


def test_sessions_are_listed_in_pages(client: Client) -> None:
    hosts = [f"h{number}.example" for number in range(5)]
    fill(client, "default", *hosts)
    fill(client, "a b/c".replace("/", "&"), *hosts[:3])
    client.post("/v1/local-storage", json=[{"domain": "only.example", "key": "k", "value": "v"}])
    expected = [(one["domain"], one["profile"]) for one in listed(client)]
    assert [*dict.fromkeys(host for host, _ in expected)] == [*hosts, "only.example"]
    assert len(expected) == 9
    for limit in (1, 2, 8, 9):
        found = [(one["domain"], one["profile"]) for one in listed(client, limit=limit)]
        assert found == expected
    assert [one["domain"] for one in listed(client, profile="default")] == [*hosts, "only.example"]
    assert len(listed(client, domain=".h1.example", limit=1)) == 2
    assert len(listed(client, domain="h1.example", profile="default")) == 1
    assert listed(client, domain="example") == []


@pytest.mark.parametrize("query", ["cursor=5", "cursor=a%00/b", "limit=0", "cursor=", "expired=1"])
def test_an_invalid_query_is_rejected(client: Client, query: str) -> None:
    answer = client.get(f"/v1/sessions?{query}")
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", query.partition("=")[0]]


def test_a_session_is_deleted_with_its_local_storage(client: Client) -> None:
    fill(client, "second", "a.com", "www.a.com", ".b.com")
    fill(client, "second", ".a.com", partitionKey="https://portal.example")
    fill(client, "default", "a.com")
    etag = client.get("/v1/cookies").headers["etag"]
    deleted = client.delete("/v1/sessions?domain=.a.com&profile=second")
    assert deleted.json() == {"deleted": 3}
    names = [(one["domain"], one["profile"]) for one in listed(client)]
    expected = [("a.com", "default"), ("b.com", "second"), ("www.a.com", "second")]
    assert names == expected
    client.post("/v1/cookies", json=[{"domain": "a.com", "name": "new", "value": "1"}])
    stale = client.delete("/v1/sessions?domain=a.com", headers={"If-Match": etag})
    assert stale.status_code == 412
    fresh = client.get("/v1/cookies").headers["etag"]
    deleted = client.delete("/v1/sessions?domain=a.com", headers={"If-Match": fresh})
    assert deleted.json() == {"deleted": 3}
    entries = client.get("/v1/audit").json()["entries"]
    about = [entry["about"] for entry in entries if entry["action"] == "delete_session"]
    assert [one["records"] for one in about] == [3, 3]
    assert about[0]["domains"] == ["a.com"]
    assert about[0]["profile"] == "second"


@pytest.mark.thorough
def test_a_metric_counts_records_that_expire(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    service = Service(replace(settings, sweep_seconds=0.2))
    now = timestamps.now() // timestamps.SECOND
    with service.client() as client:
        expiries = {"a": now - 10, "b": now - 20, "c": now + 1000, "d": now + 10 * DAY, "e": -1}
        given = [
            {"domain": "a.com", "name": name, "value": "v", "expires": at}
            for name, at in expiries.items()
        ]
        client.post("/v1/cookies", json=given)
        entry = {"domain": "a.com", "key": "k", "value": "v", "expires": now + 2000}
        client.post("/v1/local-storage", json=[entry])

        def metric(name: str) -> float:
            text = client.get("/metrics").text
            return float(re.findall(rf'^{name}{{worker="1"}} (\S+)$', text, re.MULTILINE)[0])

        wait_until(lambda: metric("gleanery_session_records_expired") == 2)
        wait_until(lambda: metric("gleanery_session_records_expiring") == 2)
    service.stop()

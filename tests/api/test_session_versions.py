"""ETag, If-None-Match and If-Match of session records, on both engines."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.service import Client, Service

COOKIE = {"domain": ".a.com", "name": "sid", "value": "1"}
ENTRY = {"domain": ".a.com", "key": "k", "value": "1"}
LISTS = {"/v1/cookies": COOKIE, "/v1/local-storage": ENTRY}


def etag_of(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return str(answer.headers["etag"])


def status_of_write(client: Client, path: str, value: str, etag: str) -> int:
    record = LISTS[path] | {"value": value}
    return client.post(path, json=[record], headers={"If-Match": etag}).status_code


@pytest.mark.parametrize("path", LISTS)
def test_a_list_that_has_not_changed_is_not_sent_again(client: Client, path: str) -> None:
    for url in (path, f"{path}?domain=www.a.com"):
        client.post(path, json=[LISTS[path]])
        etag = etag_of(client, url)
        answer = client.get(url, headers={"If-None-Match": f'"other", {etag}'})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
        assert client.head(url, headers={"If-None-Match": etag}).status_code == 304
        client.post(path, json=[LISTS[path]])  # unchanged
        assert etag_of(client, url) == etag
        client.post(path, json=[LISTS[path] | {"value": "2"}])
        assert client.get(url, headers={"If-None-Match": etag}).status_code == 200
        client.post(path, json=[LISTS[path]])  # the first value again, but a new version
        assert etag_of(client, url) != etag
        client.delete(f"{path}?domain={LISTS[path]['domain']}")


@pytest.mark.parametrize("path", LISTS)
def test_a_stale_writer_is_rejected(client: Client, path: str) -> None:
    etag = etag_of(client, path)  # of an empty list
    assert status_of_write(client, path, "1", etag) == 200
    assert status_of_write(client, path, "2", etag) == 412
    domain = LISTS[path]["domain"]
    stale = client.delete(f"{path}?domain={domain}", headers={"If-Match": etag})
    assert stale.status_code == 412
    [problem] = stale.json()["detail"]
    assert (problem["loc"], problem["type"]) == (["header", "if-match"], "precondition_failed")
    assert "read them again" in problem["msg"]
    assert [one["value"] for one in client.get(path).json()] == ["1"]
    fresh = etag_of(client, path)
    assert status_of_write(client, path, "3", f"{etag}, {fresh}") == 200
    assert status_of_write(client, path, "4", "*") == 200
    fresh = etag_of(client, path)
    gone = client.delete(f"{path}?domain={domain}", headers={"If-Match": fresh})
    assert gone.json() == {"deleted": 1}


def test_an_etag_belongs_to_its_list(service: Service, client: Client) -> None:
    client.post("/v1/cookies", json=[COOKIE, COOKIE | {"domain": "b.com"}])
    of_a, of_all = etag_of(client, "/v1/cookies?domain=www.a.com"), etag_of(client, "/v1/cookies")
    client.post("/v1/cookies", json=[COOKIE | {"domain": "b.com", "value": "2"}])
    assert client.get("/v1/cookies", headers={"If-None-Match": of_a}).status_code == 200
    assert status_of_write(client, "/v1/cookies", "2", of_all) == 412
    assert status_of_write(client, "/v1/local-storage", "1", of_a) == 200  # of another list
    with service.client() as other:
        assert status_of_write(other, "/v1/cookies", "1", of_a) == 412


def test_an_etag_of_another_profile_does_not_match(client: Client) -> None:
    text = "Cookie: sid=1"
    imports = "/v1/sessions/import?url=https://a.com/&profile="
    for profile in ("anna", "bert"):
        assert client.post(f"{imports}{profile}", content=text).status_code == 200
    of_anna = etag_of(client, "/v1/sessions/export?profile=anna")
    of_bert = etag_of(client, "/v1/sessions/export?profile=bert")
    lease = {"domain": "a.com", "profile": "bert", "seconds": 60}
    number = client.post("/v1/sessions/leases", json=lease).json()["id"]
    headers = {"If-Match": of_anna}
    for answer in (
        client.post(f"{imports}bert", content=text, headers=headers),
        client.delete("/v1/sessions?domain=a.com&profile=bert", headers=headers),
        client.post("/v1/cookies", json=[COOKIE], headers=headers),
        client.delete("/v1/cookies?domain=a.com", headers=headers),
        client.put(f"/v1/sessions/leases/{number}", json={"seconds": 60}, headers=headers),
    ):
        [problem] = answer.json()["detail"]
        assert (answer.status_code, problem["loc"]) == (412, ["header", "if-match"])
        assert "another profile" in problem["msg"]
    both = {"If-Match": f"{of_anna}, {of_bert}"}
    assert client.post(f"{imports}bert", content=text, headers=both).status_code == 200


def test_an_etag_of_local_storage_belongs_to_its_group(client: Client) -> None:
    client.store("g", {"job_id": "j", "source_url": "https://a", "data": {}})
    group = client.get("/v1/groups/g").json()["id"]
    client.post("/v1/local-storage", json=[ENTRY, ENTRY | {"group_id": group}])
    of_group = etag_of(client, f"/v1/local-storage?for_group={group}")
    of_others = etag_of(client, "/v1/local-storage?for_group=0")
    client.post("/v1/local-storage", json=[ENTRY | {"group_id": group, "value": "2"}])
    assert etag_of(client, f"/v1/local-storage?for_group={group}") != of_group
    assert etag_of(client, "/v1/local-storage?for_group=0") == of_others


@pytest.mark.thorough
@pytest.mark.parametrize("path", LISTS)
def test_of_two_writers_with_one_etag_one_succeeds(
    service: Service, client: Client, path: str
) -> None:
    for turn in range(5):
        etag, barrier = etag_of(client, path), threading.Barrier(2)

        def write(value: str, etag: str = etag, barrier: threading.Barrier = barrier) -> int:
            with Client(service.url, client.token) as writer:
                barrier.wait()
                return status_of_write(writer, path, value, etag)

        with ThreadPoolExecutor(2) as pool:
            statuses = list(pool.map(write, [f"{turn} a", f"{turn} b"]))
        assert sorted(statuses) == [200, 412]
        winner = "ab"[statuses.index(200)]
        assert [one["value"] for one in client.get(path).json()] == [f"{turn} {winner}"]


def forged(text: bytes) -> str:
    return f'"{base64.urlsafe_b64encode(text).decode().rstrip("=")}.0123456789abcdef"'


@pytest.mark.thorough
@pytest.mark.parametrize(
    "etag",
    [
        '"x"',
        '""',
        'W/"x"',
        '"a,b"',
        forged(b"c\ndefault\na\0b\n"),
        forged(b"c\n\0\n\n"),
        forged(b"c\ndefault\n\n99999999999999999999"),
        forged(b"z\ndefault\n\n"),
        forged(b"c\n\xff\n\n"),
        forged(b"c\ndefault\n" + b"a." * 200 + b"\n"),
    ],
)
def test_an_unknown_etag_does_not_match(client: Client, etag: str) -> None:
    assert status_of_write(client, "/v1/cookies", "1", etag) == 412
    assert client.get("/v1/cookies").json() == []


@pytest.mark.parametrize("etag", ["x", '"x', '"a" "b"', ",", ", ".join(['"x"'] * 11)])
def test_a_malformed_if_match_is_an_error(client: Client, etag: str) -> None:
    answer = client.post("/v1/cookies", json=[COOKIE], headers={"If-Match": etag})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["header", "if-match"]

"""Outputs over HTTP, on both engines: stored under their key, paged in the change order."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.postgres.transactions import PostgresTransaction
from gleanery.service.storage.sqlite.writer import _SqliteTransaction
from tests.support.outputs import output
from tests.support.service import NO_TLS, Client, Clock, Service

MEMBERS = {
    "source_url": str,
    "data": dict,
    "id": int,
    "output_id": str,
    "root_job_id": str,
    "create_date": str,
    "update_date": str,
    "last_scraped_date": str,
    "key_hash": str,
    "value_hash": str,
    "is_approved": bool,
    "tags": dict,
    "files": list,
}


# --- shape --------------------------------------------------------------------------------------


def test_an_output_comes_back_in_the_shape_of_the_contract(client: Client) -> None:
    sent = output(1, data={"b": [1, None], "a": "ü"}, tags={"country": "France", "x": {"y": 1}})
    stored = client.store("group", sent)
    assert {name: stored[name] for name in ("created", "updated", "unchanged")} == {
        "created": 1,
        "updated": 0,
        "unchanged": 0,
    }
    answer = client.get("/v1/outputs/group")
    assert answer.status_code == 200
    page = answer.json()
    assert page.keys() == {"metadata", "items"}
    assert page["metadata"] == {"next_url": None, "next_cursor": None}
    [item] = page["items"]
    assert {name: type(value) for name, value in item.items()} == MEMBERS
    assert item["source_url"] == sent["source_url"]
    assert item["data"] == sent["data"]
    assert item["tags"] == sent["tags"]
    assert item["root_job_id"] == "job"
    assert item["files"] == []
    assert item["is_approved"] is False
    assert item["create_date"] == item["update_date"] == item["last_scraped_date"]
    assert timestamps.parse(item["create_date"]) // timestamps.SECOND <= timestamps.now()
    assert stored["results"] == [
        {"id": item["id"], "output_id": item["output_id"], "change": "created"}
    ]


# --- one output ---------------------------------------------------------------------------------


def unsigned(item: dict[str, Any]) -> dict[str, Any]:
    """The output with links that do not depend on the time."""
    links = [file["blob_url"].partition("&expires")[0] for file in item["files"]]
    files = [file | {"blob_url": link} for file, link in zip(item["files"], links, strict=True)]
    return item | {"files": files}


def test_the_output_ids_of_a_group_and_of_a_job_begin_with_the_same_bytes(client: Client) -> None:
    """So they are neighbours in the primary key; see the module ``hashes``."""
    ids = {
        (group, job): [result["output_id"] for result in client.store(group, *outputs)["results"]]
        for group in ("first", "second")
        for job in ("one", "other")
        for outputs in [[output(n, job_id=job) for n in range(10)]]
    }
    of_jobs = {key: {id_[:12] for id_ in found} for key, found in ids.items()}
    of_groups = {
        group: {id_[:8] for id_ in ids[group, "one"] + ids[group, "other"]}
        for group in ("first", "second")
    }
    assert [len(starts) for starts in (*of_jobs.values(), *of_groups.values())] == [1] * 6
    assert len(set().union(*of_jobs.values())) == 4
    assert of_groups["first"] != of_groups["second"]
    assert len({id_[12:] for found in ids.values() for id_ in found}) == 40


@pytest.mark.parametrize("length", [1, 200_000])
def test_one_output_is_as_on_a_page(client: Client, length: int) -> None:
    file = client.post("/v1/files", content=b"bytes").json()
    files = [{"field": "f", "id": file["id"]}]
    client.store("group", output(0), output(1, data={"ü": "x" * length}, files=files), output(2))
    item = client.items("group")[1]
    path = f"/v1/outputs/group/{item['output_id']}"
    answer = client.get(path)
    assert (answer.status_code, unsigned(answer.json())) == (200, unsigned(item))
    assert answer.text.endswith("}\n")
    plain = {"Accept-Encoding": "identity"}  # the compressed length depends on the signed links
    lengths = [
        client.request(method, path, headers=plain).headers["content-length"]
        for method in ("GET", "HEAD")
    ]
    assert lengths[0] == lengths[1]
    assert httpx2.get(answer.json()["files"][0]["blob_url"], verify=NO_TLS).content == b"bytes"
    assert client.delete(path).status_code == 200
    assert client.get(path).status_code == 404


def test_one_output_belongs_to_one_group_of_one_organization(
    client: Client, service: Service
) -> None:
    [result] = client.store("group", output(1))["results"]
    client.store("second", output(1))
    output_id = result["output_id"]
    unknown = client.get(f"/v1/outputs/group/{'0' * 32}")
    assert unknown.status_code == 404
    assert unknown.json()["detail"][0]["loc"] == ["path", "output_id"]
    for text in (output_id.upper(), f"{output_id[:2]}%20{output_id[2:]}", output_id[:-2], "x"):
        for method in ("GET", "DELETE"):
            answer = client.request(method, f"/v1/outputs/group/{text}")
            assert (answer.status_code, answer.content) == (404, unknown.content)
    assert client.get(f"/v1/outputs/second/{output_id}").content == unknown.content
    no_group = client.get(f"/v1/outputs/none/{output_id}")
    assert (no_group.status_code, no_group.json()["detail"][0]["loc"][1]) == (404, "group_id")
    with service.client() as other:
        assert other.get(f"/v1/outputs/group/{output_id}").content == no_group.content
        other.store("group", output(2))
        assert other.get(f"/v1/outputs/group/{output_id}").content == unknown.content


def test_the_hashes_are_sha256_over_canonical_json(client: Client) -> None:
    client.store("group", output(1, key="k", data={"b": 1.0, "a": "\u00fc"}))
    [item] = client.items("group")
    assert item["key_hash"] == hashlib.sha256(b'"k"').hexdigest()
    assert item["value_hash"] == hashlib.sha256('{"a":"ü","b":1}'.encode()).hexdigest()


def test_an_empty_batch_stores_nothing(client: Client) -> None:
    answer = client.post("/v1/outputs/group", json=[])
    assert (answer.status_code, answer.json()["results"]) == (200, [])
    assert client.get("/v1/outputs/group").status_code == 404


def test_ids_are_unique_over_groups_jobs_and_organizations(service: Service) -> None:
    ids, output_ids = set(), set()
    with service.client() as one, service.client() as two:
        for client in (one, two):
            for group in ("a", "b"):
                for job in ("x", "y"):
                    [result] = client.store(group, output(1, job_id=job))["results"]
                    ids.add(result["id"])
                    output_ids.add(result["output_id"])
    assert len(ids) == len(output_ids) == 8


# --- identity and change ------------------------------------------------------------------------


def test_the_same_value_changes_nothing_but_the_scrape_date(timed: Client, clock: Clock) -> None:
    timed.store("group", output(1), output(2))
    [before, _] = timed.items("group")
    clock.move(seconds=90)
    stored = timed.store("group", output(1))
    assert stored["results"] == [
        {"id": before["id"], "output_id": before["output_id"], "change": "unchanged"}
    ]
    [after, _] = timed.items("group")
    assert after.pop("last_scraped_date") > before.pop("last_scraped_date")
    assert after == before


def test_a_date_is_read_directly_before_the_output_is_written(
    timed: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement of the transaction takes ten seconds by the service's clock."""
    written_at: dict[str, int] = {}

    def slow_down(owner: type, method: str) -> None:
        original = getattr(owner, method)

        async def run(self: Any, *arguments: Any) -> Any:
            if [] in arguments:  # nothing to write
                return await original(self, *arguments)
            for sql in filter(lambda one: isinstance(one, str), arguments):
                written_at[" ".join(sql.split()[:3])] = clock() // timestamps.SECOND
            result = await original(self, *arguments)
            clock.move(seconds=10)
            return result

        monkeypatch.setattr(owner, method, run)

    for owner in (_SqliteTransaction, PostgresTransaction):
        for method in ("fetch", "fetch_many", "execute_many", "fetch_by_keys"):
            slow_down(owner, method)
    timed.store("group", *(output(n, job_id=f"j{n}") for n in range(3)))
    for item in timed.items("group"):
        date = timestamps.parse(item["update_date"]) // timestamps.SECOND
        assert 0 <= written_at["INSERT INTO outputs"] - date <= 1
        assert item["create_date"] == item["update_date"] == item["last_scraped_date"]
    timed.store("group", output(1, job_id="j1", data={}))
    changed = timed.items("group")[-1]
    date = timestamps.parse(changed["update_date"]) // timestamps.SECOND
    assert 0 <= written_at["UPDATE outputs SET"] - date <= 1
    deleted = timed.delete(f"/v1/outputs/group/{changed['output_id']}")
    assert deleted.json() == {"deleted": 1}


def test_outputs_of_a_batch_have_the_order_of_the_batch(client: Client) -> None:
    client.store("group", output(2), output(1))
    batch = [output(n, data={"new": n}) for n in (3, 1, 4, 2)]
    client.store("group", *batch, output(3, data={"new": 5}))
    assert [item["data"]["new"] for item in client.items("group")] == [1, 4, 2, 5]


def test_a_new_value_moves_the_output_to_the_end(timed: Client, clock: Clock) -> None:
    timed.store("group", output(1), output(2))
    [before, _] = timed.items("group")
    clock.move(seconds=90)
    stored = timed.store("group", output(1, data={"number": 10}))
    assert (stored["updated"], stored["results"][0]["change"]) == (1, "updated")
    [_, after] = timed.items("group")
    assert after["id"] == before["id"]
    assert after["data"] == {"number": 10}
    assert after["create_date"] == before["create_date"]
    assert after["update_date"] > before["update_date"]
    assert after["key_hash"] == before["key_hash"]
    assert after["value_hash"] != before["value_hash"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":100}', '{"a":1e2}'),
        ('{"a":0.5}', '{"a":5E-1}'),
        ('{"a":1e300}', '{"a":1' + "0" * 300 + "}"),
        ('{"a":9007199254740992}', '{"a":9007199254740992.0}'),
        ('{"a":"ü/"}', '{"a":"\\u00fc\\/"}'),
        ('{"a":[{"x":1,"y":2}]}', '{"a":[{"y":2,"x":1}]}'),
    ],
)
def test_the_same_value_in_another_notation_is_unchanged(
    client: Client, first: str, second: str
) -> None:
    frame = '[{"job_id":"j","source_url":"u","data":%s}]'
    for data, change in ((first, "created"), (second, "unchanged")):
        answer = client.post(
            "/v1/outputs/group",
            content=(frame % data).encode(),
            headers={"Content-Type": "application/json"},
        )
        assert answer.json()["results"][0]["change"] == change


def test_numbers_with_exponents_do_not_grow(client: Client) -> None:
    sent = ["1e15", "-1e9", "25e10", "1e300", "1.0000000000000001e+300", "9007199254740993e0"]
    data = '{{"a":[{}]}}'.format(",".join(sent * 1000))
    body = f'[{{"job_id":"j","source_url":"u","data":{data}}}]'
    headers = {"Content-Type": "application/json"}
    assert client.post("/v1/outputs/group", content=body, headers=headers).status_code == 200
    page = client.get("/v1/outputs/group")
    assert len(page.content) < 2 * len(body)
    assert page.json()["items"][0]["data"]["a"][:6] == [1e15, -1e9, 25e10, 1e300, 1e300, 2**53 + 1]


@pytest.mark.parametrize(
    ("first", "second"), [("1", "2"), ("1", '"1"'), ("0.1", "0.2"), ("[1,2]", "[2,1]"), ("0", "[]")]
)
def test_another_value_is_an_update(client: Client, first: str, second: str) -> None:
    client.store("group", output(1, data={"a": json.loads(first)}))
    assert client.store("group", output(1, data={"a": json.loads(second)}))["updated"] == 1


@pytest.mark.parametrize("change", [{"tags": {"country": "Spain"}}, {"source_url": "https://b"}])
def test_a_change_of_a_visible_member_is_an_update(client: Client, change: dict[str, Any]) -> None:
    client.store("group", output(1, key="k"))
    assert client.store("group", output(1, key="k") | change)["updated"] == 1
    [item] = client.items("group")
    assert {name: item[name] for name in change} == change


def test_approval_stays_with_the_value(client: Client) -> None:
    client.store("group", output(1, key="k"))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    client.store("group", output(1, key="k", tags={"country": "Spain"}))
    assert client.items("group")[0]["is_approved"] is True
    client.store("group", output(1, key="k", data={"number": 2}))
    assert client.items("group")[0]["is_approved"] is False


def test_the_key_is_key_else_source_url(client: Client) -> None:
    client.store("group", output(1), output(1, key="a"), output(1, key="b"))
    assert len(client.items("group")) == 3
    assert client.store("group", output(2, key="a"))["updated"] == 1
    assert client.store("group", output(1, data={}))["updated"] == 1


def test_the_same_key_in_two_jobs_is_two_outputs(client: Client) -> None:
    stored = client.store("group", output(1, job_id="a"), output(1, job_id="b"))
    assert stored["created"] == 2


def test_an_output_twice_in_a_batch_has_two_results_and_the_last_value(client: Client) -> None:
    batch = [output(1), output(1, data={"n": 2}), output(1, data={"n": 2}), output(2)]
    stored = client.store("group", *batch)
    changes = [result["change"] for result in stored["results"]]
    assert changes == ["created", "updated", "unchanged", "created"]
    assert len({result["id"] for result in stored["results"]}) == 2
    assert [item["data"] for item in client.items("group")] == [{"n": 2}, {"number": 2}]


def test_a_batch_with_one_error_is_not_stored(client: Client) -> None:
    batch = [output(1), {"job_id": 5, "data": {}}, output(3, data=[])]
    answer = client.post("/v1/outputs/group", json=batch)
    assert answer.status_code == 422
    assert [fault["loc"] for fault in answer.json()["detail"]] == [
        ["body", "1", "job_id"],
        ["body", "1", "source_url"],
        ["body", "2", "data"],
    ]
    assert client.get("/v1/outputs/group").status_code == 404


@pytest.mark.thorough
def test_a_batch_may_have_ten_thousand_outputs(client: Client) -> None:
    stored = client.store("group", *(output(number) for number in range(10_000)))
    assert stored["created"] == 10_000
    items = client.items("group", limit=1000)
    assert [item["data"]["number"] for item in items] == list(range(10_000))


# --- exactness ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        '{"a":18446744073709551617}',
        '{"a":-123456789012345678901234567890}',
        '{"a":9007199254740993}',
        '{"a":"\\u0000"}',
        '{"\\u0000":"nul in a name"}',
        '{"a":0.1}',
        '{"a":1.0}',
        '{"a":""}',
        '{"":{}}',
        '{"a":"😀\u2028"}',
    ],
)
def test_data_comes_back_exactly(client: Client, data: str) -> None:
    body = f'[{{"job_id":"j","source_url":"u","data":{data}}}]'
    answer = client.post(
        "/v1/outputs/group", content=body.encode(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 200
    text = client.get("/v1/outputs/group").text
    exact = {"parse_float": str, "parse_int": str}
    assert json.loads(text, **exact)["items"][0]["data"] == json.loads(data, **exact)


def test_a_float_is_never_rounded_to_another_integer(client: Client) -> None:
    body = b'[{"job_id":"j","source_url":"u","data":{"a":9007199254740993.0}}]'
    client.post("/v1/outputs/group", content=body, headers={"Content-Type": "application/json"})
    assert client.items("group")[0]["data"]["a"] == 9007199254740993


# --- paging -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "limit"), [(25, 10), (20, 10), (1, 1), (3, 1), (1000, 1000)])
def test_pages_hold_every_output_once_and_the_last_has_no_cursor(
    client: Client, count: int, limit: int
) -> None:
    client.store("group", *(output(number) for number in range(count)))
    cursor, numbers, pages = 0, [], 0
    while cursor is not None:
        page = client.get("/v1/outputs/group", params={"cursor": cursor, "limit": limit}).json()
        numbers += [item["data"]["number"] for item in page["items"]]
        assert len(page["items"]) <= limit
        cursor, pages = page["metadata"]["next_cursor"], pages + 1
        assert (cursor is None) == (page["metadata"]["next_url"] is None)
    assert numbers == list(range(count))
    assert pages == -(-count // limit)


def test_a_page_ends_between_items_whatever_they_hold(client: Client) -> None:
    text = 'a,\n{"source_url":"b'  # looks like the separator of two items
    stored = [output(n, source_url=text + str(n), data={text: [{text: text}]}) for n in range(3)]
    client.store("group", *stored)
    for limit in (1, 2, 3):
        page = client.get("/v1/outputs/group", params={"limit": limit}).json()
        assert [item["data"] for item in page["items"]] == [o["data"] for o in stored[:limit]]


def test_a_page_has_ten_items_by_default(client: Client) -> None:
    client.store("group", *(output(number) for number in range(11)))
    page = client.get("/v1/outputs/group").json()
    assert len(page["items"]) == 10
    assert isinstance(page["metadata"]["next_cursor"], int)


def test_a_cursor_after_the_end_returns_an_empty_page(client: Client) -> None:
    client.store("group", output(1))
    page = client.get("/v1/outputs/group", params={"cursor": 2**63 - 1}).json()
    assert page == {"metadata": {"next_url": None, "next_cursor": None}, "items": []}


def test_next_url_carries_every_filter_and_begins_with_the_base_url(
    client: Client, service: Service
) -> None:
    of = {"tags": {"country": "Germany", "region": "DE-BY"}, "source_url": "https://a/?x=1&y=ü +"}
    group = "a group/ü".replace("/", "~")
    client.store(group, *(output(n, key=str(n), **of) for n in range(5)))
    query = {
        "job_id": "job",
        "created_after": "2020-01-01T00:00:00+02:00",
        "url": of["source_url"],
        "limit": "2",
        "country": "Germany",
        "region": "de-by",
        "approved": "false",
    }
    answer = client.get(f"/v1/outputs/{group}", params=query, headers={"Host": "evil.example"})
    metadata = answer.json()["metadata"]
    assert metadata["next_url"].startswith(service.url + "/v1/outputs/a%20group")
    carried = {
        name: values[0] for name, values in parse_qs(urlsplit(metadata["next_url"]).query).items()
    }
    assert carried == query | {"cursor": str(metadata["next_cursor"])}
    assert len(client.items(group, **query)) == 5


def test_an_output_that_changes_during_paging_is_listed_again(client: Client) -> None:
    client.store("group", *(output(number) for number in range(4)))
    page = client.get("/v1/outputs/group", params={"limit": 2}).json()
    client.store("group", output(0, data={"number": 100}), output(3, data={"number": 103}))
    rest = client.items("group", limit=2, cursor=page["metadata"]["next_cursor"])
    assert [item["data"]["number"] for item in rest] == [2, 100, 103]


# --- filters ------------------------------------------------------------------------------------


def numbers(client: Client, **query: Any) -> list[int]:
    return [item["data"]["number"] for item in client.items("group", **query)]


def test_filter_by_job(client: Client) -> None:
    client.store("group", *(output(n, job_id=f"j{n % 2}") for n in range(6)))
    assert numbers(client, job_id="j1", limit=1) == [1, 3, 5]
    assert numbers(client, job_id="J1") == []
    assert numbers(client) == list(range(6))


def test_filter_by_url_is_byte_for_byte(client: Client) -> None:
    urls = ["https://a/x", "https://a/x/", "https://A/x", "https://a/x?q=1#f", "https://a/%78"]
    client.store("group", *(output(n, source_url=url) for n, url in enumerate(urls)))
    for number, url in enumerate(urls):
        assert numbers(client, url=url) == [number]
    assert numbers(client, url="https://a") == []


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("Germany", [0, 1, 2]),
        ("germany", [0, 1, 2]),
        ("DE", [0, 1, 2]),
        ("DEU", [0, 1, 2]),
        ("USA", [3, 4]),
        ("United States of America", [3, 4]),
        ("UK", [5]),
        ("Russia", [6]),
        ("Türkiye", [7]),
        ("turkey", [7]),
        ("Narnia", [8]),
        ("NARNIA", [8]),
        ("Cote d'Ivoire", [9]),
        ("Ivory Coast", [9]),
        ("Holy See", [10]),
        ("VA", [10]),
        ("Kosovo", [11]),
        ("France", []),
    ],
)
def test_filter_by_country(client: Client, asked: str, found: list[int]) -> None:
    stored = ["Germany", "DE", "deu", "United States", "usa", "United Kingdom"]
    stored += ["Russian Federation", "Turkey", "Narnia", "Côte d'Ivoire", " Vatican City ", "XK"]
    outputs = [output(n, tags={"country": name}) for n, name in enumerate(stored)]
    client.store("group", *outputs, output(99), output(98, tags={"country": 5}))
    assert numbers(client, country=asked) == found


def test_filter_by_region(client: Client) -> None:
    stored = ["DE-BY", "de-by", "US-CA", "somewhere", " DE-BY "]
    client.store("group", *(output(n, tags={"region": r}) for n, r in enumerate(stored)))
    assert numbers(client, region="DE-BY") == [0, 1, 4]
    assert numbers(client, region="us-ca") == [2]


def approve(client: Client, job: str, status: str = "approved") -> None:
    body = {"job_id": job, "status": status}
    assert client.post("/v1/reviews/group", json=body).status_code == 200


def test_filter_by_approval(client: Client) -> None:
    client.store("group", *(output(n, job_id=f"j{n % 2}") for n in range(6)))
    assert numbers(client, approved="true") == []
    assert numbers(client, approved="false", limit=2) == list(range(6))
    approve(client, "j1")
    assert numbers(client, approved="true", limit=1) == [1, 3, 5]
    assert numbers(client, approved="false", limit=2) == [0, 2, 4]
    client.store("group", output(3, job_id="j1", data={"number": 33}))  # not yet approved
    assert numbers(client, approved="true") == [1, 5]
    assert numbers(client, approved="false") == [0, 2, 4, 33]
    approve(client, "j1", "rejected")
    assert numbers(client, approved="true") == []
    assert numbers(client, approved="false") == [0, 2, 4, 33, 1, 5]


@pytest.mark.parametrize("text", ["", "True", "1", "yes", "null"])
def test_an_approval_is_true_or_false(client: Client, text: str) -> None:
    client.store("group", output(1))
    answer = client.get("/v1/outputs/group", params={"approved": text})
    assert answer.status_code == 422
    [detail] = answer.json()["detail"]
    assert detail["loc"] == ["query", "approved"]
    assert "'true' or 'false'" in detail["msg"]


def test_the_approval_can_be_combined_with_other_filters(client: Client) -> None:
    tags = [{"country": "Germany", "region": "DE-BY"}, {"country": "Germany", "region": "DE-BE"}]
    client.store("group", *(output(n, job_id=f"j{n % 2}", tags=tags[n // 4]) for n in range(8)))
    approve(client, "j0")
    assert numbers(client, approved="true", country="DE", limit=1) == [0, 2, 4, 6]
    assert numbers(client, approved="true", region="DE-BE") == [4, 6]
    assert numbers(client, approved="true", region="DE-BE", country="DE", job_id="j0") == [4, 6]
    assert numbers(client, approved="false", region="DE-BE") == [5, 7]
    assert numbers(client, approved="true", job_id="j1") == []
    assert numbers(client, approved="false", url="https://shop.example/1") == [1]
    assert numbers(client, approved="true", created_after="2999-01-01") == []


def test_filters_can_be_combined(client: Client) -> None:
    client.store(
        "group",
        output(0, tags={"country": "Germany", "region": "DE-BY"}),
        output(1, tags={"country": "Germany", "region": "DE-BE"}),
        output(2, tags={"country": "Germany", "region": "DE-BY"}, job_id="other"),
    )
    assert numbers(client, country="DE", region="DE-BY", job_id="job") == [0]
    assert numbers(client, country="DE", url="https://shop.example/1") == [1]


def test_an_update_moves_the_output_between_filters(client: Client) -> None:
    client.store("group", output(1, key="k", tags={"country": "Germany"}))
    client.store("group", output(2, key="k", tags={"country": "Spain"}))
    assert numbers(client, country="Germany") == []
    assert numbers(client, country="Spain") == [2]
    assert numbers(client, url="https://shop.example/1") == []


def test_created_after_lists_outputs_created_or_updated_since_then(
    timed: Client, clock: Clock
) -> None:
    timed.store("group", output(1), output(2))
    clock.move(seconds=3600)
    timed.store("group", output(3), output(1, data={"number": 11}), output(2))
    since = timed.items("group")[-1]["update_date"]
    assert numbers(timed, created_after=since) == [3, 11]
    assert numbers(timed, created_after=since, limit=1) == [3, 11]
    later = timestamps.render_microseconds(clock() + 5 * timestamps.SECOND)
    assert numbers(timed, created_after=later) == []
    assert numbers(timed, created_after="2001-01-01") == [2, 3, 11]
    assert numbers(timed, created_after="0001-01-01T00:00:00.5-23:59") == [2, 3, 11]
    assert numbers(timed, created_after="9999-12-31T23:59:59Z") == []


@pytest.mark.thorough
def test_dates_never_go_back_even_if_the_clock_does(timed: Client, clock: Clock) -> None:
    timed.store("group", output(1))
    [first] = timed.items("group")
    clock.move(seconds=-3600)
    timed.store("group", output(2))
    [_, second] = timed.items("group")
    assert second["update_date"] >= first["update_date"]
    assert numbers(timed, created_after=first["update_date"]) == [1, 2]


# --- groups -------------------------------------------------------------------------------------


def test_a_page_holds_the_outputs_of_one_group(client: Client) -> None:
    client.store("a", output(1))
    client.store("b", output(2))
    assert [item["data"]["number"] for item in client.items("a")] == [1]


def test_a_group_may_have_any_name_that_fits_a_path_segment(client: Client) -> None:
    for name in ("a b", "ü", "100%", "x.y", "...", "a?b", "a#b", "日本"):
        from urllib.parse import quote

        path = quote(name, safe="")
        client.store(path, output(1))
        assert len(client.get(f"/v1/outputs/{path}").json()["items"]) == 1


@pytest.mark.parametrize("name", ["..", ".", "%00", "%2F", "a%0Ab", "x" * 201, "%ff"])
def test_a_group_with_an_invalid_name_cannot_be_created(client: Client, name: str) -> None:
    import socket

    body = json.dumps([output(1)])
    host = client.base_url
    with socket.create_connection(
        (host.host, host.port)
    ) as raw:  # a client library would normalize the path
        raw.sendall(
            f"POST /v1/outputs/{name} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {client.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n{body}".encode()
        )
        answer = b"".join(iter(lambda: raw.recv(65536), b"")).decode()
    assert answer.split()[1] in ("404", "422")

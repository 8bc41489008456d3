"""Pages and lists are limited in bytes, and the work of a request is limited too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings

MAX_BYTES = 50_000
MIB = 1024**2


@pytest.fixture(scope="module")
def limited_service(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service with small pages."""
    folder = tmp_path_factory.mktemp("limits")
    settings = replace(fresh_settings(engine, request, folder), max_page_bytes=MAX_BYTES)
    running = Service(settings)
    yield running
    running.stop()


@pytest.fixture
def limited(limited_service: Service) -> Iterator[Client]:
    with limited_service.client() as made:
        yield made


def page(
    client: Client, url: str = "/v1/outputs/group", **query: Any
) -> tuple[dict[str, Any], int]:
    """A page and the number of its bytes."""
    answer = client.get(url, params=query or None)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found, len(answer.content)


def pages(client: Client, **query: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """All pages with their sizes, by ``next_url``."""
    found, size = page(client, **query)
    yield found, size
    while found["metadata"]["next_url"] is not None:
        found, size = page(client, found["metadata"]["next_url"])
        yield found, size


def store_texts(client: Client, *lengths: int, **members: Any) -> list[str]:
    """Stores one output with a text of each length; returns their source URLs."""
    urls = []
    for number, length in enumerate(lengths):
        stored = output(number, data={"text": "x" * length}, **members)
        client.store("group", stored)
        urls.append(stored["source_url"])
    return urls


def urls_of(found: dict[str, Any]) -> list[str]:
    return [item["source_url"] for item in found["items"]]


# --- outputs ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_page_has_at_most_16_mib_by_default(client: Client) -> None:
    urls = store_texts(client, *[6 * MIB] * 4)
    found = list(pages(client, limit=1000))
    assert [urls_of(one) for one, _ in found] == [urls[:2], urls[2:]]
    assert all(size < 16 * MIB for _, size in found)


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [10, 100, 1000])
@pytest.mark.parametrize("length", [1_000, 20_000, 45_000])
def test_pages_are_limited_in_bytes(limited: Client, limit: int, length: int) -> None:
    urls = store_texts(limited, *[length] * 9)
    found = list(pages(limited, limit=limit))
    assert [url for one, _ in found for url in urls_of(one)] == urls
    assert all(size <= MAX_BYTES for _, size in found)
    assert len(found) == -(-9 // min(9, MAX_BYTES // length))


def test_a_larger_item_is_a_page_of_its_own(limited: Client) -> None:
    urls = store_texts(limited, 10, 200_000, 10, 10)
    found = [urls_of(one) for one, _ in pages(limited)]
    assert found == [urls[:1], urls[1:2], urls[2:]]


@pytest.mark.parametrize(
    "filters", [{"job_id": "job"}, {"job_id": "job", "country": "Germany", "region": "DE-BE"}]
)
def test_filtered_pages_are_limited_in_bytes(limited: Client, filters: dict[str, str]) -> None:
    tags = {"country": "Germany", "region": "DE-BE"}
    urls = store_texts(limited, *[20_000, 10] * 5, tags=tags)
    limited.store("group", output(50, job_id="other", tags=tags))
    found = list(pages(limited, **filters))
    assert [url for one, _ in found for url in urls_of(one)] == urls
    assert len(found) > 1
    assert all(size <= MAX_BYTES for _, size in found)


def test_links_to_files_count(limited: Client) -> None:
    file = limited.post("/v1/files", content=b"bytes").json()["id"]
    files = [{"field": f"files[{number}]", "id": file} for number in range(30)]
    limited.store("group", *[output(number, files=files) for number in range(6)])
    found = list(pages(limited))
    assert sum(len(one["items"]) for one, _ in found) == 6
    assert all(size <= MAX_BYTES for _, size in found)
    assert all(
        len(file["blob_url"]) > 50
        for one, _ in found
        for item in one["items"]
        for file in item["files"]
    )


def test_a_repeated_request_gets_the_same_large_page(limited: Client) -> None:
    urls = store_texts(limited, *[20_000] * 4)
    found = [page(limited, limit=5) for _ in range(4)]  # a repetition is read in a batch
    assert [urls_of(one) for one, _ in found] == [urls[:2]] * 4


# --- changes ------------------------------------------------------------------------------------


def change_pages(client: Client, limit: int) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """All pages of the change feed with their sizes."""
    cursor = 0
    while True:
        found, size = page(client, "/v1/changes/group", cursor=cursor, limit=limit)
        if not found["changes"]:
            return
        yield found["changes"], size
        cursor = found["cursor"]


@pytest.mark.thorough
def test_a_page_of_changes_has_at_most_16_mib_by_default(client: Client) -> None:
    store_texts(client, *[6 * MIB] * 4)
    found = list(change_pages(client, 1000))
    assert [len(changes) for changes, _ in found] == [2, 2]
    assert all(size < 16 * MIB for _, size in found)


@pytest.mark.parametrize("limit", [4, 1000])
def test_changes_are_limited_in_bytes(limited: Client, limit: int) -> None:
    store_texts(limited, 20_000, 10, 200_000, 10, 20_000, 20_000, 10, 10)
    stored = limited.items("group")
    for deleted in stored[1], stored[4]:
        limited.delete(f"/v1/outputs/group/{deleted['output_id']}")
    found = list(change_pages(limited, limit))
    changes = [change for page_, _ in found for change in page_]
    left = [one for one in stored if one not in (stored[1], stored[4])]
    assert [one["output"] for one in changes[:6]] == left
    assert [one["change"] for one in changes[6:]] == ["delete"] * 2
    assert all(size <= MAX_BYTES for page_, size in found if len(page_) > 1)


def test_links_in_changes_count(limited: Client) -> None:
    file = limited.post("/v1/files", content=b"bytes").json()["id"]
    files = [{"field": f"files[{number}]", "id": file} for number in range(30)]
    limited.store("group", *[output(number, files=files) for number in range(6)])
    found = list(change_pages(limited, 10))
    assert sum(len(changes) for changes, _ in found) == 6
    assert all(size <= MAX_BYTES for _, size in found)


@pytest.mark.thorough
def test_a_page_of_a_client_that_catches_up_is_limited(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    """Its cursor has milliseconds, and an approval changes many outputs in one millisecond."""
    store_texts(timed, *[6 * MIB] * 7)
    timed.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    clock.move(seconds=1)
    timed.store("group", output(50))
    timed.delete(f"/v1/outputs/group/{timed.items('group')[-1]['output_id']}")
    clock.move(seconds=31 * DAY)
    timed_service.sweep(clock)  # purges the tombstone
    found = list(change_pages(timed, 1000))
    assert sum(len(changes) for changes, _ in found) == 7
    assert all(size < 32 * MIB for _, size in found)


# --- lists --------------------------------------------------------------------------------------


def list_pages(client: Client, url: str, **query: Any) -> Iterator[tuple[list[Any], int]]:
    """All pages of an array with their sizes, by the Link header."""
    answer = client.get(url, params=query or None)
    while True:
        assert answer.status_code == 200, answer.text
        yield answer.json(), len(answer.content)
        if "next" not in answer.links:
            assert "link" not in answer.headers
            return
        assert answer.links["next"]["url"].startswith(str(client.base_url))
        answer = client.get(answer.links["next"]["url"])


def cookie(number: int, length: int = 10, domain: str = "shop.example") -> dict[str, Any]:
    return {"domain": domain, "name": f"c{number}", "value": "x" * length}


def entry(number: int, length: int = 10, domain: str = "shop.example") -> dict[str, Any]:
    return {"domain": domain, "key": f"c{number}", "value": "x" * length}


SESSION_LISTS = [("/v1/cookies", cookie, "name"), ("/v1/local-storage", entry, "key")]
session_lists = pytest.mark.parametrize(("url", "record", "name"), SESSION_LISTS)


@session_lists
def test_session_lists_are_limited_in_bytes(
    limited: Client, url: str, record: Any, name: str
) -> None:
    lengths = [10, 20_000, 200_000, 20_000, 20_000, 10, 10]
    limited.post(url, json=[record(n, length) for n, length in enumerate(lengths)])
    found = list(list_pages(limited, url))
    names = [one[name] for page_, _ in found for one in page_]
    assert names == [f"c{number}" for number in range(7)]
    assert [len(page_) for page_, _ in found] == [2, 1, 4]
    assert all(size <= MAX_BYTES for page_, size in found if len(page_) > 1)


@session_lists
def test_session_lists_have_pages(client: Client, url: str, record: Any, name: str) -> None:
    hosts = ["shop.example", "other.example"]
    client.post(url, json=[record(n, domain=hosts[n % 2]) for n in range(10)])
    whole = client.get(url)
    assert "link" not in whole.headers
    assert len(whole.json()) == 10
    found = [page_ for page_, _ in list_pages(client, url, limit=3)]
    assert [len(page_) for page_ in found] == [3, 3, 3, 1]
    assert [one for page_ in found for one in page_] == whole.json()
    found = [page_ for page_, _ in list_pages(client, url, limit=2, domain="shop.example")]
    assert [[one[name] for one in page_] for page_ in found] == [["c0", "c2"], ["c4", "c6"], ["c8"]]


@session_lists
def test_a_cursor_of_a_session_list_survives_changes(
    client: Client, url: str, record: Any, name: str
) -> None:
    client.post(url, json=[record(n) for n in range(6)])
    following = list_pages(client, url, limit=2)
    assert [one[name] for one in next(following)[0]] == ["c0", "c1"]
    client.delete(url, params={"domain": "shop.example", name: "c1"})
    client.delete(url, params={"domain": "shop.example", name: "c2"})
    client.post(url, json=[record(6), record(0, 20), record(4, 20)])
    rest = [one[name] for page_, _ in following for one in page_]
    assert rest == ["c3", "c4", "c5", "c6"]


@pytest.mark.parametrize("history", ["true", "false"])
def test_reviews_are_limited_in_bytes(limited: Client, history: str) -> None:
    lengths = [10, 20_000, 200_000, 20_000, 20_000, 10, 10]
    limited.store("group", *(output(n, job_id=f"job {n}") for n in range(7)))
    for number, length in enumerate(lengths):
        review = {"job_id": f"job {number}", "status": "pending", "comment": "x" * length}
        limited.post("/v1/reviews/group", json=review)
    found = list(list_pages(limited, "/v1/reviews/group", history=history))
    jobs = [one["job_id"] for page_, _ in found for one in page_]
    assert jobs == [f"job {number}" for number in reversed(range(7))]
    assert [len(page_) for page_, _ in found] == [4, 1, 2]
    assert all(size <= MAX_BYTES for page_, size in found if len(page_) > 1)


@pytest.mark.parametrize("history", ["true", "false"])
def test_reviews_have_pages(client: Client, history: str) -> None:
    client.store("group", *(output(n, job_id=f"job {n}") for n in range(7)))
    for number in range(7):
        client.post("/v1/reviews/group", json={"job_id": f"job {number}", "status": "pending"})
    whole = client.get("/v1/reviews/group", params={"history": history}).json()
    assert len(whole) == 7
    found = [p for p, _ in list_pages(client, "/v1/reviews/group", history=history, limit=3)]
    assert [len(page_) for page_ in found] == [3, 3, 1]
    assert [one for page_ in found for one in page_] == whole


@pytest.mark.parametrize("url", ["/v1/cookies", "/v1/local-storage", "/v1/reviews/group"])
@pytest.mark.parametrize("limit", ["0", "1001", "-1", "two", ""])
def test_an_invalid_limit_of_a_list_is_rejected(client: Client, url: str, limit: str) -> None:
    client.store("group", output(1))
    answer = client.get(url, params={"limit": limit})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "limit"]


def test_the_openapi_document_has_the_link_header(client: Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in ("/v1/cookies", "/v1/local-storage", "/v1/reviews/{group_id}", "/v1/groups"):
        assert "Link" in paths[path]["get"]["responses"]["200"]["headers"]


# --- groups and jobs ----------------------------------------------------------------------------


def job_pages(client: Client, **query: Any) -> Iterator[dict[str, Any]]:
    """The group with each page of its jobs, by ``next_url``."""
    answer = client.get("/v1/groups/group", params=query or None)
    while True:
        assert answer.status_code == 200, answer.text
        found = answer.json()
        yield found
        if found["metadata"]["next_url"] is None:
            assert found["metadata"]["next_cursor"] is None
            return
        answer = client.get(found["metadata"]["next_url"])


def names_of(jobs: list[dict[str, Any]]) -> list[str]:
    return [job["job_id"] for job in jobs]


def test_the_jobs_of_a_group_have_pages(client: Client) -> None:
    names = [f"job {number}" for number in range(1100)]
    client.store("group", *(output(n, job_id=name) for n, name in enumerate(names)))
    client.post("/v1/reviews/group", json={"job_id": "job 1050", "status": "pending"})
    first, second = job_pages(client)
    assert names_of(first["jobs"]) == names[:1000]
    assert names_of(second["jobs"]) == names[1000:]
    assert second["jobs"][50]["latest_review"]["status"] == "pending"
    members = first.keys() - {"jobs", "metadata"}
    assert all(first[member] == second[member] for member in members)
    assert client.put("/v1/groups/group", json={}).json() == first
    found = list(job_pages(client, limit=400))
    assert [len(one["jobs"]) for one in found] == [400, 400, 300]


def test_a_cursor_of_the_jobs_survives_changes(client: Client) -> None:
    client.store("group", *(output(n, job_id=f"job {n}") for n in range(6)))
    client.store("other", *(output(n, job_id=f"job {n}") for n in range(6)))
    following = job_pages(client, limit=2)
    assert names_of(next(following)["jobs"]) == ["job 0", "job 1"]
    for number in (1, 2):
        client.delete(f"/v1/groups/group/jobs/job {number}")
    client.store("group", output(6, job_id="job 6"))
    assert [name for one in following for name in names_of(one["jobs"])] == [
        "job 3",
        "job 4",
        "job 5",
        "job 6",
    ]


def test_the_list_of_groups_has_the_first_jobs(client: Client) -> None:
    names = [f"job {number}" for number in range(250)]
    client.store("group", *(output(n, job_id=name) for n, name in enumerate(names)))
    client.store("other", output(1))
    large, small = client.get("/v1/groups").json()
    assert names_of(large["jobs"]) == names[:100]
    assert small["metadata"] == {"next_url": None, "next_cursor": None}
    rest = client.get(large["metadata"]["next_url"]).json()
    assert names_of(rest["jobs"]) == names[100:]
    assert rest["metadata"] == {"next_url": None, "next_cursor": None}


@pytest.mark.thorough
def test_the_list_of_groups_is_the_same_with_many_jobs(client: Client) -> None:
    for group in ("one", "two"):
        client.store(group, *(output(n, job_id=f"job {n}") for n in range(600)))
    client.store("small", output(1, tags={"country": "Peru"}))
    *large, small = client.get("/v1/groups").json()
    assert [names_of(one["jobs"]) for one in large] == [[f"job {n}" for n in range(100)]] * 2
    assert small == client.get("/v1/groups/small").json()


def test_jobs_with_long_comments_are_limited_in_bytes(limited: Client) -> None:
    limited.store("group", *(output(n, job_id=f"job {n}") for n in range(5)))
    limited.store("other", output(1))
    for number in range(4):
        review = {"job_id": f"job {number}", "status": "pending", "comment": "x" * 20_000}
        limited.post("/v1/reviews/group", json=review)
    found = list(job_pages(limited))
    assert [len(one["jobs"]) for one in found] == [2, 3]
    listed = list(list_pages(limited, "/v1/groups"))
    assert [one["group_id"] for page_, _ in listed for one in page_] == ["group", "other"]
    assert listed[0][0][0] == found[0]


def test_groups_with_long_schemas_are_limited_in_bytes(limited: Client) -> None:
    for number in range(5):
        settings = {"schema": {"description": "x" * 20_000}}
        limited.put(f"/v1/groups/group {number}", json=settings)
    limited.delete("/v1/groups/group 3")
    found = list(list_pages(limited, "/v1/groups"))
    assert [[one["group_id"] for one in page_] for page_, _ in found] == [
        ["group 0", "group 1"],
        ["group 2", "group 4"],
    ]
    assert all(size <= MAX_BYTES for _, size in found)


def test_a_group_shows_a_bounded_number_of_countries(client: Client) -> None:
    names = [f"country {number:04}" for number in range(1001)]
    outputs = [output(n, tags={"country": name}) for n, name in enumerate(names)]
    client.store("group", *outputs[1:])
    group = client.get("/v1/groups/group").json()
    assert (len(group["countries"]), group["has_more_countries"]) == (1000, False)
    client.store("group", outputs[0])
    group = client.get("/v1/groups/group").json()
    assert (len(group["countries"]), group["has_more_countries"]) == (1000, True)
    assert client.get("/v1/groups").json() == [group]


# --- bounded work -------------------------------------------------------------------------------


def store_disjoint(client: Client, count: int) -> None:
    """Stores outputs of two kinds alternately, so that two filters never match together."""
    kinds = [("a", "Germany"), ("b", "France")]
    batch = []
    for number in range(count):
        job, country = kinds[number % 2]
        batch.append(output(number, job_id=job, tags={"country": country}))
    client.store("group", *batch)


@pytest.mark.thorough
def test_filters_that_never_match_together_take_several_requests(client: Client) -> None:
    store_disjoint(client, 5000)
    first, _ = page(client, job_id="a", country="France")
    assert first["items"] == []
    assert first["metadata"]["next_cursor"] is not None
    found = [one for one, _ in pages(client, job_id="a", country="France")]
    assert 1 < len(found) < 5
    assert all(one["items"] == [] for one in found)
    assert found[-1]["metadata"] == {"next_url": None, "next_cursor": None}


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1, 10, 1000])
def test_a_match_behind_the_bound_is_found(client: Client, limit: int) -> None:
    store_disjoint(client, 3000)
    both = {"job_id": "a", "tags": {"country": "France"}}
    client.store("group", output(5001, **both), output(5002, **both))
    store_disjoint(client, 3000)  # unchanged: the matches stay last
    found = [one for one, _ in pages(client, job_id="a", country="France", limit=limit)]
    assert [url for one in found for url in urls_of(one)] == [
        "https://shop.example/5001",
        "https://shop.example/5002",
    ]


def test_a_repeated_request_stops_at_the_same_place(client: Client) -> None:
    store_disjoint(client, 3000)
    found = [page(client, job_id="a", country="France")[0] for _ in range(4)]
    assert found[0]["metadata"]["next_cursor"] is not None
    assert found == [found[0]] * 4

"""Pages and exports of the approved view: each output in its last approved version."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.exports import SlowExport, export_link
from tests.support.outputs import follow_changes, output
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

OUTPUTS = "/v1/outputs/group"
EXPORT = "/v1/exports/group"
JOBS = ("a", "b")
MAX_BYTES = 50_000
LONG = "x" * 10_000
COUNT = 1500
"""Number of long outputs that fill the buffers between the service and a slow client."""

Item = dict[str, Any]


def review(client: Client, status: str, job: str = "job") -> None:
    """Reviews a job, and waits until no output has the other approval."""
    answer = client.post("/v1/reviews/group", json={"job_id": job, "status": status})
    assert answer.status_code == 200, answer.text
    other = "false" if status == "approved" else "true"
    while client.items("group", job_id=job, approved=other, limit=1):
        pass


def view(client: Client, **query: Any) -> list[Item]:
    return client.items("group", view="approved", **query)


def versions(items: list[Item]) -> list[tuple[str, Any]]:
    return [(item["source_url"], item["data"].get("version", 1)) for item in items]


def url(number: int) -> str:
    return f"https://shop.example/{number}"


def numbered(number: int, version: int, **members: Any) -> Item:
    return output(number, data={"version": version}, **members)


# --- what the view has ----------------------------------------------------------------------------


def test_a_new_value_leaves_the_view_unchanged_until_it_is_approved(client: Client) -> None:
    client.store("group", numbered(1, 1), numbered(2, 1))
    assert view(client) == []
    review(client, "approved")
    before = view(client)
    assert versions(before) == [(url(1), 1), (url(2), 1)]
    client.store("group", numbered(1, 2), numbered(3, 1))
    assert view(client) == before
    assert all(item["is_approved"] for item in before)
    review(client, "approved")
    assert versions(view(client)) == [(url(2), 1), (url(1), 2), (url(3), 1)]
    review(client, "rejected")
    assert view(client) == []


def test_a_filter_finds_the_approved_version_and_not_the_newer_one(client: Client) -> None:
    client.store("group", numbered(1, 1, key="k", tags={"country": "Germany", "region": "DE-BY"}))
    review(client, "approved")
    client.store("group", numbered(2, 2, key="k", tags={"country": "France", "region": "FR-IDF"}))
    for old, new in (("DE", "FR"), ("Germany", "France")):
        assert versions(view(client, country=old)) == [(url(1), 1)]
        assert view(client, country=new) == []
    assert len(view(client, region="DE-BY", url=url(1), job_id="job")) == 1
    assert view(client, region="FR-IDF") == view(client, url=url(2)) == []


def test_parameters_of_the_view(client: Client, service: Service) -> None:
    client.store("group", numbered(1, 1), numbered(2, 1))
    review(client, "approved")
    client.store("group", numbered(1, 2))
    assert versions(client.items("group", view="full")) == versions(client.items("group"))
    page = client.get(OUTPUTS, params={"view": "approved", "limit": 1}).json()
    query = parse_qs(urlsplit(page["metadata"]["next_url"]).query)
    assert (query["view"], query["limit"]) == (["approved"], ["1"])
    assert client.get("/v1/outputs/none", params={"view": "approved"}).status_code == 404
    for path in (OUTPUTS, EXPORT):
        answer = client.get(path, params={"view": "approved", "approved": "true"})
        assert answer.status_code == 422
        [detail] = answer.json()["detail"]
        assert detail["loc"] == ["query", "approved"]
        assert "view=approved" in detail["msg"]
        assert client.get(path, params={"view": "other"}).json()["detail"][0]["loc"][1] == "view"
    answer = client.post(f"{EXPORT}/links", params={"view": "approved", "approved": "false"})
    assert answer.status_code == 422
    link = export_link(client, view="approved")
    assert parse_qs(urlsplit(link).query)["view"] == ["approved"]
    with service.stranger() as stranger:
        assert stranger.get(link).text == client.get(EXPORT, params={"view": "approved"}).text
        assert stranger.get(link.replace("view=approved", "view=full")).status_code == 403


def test_links_to_files_of_the_approved_version_work(client: Client, service: Service) -> None:
    file = client.post("/v1/files", content=b"bytes").json()
    client.store("group", numbered(1, 1, files=[{"field": "pdf", "id": file["id"]}]))
    review(client, "approved")
    client.store("group", numbered(1, 2))
    [line] = client.get(EXPORT, params={"view": "approved"}).text.splitlines()
    with service.stranger() as stranger:
        for item in (*view(client), json.loads(line)):
            assert stranger.get(item["files"][0]["blob_url"]).content == b"bytes"


# --- filters and sizes ----------------------------------------------------------------------------


class Model:
    """The approved view that follows from full pages: it appends what was approved anew."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.items: dict[str, Item] = {}

    def update(self) -> None:
        """Takes the outputs that are approved now, in the order of their approvals."""
        for item in self._client.items("group", approved="true", limit=1000):
            known = self.items.get(item["output_id"], {})
            if known | {"last_scraped_date": item["last_scraped_date"]} != item:
                self.items.pop(item["output_id"], None)
            self.items[item["output_id"]] = item

    def remove(self, *, job: str | None = None, output_id: str | None = None) -> None:
        removed = [
            id_ for id_, one in self.items.items() if job == one["root_job_id"] or id_ == output_id
        ]
        for id_ in removed:
            del self.items[id_]

    def filtered(self, filters: dict[str, str]) -> list[Item]:
        return [item for item in self.items.values() if _matches(item, filters)]


def _matches(item: Item, filters: dict[str, str]) -> bool:
    values = {
        "job_id": item["root_job_id"],
        "url": item["source_url"],
        "country": item["tags"].get("country"),
        "region": item["tags"].get("region"),
        "created_after": None,
    }
    if item["update_date"] < filters.get("created_after", ""):
        return False
    return all(values[name] in (None, value) for name, value in filters.items())


def change_at_random(client: Client, clock: Clock, seed: int, steps: int) -> Model:
    """Stores, approves, rejects and deletes outputs, and returns the expected view."""
    choice, model = random.Random(seed), Model(client)
    for step in range(steps):
        clock.move(seconds=10)
        changed = {choice.randrange(40): step for _ in range(10)}
        client.store(
            "group",
            *(
                output(
                    choice.randrange(8),
                    key=str(number),
                    job_id=JOBS[number % 2],
                    data={"version": version if choice.random() < 0.7 else 0},
                    tags={
                        "country": choice.choice(["Germany", "France"]),
                        "region": choice.choice(["DE-BY", "FR-IDF"]),
                    },
                )
                for number, version in changed.items()
            ),
        )
        model.update()
        clock.move(seconds=10)
        if step % 5 == 4:
            review(client, "approved", choice.choice(JOBS))
            model.update()
        if step % 12 == 11:
            removed = choice.choice([*model.items])
            client.delete(f"{OUTPUTS}/{removed}")
            model.remove(output_id=removed)
        if step == steps // 2:
            review(client, "rejected", "a")
            model.remove(job="a")
    return model


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_every_filter_on_pages_of_any_size_and_in_exports(
    timed: Client, clock: Clock, seed: int
) -> None:
    model = change_at_random(timed, clock, seed, 50)
    items = [*model.items.values()]
    newer = {one["output_id"] for one in timed.items("group", approved="false", limit=1000)}
    assert newer & model.items.keys(), "no output has a newer value"
    assert model.items.keys() - newer, "every output has a newer value"
    values = {
        "job_id": "b",
        "url": items[len(items) // 2]["source_url"],
        "country": "Germany",
        "region": "DE-BY",
        "created_after": items[len(items) // 3]["update_date"],
    }
    for names in (*_combinations(values, 2), tuple(values)):
        filters = {name: values[name] for name in names}
        expected = without_scrape_dates(model.filtered(filters))
        for limit in (1, 2, 1000):
            assert without_scrape_dates(view(timed, limit=limit, **filters)) == expected, filters
        page = timed.get(OUTPUTS, params={"view": "approved", "limit": 1000, **filters}).json()
        lines = timed.get(EXPORT, params={"view": "approved", **filters}).text.splitlines()
        assert [json.loads(line) for line in lines] == page["items"]


def _combinations(names: Any, size: int) -> Iterator[tuple[str, ...]]:
    for count in range(size + 1):
        yield from itertools.combinations(names, count)


def without_scrape_dates(items: list[Item]) -> list[Item]:
    return [item | {"last_scraped_date": None} for item in items]


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


@pytest.mark.thorough
@pytest.mark.parametrize("filters", [{}, {"job_id": "job"}, {"country": "DE", "job_id": "job"}])
def test_pages_of_the_view_are_bounded_in_bytes(
    limited_service: Service, filters: dict[str, str]
) -> None:
    sizes = [1, 200_000, 30_000, 30_000, 10, 5_000, 60_000, 49_000, *[9_000] * 20, 100_000, 1]
    with limited_service.client() as client:
        for number, size in enumerate(sizes):
            tags = {"country": "Germany"}
            client.store("group", output(number, data={"text": "x" * size}, tags=tags))
        review(client, "approved")
        changed = range(0, len(sizes), 2)
        client.store("group", *(output(number, data={"new": True}) for number in changed))
        query: dict[str, Any] = {"view": "approved", "limit": 1000, **filters}
        answer, found = client.get(OUTPUTS, params=query), []
        while True:
            page = answer.json()
            found += page["items"]
            assert len(answer.content) <= MAX_BYTES or len(page["items"]) == 1
            if page["metadata"]["next_url"] is None:
                break
            answer = client.get(page["metadata"]["next_url"])
        assert [len(item["data"]["text"]) for item in found] == sizes
        exported = client.get(EXPORT, params={"view": "approved", **filters}).text.splitlines()
        assert [json.loads(line) for line in exported] == found


GERMANY = {"country": "Germany"}


@pytest.mark.thorough
def test_a_filter_of_the_view_goes_on_after_a_page_without_outputs(client: Client) -> None:
    """Approved outputs of one job alternate with unapproved ones of a country."""
    count, step = 1200, 400
    client.store("group", *(numbered(n, 1, job_id="a") for n in range(count)))
    client.store("group", *(numbered(n, 1, job_id="b", tags=GERMANY) for n in range(count)))
    review(client, "approved", "a")
    for start in range(0, count, step):  # new tags keep the approval of a value
        both = [
            (numbered(n, 1, job_id="a", tags={"n": n}), numbered(n, 2, job_id="b", tags=GERMANY))
            for n in range(start, start + step)
        ]
        client.store("group", *itertools.chain.from_iterable(both))
    client.store("group", numbered(0, 1, job_id="last", tags={"country": "France"}))
    review(client, "approved", "last")
    for _ in range(2):
        first = client.get(
            OUTPUTS, params={"view": "approved", "country": "Germany", "limit": 10}
        ).json()
        assert (first["items"], first["metadata"]["next_cursor"] is None) == ([], False)
        assert view(client, country="Germany") == []
        assert versions(view(client, country="France")) == [(url(0), 1)]
        assert client.get(EXPORT, params={"view": "approved", "job_id": "b"}).text == ""
        assert len(view(client, job_id="a", limit=1000)) == count
        # Once more, with every approved version in the other table.
        client.store("group", *(numbered(n, 3, job_id="a") for n in range(count)))


# --- exports while others write -------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("filters", ["", "&job_id=job"])
def test_an_export_of_the_view_has_each_output_once(client: Client, filters: str) -> None:
    """Outputs get newer values, and some of these are approved; others enter and leave the view."""
    for start in range(0, COUNT, 500):
        numbers = range(start, start + 500)
        client.store("group", *(output(n, data={"n": n, "text": LONG}) for n in numbers))
    review(client, "approved")
    before = {item["output_id"] for item in view(client, limit=1000)}
    client.store("group", output(9000, job_id="job", key="unapproved at the beginning"))
    export = SlowExport(client, f"{EXPORT}?view=approved{filters}")
    changed = [*range(0, 300), *range(COUNT - 300, COUNT)]
    client.store("group", *(output(n, data={"n": n, "new": True}) for n in changed))
    review(client, "approved")
    client.store("group", *(output(n, data={"n": n, "newest": True}) for n in changed))
    deleted = view(client, url=url(COUNT - 301))[0]["output_id"]
    client.delete(f"{OUTPUTS}/{deleted}")
    found = export.read_rest()
    counts = Counter(one["output_id"] for one in found)
    assert set(counts.values()) == {1}
    assert before - {deleted} <= counts.keys() <= before
    assert all(one["is_approved"] and "newest" not in one["data"] for one in found)
    new = sum(one["data"].get("new", False) for one in found)
    assert 300 <= new < 600, "the test changed no output that was already sent"
    copy = {one["output_id"]: one for one in found}
    follow_changes(client, copy, export.cursor, limit=1000, view="approved")
    assert copy == {item["output_id"]: item for item in view(client, limit=1000)}

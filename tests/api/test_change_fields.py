"""The change feed with diff=true, on both engines: which fields each update changes."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.resources.history import field_changes
from tests.support.fields import apply, same
from tests.support.outputs import output, read_changes
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings


def fields(client: Client, cursor: int = 0) -> list[Any]:
    """The fields of each change after the cursor; the kind of a change without fields."""
    changes = read_changes(client, cursor, diff="true")["changes"]
    return [change.get("fields", change["change"]) for change in changes]


def changed(path: str, before: Any, after: Any) -> dict[str, Any]:
    return {"path": path, "kind": "changed", "before": before, "after": after}


def store(client: Client, number: int, **data: Any) -> int:
    """Stores a version of an output, and returns the position after it."""
    client.store("group", output(number, data=data))
    return end(client)


def end(client: Client) -> int:
    cursor: int = client.get("/v1/groups/group").json()["cursor"]
    return cursor


def test_an_update_is_compared_with_the_version_at_the_cursor(client: Client) -> None:
    first = store(client, 1, price=1, stock=5)
    second = store(client, 1, price=2, stock=5)
    third = store(client, 1, price=3, stock=5)
    assert fields(client, first) == [[changed("price", 1, 3)]]
    assert fields(client, second) == fields(client) == [[changed("price", 2, 3)]]
    store(client, 2, price=1)
    assert fields(client, third) == ["create"]
    assert "fields" not in read_changes(client, first)["changes"][0]
    [update] = read_changes(client, first, diff="true", limit=1)["changes"]
    assert list(update)[-2:] == ["output", "fields"]


def test_a_feed_compares_a_limited_number_of_bytes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many small outputs can have large earlier versions."""
    monkeypatch.setattr(field_changes, "_MAX_WORK", 100_000)
    monkeypatch.setattr(field_changes, "_STEP_WORK", 1000)
    client.store("group", *(output(n, data={"text": f"{n}" * 20_000}) for n in range(10)))
    client.store("group", *(output(n, data={"text": "short"}) for n in range(10)))
    found = fields(client)
    assert found[0] == [changed("text", "0" * 20_000, "short")]
    assert 3 <= len([one for one in found if one is not None]) <= 6
    assert found[-4:] == [None] * 4


def test_a_version_after_a_deletion_is_not_compared_with_itself(client: Client) -> None:
    """The history of the deleted output is there, and the version after it is not."""
    store(client, 1, price=1)
    client.delete(f"/v1/outputs/group/{client.items('group')[0]['output_id']}")
    store(client, 1, price=2)
    client.put("/v1/groups/group", json={"keep_versions": 0})
    store(client, 1, price=3)
    assert fields(client) == ["delete", None]
    client.put("/v1/groups/group", json={"keep_versions": 1})
    store(client, 1, price=4)
    assert fields(client) == ["delete", [changed("price", 3, 4)]]


def test_an_approval_is_a_changed_field(client: Client) -> None:
    review = {"job_id": "job", "status": "approved"}
    first = store(client, 1, price=1)
    client.post("/v1/reviews/group", json=review)
    approved = end(client)
    expected = [changed("$.is_approved", False, True)]
    assert fields(client) == fields(client, first) == [expected]
    store(client, 1, price=2)
    withdrawn = [changed("price", 1, 2), changed("$.is_approved", True, False)]
    assert fields(client) == fields(client, approved) == [withdrawn]
    assert fields(client, first) == [[changed("price", 1, 2)]]
    client.post("/v1/reviews/group", json=review)
    assert fields(client, approved) == [[changed("price", 1, 2)]]


def test_an_output_that_came_back_is_not_compared_with_the_deleted_one(client: Client) -> None:
    store(client, 1, price=1)
    [item] = client.items("group")
    client.delete(f"/v1/outputs/group/{item['output_id']}")
    store(client, 1, price=2)
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    assert fields(client) == ["delete", [changed("$.is_approved", False, True)]]


def test_without_the_earlier_version_the_fields_are_unknown(client: Client) -> None:
    client.put("/v1/groups/group", json={"keep_versions": 1})
    cursors = [store(client, 1, price=price) for price in range(3)]
    assert fields(client, cursors[1]) == [[changed("price", 1, 2)]]
    assert fields(client, cursors[0]) == [None]
    client.put("/v1/groups/group", json={"keep_versions": 0})
    assert fields(client, cursors[1]) == [None]


def test_the_approved_view_has_no_changed_fields(client: Client) -> None:
    store(client, 1, price=1)
    query = {"diff": "true", "view": "approved"}
    answer = client.get("/v1/changes/group", params=query)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "diff"]


@pytest.mark.thorough
def test_fields_that_are_too_large_are_unknown(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    service = Service(replace(fresh_settings(engine, request, tmp_path), max_page_bytes=200_000))
    with service.client() as client:
        texts = [random.Random(number).randbytes(30_000).hex() for number in range(3)]
        store(client, 1, text=texts[0])
        start = store(client, 2, text=texts[1])
        store(client, 1, text="")
        store(client, 2, text=texts[2])
        assert fields(client, start)[0] == [changed("text", texts[0], "")]
        assert fields(client, start + 1)[-1] is None
    service.stop()


@pytest.mark.thorough
def test_the_fields_lead_from_the_version_at_the_cursor_to_the_update(
    service: Service, client: Client
) -> None:
    """While others write, also to outputs that the feed has just read."""
    numbers = range(100)
    client.store("group", *(output(number, data={"price": 0}) for number in numbers))

    def write(seed: int) -> None:
        choice = random.Random(seed)
        with Client(service.url, client.token) as writer:
            for _ in range(12):
                chosen = choice.sample(numbers, 40)
                writer.store("group", *(output(n, data=new_data(choice)) for n in chosen))

    cursor, compared = end(client), 0
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, seed) for seed in range(2)]
        while not all(writer.done() for writer in writers) or not compared:
            page = read_changes(client, cursor, limit=60, diff="true")
            for change in page["changes"][::10]:
                compare(client, cursor, change)
            cursor, compared = page["cursor"], compared + len(page["changes"])
        for writer in writers:
            writer.result()


def new_data(choice: random.Random) -> dict[str, Any]:
    data = {"price": choice.randrange(5), "list": [1, choice.randrange(3)]}
    return data | {choice.choice("abc"): choice.randbytes(choice.choice([1, 5000])).hex()}


def compare(client: Client, cursor: int, change: dict[str, Any]) -> None:
    """Applies the fields of the change to the version at the cursor."""
    path = f"/v1/outputs/group/{change['output_id']}"
    before = client.get(path, params={"at": cursor}).json()
    made = apply(change["fields"], before)
    assert all(same(made[name], change["output"][name]) for name in ("data", "is_approved"))

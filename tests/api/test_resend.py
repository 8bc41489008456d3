"""Resends, recognised by their bytes or by their value, on both engines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import check_batch
from gleanery.service.storage.engines import open_engine
from tests.support.outputs import output
from tests.support.service import Client, Clock, Service

MANY = 30


def batch(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Outputs, some with other members."""
    return [output(number, **changes.get(f"at_{number}", {})) for number in range(MANY)]


def counts(stored: dict[str, Any]) -> tuple[int, int, int]:
    return stored["created"], stored["updated"], stored["unchanged"]


def stored(client: Client, text: str, kind: str = "application/json") -> tuple[int, int, int]:
    answer = client.post("/v1/outputs/group", content=text, headers={"Content-Type": kind})
    assert answer.status_code == 200, answer.text
    return counts(answer.json())


def test_the_same_bytes_change_only_the_scrape_date(timed: Client, clock: Clock) -> None:
    first = timed.store("group", *batch())
    before = timed.items("group", limit=MANY)
    clock.move(seconds=3600)
    again = timed.store("group", *batch())
    assert counts(again) == (0, 0, MANY)
    assert [result["id"] for result in again["results"]] == [r["id"] for r in first["results"]]
    after = timed.items("group", limit=MANY)
    dates = {item.pop("last_scraped_date") for item in after}
    assert len(dates) == 1
    assert dates.isdisjoint(item.pop("last_scraped_date") for item in before)
    assert after == before


@pytest.mark.parametrize("separators", [(",", ":"), (" , ", " : ")])
def test_other_bytes_of_the_same_value_are_unchanged(
    client: Client, separators: tuple[str, str]
) -> None:
    sent = [one | {"data": {"a": 1, "b": [number]}} for number, one in enumerate(batch())]
    turned = [one | {"data": {"b": [number], "a": 1.0}} for number, one in enumerate(batch())]
    assert stored(client, json.dumps(sent)) == (MANY, 0, 0)
    for _ in range(2):
        assert stored(client, json.dumps(turned, separators=separators)) == (0, 0, MANY)
    assert stored(client, json.dumps(sent)) == (0, 0, MANY)
    assert client.items("group")[0]["data"] == {"a": 1, "b": [0]}


def test_ndjson_and_arrays_store_the_same_outputs(client: Client) -> None:
    lines = "\n".join(json.dumps(one) for one in batch())
    assert stored(client, json.dumps(batch())) == (MANY, 0, 0)
    assert stored(client, lines, "application/x-ndjson") == (0, 0, MANY)


@pytest.mark.parametrize("place", [0, 1, MANY - 1])
def test_one_new_value_in_a_resent_batch_is_updated(client: Client, place: int) -> None:
    client.store("group", *batch())
    changes = {f"at_{place}": {"data": {"number": "other"}}}
    mixed = [*batch(**changes), output(MANY)]
    answer = client.store("group", *mixed)
    assert counts(answer) == (1, 1, MANY - 1)
    assert [result["change"] for result in answer["results"]] == [
        "updated" if number == place else "unchanged" for number in range(MANY)
    ] + ["created"]
    items = client.items("group", limit=100)
    assert [item["data"]["number"] for item in items[-2:]] == ["other", MANY]
    assert counts(client.store("group", *mixed)) == (0, 0, MANY + 1)


def test_an_error_in_a_resent_batch_names_its_index(timed: Client, clock: Clock) -> None:
    timed.store("group", *batch())
    before = timed.items("group", limit=MANY)
    clock.move(seconds=3600)
    bad = [*batch(at_1={"data": {"number": "other"}}, at_9={"data": [], "job_id": "a/b"})]
    answer = timed.post("/v1/outputs/group", json=bad)
    assert answer.status_code == 422
    assert [fault["loc"] for fault in answer.json()["detail"]] == [
        ["body", "9", "job_id"],
        ["body", "9", "data"],
    ]
    assert timed.items("group", limit=MANY) == before


def test_the_last_of_two_equal_keys_in_a_resent_batch_wins(client: Client) -> None:
    client.store("group", *batch())
    other = output(0, data={"number": "other"})
    answer = client.store("group", *batch(), other, output(0))
    assert [result["change"] for result in answer["results"][-2:]] == ["updated", "updated"]
    assert client.items("group", limit=100)[-1]["data"] == {"number": 0}
    assert counts(client.store("group", *batch())) == (0, 0, MANY)


def test_a_deleted_output_is_created_again(client: Client) -> None:
    first = client.store("group", *batch())
    assert client.delete(f"/v1/outputs/group/{first['results'][3]['output_id']}").is_success
    assert counts(client.store("group", *batch())) == (1, 0, MANY - 1)


def test_the_same_bytes_keep_their_approval(client: Client) -> None:
    client.store("group", *batch())
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    assert counts(client.store("group", *batch())) == (0, 0, MANY)
    items = client.items("group", limit=MANY)
    assert [item["is_approved"] for item in items] == [True] * MANY


def test_a_new_schema_is_applied_to_resent_outputs(client: Client) -> None:
    client.store("group", *batch())
    client.put("/v1/groups/group", json={"schema": {"required": ["sku"]}})
    assert client.post("/v1/outputs/group", json=batch()).status_code == 422


def test_new_key_fields_create_new_outputs(client: Client) -> None:
    client.store("group", *batch())
    client.put("/v1/groups/group", json={"key_fields": ["number"]})
    assert counts(client.store("group", *batch())) == (MANY, 0, 0)
    assert counts(client.store("group", *batch())) == (0, 0, MANY)


def test_outputs_without_a_stored_hash_are_compared_by_value(
    service: Service, client: Client
) -> None:
    async def forget() -> None:
        async with open_engine(service.settings) as database:
            await database.for_all_tenants().write(
                lambda transaction: transaction.fetch("UPDATE outputs SET sent_hash = $1", b"")
            )

    client.store("group", *batch())
    asyncio.run(forget())
    assert counts(client.store("group", *batch(at_2={"data": {}}))) == (0, 1, MANY - 1)
    assert counts(client.store("group", *batch(at_2={"data": {}}))) == (0, 0, MANY)


def test_an_output_changed_by_an_older_version_is_updated(service: Service, client: Client) -> None:
    """Simulates a node of an older version beside a newer one."""

    async def change() -> None:
        async with open_engine(service.settings) as database:
            await database.for_all_tenants().write(
                lambda transaction: transaction.fetch(
                    "UPDATE outputs SET content_hash = $1", bytes(32)
                )
            )

    client.store("group", *batch())
    asyncio.run(change())
    assert counts(client.store("group", *batch())) == (0, MANY, 0)
    assert counts(client.store("group", *batch())) == (0, 0, MANY)


# --- both ways of reading -------------------------------------------------------------------------

names = st.sampled_from(["job_id", "source_url", "data", "key", "tags", "files", "more"])
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | st.text(max_size=5)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=3)
good = st.fixed_dictionaries(
    {"job_id": st.text(min_size=1, max_size=3), "source_url": st.text(max_size=5), "data": objects},
    optional={"key": st.none() | st.text(max_size=5), "tags": st.none() | objects, "more": values},
)


@pytest.mark.thorough
@settings(deadline=None)
@given(st.lists(good | st.dictionaries(names, values) | values, max_size=3), st.booleans())
def test_both_parsers_of_a_batch_agree(batch: list[Any], is_ascii: bool) -> None:
    check_batch(json.dumps(batch, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"))

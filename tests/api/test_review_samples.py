"""Samples for a review over HTTP, on both engines: which outputs they have, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gleanery.service.resources.reviews import sample as review_samples
from tests.support.outputs import output
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

FIRST = 1000  # numbers from here on have the same length, so that none is extreme
MAX_BYTES = 30_000


def store(client: Client, count: int, **members: Any) -> list[str]:
    """Stores outputs that differ in one number. Returns their ids."""
    batch = [output(FIRST + number, **members) for number in range(count)]
    results = client.post("/v1/outputs/group", json=batch).json()["results"]
    return [result["output_id"] for result in results]


def approve(client: Client, **members: Any) -> None:
    body = {"job_id": "job", "status": "approved"} | members
    assert client.post("/v1/reviews/group", json=body).status_code == 200


def read(client: Client, **query: Any) -> dict[str, Any]:
    answer = client.get("/v1/reviews/group/sample", params={"job_id": "job"} | query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found.keys() == {"seed", "job_id", "cursor", "outputs", "sample"}
    chosen = ids(found)
    assert len(set(chosen)) == len(chosen)
    return found


def ids(found: dict[str, Any], *reasons: str) -> list[str]:
    """The outputs of a sample, or those with these reasons."""
    return [
        one["output"]["output_id"]
        for one in found["sample"]
        if not reasons or one["reason"] in reasons
    ]


def test_the_same_seed_gives_the_same_sample(client: Client) -> None:
    stored = store(client, 30)
    first = read(client, seed="a – ü", size=10)
    assert (first["seed"], first["job_id"], first["outputs"]) == ("a – ü", "job", 30)
    assert first["cursor"] == client.get("/v1/groups/group").json()["cursor"]
    assert len(first["sample"]) == 10
    assert set(ids(first)) <= set(stored)
    for one in first["sample"]:
        assert (one["reason"], one["detail"], one["approved_output"]) == ("random", None, None)
        path = f"/v1/outputs/group/{one['output']['output_id']}"
        assert one["output"] == client.get(path).json()
    assert read(client, seed="a – ü", size=10) == first
    assert ids(read(client, seed="b", size=10)) != ids(first)


def test_without_a_seed_the_response_has_a_new_one(client: Client) -> None:
    store(client, 30)
    first, second = read(client), read(client)
    assert first["seed"] != second["seed"]
    assert read(client, seed=first["seed"]) == first


def test_a_small_job_is_in_the_sample_as_a_whole(client: Client) -> None:
    stored = store(client, 7)
    client.store("group", output(1, job_id="other"))
    for size in (7, 8, 200):
        assert sorted(ids(read(client, seed="s", size=size))) == sorted(stored)
    assert len(ids(read(client, seed="s", size=6))) == 6
    assert len(ids(read(client, seed="s", size=1))) == 1


def test_a_job_without_outputs_has_an_empty_sample(client: Client) -> None:
    [output_id] = store(client, 1)
    client.delete(f"/v1/outputs/group/{output_id}")
    found = read(client, seed="s")
    assert (found["outputs"], found["sample"]) == (0, [])


def test_an_unknown_job_or_group_is_404(client: Client) -> None:
    store(client, 1)
    for group, job, loc in (
        ("group", "none", ["query", "job_id"]),
        ("none", "job", ["path", "group_id"]),
    ):
        answer = client.get(f"/v1/reviews/{group}/sample", params={"job_id": job})
        assert answer.status_code == 404
        assert answer.json()["detail"][0]["loc"] == loc


def test_invalid_parameters_are_rejected(client: Client) -> None:
    store(client, 1)
    for query in ({}, {"size": 0}, {"size": 201}, {"size": "x"}, {"seed": "x" * 201}):
        params = query and {"job_id": "job"} | query
        assert client.get("/v1/reviews/group/sample", params=params).status_code == 422


def test_a_sample_needs_the_scope_of_outputs(service: Service) -> None:
    with service.client(scopes=frozenset({"reviews:read"})) as client:
        answer = client.get("/v1/reviews/group/sample", params={"job_id": "job"})
        assert answer.status_code == 403


@pytest.mark.thorough
def test_a_quarter_has_changed_since_the_last_approval(client: Client) -> None:
    store(client, 100)
    approve(client)
    changed = store(client, 60, data={"number": 5000})
    found = read(client, seed="s", size=40)
    assert len(found["sample"]) == 40
    assert len(ids(found, "changed")) <= 10
    assert len(ids(found, "random")) >= 30
    assert set(ids(found, "changed")) <= set(changed)
    for one in found["sample"]:
        approved = one["approved_output"]
        if one["output"]["output_id"] not in changed:
            assert approved is one["fields"] is None
            continue
        assert approved["output_id"] == one["output"]["output_id"]
        assert (approved["is_approved"], one["output"]["is_approved"]) == (True, False)
        assert approved["data"]["number"] < one["output"]["data"]["number"] == 5000
        before = approved["data"]["number"]
        assert one["fields"] == [
            {"path": "number", "kind": "changed", "before": before, "after": 5000}
        ]


@pytest.mark.thorough
def test_a_quarter_is_unusual(client: Client) -> None:
    store(client, 100)
    rare = output(FIRST + 200, data={"number": None})
    extreme = output(FIRST + 201, data={"number": 10**9})
    results = client.post("/v1/outputs/group", json=[rare, extreme]).json()["results"]
    found = read(client, seed="s", size=8)
    assert len(found["sample"]) == 8
    unusual = {one["output"]["output_id"]: one for one in found["sample"] if one["detail"]}
    assert unusual.keys() == {result["output_id"] for result in results}
    reasons = [unusual[result["output_id"]]["reason"] for result in results]
    assert set(reasons) <= {"rare_shape", "outlier", "random"}
    assert "number" in unusual[results[0]["output_id"]]["detail"]


def test_an_outlier_of_a_large_batch_is_in_the_sample(client: Client) -> None:
    prices = [99_999 if number == 17 else 100 for number in range(60)]
    batch = [output(number, data={"price": price}) for number, price in enumerate(prices)]
    results = client.store("group", *batch)["results"]
    found = read(client, seed="s", size=4)
    [extreme] = [one for one in found["sample"] if one["detail"]]
    assert extreme["detail"] == "price is unusually large: 99999"
    assert extreme["output"]["output_id"] == results[17]["output_id"]


def test_an_approval_as_of_the_sample_skips_what_came_later(client: Client) -> None:
    stored = store(client, 3)
    found = read(client)
    client.store("group", output(FIRST, data={"number": 1}), output(FIRST + 3))
    approve(client, as_of=found["cursor"])
    items = {item["output_id"]: item["is_approved"] for item in client.items("group")}
    assert items.pop(stored[0]) is False
    assert sorted(items.values()) == [False, True, True]


@pytest.mark.thorough
def test_a_long_way_through_the_index_is_split(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(client, 40)
    approve(client)
    store(client, 20, data={"number": 5000})
    expected = read(client, seed="s", size=9)
    for skipped in (0, 1, 3):
        monkeypatch.setattr(review_samples, "_MAX_SKIPPED", skipped)
        assert read(client, seed="s", size=9) == expected


# --- uniformity -----------------------------------------------------------------------------------


def chi_square(counts: Counter[str], expected: dict[str, float]) -> float:
    return sum((counts[key] - number) ** 2 / number for key, number in expected.items())


@pytest.mark.thorough
def test_random_outputs_are_uniform(client: Client) -> None:
    """The seeds are fixed, so the result is always the same. The bound has four deviations."""
    stored, seeds, size = store(client, 40), 150, 10
    counts = Counter[str]()
    for seed in range(seeds):
        counts.update(ids(read(client, seed=str(seed), size=size)))
    assert counts.total() == seeds * size
    freedom = len(stored) - 1
    found = chi_square(counts, dict.fromkeys(stored, seeds * size / len(stored)))
    assert found < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.thorough
def test_random_outputs_represent_a_job_with_changed_outputs(client: Client) -> None:
    """A changed output is as likely to be random as another one."""
    stored, seeds = store(client, 60), 150
    approve(client)
    changed = set(store(client, 12, data={"number": 5000}))
    counts = Counter[str]()
    for seed in range(seeds):
        counts.update(ids(read(client, seed=str(seed), size=20), "random"))
    freedom = len(stored) - 1
    found = chi_square(counts, dict.fromkeys(stored, counts.total() / len(stored)))
    assert found < freedom + 4 * (2 * freedom) ** 0.5
    share = sum(counts[output_id] for output_id in changed) / counts.total()
    assert abs(share - len(changed) / len(stored)) < 0.03


# --- the limit in bytes ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited_service(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service with small pages."""
    folder = tmp_path_factory.mktemp("samples")
    running = Service(replace(fresh_settings(engine, request, folder), max_page_bytes=MAX_BYTES))
    yield running
    running.stop()


@pytest.mark.thorough
def test_a_sample_is_limited_in_bytes(limited_service: Service) -> None:
    with limited_service.client() as client:
        store(client, 20, tags={"text": "x" * 3000})
        approve(client)
        store(client, 20, tags={"text": "y" * 4000}, data={"number": 1})
        answer = client.get("/v1/reviews/group/sample", params={"job_id": "job", "seed": "s"})
        assert len(answer.content) <= MAX_BYTES
        assert len(answer.json()["sample"]) == 2  # each with its approved version and fields


@pytest.mark.thorough
def test_a_sample_has_at_least_one_output(limited_service: Service) -> None:
    with limited_service.client() as client:
        store(client, 3, tags={"text": "x" * 100_000})
        [one] = read(client)["sample"]
        assert len(one["output"]["tags"]["text"]) == 100_000

"""Groups, jobs and reviews with the client."""

from __future__ import annotations

import asyncio

import pytest

from gleanery import AsyncClient, Client
from gleanery.client import (
    ConnectionFailed,
    Finding,
    Forbidden,
    Invalid,
    InvalidResponse,
    NotFound,
    Unauthorized,
)
from tests.support import faulty_server as faults
from tests.support.faulty_server import faulty_server, respond
from tests.support.outputs import output
from tests.support.service import Client as HttpClient
from tests.support.service import Service


@pytest.fixture
def user(service: Service, client: HttpClient) -> Client:
    return Client(service.url, client.token)


def test_groups_are_listed_in_pages(user: Client, client: HttpClient) -> None:
    names = [f"group {number} ü%" for number in range(5)]
    for name in names:
        client.put("/v1/groups/" + name.replace("%", "%25"), json={})
    found = list(user.groups(page_size=2))
    assert [group.group_id for group in found] == names
    assert user.group(names[0]) == found[0]
    assert len(list(user.groups(page_size=2).raw())) == 5


def test_a_group_has_all_its_jobs(user: Client, client: HttpClient) -> None:
    client.store("g", *(output(n, job_id=f"job-{n}") for n in range(1003)))
    group = user.group("g")
    assert [job.job_id for job in group.jobs] == [f"job-{n}" for n in range(1003)]
    assert (group.outputs, group.metadata.next_cursor) == (1003, None)
    assert len(next(iter(user.groups())).jobs) == 100


def test_fields_of_a_group_or_job_are_counted(user: Client, client: HttpClient) -> None:
    client.store("g", output(1, data={"price": 2.5}), output(2, data={}, job_id="two"))
    found = user.fields("g")
    assert [(field.path, field.filled, field.fill_rate) for field in found.fields] == [
        ("price", 1, 0.5)
    ]
    assert found.fields[0].range is not None
    assert (found.fields[0].range.min, found.drift) == (2.5, [])
    assert {(run.job_id, run.status) for run in found.runs} == {
        ("job", "running"),
        ("two", "running"),
    }
    assert {run.run_id for run in found.runs} == {run.run_id for run in user.runs("g")}
    assert user.fields("g", "two").fields == []
    with pytest.raises(NotFound):
        user.fields("g", "three")


def test_settings_of_a_group_are_replaced(user: Client) -> None:
    schema = {"type": "object", "required": ["sku"]}
    group = user.set_group(
        "g", display_name="Prices", key_fields=["sku"], schema=schema, retain_days=30
    )
    assert (group.display_name, group.key_fields, group.schema) == ("Prices", ["sku"], schema)
    assert user.set_group("g").key_fields is None
    group = user.set_group("g", keep_versions=5, keep_days=7)
    assert (group.keep_versions, group.keep_days) == (5, 7)
    with pytest.raises(Invalid, match="retain_days"):
        user.set_group("g", retain_days=-1)


def test_records_are_deleted(user: Client, client: HttpClient) -> None:
    client.store("g", *(output(n, job_id=f"job-{n % 2}") for n in range(6)))
    user.delete_output("g", next(iter(user.outputs("g"))).output_id)
    assert user.delete_job("g", "job-1") == 3
    assert len(list(user.outputs("g"))) == 2
    assert user.delete_group("g") == 2
    with pytest.raises(NotFound):
        user.group("g")


def test_reviews_are_added_and_listed(user: Client, client: HttpClient) -> None:
    client.store("g", output(1, job_id="a"), output(2, job_id="b"))
    first = user.review("g", "a", "in_review", "Looking at it")
    second = user.approve("g", "b")
    third = user.review("g", "a", "rejected")
    assert (first.status, first.comment, second.status) == (
        "in_review",
        "Looking at it",
        "approved",
    )
    assert list(user.reviews("g")) == [third, second]
    pager = user.reviews("g", history=True, page_size=1, limit=2)
    assert list(pager) == [third, second]
    assert list(user.reviews("g", history=True, cursor=pager.cursor)) == [first]
    assert [job.latest_review for job in user.group("g").jobs] == [third, second]
    assert [found.is_approved for found in user.outputs("g")] == [False, True]


def test_single_outputs_are_reviewed_with_findings(user: Client, client: HttpClient) -> None:
    client.store("g", output(1), output(2), output(3))
    sample = user.review_sample("g", "job", seed="s", size=2)
    assert (sample.seed, sample.job_id, sample.outputs, len(sample.sample)) == ("s", "job", 3, 2)
    assert {one.reason for one in sample.sample} == {"random"}
    first, second = (one.output for one in sample.sample)
    client.store("g", output(second.data["number"], data={"number": 22}))
    ids = [first.output_id, second.output_id]
    approval = user.approve("g", "job", as_of=sample.cursor, output_ids=ids)
    assert approval.skipped_output_ids == [second.output_id]
    assert [found.data for found in user.outputs("g", approved=True)] == [first.data]
    finding = Finding(second.output_id, "number", "too large")
    rejection = user.review("g", "job", "rejected", "One number", findings=[finding])
    assert rejection.skipped_output_ids is None
    assert list(user.reviews("g")) == [rejection]
    details = user.review_details("g", rejection.review_id)
    assert (details.comment, details.findings) == ("One number", [finding])
    details = user.review_details("g", approval.review_id)
    assert (details.as_of, details.output_ids) == (sample.cursor, ids)
    noted = {"output_id": first.output_id, "note": "again"}
    rejection = user.reject("g", "job", output_ids=[first.output_id], findings=[noted])
    assert rejection.status == "rejected"
    assert user.review_details("g", rejection.review_id).findings[0].note == "again"
    with pytest.raises(TypeError, match="each finding must be a Finding"):
        user.reject("g", "job", findings=["wrong"])  # type: ignore[list-item]


def test_a_review_keeps_its_idempotency_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    review = {
        "job_id": "a",
        "review_id": "1",
        "review_date": "2026-01-01T00:00:00Z",
        "status": "approved",
        "comment": "",
    }
    script = [faults.CLOSE, respond(503), respond(200, review)]
    with faulty_server(*script) as server, Client(server.url, "t") as client:
        client.approve("g", "a")
        keys = [
            line for head in server.heads for line in head.splitlines() if "idempotency" in line
        ]
        client.approve("g", "a")
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert keys[0] not in server.heads[3]


def test_a_deletion_whose_response_was_lost_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    missing = respond(404, {"detail": [{"loc": [], "msg": "No such group", "type": "not_found"}]})
    with faulty_server(faults.CLOSE, missing) as server, Client(server.url, "t") as client:
        assert client.delete_group("g") == 0
        assert len(server.heads) == 2
        with pytest.raises(NotFound):
            client.delete_group("g")


def test_a_deletion_that_a_proxy_rejects_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    with (
        faulty_server(respond(503), respond(404, b"default backend - 404")) as server,
        Client(server.url, "t") as client,
        pytest.raises(NotFound),
    ):
        client.delete_group("g")


def test_a_client_checks_its_token(service: Service, client: HttpClient) -> None:
    Client(service.url, client.token).check()
    Client(service.url, service.token(scopes=frozenset({"session:read"}))).check()
    with pytest.raises(Unauthorized):
        Client(service.url, "wrong").check()
    with faulty_server(respond(403, b"<html>")) as proxy, pytest.raises(Forbidden):
        Client(proxy.url, "t").check()
    with faulty_server(respond(200, b"<html>")) as site, pytest.raises(InvalidResponse):
        Client(site.url, "t").check()
    with pytest.raises(ConnectionFailed):
        Client("http://127.0.0.1:1", "t", max_retries=0).check()


def test_the_asynchronous_client_has_groups_and_reviews(
    service: Service, client: HttpClient
) -> None:
    async def use() -> None:
        async with AsyncClient(service.url, client.token) as user:
            await user.set_group("g", display_name="G")
            assert [group.display_name async for group in user.groups()] == ["G"]
            client.store("g", output(1))
            review = await user.approve("g", "job")
            assert [found async for found in user.reviews("g")] == [review]
            assert (await user.group("g")).jobs[0].latest_review == review
            assert await user.delete_group("g") == 1
            await user.check()

    asyncio.run(use())

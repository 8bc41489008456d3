"""The console's sample and history of reviews over HTTP, on both engines."""

from __future__ import annotations

import cProfile
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gleanery.api.console import sample as console_sample
from gleanery.api.examples import EXAMPLES
from gleanery.storage.reviews.sample import SampledOutput
from tests.support.console import PERSON, ConsoleClient
from tests.support.outputs import output
from tests.support.service import Client, Service


@pytest.fixture
def console(service: Service, client: Client) -> Iterator[ConsoleClient]:
    assert client.token is not None
    made = ConsoleClient(service.url, client.token)
    yield made
    made.close()


def read(console: ConsoleClient, **query: Any) -> dict[str, Any]:
    answer = console.get("/console/api/sample/group", params={"job_id": "job", **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def history(console: ConsoleClient) -> dict[str, Any]:
    answer = console.get("/console/api/reviews/group", params={"job_id": "job"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def review(client: Client | ConsoleClient, status: str, **members: Any) -> dict[str, Any]:
    body = {"job_id": "job", "status": status, **members}
    answer = client.post("/v1/reviews/group", json=body)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def fields_of(found: dict[str, Any], output: dict[str, Any]) -> dict[str, Any]:
    """The rows of an output by path: the old and the new value."""
    return {found["fields"][row["at"]]: (row["before"], row["after"]) for row in output["rows"]}


def test_a_new_output_has_its_fields_in_the_order_of_its_data(
    client: Client, console: ConsoleClient
) -> None:
    data = {"title": "Mug", "price": 12345678901234567890, "offer": {"currency": "EUR", "b": True}}
    client.store("group", output(1, data=data, tags={"country": "Germany"}))
    found = read(console, seed="s")
    assert found["fields"] == ["title", "price", "offer.currency", "offer.b", "$.tags.country"]
    assert (found["seed"], found["job_id"], found["outputs"]) == ("s", "job", 1)
    assert found["last_approval"] is None
    assert found["cursor"] == client.get("/v1/groups/group").json()["cursor"]
    [one] = found["sample"]
    assert fields_of(found, one) == {
        "title": (None, ["s", "Mug"]),
        "price": (None, ["n", "12345678901234567890"]),
        "offer.currency": (None, ["s", "EUR"]),
        "offer.b": (None, ["b", True]),
        "$.tags.country": (None, ["s", "Germany"]),
    }
    assert (one["approval"], one["left_out"], one["files"]) == ("none", 0, [])
    assert one["source_url"] == "https://shop.example/1"


def test_a_changed_output_is_beside_its_last_approved_version(
    client: Client, console: ConsoleClient
) -> None:
    before = {"title": "Mug", "price": 1.0, "old": 1, "offer": {"a": [1], "b": 2}}
    after = {"title": "Mug", "price": 2.5, "new": None, "offer": {"a": [3], "b": 2}}
    client.store("group", output(1, data=before))
    approval = review(client, "approved")
    assert read(console)["sample"][0]["approval"] == "current"
    client.store("group", output(1, data=after))
    found = read(console)
    assert found["last_approval"] == {
        "review_id": approval["review_id"],
        "review_date": approval["review_date"],
        "person": None,
    }
    [one] = found["sample"]
    assert (one["approval"], one["reason"]) == ("older", "changed")
    changed = {found["fields"][row["at"]] for row in one["rows"] if row["is_changed"]}
    assert changed == {"price", "old", "new", "offer.a"}
    fields = fields_of(found, one)
    assert fields["price"] == (["n", "1.0"], ["n", "2.5"])
    assert fields["old"] == (["n", "1"], None)
    assert fields["new"] == (None, ["z"])
    assert fields["offer.b"] == (None, ["n", "2"])
    assert fields["offer.a"] == (["a", [["n", "1"]], 1], ["a", [["n", "3"]], 1])


def test_two_versions_differ_in_their_version(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1))
    [first] = read(console)["sample"]
    client.store("group", output(1, data={"number": 2}))
    [second] = read(console)["sample"]
    assert first["output_id"] == second["output_id"]
    assert first["version"] != second["version"]
    client.store("group", output(1, data={"number": 2}, tags={"size": 1.5}))
    [third] = read(console)["sample"]
    assert third["version"] != second["version"]
    body = {"job_id": "job", "status": "approved"}
    assert client.post("/v1/reviews/group", json=body).status_code == 200
    [approved] = read(console)["sample"]
    assert approved["approval"] == "current"
    assert approved["version"] == third["version"]


def test_fields_of_few_outputs_come_last(client: Client, console: ConsoleClient) -> None:
    rare = {"rare": 1, "number": 9, "title": "t"}
    common = [output(n, data={"number": n, "title": "t"}) for n in range(5)]
    client.store("group", output(9, data=rare), *common)
    assert read(console)["fields"] == ["number", "title", "rare"]


def test_long_values_and_many_fields_are_cut(client: Client, console: ConsoleClient) -> None:
    many = {f"field {n}": n for n in range(150)}
    client.store("group", output(1, data={"text": "x" * 300_000}), output(2, data=many))
    found = read(console)
    by_url = {one["source_url"][-1]: one for one in found["sample"]}
    [(before, after)] = fields_of(found, by_url["1"]).values()
    assert (before, after[0], len(after[1]), after[2]) == (None, "s", 400, 300_000)
    assert (len(by_url["2"]["rows"]), by_url["2"]["left_out"]) == (100, 50)


def test_a_changed_field_is_shown_also_if_there_are_too_many(
    client: Client, console: ConsoleClient
) -> None:
    many: dict[str, Any] = {f"field{n}": n for n in range(150)}
    client.store("group", output(1, data=many))
    review(client, "approved")
    client.store("group", output(1, data=many | {"field149": "new"}))
    found = read(console)
    assert fields_of(found, found["sample"][0])["field149"] == (["n", "149"], ["s", "new"])


def test_a_sample_of_large_outputs_is_shorter(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.store("group", *(output(n, data={"text": "x" * 400, "n": n}) for n in range(20)))
    monkeypatch.setattr(console_sample, "MAX_BYTES", 5000)
    found = read(console)
    assert 1 <= len(found["sample"]) < 15
    assert found["outputs"] == 20


def test_a_sample_has_up_to_300_outputs(client: Client, console: ConsoleClient) -> None:
    client.store("group", *(output(n) for n in range(310)))
    assert len(read(console, size=300)["sample"]) == 300
    assert len(read(console)["sample"]) == 100
    answer = console.get("/console/api/sample/group", params={"job_id": "job", "size": 301})
    assert answer.status_code == 422


def test_an_unknown_group_or_job_is_404(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1))
    for route in ("sample", "reviews"):
        for group, job in (("group", "none"), ("none", "job")):
            answer = console.get(f"/console/api/{route}/{group}", params={"job_id": job})
            assert answer.status_code == 404


def test_a_review_in_the_console_has_the_name_of_the_person(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1))
    by_token = review(client, "pending")
    in_console = review(console, "approved")
    assert in_console.keys() == by_token.keys()
    for made, person in ((by_token, None), (in_console, PERSON)):
        details = client.get(f"/v1/reviews/group/{made['review_id']}").json()
        assert details["person"] == person
    assert client.get("/v1/reviews/group").json() == [in_console]
    assert read(console)["last_approval"]["person"] == PERSON


def test_the_history_has_reviewers_and_findings(client: Client, console: ConsoleClient) -> None:
    stored = client.store("group", output(1), output(2))
    first = stored["results"][0]["output_id"]
    finding = {"output_id": first, "path": "number", "note": "odd"}
    review(client, "approved")
    review(console, "changes_requested", comment="see", output_ids=[first], findings=[finding])
    found = history(console)
    assert (found["outputs"], found["approved"]) == (2, 1)
    newest, oldest = found["reviews"]
    assert (newest["person"], newest["status"], newest["comment"]) == (
        PERSON,
        "changes_requested",
        "see",
    )
    assert (newest["is_of_job"], newest["findings"]) == (False, [finding])
    assert (oldest["person"], oldest["is_of_job"], oldest["findings"]) == (None, True, [])
    assert found["last_approval"]["review_id"] == oldest["review_id"]


def test_a_history_is_bounded(client: Client, console: ConsoleClient) -> None:
    stored = client.store("group", output(1))
    output_id = stored["results"][0]["output_id"]
    many = [{"output_id": output_id, "note": "x" * 1000}] * 100
    few = [{"output_id": output_id, "note": "x"}] * 60
    for findings in ([], few, many):
        review(client, "pending", findings=findings, comment="y" * 5000)
    for _ in range(20):
        review(client, "in_review")
    found = history(console)["reviews"]
    assert len(found) == 20
    for findings in (few, many):
        review(client, "pending", findings=findings, comment="y" * 5000)
    newest, before = history(console)["reviews"][:2]
    assert (newest["findings"], newest["has_more_findings"]) == ([], True)
    assert (len(before["findings"]), before["has_more_findings"]) == (50, True)
    assert len(newest["comment"]) == 2000


def test_the_routes_need_the_scopes(service: Service, client: Client) -> None:
    client.store("group", output(1))
    token = service.token(scopes=frozenset({"outputs:read"}))
    with closing(ConsoleClient(service.url, token)) as limited:
        for route in ("sample", "reviews"):
            answer = limited.get(f"/console/api/{route}/group", params={"job_id": "job"})
            assert answer.status_code == 403


def test_the_work_for_an_output_grows_with_its_fields_only() -> None:
    """Half of them have changed. The calls are counted, because a time says little."""

    def calls(fields: int) -> int:
        item = json.loads(str(EXAMPLES["export_outputs"].response).splitlines()[0])
        texts = [
            json.dumps(item | {"data": {f"field{n}": n * sign for n in range(fields)}}).encode()
            for sign in (1, -1)
        ]
        changes = json.dumps([{"path": f"field{n}"} for n in range(0, fields, 2)]).encode()
        found = SampledOutput("changed", None, texts[1], texts[0], changes, 1, 1)
        profile = cProfile.Profile()
        profile.runcall(console_sample._compare, found, texts[1])
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(4000) < 5 * calls(1000)

"""The console's sample and history of reviews over HTTP, on both engines."""

from __future__ import annotations

import cProfile
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gleanery.service.resources.reviews import console as console_of_reviews
from gleanery.service.resources.reviews.sample import SampledOutput
from tests.support.api_examples import EXAMPLES
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
    monkeypatch.setattr(console_of_reviews, "MAX_BYTES", 5000)
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
        found = SampledOutput("changed", None, texts[1], texts[0], changes, 1, 1, b"")
        profile = cProfile.Profile()
        profile.runcall(console_of_reviews._compare, found, texts[1])
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(4000) < 5 * calls(1000)


def read_again(
    console: ConsoleClient, found: dict[str, Any], group: str = "group", job: str = "job"
) -> dict[str, Any]:
    """Reads the outputs of an earlier sample, as a reloaded page does."""
    outputs = {one["output_id"]: one["reason"] for one in found["sample"]}
    body = {"job_id": job, "as_of": found["cursor"], "outputs": outputs}
    answer = console.post(f"/console/api/sample/{group}", json=body)
    assert answer.status_code == 200, answer.text
    again: dict[str, Any] = answer.json()
    return again


def later(console: ConsoleClient, found: dict[str, Any]) -> dict[str, Any]:
    ids = [one["output_id"] for one in found["sample"]]
    body = {"job_id": "job", "as_of": found["cursor"], "output_ids": ids}
    answer = console.post("/console/api/sample/group/later", json=body)
    assert answer.status_code == 200, answer.text
    values: dict[str, Any] = answer.json()
    return values


def test_a_sample_is_read_again_with_the_same_outputs_in_their_order(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", *(output(n, data={"number": 1000 + n}) for n in range(60)))
    client.store("group", output(99, data={"number": 1099, "rare": "x"}))
    found = read(console, seed="s", size=20)
    ids = [one["output_id"] for one in found["sample"]]
    assert later(console, found) == {"outputs": 61, "later": {}, "deleted": []}
    assert {**read_again(console, found), "seed": "s"} == found
    client.store("group", *(output(n) for n in range(100, 160)))
    changed = client.get(f"/v1/outputs/group/{ids[0]}").json()["source_url"]
    client.store("group", output(1, source_url=changed, data={"number": 7}))
    assert client.delete(f"/v1/outputs/group/{ids[1]}").status_code == 200
    again = read_again(console, found)
    assert [one["output_id"] for one in again["sample"]] == [ids[0], *ids[2:]]
    assert (again["cursor"], again["outputs"]) == (found["cursor"], 120)
    reasons = {one["output_id"]: (one["reason"], one["detail"]) for one in found["sample"]}
    for one in again["sample"][1:]:
        assert (one["reason"], one["detail"]) == reasons[one["output_id"]]
        assert one["stored"] <= found["cursor"]
    first = again["sample"][0]
    assert first["stored"] > found["cursor"]
    assert first["version"] != found["sample"][0]["version"]
    assert later(console, found) == {
        "outputs": 120,
        "later": {ids[0]: first["stored"]},
        "deleted": [ids[1]],
    }


def test_a_sample_at_a_position_of_another_state_is_refused(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1))
    found = read(console)
    assert read(console, as_of=found["cursor"] - 5)["cursor"] == found["cursor"] - 5
    query = {"job_id": "job", "as_of": found["cursor"] + 1}
    answer = console.get("/console/api/sample/group", params=query)
    assert (answer.status_code, answer.json()["detail"][0]["type"]) == (422, "unknown_cursor")


def test_only_outputs_of_the_job_are_read_again(
    service: Service, client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1), output(2, job_id="other"))
    client.store("elsewhere", output(1))
    with Client(service.url, service.token("another organization of samples")) as stranger:
        stranger.store("group", output(1))
        theirs = stranger.items("group")[0]["output_id"]
    ids = [one["output_id"] for one in client.items("group") + client.items("elsewhere")]
    outputs = dict.fromkeys([*ids, theirs, "0" * 32], "random")
    body = {"job_id": "job", "as_of": read(console)["cursor"]}
    answer = console.post("/console/api/sample/group", json={**body, "outputs": outputs})
    [one] = answer.json()["sample"]
    assert one["source_url"] == "https://shop.example/1"
    values = console.post(
        "/console/api/sample/group/later", json={**body, "as_of": 0, "output_ids": [*outputs]}
    ).json()
    assert [*values["later"]] == [one["output_id"]]
    assert len(values["deleted"]) == len(outputs) - 1
    query = {"job_id": "job", "stored": one["stored"], "as_of": body["as_of"]}
    statuses = [
        console.get(f"/console/api/outputs/group/{output_id}/fields", params=query).status_code
        for output_id in outputs
    ]
    assert sorted(statuses) == [200, *[404] * (len(outputs) - 1)]


def test_two_long_values_show_their_first_difference(
    client: Client, console: ConsoleClient
) -> None:
    start = "Ä same beginning. " * 100
    deep = {"a": {"b": {"c": {"d": {"e": "old"}}}}}
    before = {
        "text": f"{start}cold",
        "appended": "x" * 500,
        "list": [*range(100), "1"],
        "longer": [1] * 50,
        "object": {"inner": {f"name{n}": n for n in range(60)}},
        "deep": [0, deep],
        "kind": [*[0] * 30, 1],
    }
    after = {
        "text": f"{start}warm",
        "appended": "x" * 500 + "y",
        "list": [*range(100), "2"],
        "longer": [1] * 51,
        "object": {"inner": {f"name{n}": n for n in range(59)} | {"name59": -1}},
        "deep": [0, {"a": {"b": {"c": {"d": {"e": "new"}}}}}],
        "kind": [*[0] * 30, "1"],
    }
    client.store("group", output(1, data=before))
    review(client, "approved")
    client.store("group", output(1, data=after))
    found = read(console)
    fields = fields_of(found, found["sample"][0])
    old, new = fields["text"]
    assert old == ["s", f"{start[-40:]}cold", len(start) + 4, len(start) - 40]
    assert new == ["s", f"{start[-40:]}warm", len(start) + 4, len(start) - 40]
    assert fields["appended"][0] == ["s", "x" * 40, 500, 460]
    assert fields["appended"][1] == ["s", "x" * 40 + "y", 501, 460]
    assert fields["list"][1] == ["a", [["n", "99"], ["s", "2"]], 101, 99]
    assert [side[2:] for side in fields["longer"]] == [[50, 49], [51, 49]]
    assert fields["object.inner"][0] == [
        "o",
        [["name58", ["n", "58"]], ["name59", ["n", "59"]]],
        60,
        58,
    ]
    assert [
        json.dumps(side).count(word)
        for side, word in zip(fields["deep"], ("old", "new"), strict=True)
    ] == [1, 1]
    assert [side[1][-1] for side in fields["kind"]] == [["n", "1"], ["s", "1"]]


def test_the_whole_of_a_field_is_of_the_version_that_was_seen(
    client: Client, console: ConsoleClient
) -> None:
    name = 'a."b/~'
    client.store("group", output(1, data={name: {"c/d": ["x" * 900]}}, tags={"country": "DE"}))
    review(client, "approved")
    client.store("group", output(1, data={name: {"c/d": ["y" * 900]}}, tags={"country": "DE"}))
    found = read(console)
    [one] = found["sample"]
    [path] = [found["fields"][row["at"]] for row in one["rows"] if row["is_changed"]]
    url = f"/console/api/outputs/group/{one['output_id']}/value"
    query = {"field": path, "stored": one["stored"]}
    assert console.get(url, params=query).json() == ["y" * 900]
    assert console.get(url, params={**query, "path": "/0"}).text == "y" * 900
    assert console.get(url, params={**query, "version": "approved"}).json() == ["x" * 900]
    assert console.get(url, params={**query, "field": "$.tags.country"}).text == "DE"
    assert console.get(url, params={**query, "field": "a..b"}).status_code == 422
    client.store("group", output(1, data={name: {"c/d": ["z" * 900]}}))
    for version in ("current", "approved", "before"):
        answer = console.get(url, params={**query, "version": version})
        assert (answer.status_code, "newer value" in answer.text) == (404, True)
    answer = console.get(
        f"/console/api/outputs/group/{one['output_id']}/fields",
        params={"job_id": "job", "stored": one["stored"], "as_of": found["cursor"]},
    )
    assert answer.status_code == 404


def test_all_fields_of_an_output_are_read_in_pages(client: Client, console: ConsoleClient) -> None:
    many = {f"field{n}": "x" * 300 for n in range(1200)} | {"n" * 1001: 1}
    client.store("group", output(1, data=many))
    review(client, "approved")
    client.store("group", output(1, data=many | {"field1100": "new"}))
    found = read(console)
    [one] = found["sample"]
    query = {"job_id": "job", "stored": one["stored"], "as_of": found["cursor"]}
    rows: list[dict[str, Any]] = []
    offset = 0
    while offset is not None:
        url = f"/console/api/outputs/group/{one['output_id']}/fields"
        page = console.get(url, params={**query, "offset": offset}).json()
        rows += page["rows"]
        assert 0 < len(page["rows"]) <= 500
        offset = page["next_offset"]
    assert [row["path"] for row in rows] == [f"field{n}" for n in range(1200)]
    [changed] = [row for row in rows if row["is_changed"]]
    assert (changed["path"], changed["after"]) == ("field1100", ["s", "new"])


def test_a_value_that_was_approved_after_the_sample_is_beside_the_version_before(
    client: Client, console: ConsoleClient
) -> None:
    id_ = client.post("/v1/files", params={"filename": "a.txt"}, content=b"a").json()["id"]
    files = [{"field": "manual", "id": id_}]
    client.store("group", output(1, data={"price": 1}, files=files), output(2, data={"price": 1}))
    review(client, "approved")
    changed = output(1, data={"price": 2}, files=files)
    client.store("group", changed, output(3, data={"price": 3}))
    found = read(console)
    review(client, "approved")
    by_url = {one["source_url"][-1]: one for one in read_again(console, found)["sample"]}
    assert {url: (one["approval"], one["before"]) for url, one in by_url.items()} == {
        "1": ("current", "before"),
        "2": ("current", None),
        "3": ("current", None),
    }
    [row] = by_url["1"]["rows"]
    assert (row["before"], row["after"], row["is_changed"]) == (["n", "1"], ["n", "2"], True)
    url = f"/console/api/outputs/group/{by_url['1']['output_id']}/value"
    assert console.get(url, params={"field": "price", "version": "before"}).text == "1"
    assert {one["before"] for one in read(console)["sample"]} == {None}  # a new sample

"""``on_error=skip`` over HTTP, on both engines: stores valid elements and lists the others."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.support.outputs import output
from tests.support.service import Client

MEDIA_TYPES = {"array": "application/json", "lines": "application/x-ndjson"}
BOTH = pytest.mark.parametrize("form", MEDIA_TYPES)
LARGE = output(99, data={"number": 99, "text": "x" * 5_000_000})
SIZES = pytest.mark.parametrize(
    "more", [[], pytest.param([LARGE], marks=pytest.mark.thorough)], ids=["small", "large"]
)


def send(
    client: Client, form: str, *elements: Any, query: str = "on_error=skip", **headers: str
) -> httpx2.Response:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in elements]
    text = f"[{','.join(texts)}]" if form == "array" else "\n".join(texts)
    kind = {"Content-Type": MEDIA_TYPES[form]}
    return client.post(f"/v1/outputs/group?{query}", content=text, headers=kind | headers)


def stored(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def numbers(client: Client) -> list[int]:
    return [item["data"]["number"] for item in client.items("group")]


def errors(answer: dict[str, Any]) -> list[tuple[list[str], str]]:
    return [(error["loc"], error["type"]) for error in answer["errors"]]


def changes(answer: dict[str, Any]) -> list[str | None]:
    return [result and result["change"] for result in answer["results"]]


@SIZES
@BOTH
def test_valid_elements_are_stored_and_the_others_are_listed(
    client: Client, form: str, more: list[Any]
) -> None:
    invalid = {"job_id": "job", "source_url": 5, "data": []}
    answer = stored(send(client, form, output(0), invalid, output(2), "1", output(0), *more))
    assert errors(answer) == [
        (["body", "1", "source_url"], "string_type"),
        (["body", "1", "data"], "dict_type"),
        (["body", "3"], "model_type"),
    ]
    assert (answer["created"], answer["updated"]) == (2 + len(more), 0)
    assert (answer["unchanged"], answer["skipped"]) == (1, 2)
    if form == "array":
        expected = ["created", None, "created", None, "unchanged"]
        assert changes(answer) == expected + ["created"] * len(more)
    else:
        assert "results" not in answer
        assert answer["lines"] == 5 + len(more)
    assert numbers(client) == [0, 2] + [99] * len(more)


@BOTH
def test_without_an_error_nothing_is_skipped(client: Client, form: str) -> None:
    answer = stored(send(client, form, output(0), output(1)))
    assert (answer["created"], answer["skipped"], answer["errors"]) == (2, 0, [])
    usual = stored(send(client, form, output(0), query="on_error=stop"))
    assert usual.keys().isdisjoint({"skipped", "errors"})
    assert stored(send(client, form))["skipped"] == 0


def test_stop_is_the_default(client: Client) -> None:
    for query in ("", "on_error=stop"):
        assert send(client, "array", output(0), {}, query=query).status_code == 422
    answer = send(client, "array", output(0), query="on_error=ignore")
    assert answer.json()["detail"][0]["loc"] == ["query", "on_error"]


def test_lines_that_are_not_json_are_skipped(client: Client) -> None:
    lines = [output(0), '{"job_id":', "", output(3), "\x00", '{"a":1}{"b":2}']
    answer = stored(send(client, "lines", *lines))
    assert errors(answer) == [(["body", str(at)], "json") for at in (1, 4, 5)]
    assert (answer["created"], answer["skipped"], answer["lines"]) == (2, 3, 6)


def test_elements_that_are_almost_json_are_skipped(client: Client) -> None:
    """What other programs write for a missing number, and for half of an emoji."""
    almost = ['{"a": NaN}', '{"a": [-Infinity, 1]}', '{"a": "\\ud83d"}', " [ ] "]
    answer = stored(send(client, "array", output(0), *almost, output(5)))
    assert changes(answer) == ["created", *[None] * 4, "created"]
    assert [error["type"] for error in answer["errors"]] == ["json"] * 3 + ["model_type"]


def test_a_body_that_is_not_json_is_an_error(client: Client) -> None:
    arrays = ("", "[1,", "[1 2]", "[1]]", "[,]", "[", "[" * 5000)
    for text in (*arrays, "{", '{"a":', "{}]", '{"a":1}\n{"b":2}', '{"a":' * 5000):
        headers = {"Content-Type": "application/json"}
        answer = client.post("/v1/outputs/group?on_error=skip", content=text, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"] == ["body"]


@SIZES
@BOTH
def test_violations_of_the_schema_are_skipped(client: Client, form: str, more: list[Any]) -> None:
    schema = {"properties": {"number": {"type": "integer"}}}
    client.put("/v1/groups/group", json={"schema": schema})
    violating = [output(n, data={"number": "one"}) for n in (1, 3)]
    sent = [output(0), violating[0], output(2), violating[1], {}, *more]
    answer = stored(send(client, form, *sent))
    assert errors(answer)[:2] == [(["body", at, "data", "number"], "schema") for at in "13"]
    assert (answer["created"], answer["skipped"]) == (2 + len(more), 3)
    assert numbers(client)[:2] == [0, 2]
    if form == "array":
        assert changes(answer)[:5] == ["created", None, "created", None, None]


@SIZES
@BOTH
def test_references_to_unknown_files_are_skipped(
    client: Client, form: str, more: list[Any]
) -> None:
    known = client.post("/v1/files", content=b"bytes").json()["id"]
    ids = [known, "0" * 32, known, "1" * 32]
    sent = [output(n, files=[{"field": "f", "id": id_}]) for n, id_ in enumerate(ids)]
    answer = stored(send(client, form, {}, *sent, *more))
    missing = [(["body", at, "files", "0", "id"], "not_found") for at in "24"]
    assert errors(answer)[-2:] == missing
    assert (answer["created"], answer["skipped"]) == (2 + len(more), 3)
    assert numbers(client)[:2] == [0, 2]
    if form == "array":
        assert changes(answer)[:5] == [None, "created", None, "created", None]


@BOTH
@pytest.mark.parametrize("reason", ["invalid", "schema", "file"])
def test_nothing_is_created_if_everything_is_skipped(
    client: Client, form: str, reason: str
) -> None:
    if reason == "schema":
        client.put("/v1/groups/group", json={"schema": {"required": ["sku"]}})
    unknown = [{"field": "f", "id": "0" * 32}]
    sent = {} if reason == "invalid" else output(1, files=unknown if reason == "file" else [])
    answer = stored(send(client, form, sent, sent))
    assert (answer["created"], answer["skipped"]) == (0, 2)
    group = client.get("/v1/groups/group")
    assert group.status_code == (200 if reason == "schema" else 404)
    assert reason != "schema" or group.json()["jobs"] == []


def test_bare_items_can_be_skipped(client: Client) -> None:
    items = [
        {"url": "https://a", "number": 0},
        {"number": 1},
        [],
        {"url": "https://b", "number": 3},
    ]
    query = "job_id=j&url_field=url&key_field=number&on_error=skip"
    for change in ("created", "unchanged"):
        answer = stored(send(client, "array", *items, query=query))
        assert changes(answer) == [change, None, None, change]
        assert errors(answer) == [(["body", "1", "url"], "missing"), (["body", "2"], "dict_type")]
    assert numbers(client) == [0, 3]


def test_skipping_recognises_the_bytes_of_another_request(client: Client) -> None:
    """Both ways of reading store the same hash of an output's bytes."""
    outputs = [output(number) for number in range(40)]
    stored(send(client, "array", *outputs))
    assert stored(send(client, "array", *outputs, query=""))["unchanged"] == 40
    assert stored(send(client, "lines", *outputs, {}))["unchanged"] == 40


@pytest.mark.thorough
def test_a_response_lists_a_hundred_errors_and_counts_all(client: Client) -> None:
    lines = ["nothing" if number % 2 else output(number) for number in range(3000)]
    answer = send(client, "lines", *lines)
    found = stored(answer)
    assert (found["created"], found["skipped"], found["lines"]) == (1500, 1500, 3000)
    assert [error["loc"][1] for error in found["errors"]] == [str(n) for n in range(1, 200, 2)]
    assert len(answer.content) < 20_000
    array = stored(send(client, "array", *[{}] * 300, output(0)))
    assert (array["skipped"], len(array["errors"]), len(array["results"])) == (300, 100, 301)


# --- Idempotency-Key ------------------------------------------------------------------------------


@SIZES
@BOTH
def test_a_repeated_request_gets_the_first_response(
    client: Client, form: str, more: list[Any]
) -> None:
    key = {"Idempotency-Key": "k"}
    client.put("/v1/groups/group", json={"schema": {"required": ["number"]}})
    sent = [{}, output(0), output(1, data={}), *more]
    first = send(client, form, *sent, **key)
    assert stored(first)["skipped"] == 2
    client.put("/v1/groups/group", json={})
    again = send(client, form, *sent, **key)
    assert (again.status_code, again.content) == (200, first.content)
    moved = [output(0), {}, *sent[2:]]  # the results of the first response have another order
    for other in ([{"x": 1}, *sent[1:]], [{}, output(5), *sent[2:]], moved):
        assert send(client, form, *other, **key).status_code == 409
    assert numbers(client)[0] == 0


@BOTH
def test_stop_and_skip_are_different_requests(client: Client, form: str) -> None:
    key = {"Idempotency-Key": "k"}
    assert send(client, form, output(0), query="", **key).status_code == 200
    assert send(client, form, output(0), **key).status_code == 409

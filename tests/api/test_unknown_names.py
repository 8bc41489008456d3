"""Unknown parameters and members get 422 and a suggestion, on both engines."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from gleanery.service.api import binding
from gleanery.service.api.operation import Operation
from gleanery.service.application import OPERATIONS
from gleanery.service.foundation.errors import InvalidRequest
from gleanery.service.resources.outputs.models import OutputIn
from gleanery.service.resources.sessions.state_models import CheckedCookie
from tests.support.service import Client, Service

OUTPUT: dict[str, Any] = {"job_id": "j", "source_url": "https://shop.example/1", "data": {"a": 1}}
COOKIE = {"domain": "a.example", "name": "n", "value": "v"}
ENTRY = {"domain": "a.example", "key": "k", "value": "v"}
REVIEW = {"job_id": "j", "status": "approved"}
FILE_ID = "0" * 32
NDJSON = {"Content-Type": "application/x-ndjson"}
API_OPERATIONS = [operation for operation in OPERATIONS if operation.path.startswith("/v1/")]


def problem(answer: Any) -> tuple[list[str], str]:
    """The location and the message of the first problem."""
    assert answer.status_code == 422, answer.text
    first = answer.json()["detail"][0]
    assert first["type"] == "unknown_name"
    return first["loc"], first["msg"]


@pytest.fixture
def filled(client: Client) -> Client:
    """A client whose group has one output."""
    client.store("group", OUTPUT)
    return client


# --- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", API_OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_rejects_an_unknown_parameter(filled: Client, operation: Operation) -> None:
    names = ("output_id", "id", "lease_id", "review_id", "run_id", "webhook_id", "delivery_id")
    ids = dict.fromkeys((*names, "alert_id"), FILE_ID)
    path = operation.path.format(group_id="group", job_id="j", file_name="outputs.jsonl", **ids)
    headers = {"Content-Type": "application/json"}
    body = b"[]" if operation.body is not None else None
    answer = filled.request(
        operation.method, path, params={"zzzzzz": "1"}, content=body, headers=headers
    )
    assert problem(answer)[0] == ["query", "zzzzzz"]


@pytest.mark.parametrize(
    ("path", "name", "suggested"),
    [
        ("/v1/outputs/group", "limt", "limit"),
        ("/v1/outputs/group", "created-after", "created_after"),
        ("/v1/outputs/group", "jobId", "job_id"),
        ("/v1/outputs/group", "Country", "country"),
        ("/v1/changes/group", "cursr", "cursor"),
        ("/v1/reviews/group", "histroy", "history"),
        ("/v1/groups", "limits", "limit"),
        ("/v1/cookies", "domian", "domain"),
        ("/v1/local-storage", "forgroup", "for_group"),
    ],
)
def test_a_misspelled_parameter_gets_a_suggestion(
    filled: Client, path: str, name: str, suggested: str
) -> None:
    assert problem(filled.get(path, params={name: "1"})) == (
        ["query", name],
        f'unknown parameter; did you mean "{suggested}"?',
    )


def test_a_message_without_suggestion_lists_the_parameters(filled: Client) -> None:
    _, msg = problem(filled.get("/v1/changes/group", params={"xyz": "1"}))
    assert msg == "unknown parameter; expected changed_after, cursor, diff, limit, view, wait"
    _, msg = problem(filled.delete("/v1/groups/group", params={"xyz": "1"}))
    assert msg == "unknown parameter; this operation has no parameters"


def test_the_other_problems_of_a_query_are_listed_too(filled: Client) -> None:
    answer = filled.get("/v1/outputs/group", params={"limt": "5", "cursor": "-1"})
    assert [one["loc"] for one in answer.json()["detail"]] == [
        ["query", "limt"],
        ["query", "cursor"],
    ]


def test_a_repeated_request_with_an_unknown_parameter_stays_an_error(filled: Client) -> None:
    for cursor in (1, 2, 3):
        answer = filled.get("/v1/outputs/group", params={"limt": "5", "cursor": cursor})
        assert problem(answer)[0] == ["query", "limt"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
def test_routes_of_the_service_itself_ignore_parameters(service: Service, path: str) -> None:
    with service.stranger() as stranger:
        assert stranger.get(path, params={"zzz": "1"}).status_code == 200


def test_the_links_of_a_response_have_only_known_parameters(client: Client) -> None:
    uploaded = client.post("/v1/files", content=b"bytes", headers={"Content-Type": "text/plain"})
    files = [{"field": "f", "id": uploaded.json()["id"]}]
    client.store("group", OUTPUT | {"files": files}, OUTPUT | {"key": "2"})
    page = client.get("/v1/outputs/group", params={"limit": 1, "job_id": "j"}).json()
    assert client.get(page["metadata"]["next_url"]).status_code == 200
    [file] = page["items"][0]["files"]
    assert client.get(file["blob_url"], headers={"Authorization": ""}).content == b"bytes"
    assert client.get(file["file_url"]).content == b"bytes"


# --- members ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "record", "name", "suggested"),
    [
        ("/v1/outputs/group", OUTPUT, "sorce_url", "source_url"),
        ("/v1/outputs/group", OUTPUT, "Tags", "tags"),
        ("/v1/cookies", COOKIE, "http-only", "http_only"),
        ("/v1/cookies", COOKIE, "htpOnly", "http_only"),
        ("/v1/local-storage", ENTRY, "expire", "expires"),
    ],
)
def test_a_misspelled_member_gets_a_suggestion(
    client: Client, path: str, record: dict[str, Any], name: str, suggested: str
) -> None:
    answer = client.post(path, json=[record, record | {name: None}])
    assert problem(answer) == (
        ["body", "1", name],
        f'unknown member; did you mean "{suggested}"?',
    )


def test_a_misspelled_member_of_an_object_gets_a_suggestion(filled: Client) -> None:
    answer = filled.post("/v1/reviews/group", json=REVIEW | {"coment": "x"})
    assert problem(answer) == (["body", "coment"], 'unknown member; did you mean "comment"?')
    answer = filled.put("/v1/groups/group", json={"key_field": ["a"]})
    assert problem(answer) == (["body", "key_field"], 'unknown member; did you mean "key_fields"?')
    assert filled.get("/v1/groups/group").json()["key_fields"] is None


def test_a_misspelled_member_of_a_file_gets_a_suggestion(client: Client) -> None:
    files = [{"field": "f", "file_url": "u", "file_typ": "x"}]
    answer = client.post("/v1/outputs/group", json=[OUTPUT | {"files": files}])
    assert problem(answer) == (
        ["body", "0", "files", "0", "file_typ"],
        'unknown member; did you mean "file_type"?',
    )
    assert client.get("/v1/outputs/group").status_code == 404


def test_unknown_names_inside_each_other_are_all_listed(client: Client) -> None:
    wrong = {"sorce_url": 1, "files": [{"field": 1, "file_url": "u", "file_typ": "x"}]}
    answer = client.post("/v1/outputs/group", json=[OUTPUT | wrong])
    assert [(one["loc"], one["msg"]) for one in answer.json()["detail"]] == [
        (["body", "0", "sorce_url"], 'unknown member; did you mean "source_url"?'),
        (["body", "0", "files", "0", "file_typ"], 'unknown member; did you mean "file_type"?'),
        (["body", "0", "files", "0", "field"], "expected a string"),
    ]


def test_free_objects_may_have_any_member(client: Client) -> None:
    files = [{"field": "f", "file_url": "u", "file_metadata": {"sorce_url": 1}}]
    free = {"data": {"sorce_url": 1}, "tags": {"sorce_url": 1}, "files": files}
    assert client.store("group", OUTPUT | free)["created"] == 1
    schema = {"type": "object", "x-mine": True}
    assert client.put("/v1/groups/group", json={"schema": schema}).status_code == 200


@pytest.mark.parametrize("count", [1, 40])
def test_an_output_with_an_unknown_member_is_never_stored(client: Client, count: int) -> None:
    outputs = [OUTPUT | {"key": str(number)} for number in range(count)]
    client.store("group", *outputs)
    wrong = [*outputs[:-1], outputs[-1] | {"meta": {"a": 1}}]
    answer = client.post("/v1/outputs/group", json=wrong)
    assert problem(answer)[0] == ["body", str(count - 1), "meta"]
    assert problem(client.post("/v1/outputs/group", json=wrong))[0][1] == str(count - 1)


def test_an_unknown_member_in_ndjson_names_its_line(client: Client) -> None:
    lines = [json.dumps(OUTPUT), json.dumps(OUTPUT | {"key": "2", "sorce_url": "u"})]
    answer = client.post("/v1/outputs/group", content="\n".join(lines), headers=NDJSON)
    assert problem(answer) == (
        ["body", "1", "sorce_url"],
        'unknown member; did you mean "source_url"?',
    )
    assert answer.json()["detail"][-1]["type"] == "stopped"
    assert client.get("/v1/outputs/group").status_code == 404


def test_the_missing_member_is_listed_after_the_misspelled_one(client: Client) -> None:
    answer = client.post("/v1/outputs/group", json=[{"job_id": "j", "sorce_url": "u", "data": {}}])
    assert [(one["loc"], one["msg"]) for one in answer.json()["detail"]] == [
        (["body", "0", "sorce_url"], 'unknown member; did you mean "source_url"?'),
        (["body", "0", "source_url"], "is missing"),
    ]


@pytest.mark.parametrize("path", ["/v1/cookies", "/v1/outputs/group"])
def test_many_unknown_names_get_a_short_response(client: Client, path: str) -> None:
    unknown = {f"member number {number} {'x' * 500}": 1 for number in range(30)}
    record = {"data": {}} | unknown
    answer = client.post(path, json=[record] * 30)
    assert answer.status_code == 422
    assert len(answer.json()["detail"]) == 100
    assert len(answer.content) < 50_000
    lines = "\n".join([json.dumps(record)] * 30)
    answer = client.post("/v1/outputs/group", content=lines, headers=NDJSON)
    assert len(answer.json()["detail"]) == 101


@pytest.mark.parametrize(
    ("type_", "record"),
    [(list[OutputIn], {"x": 0}), (list[CheckedCookie], {"x": 0}), (list[OutputIn], {})],
)
def test_the_work_for_an_invalid_array_ends_soon_after_enough_problems(
    type_: Any, record: dict[str, int]
) -> None:
    few, many = (json.dumps([record] * count).encode() for count in (200, 10_000))
    count_calls(type_, few)  # builds the validator
    assert count_calls(type_, many) < 2 * count_calls(type_, few)


def count_calls(type_: Any, body: bytes) -> int:
    """The number of calls of Python functions that rejecting this body takes."""
    calls: list[str] = []
    sys.setprofile(lambda _, event, __: calls.append(event))
    try:
        binding.bind_body(type_, body, max_records=10_000, max_values=1_000_000)
    except InvalidRequest:
        pass
    finally:
        sys.setprofile(None)
    return calls.count("call")


def test_a_problem_after_many_valid_records_has_its_own_index(client: Client) -> None:
    records = [OUTPUT | {"key": str(number)} for number in range(250)]
    answer = client.post("/v1/outputs/group", json=[*records, OUTPUT | {"job_idd": "j"}])
    assert problem(answer)[0] == ["body", "250", "job_idd"]


@pytest.mark.parametrize("path", ["/v1/groups", "/v1/blobs/0"])
def test_many_repeated_parameters_get_a_short_response(client: Client, path: str) -> None:
    names = [f"{number:x}" for number in range(5000)]
    answer = client.get(f"{path}?{'&'.join(names + names)}")
    assert answer.status_code == 422
    assert len(answer.content) < 10_000
    assert answer.json()["detail"][0]["loc"] == ["query"]

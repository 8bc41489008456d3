"""Messages of errors: what is wrong, where, and what to do. On both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.security import tokens
from tests.support import raw_http
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

OUTPUT: dict[str, Any] = {"job_id": "j", "source_url": "https://shop.example/1", "data": {"a": 1}}
NDJSON = {"Content-Type": "application/x-ndjson"}
NO_GROUP = (["path", "group_id"], "There is no group with this group_id")
NO_JOB = (["path", "job_id"], "This group has no job with this job_id")
NO_OUTPUT = (["path", "output_id"], "This group has no output with this output_id")
NO_FILE = (["path", "id"], "There is no file with this id")


def problem(answer: Any, status: int) -> tuple[list[str], str]:
    """The location and the message of the only problem."""
    assert answer.status_code == status, answer.text
    [found] = answer.json()["detail"]
    return found["loc"], found["msg"]


# --- 404 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/outputs/none", NO_GROUP),
        ("GET", "/v1/outputs/a%00b", NO_GROUP),
        ("GET", "/v1/outputs/%ff", NO_GROUP),
        ("GET", "/v1/changes/none", NO_GROUP),
        ("GET", "/v1/reviews/none", NO_GROUP),
        ("GET", "/v1/reviews/none?history=true", NO_GROUP),
        ("GET", "/v1/groups/none", NO_GROUP),
        ("DELETE", "/v1/groups/none", NO_GROUP),
        ("DELETE", "/v1/groups/none/jobs/j", NO_GROUP),
        ("DELETE", "/v1/groups/group/jobs/none", NO_JOB),
        ("DELETE", f"/v1/outputs/none/{'0' * 32}", NO_GROUP),
        ("DELETE", "/v1/outputs/none/no-id", NO_GROUP),
        ("DELETE", f"/v1/outputs/group/{'0' * 32}", NO_OUTPUT),
        ("DELETE", "/v1/outputs/group/no-id", NO_OUTPUT),
        ("GET", f"/v1/files/{'0' * 32}", NO_FILE),
        ("GET", "/v1/files/no-id", NO_FILE),
        (
            "GET",
            "/v1/files?source_url=u",
            (["query", "source_url"], "There is no file with this source_url and etag"),
        ),
    ],
)
def test_404_names_the_unknown_thing(
    client: Client, method: str, path: str, expected: tuple[list[str], str]
) -> None:
    client.store("group", OUTPUT)
    assert problem(client.request(method, path), 404) == expected


def test_a_review_of_an_unknown_job_names_the_job(client: Client) -> None:
    client.store("group", OUTPUT)
    review = {"job_id": "none", "status": "approved"}
    assert problem(client.post("/v1/reviews/group", json=review), 404) == (
        ["body", "job_id"],
        "This group has no job with this job_id",
    )
    assert problem(client.post("/v1/reviews/none", json=review), 404) == NO_GROUP


# --- limits -------------------------------------------------------------------------------------


@pytest.fixture
def limited(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """A client of a service with low limits."""
    settings: Settings = fresh_settings(engine, request, tmp_path)
    service = Service(replace(settings, max_body_bytes=300, max_records=2))
    with service.client() as made:
        yield made
    service.stop()


def test_limits_of_outputs_mention_ndjson(limited: Client) -> None:
    small = {"job_id": "j", "source_url": "u", "data": {}}
    _, msg = problem(limited.post("/v1/outputs/group", json=[small] * 3), 422)
    assert msg.startswith("The array may have at most 2 records; send more as NDJSON")
    _, msg = problem(limited.post("/v1/outputs/group", json=[OUTPUT | {"data": "x" * 300}]), 413)
    assert msg.startswith("The body may have at most 300 bytes; send more as NDJSON")
    lines = "\n".join([json.dumps(small)] * 100)
    assert limited.post("/v1/outputs/group", content=lines, headers=NDJSON).json()["lines"] == 100


def test_limits_without_ndjson_do_not_mention_it(limited: Client) -> None:
    cookie = {"domain": "a.example", "name": "n", "value": "v"}
    _, msg = problem(limited.post("/v1/cookies", json=[cookie] * 3), 422)
    assert msg == "The array may have at most 2 records"
    _, msg = problem(limited.post("/v1/cookies", json=[cookie | {"value": "x" * 300}]), 413)
    assert msg == "The body may have at most 300 bytes"


def test_the_limit_of_a_line_is_about_the_line(limited: Client) -> None:
    line = json.dumps(OUTPUT | {"data": {"a": "x" * 300}})
    answer = limited.post("/v1/outputs/group", content=line, headers=NDJSON)
    assert answer.status_code == 413
    assert answer.json()["detail"][0]["msg"] == "A line may have at most 300 bytes"


def test_an_error_in_the_first_line_says_that_no_line_is_stored(client: Client) -> None:
    bad, good = json.dumps({"job_id": "j"}), json.dumps(OUTPUT)
    answer = client.post("/v1/outputs/group", content=f"{bad}\n{good}", headers=NDJSON)
    last = answer.json()["detail"][-1]
    assert (last["loc"], last["type"]) == (["body", "0"], "stopped")
    assert last["msg"] == "No line is stored; lines count from 0"


@pytest.mark.parametrize("separator", ["\n", "", "\r\n", " "])
def test_ndjson_as_json_gets_advice(client: Client, separator: str) -> None:
    body = separator.join([json.dumps(OUTPUT)] * 2)
    answer = client.post(
        "/v1/outputs/group", content=body, headers={"Content-Type": "application/json"}
    )
    location, msg = problem(answer, 422)
    assert location == ["body"]
    assert "Content-Type: application/x-ndjson, in curl with --data-binary" in msg


def test_a_large_ndjson_body_as_json_gets_advice(client: Client) -> None:
    body = "\n".join([json.dumps(OUTPUT | {"data": {"a": "x" * 100_000}})] * 20)
    answer = client.post(
        "/v1/outputs/group", content=body, headers={"Content-Type": "application/json"}
    )
    assert "application/x-ndjson" in problem(answer, 422)[1]


def test_ndjson_without_line_ends_gets_advice(client: Client) -> None:
    body = json.dumps(OUTPUT) * 2
    answer = client.post("/v1/outputs/group", content=body, headers=NDJSON)
    assert answer.status_code == 422
    first = answer.json()["detail"][0]
    assert first["loc"] == ["body", "0"]
    assert first["msg"].endswith(
        "put each output on its own line, and use --data-binary in curl, not -d"
    )


@pytest.mark.parametrize("body", ['{"a": 1', '[{"a": 1} {"b": 2}]', "nothing"])
def test_other_invalid_json_gets_no_advice(client: Client, body: str) -> None:
    answer = client.post(
        "/v1/outputs/group", content=body, headers={"Content-Type": "application/json"}
    )
    assert "ndjson" not in problem(answer, 422)[1]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/outputs/prices/"),
        ("GET", "/v1/outputs/prices/"),
        ("DELETE", "/v1/outputs/prices/"),
        ("GET", "/v1/groups/"),
        ("GET", "/v1/cookies/"),
        ("GET", "/docs/"),
    ],
)
def test_a_slash_at_the_end_of_a_path_is_pointed_out(
    client: Client, method: str, path: str
) -> None:
    _, msg = problem(client.request(method, path), 404)
    assert msg == "This route does not exist: remove the slash at the end of the path"


def test_the_slash_of_the_start_page_is_right(client: Client) -> None:
    assert problem(client.post("/"), 405) == (["method"], "This path allows GET, HEAD")


# --- expiry -------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["expires", "expiry", "expirationDate"])
@pytest.mark.parametrize(
    "value", ["soon", "1893456000", "2030-01-01", "2030-01-01T00:00", True, [], -2, 1e300]
)
def test_a_wrong_expiry_gets_one_message_with_both_forms(
    client: Client, member: str, value: Any
) -> None:
    cookie = {"domain": "a.com", "name": "n", "value": "v", member: value}
    location, msg = problem(client.post("/v1/cookies", json=[cookie]), 422)
    assert location == ["body", "0", member]
    assert msg == (
        "expected a date-time such as 2030-01-01T00:00:00Z, or a number of seconds since 1970 "
        "such as 1893456000; -1 is no expiry"
    )


def test_an_expiry_that_does_not_exist_says_so(client: Client) -> None:
    cookie = {"domain": "a.com", "name": "n", "value": "v", "expires": "2030-02-30T00:00:00Z"}
    _, msg = problem(client.post("/v1/cookies", json=[cookie]), 422)
    assert msg == "this date or time does not exist"


# --- tokens -------------------------------------------------------------------------------------


def refusal(service: Service, authorization: str | None) -> tuple[str, str]:
    """The message and the challenge of a request with this header."""
    headers = {} if authorization is None else {"Authorization": authorization}
    with service.stranger() as stranger:
        answer = stranger.get("/v1/cookies", headers=headers)
    location, msg = problem(answer, 401)
    assert location == ["header", "authorization"]
    return msg, answer.headers["www-authenticate"]


def test_a_missing_token_and_a_wrong_scheme_are_told_apart(service: Service) -> None:
    token = service.token()
    no_token = refusal(service, None)
    assert no_token[0] == "An access token is required: send Authorization: Bearer <token>"
    wrong_scheme = "The scheme is not Bearer: send Authorization: Bearer <token>"
    for header in (f"Token {token}", token, "Basic dXNlcjpwYXNz"):
        assert refusal(service, header) == (wrong_scheme, 'Bearer realm="gleanery"')
    assert no_token[1] == 'Bearer realm="gleanery"'


def test_a_wrong_token_gets_the_challenge_of_rfc_6750(service: Service) -> None:
    msg = "This access token is not valid"
    assert refusal(service, f"Bearer {tokens.mint()}") == (msg, challenge(msg))


def challenge(msg: str) -> str:
    return f'Bearer realm="gleanery", error="invalid_token", error_description="{msg}"'


def test_an_empty_and_an_incomplete_token_are_told_apart(service: Service) -> None:
    empty = "The token is empty: is the variable with the token set?"
    assert refusal(service, "Bearer") == (empty, challenge(empty))
    sent = raw_http.get(service.url, "/v1/cookies", "Authorization: Bearer ")
    assert (sent.status, empty.encode() in sent.body) == (401, True)
    incomplete = "This is not a complete Gleanery token: copy all of it again"
    token = service.token()
    for text in ("x", "glean_short", token[:-1], token[:-1] + "~", f"{token} x", "null"):
        assert refusal(service, f"Bearer {text}") == (incomplete, challenge(incomplete))


def test_an_expired_token_says_that_it_has_expired(timed_service: Service, clock: Clock) -> None:
    token = timed_service.token(expires=clock() + 60_000_000)
    with timed_service.client(token) as client:
        assert client.get("/v1/cookies").status_code == 200
    clock.move(seconds=61)
    msg = "This access token has expired: ask the operator for a new one"
    assert refusal(timed_service, f"Bearer {token}") == (msg, challenge(msg))


def test_a_missing_scope_says_how_to_get_it(service: Service) -> None:
    with service.client(scopes=frozenset({"outputs:read"})) as client:
        location, msg = problem(client.get("/v1/cookies"), 403)
    assert location == ["header", "authorization"]
    advice = "ask the operator for one that has it (gleanery token create --scopes)"
    assert msg == f"This token lacks the scope session:read: {advice}"


# --- schemas ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "strin"}, ["type"]),
        ({"properties": {"a": {"type": "nope"}}}, ["properties", "a", "type"]),
        ({"properties": {"a": {"minimum": "1"}}}, ["properties", "a", "minimum"]),
        ({"properties": {"a": {"pattern": "["}}}, ["properties", "a", "pattern"]),
        ({"allOf": [{}, {"required": "a"}]}, ["allOf", "1", "required"]),
        ({"properties": {"a": {"$ref": "#/none"}}}, ["properties", "a", "$ref"]),
        ({"items": {"$ref": "https://x.example/y"}}, ["items", "$ref"]),
    ],
)
def test_an_invalid_schema_says_where(
    client: Client, schema: dict[str, Any], place: list[str]
) -> None:
    answer = client.put("/v1/groups/group", json={"schema": schema})
    location, msg = problem(answer, 422)
    assert location == ["body", "schema", *place]
    assert msg
    assert client.get("/v1/groups/group").status_code == 404


# --- the end of a response, and the start page --------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/outputs/group",
        "/v1/outputs/group?limit=1",
        "/v1/outputs/none",
        "/v1/outputs/group?limt=1",
        "/v1/changes/group",
        "/v1/groups",
        "/v1/groups/group",
        "/v1/reviews/group",
        "/v1/cookies",
        "/v1/local-storage",
        "/v1/audit",
        "/nowhere",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/docs",
    ],
)
def test_a_response_ends_with_one_newline(client: Client, path: str) -> None:
    client.store("group", OUTPUT, OUTPUT | {"key": "2"})
    for _ in range(3):  # a repeated small page takes a faster path
        answer = client.get(path, headers={"Accept-Encoding": "identity"})
        assert answer.text.endswith("\n")
        assert not answer.text.endswith("\n\n")
        assert int(answer.headers["content-length"]) == len(answer.content)
    head = client.head(path, headers={"Accept-Encoding": "identity"})
    assert head.content == b""
    assert head.headers["content-length"] == answer.headers["content-length"]


def test_the_metrics_end_with_a_newline(client: Client) -> None:
    assert client.get("/metrics").text.endswith("\n")


def test_responses_to_writes_and_to_strangers_end_with_a_newline(client: Client) -> None:
    answers = [
        client.post("/v1/outputs/group", json=[OUTPUT]),
        client.post("/v1/outputs/group", content=json.dumps(OUTPUT), headers=NDJSON),
        client.put("/v1/groups/group", json={}),
        client.delete("/v1/groups/group"),
        client.get("/v1/cookies", headers={"Authorization": ""}),
        client.post("/v1/outputs/group", content=b"x", headers={"Content-Type": "text/plain"}),
    ]
    assert all(answer.text.endswith("}\n") for answer in answers)


def test_a_json_file_is_sent_as_it_is(client: Client) -> None:
    json_type = {"Content-Type": "application/json"}
    uploaded = client.post("/v1/files", content=b'{"a":1}', headers=json_type).json()
    assert uploaded["file_type"] == "application/json"
    answer = client.get(f"/v1/files/{uploaded['id']}")
    assert answer.content == b'{"a":1}'
    part = client.get(f"/v1/files/{uploaded['id']}", headers={"Range": "bytes=0-2"})
    assert part.content == b'{"a'


def test_the_start_page_redirects_to_the_console(service: Service) -> None:
    with service.stranger() as stranger:
        answer = stranger.get("/", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, "/console")
        assert stranger.get("/", follow_redirects=True).text.startswith("<!doctype html>")


def test_the_redirect_keeps_the_path_of_the_base_url(tmp_path: Path) -> None:
    service = Service(Settings(data=tmp_path, port=0, base_url="https://x.example/gleanery"))
    with Client(f"http://127.0.0.1:{service.settings.port}", None) as stranger:
        answer = stranger.get("/", follow_redirects=False)
    service.stop()
    assert answer.headers["location"] == "/gleanery/console"


def test_a_violation_names_the_missing_member(client: Client) -> None:
    schema = {"required": ["price"], "properties": {"shop": {"required": ["x" * 100]}}}
    assert client.put("/v1/groups/group", json={"schema": schema}).status_code == 200
    wrong = OUTPUT | {"data": {"shop": {"secret": 1}}}
    answer = client.post("/v1/outputs/group", json=[wrong])
    assert answer.status_code == 422
    found = {tuple(one["loc"]): one["msg"] for one in answer.json()["detail"]}
    assert found == {
        ("body", "0", "data"): 'violates the group\'s schema at required: "price" is missing',
        ("body", "0", "data", "shop"): "violates the group's schema at "
        f'properties/shop/required: "{"x" * 60}…" is missing',
    }


def test_a_violation_names_the_expected_types(client: Client) -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": ["number", "null"]}}}
    assert client.put("/v1/groups/group", json={"schema": schema}).status_code == 200
    answer = client.post("/v1/outputs/group", json=[OUTPUT | {"data": {"a": 1, "b": "secret"}}])
    assert answer.status_code == 422
    found = [one["msg"] for one in answer.json()["detail"]]
    assert found == [
        "violates the group's schema at properties/a/type: expected string",
        "violates the group's schema at properties/b/type: expected null or number",
    ]


# --- lengths and bounds -------------------------------------------------------------------------


def test_a_text_that_is_too_long_is_counted_in_characters(client: Client) -> None:
    long = client.put("/v1/groups/group", json={"display_name": "x" * 201})
    assert problem(long, 422)[1] == "expected at most 200 characters"
    query = client.get("/v1/outputs/group", params={"country": "x" * 101})
    assert problem(query, 422)[1] == "expected at most 100 characters"
    empty = client.post("/v1/outputs/group", params={"job_id": "j", "url_field": ""}, json=[])
    assert problem(empty, 422)[1] == "expected at least 1 character"


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("PUT", "groups", {"key_fields": [f"f{n}" for n in range(17)]}, "at most 16 elements"),
        ("PUT", "groups", {"key_fields": []}, "at least 1 element"),
        ("POST", "reviews", {"output_ids": ["0" * 32] * 1001}, "at most 1000 elements"),
        ("POST", "reviews", {"output_ids": []}, "at least 1 element"),
        (
            "POST",
            "reviews",
            {"findings": [{"output_id": "0" * 32}] * 1001},
            "at most 1000 elements",
        ),
    ],
)
@pytest.mark.parametrize("unknown", [{}, {"unknown": 1}])
def test_a_list_is_counted_in_elements(
    client: Client,
    method: str,
    path: str,
    body: dict[str, Any],
    expected: str,
    unknown: dict[str, Any],
) -> None:
    review = {"job_id": "j", "status": "approved"} if path == "reviews" else {}
    answer = client.request(method, f"/v1/{path}/group", json={**body, **review, **unknown})
    assert answer.status_code == 422
    found = answer.json()["detail"]
    assert len(found) == 1 + len(unknown)
    assert (found[-1]["loc"], found[-1]["msg"]) == (["body", *body], f"expected {expected}")


def test_the_files_of_an_output_are_counted_in_elements(client: Client) -> None:
    files = [{"field": "f", "file_url": "https://a.example/f"}] * 201
    answer = client.post("/v1/outputs/group", json=[OUTPUT | {"files": files}])
    assert problem(answer, 422) == (["body", "0", "files"], "expected at most 200 elements")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=-1", "Input should be greater than or equal to 1"),
        ("limit=0", "Input should be greater than or equal to 1"),
        ("limit=1001", "Input should be less than or equal to 1000"),
        ("limit=99999999999999999999", "Input should be less than or equal to 1000"),
        ("cursor=-1", "Input should be greater than or equal to 0"),
        ("cursor=9223372036854775808", f"Input should be less than or equal to {2**63 - 1}"),
        *((f"limit={text}", "expected a whole number in digits") for text in ("", "1_0", "-0")),
        *((f"limit={text}", "expected a whole number in digits") for text in ("%2B1", "1.0", "x")),
        (f"limit={'9' * 5000}", "expected a whole number in digits"),
    ],
)
def test_a_number_out_of_bounds_names_its_own_bound(
    client: Client, query: str, expected: str
) -> None:
    name = query.partition("=")[0]
    answer = client.get(f"/v1/outputs/group?{query}")
    assert problem(answer, 422) == (["query", name], expected)


@pytest.mark.parametrize(
    "target",
    [
        *(f"outputs/group?{name}=" for name in ("job_id", "url", "country", "region")),
        *(f"exports/group?{name}=" for name in ("job_id", "url", "country", "region")),
        *("groups/group/fields?job_id=", "reviews/group/sample?job_id=", "files?source_url="),
        *("cookies?domain=", "local-storage?domain=", "sessions?domain=", "sessions?profile="),
        *(f"sessions/export?{name}=" for name in ("domain", "url", "profile", "group_id")),
    ],
)
def test_an_empty_filter_is_an_error(client: Client, target: str) -> None:
    client.store("group", OUTPUT)
    location, _ = problem(client.get(f"/v1/{target}"), 422)
    assert location == ["query", target.partition("?")[2].rstrip("=")]


# --- many problems ------------------------------------------------------------------------------

MORE = {"msg": "There are more problems: only the first 99 are listed", "type": "more_problems"}


@pytest.mark.parametrize("count", [99, 100, 101, 500])
@pytest.mark.parametrize("target", ["cookies", "outputs/group", "outputs/group as bare items"])
def test_a_list_of_problems_says_that_there_are_more(
    client: Client, target: str, count: int
) -> None:
    path, *is_bare = target.split(" as ")
    bare = "?job_id=j&url_field=url" if is_bare else ""
    record = OUTPUT | {"data": 1} if path.startswith("outputs") else {"domain": "a.com", "name": 1}
    each = 1 if path.startswith("outputs") else 2
    answer = client.post(f"/v1/{path}{bare}", json=[record] * count)
    assert answer.status_code == 422
    found = answer.json()["detail"]
    assert len(found) == min(count * each, 100)
    notes = [one for one in found if one["type"] == "more_problems"]
    assert notes == ([{"loc": ["body"], **MORE}] if count * each > 100 else [])
    assert not notes or found[-1] == notes[0]


def test_the_problems_of_lines_say_that_there_are_more(client: Client) -> None:
    lines = "\n".join(["{}"] * 150)
    found = client.post("/v1/outputs/group", content=lines, headers=NDJSON).json()["detail"]
    assert [one["type"] for one in found[-2:]] == ["more_problems", "stopped"]


def test_unknown_files_say_that_there_are_more(client: Client) -> None:
    files = [{"field": "a", "id": f"{number:032x}"} for number in range(200)]
    answer = client.post("/v1/outputs/group", json=[OUTPUT | {"files": files}])
    assert answer.status_code == 404
    found = answer.json()["detail"]
    assert (len(found), found[-1]) == (100, {"loc": ["body"], **MORE})
    skipped = client.post("/v1/outputs/group?on_error=skip", json=[OUTPUT | {"files": files}])
    errors = skipped.json()["errors"]
    assert [len(errors), {one["type"] for one in errors}] == [100, {"not_found"}]


def test_many_unknown_members_say_that_there_are_more(client: Client) -> None:
    unknown = {f"member {number}": 1 for number in range(12)}
    cookie = {"domain": "a.com", "name": "n", "value": "v"}
    found = client.post("/v1/cookies", json=[cookie | unknown]).json()["detail"]
    assert len(found) == 11
    assert found[-1] == {
        "loc": ["body", "0"],
        "msg": "has 2 more unknown members",
        "type": "more_problems",
    }


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/v1/groups/%ff", 422),
        ("POST", "/v1/outputs/%ff", 422),
        ("GET", "/v1/outputs/%ff", 404),
        ("DELETE", "/v1/groups/%ff", 404),
        ("DELETE", "/v1/groups/group/jobs/%ff", 404),
    ],
)
def test_a_name_that_is_not_utf8(client: Client, method: str, path: str, status: int) -> None:
    client.store("group", OUTPUT)
    location, msg = problem(
        client.request(method, path, json={} if method == "PUT" else []), status
    )
    assert location[0] == "path"
    assert status == 404 or msg == "expected percent-encoded UTF-8"


def test_a_name_that_is_not_utf8_needs_a_token(service: Service) -> None:
    with service.stranger() as stranger:
        assert stranger.put("/v1/groups/%ff", json={}).status_code == 401


CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda text: f"{ord(text):02x}")
def test_a_name_has_no_control_character(client: Client, control: str) -> None:
    answer = client.post("/v1/outputs/group", json=[OUTPUT | {"job_id": f"a{control}b"}])
    location, msg = problem(answer, 422)
    assert location == ["body", "0", "job_id"]
    assert "control characters" in msg
    path = f"/v1/groups/a%{ord(control):02x}b"
    path = path if ord(control) < 0x80 else f"/v1/groups/a%c2%{ord(control):02x}b"
    assert problem(client.put(path, json={}), 422) == (["path", "group_id"], msg)


@pytest.mark.parametrize("text", ["\u00a0", "\u2028", "\u2029", "\ufeff"])
def test_other_characters_of_a_name_are_kept(client: Client, text: str) -> None:
    client.store("group", OUTPUT | {"job_id": f"a{text}b"})
    assert client.items("group")[0]["root_job_id"] == f"a{text}b"

"""Invalid input and its error responses, as a table, on both engines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.support import raw_http as raw
from tests.support.service import Client, Service

JSON = {"Content-Type": "application/json"}
BODIES = ("/v1/cookies", "/v1/local-storage", "/v1/outputs/group", "/v1/reviews/group")
COOKIE = {"domain": "a.com", "name": "n", "value": "v"}
ENTRY = {"domain": "a.com", "key": "k", "value": "v"}
OUTPUT: dict[str, Any] = {"job_id": "j", "source_url": "u", "data": {}}
MARK = "never-repeat-me"


def faults(answer: Any) -> list[dict[str, Any]]:
    """Checks the shape of an error response, and returns its details."""
    body = answer.json()
    assert body.keys() == {"detail"}
    for fault in body["detail"]:
        assert fault.keys() == {"loc", "msg", "type"}
        assert all(isinstance(part, str) for part in fault["loc"])
        assert isinstance(fault["msg"], str)
        assert isinstance(fault["type"], str)
    return list(body["detail"])


def locs(answer: Any) -> list[list[str]]:
    assert answer.status_code == 422, answer.text
    return [fault["loc"] for fault in faults(answer)]


# --- text that is not JSON ----------------------------------------------------------------------


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[1,]",
        b"{'a': 1}",
        b"[] []",
        b"\xff\xfe[]",
        b'["\xff"]',
        "[]".encode("utf-16"),
        "[]".encode("utf-16-le"),
        b"\xef\xbb\xbf[]",
        b"[" * 300 + b"]" * 300,
        b"[" * 100_000,
        b'{"a":' * 300 + b"1" + b"}" * 300,
        b"[NaN]",
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e400]",
        b"[" + b"9" * 5000 + b"]",
        b'["\\ud800"]',
        b'[{"\\udfff": 1}]',
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_body_that_is_not_json_is_rejected(client: Client, path: str, body: bytes) -> None:
    if "reviews" in path:
        client.store("group", OUTPUT)
    answer = client.post(path, content=body, headers=JSON)
    assert locs(answer)[0][0] == "body"


@pytest.mark.parametrize("place", ["data", "tags", "ignored"])
@pytest.mark.parametrize(
    "value",
    [
        "[" * 300 + "]" * 300,
        '"]]]]]]]]",' * 0 + "[" * 150 + "]" * 150,
        "NaN",
        "1e999",
        "9" * 5000,
        "123456789012345671e290",
        '"\\ud83d"',
    ],
    ids=lambda value: value[:8],
)
def test_invalid_json_inside_a_member_is_rejected(client: Client, place: str, value: str) -> None:
    body = json.dumps([OUTPUT | {place: {"x": 0}}]).replace('{"x": 0}', f'{{"x": {value}}}')
    answer = client.post("/v1/outputs/group", content=body.encode(), headers=JSON)
    assert locs(answer)[0][0] == "body"


@pytest.mark.parametrize("depth", [101, 150, 450, 600, 900, 4000])
def test_closing_brackets_in_strings_do_not_hide_depth(client: Client, depth: int) -> None:
    nested = '["' + "]" * 5000 + '",' + "[" * depth + "]" * depth + "]"
    body = f'[{{"job_id":"j","source_url":"u","data":{{"x":{nested}}}}}]'
    assert client.post("/v1/outputs/group", content=body.encode(), headers=JSON).status_code == 422


def test_opening_brackets_in_strings_are_just_text(client: Client) -> None:
    client.store("group", *(OUTPUT | {"key": str(n), "data": {"t": "size [{"}} for n in range(300)))


# --- one rule for every way in ------------------------------------------------------------------

LARGE_TEXT = "x" * (4 * 1024 * 1024)  # such a batch is prepared in a process of its own
WAYS = (
    *("array", "lines", "object", "large array", "large lines", "large object"),
    *("bare items", "lines of bare items", "bare object"),
)


def text_of_json(way: str, texts: list[str]) -> str:
    return texts[0] if "object" in way else f"[{','.join(texts)}]"


def send_text(client: Client, way: str, text: str) -> Any:
    """Sends the JSON text of an output, or of the data of an output, in one of the ways in."""
    query = "?job_id=j&url_field=url" if "bare" in way else ""
    texts = [text]
    if way == "large object":
        texts = [f'{text[:-1]},"tags":{{"a":"{LARGE_TEXT}"}}}}']
    elif "large" in way:
        texts.append(json.dumps(OUTPUT | {"source_url": "large", "data": {"a": LARGE_TEXT}}))
    if "lines" in way:
        body, headers = "\n".join(texts), {"Content-Type": "application/x-ndjson"}
    else:
        body, headers = text_of_json(way, texts), JSON
    return client.post(f"/v1/outputs/group{query}", content=body, headers=headers)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("number", "is_valid"),
    [
        *((number, False) for number in ("1e400", "-1e400", "1e-400", "-1.5E-400", "1e-0324")),
        *((number, False) for number in (f"0.{'0' * 400}1", f"1{'0' * 400}.0", "2e-324")),
        *((number, True) for number in ("5e-324", "1e-323", "0e-400", "-0.0E-400", "1e308")),
    ],
)
def test_a_number_beyond_a_double_is_an_error_in_both_directions(
    client: Client, way: str, number: str, is_valid: bool
) -> None:
    member = "url" if "bare" in way else "source_url"
    data = f'{{"a":[{number}]}}' if "bare" not in way else f"[{number}]"
    rest = '"job_id":"j",' if "bare" not in way else ""
    answer = send_text(client, way, f'{{{rest}"{member}":"u","data":{data}}}')
    assert answer.status_code == (200 if is_valid else 422), answer.text
    if not is_valid:
        assert "double" in faults(answer)[0]["msg"]
        assert client.get("/v1/outputs/group").status_code == 404


@pytest.mark.parametrize("number", ["1e400", "1e-400"])
def test_a_number_beyond_a_double_is_an_error_in_other_bodies(client: Client, number: str) -> None:
    bodies = {
        ("PUT", "/v1/groups/group"): f'{{"schema": {{"minimum": {number}}}}}',
        ("POST", "/v1/cookies"): json.dumps([COOKIE])[:-2] + f', "expires": {number}}}]',
    }
    for (method, path), body in bodies.items():
        answer = client.request(method, path, content=body, headers=JSON)
        assert locs(answer) == [["body"]]


@pytest.mark.parametrize("text", ["article-12345", "1e-400", "2e-1234, x", "[1e-400]", "a 1e-400"])
def test_a_text_that_looks_like_such_a_number_is_kept(client: Client, text: str) -> None:
    client.store("group", OUTPUT | {"data": {"a": text, text: 0.5}})
    assert client.items("group")[0]["data"] == {"a": text, text: 0.5}


# A bare item has a key only if the request names a member of it; test_bare_items.py tests that.
@pytest.mark.parametrize(
    ("way", "member"),
    [(way, member) for way in WAYS for member in ("source_url", "key")[: 1 + ("bare" not in way)]],
)
def test_an_empty_url_or_key_is_an_error(client: Client, way: str, member: str) -> None:
    """All outputs with such a key would be one."""
    output = {"url": ""} if "bare" in way else OUTPUT | {member: ""}
    answer = send_text(client, way, json.dumps(output))
    assert answer.status_code == 422
    first = faults(answer)[0]
    assert first["loc"] == ["body", "0", "url" if "bare" in way else member]
    assert client.get("/v1/outputs/group").status_code == 404


@pytest.mark.parametrize("way", WAYS)
def test_a_member_given_twice_has_its_last_value(client: Client, way: str) -> None:
    text = '{"job_id":"x","job_id":"j","source_url":"x","source_url":"u","data":{"a":1},"data":%s}'
    if "bare" in way:
        text = '{"url":"x","url":"u","a":1,"a":2}%.0s'
    assert send_text(client, way, text % '{"a":1,"a":2}').status_code == 200
    item = client.items("group")[0]
    assert (item["root_job_id"], item["source_url"], item["data"]["a"]) == ("j", "u", 2)


# --- number of values ---------------------------------------------------------------------------

_MANY = 1_000_001


def post_data(client: Client, data: str, *, as_ndjson: bool = False) -> Any:
    """Posts one output with this JSON text as its data."""
    text = f'{{"job_id":"j","source_url":"u","data":{data}}}'
    body = text if as_ndjson else f"[{text}]"
    media_type = "application/x-ndjson" if as_ndjson else "application/json"
    headers = {"Content-Type": media_type}
    return client.post("/v1/outputs/group", content=body.encode(), headers=headers)


@pytest.mark.thorough
@pytest.mark.parametrize("piece", ["1,", "[],", "{},", '"",', '{"":[]},', " [ ] ,"])
@pytest.mark.parametrize("as_ndjson", [False, True])
def test_a_body_with_too_many_values_is_rejected(
    client: Client, piece: str, as_ndjson: bool
) -> None:
    data = f'{{"a":[{piece * _MANY}0]}}'
    answer = post_data(client, data, as_ndjson=as_ndjson)
    assert locs(answer)[0] == ["body", *["0"] * as_ndjson]
    assert "1000000 JSON values" in answer.json()["detail"][0]["msg"]


def test_many_records_are_rejected_before_they_are_parsed(client: Client) -> None:
    for path in ("/v1/outputs/group", "/v1/cookies", "/v1/local-storage"):
        answer = client.post(path, content=b"[" + b"[]," * _MANY + b"[]]", headers=JSON)
        assert "JSON values" in answer.json()["detail"][0]["msg"]


@pytest.mark.thorough
@pytest.mark.parametrize("text", [r"\",", ",[{", r"\\", r"\\\",[]"])
def test_separators_inside_strings_are_not_counted(client: Client, text: str) -> None:
    for as_ndjson in (False, True):
        answer = post_data(client, f'{{"a":"{text * _MANY}"}}', as_ndjson=as_ndjson)
        assert answer.status_code == 200


# --- typed members ------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["domain", "name", "value", "path"])
@pytest.mark.parametrize("evil", ["a\0b", "a\rb", "a\nb"])
def test_nul_and_line_breaks_in_a_cookie_are_rejected(
    client: Client, member: str, evil: str
) -> None:
    answer = client.post("/v1/cookies", json=[COOKIE | {member: evil}])
    assert locs(answer) == [["body", "0", member]]


@pytest.mark.parametrize("member", ["domain", "key", "value", "path"])
def test_nul_in_a_local_storage_entry_is_rejected(client: Client, member: str) -> None:
    answer = client.post("/v1/local-storage", json=[ENTRY | {member: "a\0b"}])
    assert locs(answer) == [["body", "0", member]]


@pytest.mark.parametrize("member", ["job_id", "source_url", "key"])
def test_nul_in_an_output_is_rejected(client: Client, member: str) -> None:
    answer = client.post("/v1/outputs/group", json=[OUTPUT | {member: "a\0b"}])
    assert locs(answer) == [["body", "0", member]]


@pytest.mark.parametrize("member", ["job_id", "comment"])
def test_nul_in_a_review_is_rejected(client: Client, member: str) -> None:
    client.store("group", OUTPUT)
    review = {"job_id": "j", "status": "approved", "comment": ""}
    answer = client.post("/v1/reviews/group", json=review | {member: "a\0b"})
    assert locs(answer) == [["body", member]]


@pytest.mark.parametrize(
    ("path", "record", "member", "value"),
    [
        ("/v1/cookies", COOKIE, "secure", "true"),
        ("/v1/cookies", COOKIE, "secure", 1),
        ("/v1/cookies", COOKIE, "http_only", "false"),
        ("/v1/cookies", COOKIE, "name", 1),
        ("/v1/cookies", COOKIE, "value", None),
        ("/v1/cookies", COOKIE, "value", 1.5),
        ("/v1/cookies", COOKIE, "domain", True),
        ("/v1/cookies", COOKIE, "path", 0),
        ("/v1/cookies", COOKIE, "expires", True),
        ("/v1/cookies", COOKIE, "expires", -0.5),
        ("/v1/cookies", COOKIE, "expires", -2),
        ("/v1/cookies", COOKIE, "expires", 10**15),
        ("/v1/cookies", COOKIE, "expires", ""),
        ("/v1/cookies", COOKIE, "expires", "2030-01-01"),
        ("/v1/cookies", COOKIE, "expires", "tomorrow"),
        ("/v1/cookies", COOKIE, "expires", "2030-02-30T00:00:00Z"),
        ("/v1/cookies", COOKIE, "expires", []),
        ("/v1/local-storage", ENTRY, "key", 1),
        ("/v1/local-storage", ENTRY, "value", {}),
        ("/v1/local-storage", ENTRY, "expires", "2030-13-01T00:00:00Z"),
        ("/v1/outputs/group", OUTPUT, "data", []),
        ("/v1/outputs/group", OUTPUT, "data", "{}"),
        ("/v1/outputs/group", OUTPUT, "data", None),
        ("/v1/outputs/group", OUTPUT, "tags", []),
        ("/v1/outputs/group", OUTPUT, "key", 5),
        ("/v1/outputs/group", OUTPUT, "job_id", ""),
        ("/v1/outputs/group", OUTPUT, "job_id", ".."),
        ("/v1/outputs/group", OUTPUT, "job_id", "a/b"),
        ("/v1/outputs/group", OUTPUT, "job_id", "x" * 201),
    ],
)
def test_types_are_strict(
    client: Client, path: str, record: dict[str, Any], member: str, value: Any
) -> None:
    assert locs(client.post(path, json=[record | {member: value}])) == [["body", "0", member]]


@pytest.mark.parametrize("domain", ["", ".", "a b", "http://a.com", "a.com:80", "a.com/x", "a..b"])
def test_a_domain_must_be_a_hostname(client: Client, domain: str) -> None:
    answer = client.post("/v1/cookies", json=[COOKIE | {"domain": domain}])
    assert locs(answer) == [["body", "0", "domain"]]


def test_all_errors_of_a_body_are_reported_at_once(client: Client) -> None:
    body = [COOKIE, {}, 5, COOKIE | {"secure": "yes", "expires": "never"}]
    assert locs(client.post("/v1/cookies", json=body)) == [
        ["body", "1", "domain"],
        ["body", "1", "name"],
        ["body", "1", "value"],
        ["body", "2"],
        ["body", "3", "secure"],
        ["body", "3", "expires"],
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, body) for path in BODIES[:3] for body in (b'"[]"', b"null", b"5")),
        *((path, body) for path in BODIES[:2] for body in (b"{}", b'{"0":{}}')),
    ],
)
def test_another_value_instead_of_an_array_is_rejected(
    client: Client, path: str, body: bytes
) -> None:
    assert locs(client.post(path, content=body, headers=JSON)) == [["body"]]


@pytest.mark.parametrize("path", BODIES[:3])
def test_an_empty_array_is_accepted(client: Client, path: str) -> None:
    answer = client.post(path, json=[])
    assert answer.status_code == 200
    assert (answer.json()["created"], answer.json()["unchanged"]) == (0, 0)


@pytest.mark.parametrize("status", ["", "Approved", "done", None, 1])
def test_a_review_must_have_one_of_five_states(client: Client, status: Any) -> None:
    client.store("group", OUTPUT)
    answer = client.post("/v1/reviews/group", json={"job_id": "j", "status": status})
    assert locs(answer) == [["body", "status"]]


# --- media and size -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json", "Content-Encoding": "br"},
        {},
    ],
)
def test_an_unsupported_media_type_is_rejected(
    client: Client, path: str, headers: dict[str, str]
) -> None:
    answer = client.post(path, content=b"[]", headers=headers)
    assert answer.status_code == 415
    assert faults(answer)[0]["type"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "media",
    ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'],
)
def test_a_supported_media_type_is_accepted(client: Client, media: str) -> None:
    answer = client.post("/v1/cookies", content=b"[]", headers={"Content-Type": media})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "record"), list(zip(BODIES, (COOKIE, ENTRY, OUTPUT), strict=False))
)
def test_too_many_records_are_rejected(client: Client, path: str, record: dict[str, Any]) -> None:
    answer = client.post(path, json=[record] * 10_001)
    assert locs(answer) == [["body"]]
    assert faults(answer)[0]["type"] == "too_long"


LARGEST = 32 * 1024 * 1024


@pytest.mark.parametrize("path", BODIES)
def test_a_content_length_above_the_limit_is_rejected_before_the_body(
    client: Client, service: Service, path: str
) -> None:
    request = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {LARGEST + 1}\r\n"
        "Connection: close\r\n\r\n"
    )
    answer = raw.exchange(service.url, request.encode())
    assert answer.status == 413
    assert json.loads(answer.body)["detail"][0]["type"] == "too_large"


def test_a_chunked_body_above_the_limit_is_rejected_while_it_streams(client: Client) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 1024 * 1024
            yield b" " * 1024 * 1024

    assert client.post("/v1/cookies", content=endless(), headers=JSON).status_code == 413
    # After the response the service discards up to 64 MiB. The socket's buffers can hold 32 MiB.
    assert sent < 8 * LARGEST


def test_a_body_of_exactly_the_limit_is_accepted(client: Client) -> None:
    body = b"[" + b" " * (LARGEST - 2) + b"]"
    assert client.post("/v1/cookies", content=body, headers=JSON).status_code == 200


# --- query --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        *(f"cursor={value}" for value in ("-1", "1.5", "1_000", "%2B7", "+7", "", "a", "1e3")),
        *(f"cursor={value}" for value in (2**63, 10**30, "9" * 5000, "0x1", "%201", "007", "-0")),
        f"cursor={quote('٣')}",  # a digit of another script
        *(f"limit={value}" for value in ("0", "1001", "-5", "1.0", "", "ten")),
        f"limit={quote('１０')}",
        "limit=5&limit=5",
        "limit=5&limit=6",
        "cursor=1&cursor=1",
        "job_id=a&job_id=b",
        *(f"region={value}" for value in ("", "Bavaria", "DE", "DE-", "DE_BY", "D-BY", "DE-ABCD")),
        *(f"{name}=a%00b" for name in ("job_id", "url", "country", "region")),
        *(f"{name}=%FF" for name in ("job_id", "url", "country")),
        "country=" + "x" * 101,
    ],
)
def test_an_invalid_query_is_rejected(client: Client, service: Service, query: str) -> None:
    client.store("group", OUTPUT)
    target = f"/v1/outputs/group?{query}"
    answer = raw.get(service.url, target, f"Authorization: Bearer {client.token}")
    assert answer.status == 422
    for fault in json.loads(answer.body)["detail"]:
        assert fault["loc"][0] == "query"
        assert fault["loc"][1:] in ([query.partition("=")[0]], [])


@pytest.mark.parametrize(
    "moment",
    [
        "",
        "now",
        "2026",
        "2026-1-1",
        "20260101",
        "2026-W01-1",
        "2026-001",
        "2026-02-30",
        "0000-01-01",
        "2026-01-01T24:00:00Z",
        "2026-01-01T23:60:00Z",
        "2026-01-01T23:59:60Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00Z",
        "2026-01-01Z",
        "2026-01-01 00:00:00",
        "٢٠٢٦-01-01",
        "1767225600",
        "-0001-01-01",
    ],
)
def test_an_invalid_created_after_is_rejected(client: Client, moment: str) -> None:
    client.store("group", OUTPUT)
    answer = client.get("/v1/outputs/group", params={"created_after": moment})
    assert locs(answer) == [["query", "created_after"]]


@pytest.mark.parametrize(
    "moment",
    [
        "2026-01-01",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00.123456789Z",
        "2026-01-01T00:00:00-05:30",
        "2026-01-01T00:00:00+0530",
        "2024-02-29",
    ],
)
def test_a_valid_created_after_is_accepted(client: Client, moment: str) -> None:
    client.store("group", OUTPUT)
    answer = client.get("/v1/outputs/group", params={"created_after": moment})
    assert answer.status_code == 200


def test_an_unescaped_plus_in_an_offset_gets_a_hint(client: Client, service: Service) -> None:
    client.store("group", OUTPUT)
    target = "/v1/outputs/group?created_after=2026-01-01T00:00:00+02:00"
    answer = raw.get(service.url, target, f"Authorization: Bearer {client.token}")
    assert answer.status == 422
    assert "%2B" in json.loads(answer.body)["detail"][0]["msg"]


def test_all_errors_of_a_query_are_reported_at_once(client: Client) -> None:
    client.store("group", OUTPUT)
    answer = client.get("/v1/outputs/group", params={"limit": 0, "cursor": -1, "region": "x"})
    assert sorted(locs(answer)) == [["query", "cursor"], ["query", "limit"], ["query", "region"]]


# --- unknown names ------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["outputs", "reviews"])
def test_every_unknown_name_gets_the_same_404(service: Service, resource: str) -> None:
    with service.client() as owner, service.client() as stranger:
        owner.store("theirs", OUTPUT)
        names = ("theirs", "unknown", "..", ".", "%2F", "a%2Fb", "%00", "%FF", "x" * 300, "%0A", "")
        answers = [
            raw.get(
                service.url, f"/v1/{resource}/{name}", f"Authorization: Bearer {stranger.token}"
            )
            for name in names
        ]
    assert {answer.status for answer in answers} == {404}
    assert len({answer.body for answer in answers}) == 1
    headers = [
        {k: v for k, v in a.headers.items() if k not in ("x-request-id", "date")} for a in answers
    ]
    assert all(one == headers[0] for one in headers)


def test_an_unknown_path_is_404(client: Client) -> None:
    for path in ("/v1", "/v1/", "/v1/cookies/", "/v2/cookies", "/v1/outputs"):
        answer = client.get(path)
        assert answer.status_code == 404
        faults(answer)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "TRACE"])
def test_an_unknown_method_is_405(client: Client, method: str) -> None:
    answer = client.request(method, "/v1/cookies")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, POST"
    faults(answer)


# --- authentication -----------------------------------------------------------------------------


def test_every_kind_of_missing_or_invalid_token_is_401(client: Client, service: Service) -> None:
    good = f"Authorization: Bearer {client.token}"
    changed = client.token[:-1] + ("a" if client.token[-1] != "a" else "b")
    bad = [
        [],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        ["Authorization: Bearer nonsense"],
        [f"Authorization: Bearer {changed}"],
        [f"Authorization: Bearer {client.token} {client.token}"],
        [f"Authorization: Basic {client.token}"],
        [f"Authorization: {client.token}"],
        ["Authorization: Bearer \xff\xfe"],
        [good, good],
        [good, "Authorization: Bearer nonsense"],
    ]
    bodies = set()
    for headers in bad:
        answer = raw.get(service.url, f"/v1/cookies?access_token={client.token}", *headers)
        assert answer.status == 401, headers
        assert client.token not in answer.body.decode()
        assert answer.headers["www-authenticate"].startswith("bearer")
        bodies.add(answer.body)
    assert len(bodies) == 4  # no token, another scheme, an empty token, an incomplete token
    assert raw.get(service.url, "/v1/cookies", good).status == 200
    for scheme in ("bearer", "BEARER", "Bearer ", "Bearer   "):
        again = good.replace("Bearer", scheme)
        assert raw.get(service.url, "/v1/cookies", again).status == 200


# --- errors contain no values --------------------------------------------------------------------


def test_a_rejected_value_is_never_repeated(client: Client, service: Service) -> None:
    client.store("group", OUTPUT)
    bad: list[Any] = [
        client.post(
            "/v1/cookies", json=[{"domain": MARK + " x", "name": MARK, "value": MARK + "\n"}]
        ),
        client.post("/v1/cookies", json=[COOKIE | {"expires": MARK, "secure": MARK}]),
        client.post("/v1/cookies", json=[MARK]),
        client.post("/v1/cookies", json={MARK: MARK}),
        client.post("/v1/cookies", content=f'["{MARK}'.encode(), headers=JSON),
        client.post("/v1/local-storage", json=[ENTRY | {"value": [MARK], "key": {MARK: 1}}]),
        client.post("/v1/reviews/group", json={"job_id": "j", "status": MARK}),
        client.post("/v1/reviews/group", json={"job_id": MARK, "status": "approved"}),
        client.get("/v1/outputs/group", params={"region": MARK, "limit": MARK}),
        client.get("/v1/cookies", headers={"Authorization": f"Bearer {MARK}"}),
        client.get(f"/v1/outputs/{MARK}"),
        client.get(f"/{MARK}"),
    ]
    for answer in bad:
        assert answer.status_code >= 400
        assert MARK not in answer.text
        assert MARK not in str(answer.headers)

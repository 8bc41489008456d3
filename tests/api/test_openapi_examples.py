"""The examples of the OpenAPI document: every request works, and gets the documented response."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import httpx2
import jsonschema_rs
import pytest

from gleanery.service.api.openapi import Document
from gleanery.service.api.operation import SERVICE_URL
from gleanery.service.application import OPERATIONS
from tests.support.api_examples import EXAMPLES
from tests.support.service import Client, Service

# Members that a service generates. All other members of a response are those of the example.
GENERATED = {
    *(
        "id",
        "output_id",
        "review_id",
        "run_id",
        "alert_id",
        "token_id",
        "request_id",
        "organization_id",
        "blob_key",
        "delivery_id",
        "secret",
    ),
    *("cursor", "next_cursor", "seconds"),
}
MEMBERS = {"lease_id": "id", "as_of": "cursor", "webhook_id": "id", "last_run_id": "run_id"}
"""The members whose values are the parameters with another name."""
CHANGING = ("attempts", "failing_since")
"""Members that an attempt to reach the webhook of the examples may change at any time."""
DATES = ("date", "last_change", "expires")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
JSON, NDJSON, FORM = "application/json", "application/x-ndjson", "multipart/form-data"


class Call(NamedTuple):
    """Example of one operation, as a reader of the document finds it."""

    name: str
    method: str
    path: str
    parameters: dict[str, dict[str, Any]]
    body: tuple[str, Any] | None
    status: int
    media: str
    response: Any


@pytest.fixture(scope="module")
def document(service: Service) -> Document:
    with service.stranger() as nobody:
        found: Document = nobody.get("/openapi.json").json()
        return found


def calls(document: Document) -> Iterator[Call]:
    """The examples, in the order in which they work."""
    rows = {
        row["operationId"]: (method, path, row)
        for path, methods in document["paths"].items()
        for method, row in methods.items()
    }
    for name in EXAMPLES:
        method, path, row = rows["store_outputs" if name == "store_ndjson" else name]
        parameters: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
        for parameter in row.get("parameters", ()):
            if "example" in parameter:
                parameters[parameter["in"]][parameter["name"]] = parameter["example"]
        status, success = next(iter(row["responses"].items()))
        media, content = next(iter(success["content"].items()))
        bodies = body_examples(row)
        call = Call(
            name, method.upper(), path, parameters, None, int(status), media, content["example"]
        )
        if name == "store_ndjson":
            [result] = document["components"]["schemas"]["NdjsonResult"]["examples"]
            parameters["header"] = {}  # the key is that of the array
            yield call._replace(body=(NDJSON, bodies[NDJSON]), response=result)
        else:
            bodies.pop(NDJSON, None)
            for body in bodies.items() or [None]:
                yield call._replace(body=body)


def body_examples(row: Document) -> dict[str, Any]:
    content = row.get("requestBody", {}).get("content", {})
    return {media: found["example"] for media, found in content.items() if "example" in found}


class Story:
    """Sends the examples, with the values that the service generated for those of the examples."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.real: dict[tuple[str, Any], Any] = {}

    def send(self, call: Call) -> httpx2.Response:
        path = call.path
        for name, value in self.translate(call.parameters["path"]).items():
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        query, headers = self.translate(call.parameters["query"]), call.parameters["header"]
        return self.client.request(
            call.method, path, params=query, **self.content(call.body, headers)
        )

    def content(self, body: tuple[str, Any] | None, headers: dict[str, str]) -> dict[str, Any]:
        """Arguments for the body and the headers of a request."""
        match body:
            case None:
                return {"headers": headers}
            case (media, {"file": text}) if media == FORM:
                return {"headers": headers, "files": {"file": ("a.txt", text, "text/plain")}}
            case (media, str(text)) if media == NDJSON:
                lines = (json.dumps(self.translate(line)) for line in parse_lines(text))
                return {"headers": headers | {"Content-Type": media}, "content": "\n".join(lines)}
            case (media, str(text)):
                media = "text/plain" if media == "application/octet-stream" else media
                return {"headers": headers | {"Content-Type": media}, "content": text}
            case (media, value):
                text = json.dumps(self.translate(value))
                return {"headers": headers | {"Content-Type": media}, "content": text}

    def translate(self, value: Any, name: str = "") -> Any:
        """Replaces the values that the service generates."""
        if isinstance(value, dict):
            return {key: self.translate(member, key) for key, member in value.items()}
        if isinstance(value, list):
            return [self.translate(element) for element in value]
        return self.real.get((MEMBERS.get(name, name), value), value)

    def compare(self, example: Any, real: Any, name: str = "") -> None:
        """Compares a response with its example, and notes the values that are generated."""
        name = MEMBERS.get(name, name)
        if name in CHANGING:
            return
        assert type(example) is type(real), name
        if isinstance(example, dict):
            assert example.keys() == real.keys(), name
            for key, member in example.items():
                self.compare(member, real[key], key)
        elif isinstance(example, list):
            assert len(example) == len(real), name
            for one, other in zip(example, real, strict=True):
                self.compare(one, other, name)
        elif name in GENERATED:
            assert self.real.setdefault((name, example), real) == real
        elif is_generated_url(name, example):
            self.note_url(example, real)
        elif not (name.endswith(DATES) and is_date(example) and is_date(real)):
            assert example == real, name

    def note_url(self, example: str | None, real: str | None) -> None:
        """Notes the parameters of a generated URL, which starts with the service's address."""
        if example is None or real is None:
            return
        one, other = urlsplit(example), urlsplit(real)
        assert f"{one.scheme}://{one.netloc}" == SERVICE_URL
        assert f"{other.scheme}://{other.netloc}" == str(self.client.base_url).rstrip("/")
        assert one.path.split("/")[:3] == other.path.split("/")[:3]
        pairs = zip(parse_qsl(one.query), parse_qsl(other.query), strict=True)
        for (name, value), (real_name, real_value) in pairs:
            assert name == real_name
            self.real[name, int(value) if name == "cursor" else value] = real_value


def is_generated_url(name: str, example: Any) -> bool:
    if name == "url":
        return str(example).startswith(SERVICE_URL)
    return name.endswith("_url") and name != "source_url"


def parse_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def is_date(value: Any) -> bool:
    return isinstance(value, str) and DATE.fullmatch(value) is not None


def has(real: Any, excerpt: Any) -> bool:
    """Returns True if a response has the text, the members or the elements of an excerpt."""
    if isinstance(excerpt, dict):
        return all(has(real.get(name), member) for name, member in excerpt.items())
    if isinstance(excerpt, list):
        return all(any(has(one, element) for one in real) for element in excerpt)
    return excerpt in real if isinstance(excerpt, str) else bool(excerpt == real)


def test_every_operation_has_an_example() -> None:
    """A new operation needs one in ``api/examples.py``."""
    handlers = {h for row in OPERATIONS for h in (row.handler, row.ndjson_handler) if h}
    assert EXAMPLES.keys() == {handler.__name__ for handler in handlers} - {"root"}


def test_the_examples_work_one_after_another(document: Document, client: Client) -> None:
    """Each response equals its example, except for ids, cursors, dates and signed links."""
    story = Story(client)
    for call in calls(document):
        answer = story.send(call)
        assert answer.status_code == call.status, (call.name, answer.text)
        if EXAMPLES[call.name].is_excerpt:
            real = answer.json() if call.media == JSON else answer.text
            assert has(real, call.response), (call.name, real)
        elif call.media == NDJSON:
            story.compare(parse_lines(call.response), parse_lines(answer.text), call.name)
        else:
            real = answer.json() if call.media == JSON else answer.text
            story.compare(call.response, real, call.name)


def test_the_examples_are_valid(document: Document) -> None:
    """Each value of an example is valid by the schema of its parameter, body or response."""
    for path, methods in document["paths"].items():
        for method, row in methods.items():
            for schema, example in with_schemas(row):
                assert_valid(document, schema, example, (method, path))
    for status, shared in document["components"]["responses"].items():
        content = shared["content"][JSON]
        assert_valid(document, content["schema"], content["example"], status)


def with_schemas(row: Document) -> Iterator[tuple[Any, Any]]:
    for parameter in row.get("parameters", ()):
        if "example" in parameter:
            yield parameter["schema"], parameter["example"]
    for holder in (row.get("requestBody", {}), *row["responses"].values()):
        for content in holder.get("content", {}).values():
            if "example" in content:
                yield content["schema"], content["example"]


def assert_valid(document: Document, schema: Any, example: Any, where: Any) -> None:
    root = {"components": document["components"], "allOf": [schema]}
    try:
        jsonschema_rs.Draft202012Validator(root, validate_formats=True).validate(example)
    except jsonschema_rs.ValidationError as error:
        raise AssertionError(f"{where}: {error}") from None


def test_every_required_parameter_has_an_example(document: Document) -> None:
    for call in calls(document):
        row = document["paths"][call.path][call.method.lower()]
        for parameter in row.get("parameters", ()):
            if parameter["required"]:
                assert "example" in parameter, (call.name, parameter["name"])


def test_the_example_of_an_error_is_a_real_one(document: Document, client: Client) -> None:
    """Errors that are easy to cause have exactly the body of their example."""
    with Client(str(client.base_url), None) as stranger:
        answers = {
            401: stranger.get("/v1/cookies"),
            404: client.get("/v1/groups/unknown"),
            415: client.post("/v1/cookies", content="[]", headers={"Content-Type": "text/plain"}),
            422: client.get("/v1/outputs/unknown", params={"limit": 1001}),
        }
    for status, answer in answers.items():
        assert answer.status_code == status
        content = document["components"]["responses"][f"Error{status}"]["content"]
        assert answer.json() == content[JSON]["example"]

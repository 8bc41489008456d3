"""Tenant isolation: foreign identifiers look unknown, on every route, for every identifier.

The test matrix is generated from the operation table. Each input of an operation must be declared
here, either as an identifier of a record or as another value. A new input fails until it is
declared.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import pytest
from pydantic import BaseModel

from gleanery.service.api.operation import Operation
from gleanery.service.application import OPERATIONS
from tests.support.service import Client, Service
from tests.support.tenants import Names, create_one_of_everything, unused_names

KEY_HEADER = "header idempotency-key"
CONTENT = "body"

# Kind of record that each input identifies. A key with an operation applies to that one only.
NAMES = {
    "path group_id": "group",
    "path job_id": "job",
    "path output_id": "output",
    "path id": "file",
    "path lease_id": "lease",
    "path review_id": "review",
    "path run_id": "run",
    "path webhook_id": "webhook",
    "path delivery_id": "delivery",
    "path alert_id": "alert",
    "query job_id": "job",
    "query run_id": "run",
    "query url": "url",
    "query domain": "domain",
    "query name": "cookie",
    "query key": "entry",
    "query for_group": "group number",
    "query group_id": "group",
    "query profile": "profile",
    "query source_url": "source",
    "query etag": "etag",
    "query organization": "organization",
    "query signature": "signature",
    "get_signed_export query token": "token number",
    "get_signed_export query signature": "export signature",
    "get_groups query cursor": "group number",
    "get_group query cursor": "job number",
    "get_cookies query cursor": "cookie number",
    "get_local_storage query cursor": "entry number",
    "get_latest_reviews query cursor": "review number",
    "get_runs query cursor": "run number",
    "get_deliveries query cursor": "delivery number",
    "get_alerts query cursor": "alert number",
    "get_outputs query cursor": "place",
    "get_changes query cursor": "place",
    "get_history query cursor": "place",
    "body domain": "domain",
    "set_cookies body name": "cookie",
    "set_local_storage body key": "entry",
    "set_local_storage body group_id": "group number",
    "body job_id": "job",
    "store_outputs body key": "key",
    "store_outputs body source_url": "url",
    "body files id": "file",
    "body findings output_id": "output",
    "body output_ids": "list of outputs",
    KEY_HEADER: "request",
    CONTENT: "content",
    f"import_session {CONTENT}": "session document",
}
# Inputs that identify no record, with the value to send, if any.
NO_NAMES: dict[str, Any] = {
    "path file_name": "outputs.jsonl",
    "query limit": None,
    "query history": "true",
    "query wait": None,
    "query diff": None,
    "query at": None,
    "query view": None,
    "query created_after": None,
    "query changed_after": None,
    "query country": None,
    "query region": None,
    "query approved": None,
    "query missing": None,
    "query status": None,
    "store_outputs query job_id": None,  # as in a body, which names it, too
    "query url_field": None,
    "query key_field": None,
    "query on_error": None,
    "query format": None,
    "import_session query url": None,
    "query replace": "true",
    "query dry_run": None,
    "query filename": None,
    "query seed": "a seed",
    "query size": None,
    "query event": None,
    "query state": None,
    "query expires": None,  # a date, part of a signed link
    "query valid_seconds": None,
    "get_audit query cursor": None,  # a date
    "list_sessions query cursor": None,  # a host and a profile
    "body value": "a value",
    "body path": None,
    "body secure": None,
    "body http_only": None,
    "body expires": None,
    **{
        f"body {name}": None  # other spellings, and members that are checked and not stored
        for name in ("httpOnly", "expiry", "expirationDate", "session", "hostOnly", "same_site")
    },
    **{f"body {name}": None for name in ("sameSite", "partitionKey", "storeId", "url", "origin")},
    **{f"body {name}": None for name in ("_crHasCrossSiteAncestor", "partitionKeyOpaque", "size")},
    **{f"body {name}": None for name in ("firstPartyDomain", "priority", "sameParty")},
    **{f"body {name}": None for name in ("sourcePort", "sourceScheme")},
    "set_local_storage body name": None,
    "body id": 1,  # ignored, like the next ones
    "body organization_id": 1,
    "body create_date": "2030-01-01T00:00:00Z",
    "body update_date": "2030-01-01T00:00:00Z",
    "body status": "in_review",
    "finish_run body status": "complete",
    "body message": None,
    "body labels": None,
    "body decision": "keep",
    "body comment": None,
    "body as_of": None,  # a date
    "body findings": None,
    "body findings path": None,
    "body findings note": None,
    "body data": {},
    "body tags": None,
    "body files": None,
    "body files field": "a field",
    "body files source_url": None,
    "body files file_url": None,
    "body files file_type": None,
    "body files file_checksum": None,
    "body files file_metadata": None,
    "body display_name": None,
    "body key_fields": None,
    "body schema": None,
    "body retain_days": None,
    "body keep_versions": None,
    "body keep_days": None,
    "body run_timeout_minutes": None,
    "body missing": None,
    "body missing after_runs": None,
    "body missing max_share": None,
    "body seconds": 60,
    "body profile": None,
    "body holder": None,
    "body format": None,
    "body state": None,
    "body replace": None,
    "body release": None,
    **{
        f"{name} body url": "https://receiver.invalid/"
        for name in ("create_webhook", "set_webhook")
    },
    "body events": ["test"],
    "body groups": None,  # they may not exist
    "body headers": None,
    "body description": None,
    "set_monitors body job_id": None,  # it may not exist
    "body kind": "failed_run",
    "body threshold": None,
    "body hours": None,
    "body minimum": None,
    "body enabled": None,
    "body acknowledged": True,
    "body muted_until": None,
    "body normal": None,
}
WHOLE_LINKS = ("get_blob", "get_signed_export")  # a complete signed link is the permission
V1 = [operation for operation in OPERATIONS if operation.path.startswith("/v1/")]


# --- what an operation takes --------------------------------------------------------------------


def inputs(operation: Operation) -> list[str]:
    found = [f"path {name}" for name in operation.path_parameters]
    if operation.query is not None:
        found += [f"query {name}" for name in operation.query.model_fields]
    if operation.body in (bytes, str):
        found.append(CONTENT)
    elif operation.body is not None:
        found += [f"body {name}" for name in members(model_of(operation.body))]
    if operation.accepts_idempotency_key:
        found.append(KEY_HEADER)
    return found


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model of an object, of an array of them, or of either inside an option."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (model_of(argument) for argument in typing.get_args(annotation))
    return next((model for model in models if model is not None), None)


def has_list(annotation: Any) -> bool:
    """Return True for an array of objects, or an option of one."""
    return typing.get_origin(annotation) is list or any(map(has_list, typing.get_args(annotation)))


def members(model: type[BaseModel] | None) -> Iterator[str]:
    """The names of all members, of nested objects too: ``files``, ``files id``."""
    for name, field in model.model_fields.items() if model else ():
        written = field.alias or name
        yield written
        yield from (f"{written} {inner}" for inner in members(model_of(field.annotation)))


def kind(operation: Operation, taken: str) -> str | None:
    """Kind of record that the input identifies."""
    alone = f"{operation.name} {taken}"
    return None if alone in NO_NAMES else NAMES.get(alone, NAMES.get(taken))


def not_a_name(operation: Operation, taken: str) -> str:
    """Key of the input in ``NO_NAMES``."""
    alone = f"{operation.name} {taken}"
    return alone if alone in NO_NAMES else taken


def identifiers(operation: Operation) -> list[str]:
    return [taken for taken in inputs(operation) if kind(operation, taken) is not None]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_matrix_covers_every_input_of_an_operation(operation: Operation) -> None:
    for taken in inputs(operation):
        assert kind(operation, taken) is not None or not_a_name(operation, taken) in NO_NAMES, (
            f"{operation.name} takes “{taken}”: put it into NAMES, if it is a name for something "
            "of an organization's, else into NO_NAMES"
        )


# --- names --------------------------------------------------------------------------------------


# --- requests -----------------------------------------------------------------------------------


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, Any]
    headers: dict[str, str]
    content: bytes | None

    def send(self, client: Client) -> httpx2.Response:
        return client.request(
            self.method, self.path, params=self.query, headers=self.headers, content=self.content
        )


def requests(operation: Operation, names: Names, with_key: bool) -> list[Request]:
    """All requests of the operation with these names, by each method and media type."""
    path = operation.path
    for name in operation.path_parameters:
        path = path.replace(f"{{{name}}}", quote(_value(operation, f"path {name}", names)))
    query = {}
    for taken in inputs(operation):
        if taken.startswith("query "):
            value = _value(operation, taken, names)
            query |= {} if value is None else {taken.removeprefix("query "): value}
    headers = {"Idempotency-Key": names["request"]} if with_key else {}
    methods = ["GET", "HEAD"] if operation.method == "GET" else [operation.method]
    return [
        Request(method, path, query, headers | media, content)
        for method in methods
        for media, content in _bodies(operation, names)
    ]


def _bodies(operation: Operation, names: Names) -> Iterator[tuple[dict[str, str], bytes | None]]:
    model = model_of(operation.body)
    if model is None:
        content = kind(operation, CONTENT) if operation.body in (bytes, str) else None
        yield {}, None if content is None else names[content]
        return
    value = _object(operation, model, "body", names)
    text = json.dumps([value] if typing.get_origin(operation.body) is list else value).encode()
    yield {"Content-Type": "application/json"}, text
    if operation.ndjson_handler is not None:
        yield {"Content-Type": "application/x-ndjson"}, json.dumps(value).encode()


def _object(operation: Operation, model: type[BaseModel], at: str, names: Names) -> dict[str, Any]:
    made = {}
    for name, field in model.model_fields.items():
        taken = f"{at} {field.alias or name}"
        nested = model_of(field.annotation)
        if nested is not None:
            value = _object(operation, nested, taken, names)
            made[field.alias or name] = [value] if has_list(field.annotation) else value
        elif (value := _value(operation, taken, names)) is not None:
            made[field.alias or name] = value
    return made


def _value(operation: Operation, taken: str, names: Names) -> Any:
    if taken == "query expires":
        return names["export expires" if operation.name == "get_signed_export" else "expires"]
    known_as = kind(operation, taken)
    return NO_NAMES[not_a_name(operation, taken)] if known_as is None else names[known_as]


class NormalizedResponse(NamedTuple):
    """A response without random parts and without the requested names."""

    status: int
    headers: dict[str, str]
    body: str


def normalized(answer: httpx2.Response, asked: Names) -> NormalizedResponse:
    headers = {k: v for k, v in answer.headers.items() if k not in ("x-request-id", "date")}
    if "etag" in headers:  # it begins with the requested names, in base64
        headers["etag"] = headers["etag"].rpartition(".")[2]
    body = re.sub(r'"seconds":\d+', '"seconds":<left>', answer.text)  # until a lease expires
    if answer.status_code == 200 and answer.request.method in ("POST", "PUT"):
        # A created record has its own ids, hashes and secret.
        own = r'"id":\d+|"[0-9a-f]{32,}"|"\d+/[0-9a-f/]+"|"whsec_[^"]+"'
        body = re.sub(own, "<own>", body)
        body = re.sub(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"', "<date>", body)
        body = re.sub(r"signature=[0-9a-f]+|expires\W+\d+", "<own>", body)  # of a signed link
        del headers["content-length"]
        headers.pop("etag", None)  # each write gives the records a new version
    texts = [text for value in asked.values() for text in (str(value), quote(str(value), safe=""))]
    long = [re.escape(text) for text in texts if len(text) > 5]
    echoes = re.compile(rf"\b({'|'.join(long or ['<nothing>'])})\b")
    body = echoes.sub("<asked>", body)
    return NormalizedResponse(
        answer.status_code, {k: echoes.sub("<asked>", v) for k, v in headers.items()}, body
    )


# --- the matrix ---------------------------------------------------------------------------------


class World(NamedTuple):
    """Two organizations that both have one of everything. One asks for names of the other."""

    curious: Client
    own: Names
    other: Client
    foreign: Names


@pytest.fixture(scope="module")
def kept_world(service: Service) -> Iterator[World]:
    with service.client() as curious, service.client() as other:
        yield World(
            curious, create_one_of_everything(curious), other, create_one_of_everything(other)
        )


@pytest.fixture(scope="module", params=V1, ids=lambda operation: operation.name)
def operation(request: pytest.FixtureRequest) -> Operation:
    asked: Operation = request.param
    return asked


@pytest.fixture(scope="module")
def world(operation: Operation, service: Service, kept_world: World) -> Iterator[World]:
    """Returns a new world for an operation that writes."""
    if operation.method == "GET":
        yield kept_world
        return
    with service.client() as curious, service.client() as other:
        yield World(
            curious, create_one_of_everything(curious), other, create_one_of_everything(other)
        )


def belongings(client: Client, names: Names) -> list[str]:
    """Everything that an organization can read."""
    group = names["group"]
    paths = (f"changes/{group}", f"reviews/{group}", "groups", "cookies", "local-storage")
    paths += ("sessions/leases", f"runs/{group}")
    varying = r'"blob_url":"[^"]*"|"seconds":\d+'
    return [re.sub(varying, "", client.get(f"/v1/{path}").text) for path in paths]


@pytest.mark.thorough
def test_a_name_of_another_organization_is_answered_like_an_unused_one(
    operation: Operation, world: World
) -> None:
    curious, own, other, foreign = world
    nothing = unused_names() | {"expires": own["expires"]}
    before = belongings(other, foreign)
    trials = [[one] for one in identifiers(operation)]
    if operation.name not in WHOLE_LINKS:
        trials.append(identifiers(operation))
    for trial in trials:
        kinds = {str(kind(operation, taken)) for taken in trial}
        asked = [{kind: of[kind] for kind in kinds} for of in (foreign, nothing)]
        with_key = KEY_HEADER in trial
        for pair in zip(*(requests(operation, own | a, with_key) for a in asked), strict=True):
            answers = []
            for request, names in zip(pair, asked, strict=True):
                if operation.body is not None:  # resets its own records to the same state
                    requests(operation, own, with_key=False)[0].send(curious)
                answers.append(normalized(request.send(curious), names))
            assert answers[0] == answers[1], trial
            assert answers[0].status < 500
    assert belongings(other, foreign) == before


@pytest.mark.thorough
def test_each_name_changes_the_response_for_its_owner(operation: Operation, world: World) -> None:
    """Ensures that the identifiers of the test above have an effect."""
    _, _, owner, names = world
    unlike = []
    nothing = unused_names()
    for taken in identifiers(operation):
        asked = names | {str(kind(operation, taken)): nothing[str(kind(operation, taken))]}
        request = requests(operation, asked, taken == KEY_HEADER)[0]
        unlike.append((taken, request.send(owner)))
    known = {
        with_key: requests(operation, names, with_key)[0].send(owner)
        for with_key in sorted({taken == KEY_HEADER for taken, _ in unlike})
    }
    for taken, answer in unlike:
        like = known[taken == KEY_HEADER]
        assert (answer.status_code, answer.content) != (like.status_code, like.content), taken

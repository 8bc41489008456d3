"""Cross-origin requests (CORS) over HTTP. One engine: the headers do not depend on it."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery.common.settings import Settings
from gleanery.service.api import cross_origin, openapi
from gleanery.service.api.operation import Operation, Resource
from gleanery.service.application import ALL_OPERATIONS, OPERATIONS, build_app
from gleanery.service.processes.asgi import AsgiApp, Message
from tests.support import raw_http as raw
from tests.support.examples import examples, is_shown
from tests.support.exports import export_link
from tests.support.files import upload
from tests.support.outputs import output
from tests.support.service import Client, Service

APP, SECOND_APP, STRANGER = "https://app.example", "http://localhost:5173", "https://evil.example"
ALLOW = "access-control-allow-origin"
CREDENTIALS = "access-control-allow-credentials"
ASK = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
MAX_BODY_BYTES = 10_000


@contextmanager
def running(folder: Path, *origins: str, **settings: Any) -> Iterator[Service]:
    usual = Settings(data=folder, port=0, log_level="error", slow_request_seconds=0)
    service = Service(replace(usual, cors_origin=origins, **settings))
    yield service
    service.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that two origins may use."""
    folder = tmp_path_factory.mktemp("shared")
    with running(folder, APP, SECOND_APP, max_body_bytes=MAX_BODY_BYTES) as service:
        yield service


@pytest.fixture
def app(shared: Service) -> Iterator[Client]:
    """A client that sends what a page of an allowed origin sends."""
    with shared.client() as client:
        client.headers["Origin"] = APP
        yield client


def cors_headers(answer: httpx2.Response) -> dict[str, str]:
    return {name: answer.headers[name] for name in answer.headers if "access-control" in name}


def varies(answer: httpx2.Response) -> bool:
    return "origin" in answer.headers.get("vary", "").replace(" ", "").split(",")


def assert_readable(answer: httpx2.Response, origin: str = APP) -> None:
    """A page of the origin can read the response, and nobody gets it from a cache instead."""
    exposed = ", ".join(cross_origin.EXPOSED_HEADERS)
    assert cors_headers(answer) == {ALLOW: origin, "access-control-expose-headers": exposed}
    assert varies(answer)


# --- preflights ---------------------------------------------------------------------------------


def test_a_preflight_needs_no_token(shared: Service) -> None:
    with httpx2.Client(base_url=shared.url) as nobody:
        for path in ("/v1/outputs/group", "/v1/unknown", "/v1/files/x", "/openapi.json"):
            answer = nobody.options(path, headers={"Origin": SECOND_APP} | ASK)
            assert (answer.status_code, answer.content) == (204, b"")
            assert answer.headers[ALLOW] == SECOND_APP
            assert CREDENTIALS not in answer.headers
            assert varies(answer)
            methods = answer.headers["access-control-allow-methods"].split(", ")
            assert {operation.method for operation in OPERATIONS} | {"HEAD"} == {*methods}
            headers = answer.headers["access-control-allow-headers"].lower().split(", ")
            assert {"authorization", "content-type", "idempotency-key", "range"} < {*headers}
            assert int(answer.headers["access-control-max-age"]) >= 600


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("OPTIONS", "/v1/outputs/group", {"Origin": STRANGER} | ASK),
        ("OPTIONS", "/v1/outputs/group", {"Origin": f"{APP}.evil.example"} | ASK),
        ("OPTIONS", "/v1/outputs/group", {"Origin": f"{APP}:8443"} | ASK),
        ("OPTIONS", "/v1/outputs/group", {"Origin": "http://app.example"} | ASK),
        ("OPTIONS", "/v1/outputs/group", {"Origin": f"{APP}, {SECOND_APP}"} | ASK),
        ("OPTIONS", "/v1/outputs/group", {"Origin": "null"} | ASK),
        ("OPTIONS", "/v1/outputs/group", {"Origin": ""} | ASK),
        ("OPTIONS", "/v1/outputs/group", ASK),
        ("OPTIONS", "/v1/outputs/group", {"Origin": APP}),
        ("OPTIONS", "/console/api/login", {"Origin": APP} | ASK),
        ("OPTIONS", "/v1/cookies", {"Origin": APP} | ASK),
        ("OPTIONS", "/v1/sessions/leases/x", {"Origin": APP} | ASK),
    ],
)
def test_other_requests_are_not_answered_as_preflights(
    shared: Service, method: str, path: str, headers: dict[str, str]
) -> None:
    with httpx2.Client(base_url=shared.url) as nobody:
        answer = nobody.request(method, path, headers=headers)
        assert answer.status_code == 405
        allowed = {name for name in cors_headers(answer) if "expose" not in name}
        is_allowed = headers == {"Origin": APP} and path.startswith("/v1/outputs")
        assert allowed == ({ALLOW} if is_allowed else set())


def asgi_response(
    app: AsgiApp, method: str, path: str, **headers: str
) -> tuple[int, httpx2.Headers]:
    """Return the response of an application that was never started: it has no database."""
    sent: list[Message] = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        await app(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], httpx2.Headers(sent[0]["headers"])


def test_a_preflight_needs_no_database_and_the_error_can_be_read(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, cors_origin=(APP,), log_level="error")
    app = AsgiApp(build_app(settings))
    ask = {name.lower(): value for name, value in ASK.items()}
    status, headers = asgi_response(app, "OPTIONS", "/v1/outputs/group", origin=APP, **ask)
    assert (status, headers[ALLOW]) == (204, APP)
    status, headers = asgi_response(app, "GET", "/v1/outputs/group", origin=APP)
    assert (status, headers[ALLOW]) == (503, APP)
    assert "retry-after" in headers
    assert not settings.sqlite_file.exists()


# --- responses ----------------------------------------------------------------------------------


def file_of(client: Client) -> str:
    return f"/v1/files/{upload(client, b'text of a file')['id']}"


def signed_link(client: Client) -> str:
    client.store("files", output(1, files=[{"field": "f", "id": upload(client)["id"]}]))
    return str(client.items("files")[0]["files"][0]["blob_url"])


def outputs_to(client: Client, url: str, **options: Any) -> httpx2.Response:
    kind = {"Content-Type": "application/json"} | options.pop("headers", {})
    return client.post(url, headers=kind, **options)


Send = Callable[[Client], httpx2.Response]
RESPONSES: dict[str, tuple[int, Send]] = {
    "a page": (200, lambda c: c.get("/v1/outputs/group")),
    "a list": (200, lambda c: c.get("/v1/groups?limit=1")),
    "a batch": (200, lambda c: outputs_to(c, "/v1/outputs/group", content=b"[]")),
    "a compressed page": (
        200,
        lambda c: c.get("/v1/outputs/group", headers={"Accept-Encoding": "gzip"}),
    ),
    "head": (200, lambda c: c.head("/v1/outputs/group")),
    "an export": (200, lambda c: c.get("/v1/exports/group")),
    "a table": (200, lambda c: c.get("/v1/exports/group?format=csv")),
    "a linked export": (200, lambda c: httpx2.get(export_link(c), headers={"Origin": APP})),
    "a file": (200, lambda c: c.get(file_of(c))),
    "a part of a file": (206, lambda c: c.get(file_of(c), headers={"Range": "bytes=2-3"})),
    "an unchanged file": (304, lambda c: c.get(file_of(c), headers={"If-None-Match": "*"})),
    "another file": (412, lambda c: c.get(file_of(c), headers={"If-Match": '"x"'})),
    "no such part": (416, lambda c: c.get(file_of(c), headers={"Range": "bytes=99-"})),
    "a linked file": (200, lambda c: httpx2.get(signed_link(c), headers={"Origin": APP})),
    "a wrong link": (403, lambda c: c.get(f"{signed_link(c)}x")),
    "no token": (401, lambda c: c.get("/v1/groups", headers={"Authorization": ""})),
    "no group": (404, lambda c: c.get("/v1/outputs/unknown")),
    "no route": (404, lambda c: c.get("/v1/unknown")),
    "no method": (405, lambda c: c.put("/v1/outputs/group")),
    "too large": (413, lambda c: outputs_to(c, "/v1/outputs/g", content=b" " * 2 * MAX_BODY_BYTES)),
    "no media type": (415, lambda c: c.post("/v1/outputs/group", content=b"[]")),
    "invalid": (422, lambda c: c.get("/v1/outputs/group?limit=0")),
    "the document": (200, lambda c: c.get("/openapi.json")),
}


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_page_can_read_every_response(app: Client, kind: str) -> None:
    app.store("group", *(output(n, data={"text": "x" * 300}) for n in range(10)))
    app.store("second", output(1))
    status, send = RESPONSES[kind]
    answer = send(app)
    assert answer.status_code == status, answer.text
    assert_readable(answer)


def test_another_page_can_read_none(app: Client) -> None:
    app.store("group", output(1))
    app.store("second", output(1))
    for origin in (STRANGER, "null", f"{APP}/"):
        app.headers["Origin"] = origin
        for kind in ("a page", "an export", "no token", "no group", "too large", "the document"):
            status, send = RESPONSES[kind]
            answer = send(app)
            assert answer.status_code == status
            assert cors_headers(answer) == {}
            assert varies(answer)
    del app.headers["Origin"]
    assert cors_headers(app.get("/v1/outputs/group")) == {}
    assert varies(app.get("/v1/outputs/group"))


def test_pages_that_are_read_in_batches_have_the_headers(app: Client) -> None:
    """The second equal request on a connection takes the path of small pages."""
    app.store("group", *map(output, range(3)))
    for _ in range(4):
        assert_readable(app.get("/v1/outputs/group?limit=2"))
    app.headers["Origin"] = STRANGER
    for _ in range(4):
        assert cors_headers(app.get("/v1/outputs/group?limit=2")) == {}


def test_a_rate_limit_can_be_read(tmp_path: Path) -> None:
    with running(tmp_path, APP, rate_limit="2/day") as service, service.client() as client:
        client.headers["Origin"] = APP
        answers = [client.get("/v1/groups") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
        for answer in answers:
            assert_readable(answer)
            assert "ratelimit" in answer.headers
        ask = {"Origin": APP} | ASK
        assert client.options("/v1/groups", headers=ask).status_code == 204


@pytest.mark.parametrize("origins", [(APP,), (APP, SECOND_APP), ("*",)])
def test_errors_below_the_application_can_be_read(tmp_path: Path, origins: tuple[str, ...]) -> None:
    """Without a readable head, a response can allow an origin only if it is the only one."""
    with running(tmp_path, *origins) as service:
        expected = origins[0] if len(origins) == 1 else None
        assert raw.get(service.url, f"/v1/groups?x={'y' * 70_000}").headers.get(ALLOW) == expected
        malformed = raw.exchange(service.url, b"GET /v1/groups HTTP/1.1\r\nX\r\n\r\n")
        assert (malformed.status, malformed.headers.get(ALLOW)) == (400, expected)


def test_the_limit_of_connections_can_be_read(tmp_path: Path) -> None:
    with running(tmp_path, APP, max_connections=1) as service:
        with service.client() as client:
            client.store("group", output(1))
            cursor = client.get("/v1/changes/group?cursor=0").json()["cursor"]
        with raw.open_connections(service.url, 1) as [waiting]:
            path = f"/v1/changes/group?cursor={cursor}&wait=60"
            waiting.sendall(raw.request_head(client, "GET", path))
            refused = raw.get(service.url, "/v1/groups", f"Origin: {APP}")
            assert (refused.status, refused.headers[ALLOW]) == (503, APP)
            ask = [f"{name}: {value}" for name, value in ({"Origin": APP} | ASK).items()]
            lines = ["OPTIONS /v1/groups HTTP/1.1", "Host: x", *ask, "", ""]
            answer = raw.exchange(service.url, "\r\n".join(lines).encode())
            assert (answer.status, answer.headers[ALLOW]) == (204, APP)


# --- what is left out ---------------------------------------------------------------------------

LEFT_OUT = ("/", "/docs", "/healthz", "/metrics", "/readyz", "*")


def is_left_out(operation: Operation) -> bool:
    is_login = any(scope.startswith("session:") for scope in operation.scopes)
    return is_login or operation.path.startswith("/console") or operation.path in LEFT_OUT


@pytest.mark.parametrize("operation", ALL_OPERATIONS, ids=lambda one: one.name)
def test_logins_and_the_console_belong_to_their_own_origin(
    shared: Service, operation: Operation
) -> None:
    """A list: a new route must be in the right part."""
    path = operation.path
    for name in operation.path_parameters:
        path = path.replace(f"{{{name}}}", "x")
    if path == "*":
        return
    with httpx2.Client(base_url=shared.url) as nobody:
        answer = nobody.request(operation.method, path, headers={"Origin": APP})
        preflight = nobody.options(path, headers={"Origin": APP} | ASK)
    if is_left_out(operation):
        assert cors_headers(answer) == cors_headers(preflight) == {}
        assert not varies(answer)
        assert preflight.status_code == 405
    else:
        assert_readable(answer)
        assert preflight.status_code == 204


def test_a_session_of_the_console_cannot_be_sent(app: Client) -> None:
    """Neither its cookie, which is a credential, nor the header with its key."""
    answer = app.options("/v1/outputs/group", headers=ASK)
    assert CREDENTIALS not in answer.headers
    assert "gleanery" not in answer.headers["access-control-allow-headers"].lower()


def test_every_header_of_the_api_is_listed() -> None:
    shared = [operation for operation in OPERATIONS if not is_left_out(operation)]
    document = openapi.document([Resource(operations=tuple(shared))], Settings())
    rows = [row for methods in document["paths"].values() for row in methods.values()]
    responses = [*document["components"]["responses"].values()]
    responses += [response for row in rows for response in row["responses"].values()]
    parameters = [parameter for row in rows for parameter in row.get("parameters", ())]
    sent = {parameter["name"] for parameter in parameters if parameter["in"] == "header"}
    received = {name for response in responses for name in response.get("headers", ())}
    assert sent <= {*cross_origin.ALLOWED_HEADERS}
    assert received <= {*cross_origin.EXPOSED_HEADERS}


# --- other settings -----------------------------------------------------------------------------


def test_every_origin_can_be_allowed_without_credentials(tmp_path: Path) -> None:
    with running(tmp_path, "*") as service, service.client() as client:
        for headers in ({"Origin": STRANGER}, {"Origin": "null"}, {}):
            answer = client.get("/v1/groups", headers=headers)
            assert answer.headers[ALLOW] == "*"
            assert CREDENTIALS not in answer.headers
            assert not varies(answer)  # all responses are equal
        answer = client.options("/v1/groups", headers={"Origin": STRANGER} | ASK)
        assert (answer.status_code, answer.headers[ALLOW]) == (204, "*")
        assert cors_headers(client.get("/v1/cookies", headers={"Origin": STRANGER})) == {}
        assert cors_headers(client.get("/console", headers={"Origin": STRANGER})) == {}


def test_without_the_setting_nothing_changes(client: Client) -> None:
    for headers in ({}, {"Origin": APP}, {"Origin": APP} | ASK):
        answer = client.get("/v1/groups", headers=headers)
        assert {*answer.headers} == {
            *("date", "x-request-id", "x-content-type-options", "cache-control", "vary"),
            *("content-type", "content-length"),
        }
        assert answer.headers["vary"] == "accept-encoding"
        answer = client.options("/v1/groups", headers=headers)
        assert answer.status_code == 405
        assert cors_headers(answer) == {}
        assert "vary" not in answer.headers


# --- the guide ----------------------------------------------------------------------------------

GUIDE = (Path(__file__).parents[2] / "docs/how-to/call-the-api-from-a-web-page.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_of_a_preflight_works_as_written(tmp_path: Path) -> None:
    served, asked = examples(GUIDE)
    origins = re.findall(r"--cors-origin (\S+)", served.command)
    with running(tmp_path, *origins) as service:
        command = asked.command.replace(ADDRESS, service.url)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert is_shown(done.stdout, asked.output)

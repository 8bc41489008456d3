"""Cross-origin requests (CORS) of pages in Chromium.

The browser occupies the event loop, so no test of this module starts a service of its own.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page

from tests.api.test_cross_origin import ADDRESS, APP, GUIDE, running
from tests.support.browser import running_chromium
from tests.support.outputs import output
from tests.support.service import Service

CALL = """async ([url, options]) => {
    try {
        const response = await fetch(url, options);
        const headers = Object.fromEntries(response.headers);
        return { status: response.status, headers, text: await response.text() };
    } catch (error) {
        return { error: error.message };
    }
}"""


@contextmanager
def blank_site() -> Iterator[str]:
    """A site with an empty page on every path. Yields its origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>page</title>")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Site:
    """A service, a page of an allowed origin, and one of another origin."""

    def __init__(self, service: Service, allowed: Page, stranger: Page) -> None:
        self.service, self.allowed, self.stranger = service, allowed, stranger
        self.token = service.token()

    def call(self, page: Page, path: str, **options: Any) -> dict[str, Any]:
        """Fetch as a page does that has a token."""
        token = {"Authorization": f"Bearer {self.token}"}
        options["headers"] = token | options.get("headers", {})
        url = path if "://" in path else f"{self.service.url}{path}"
        found: dict[str, Any] = page.evaluate(CALL, [url, options])
        return found

    def push(self, page: Page, *outputs: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Idempotency-Key": "key-1"}
        body = json.dumps(outputs)
        return self.call(page, "/v1/outputs/group", method="POST", headers=headers, body=body)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str, str]]:
    folder = tmp_path_factory.mktemp("browser")
    with (
        blank_site() as allowed,
        blank_site() as stranger,
        running(folder, APP, allowed) as service,
    ):
        service.token()  # before the browser, which occupies the event loop
        yield service, allowed, stranger


@pytest.fixture
def site(pages: tuple[Service, str, str], browser: Browser) -> Iterator[Site]:
    service, allowed, stranger = pages
    context = browser.new_context()
    opened = []
    for origin in (allowed, stranger):
        page = context.new_page()
        page.goto(origin)
        opened.append(page)
    yield Site(service, *opened)
    context.close()


@pytest.mark.journey
def test_a_page_in_a_browser_stores_and_reads(site: Site) -> None:
    stored = site.push(site.allowed, output(1), output(2))
    assert (stored["status"], json.loads(stored["text"])["created"]) == (200, 2)
    page = site.call(site.allowed, "/v1/outputs/group?limit=1")
    assert [item["data"] for item in json.loads(page["text"])["items"]] == [{"number": 1}]
    following = site.call(site.allowed, json.loads(page["text"])["metadata"]["next_url"])
    assert [item["data"] for item in json.loads(following["text"])["items"]] == [{"number": 2}]
    export = site.call(site.allowed, "/v1/exports/group")
    assert len(export["text"].splitlines()) == 2
    cursor = export["headers"]["gleanery-cursor"]
    changes = site.call(site.allowed, f"/v1/changes/group?cursor={cursor}")
    assert json.loads(changes["text"])["changes"] == []


def test_a_page_in_a_browser_reads_headers(site: Site) -> None:
    for group in ("a", "b"):
        body, headers = json.dumps([output(1)]), {"Content-Type": "application/json"}
        path = f"/v1/outputs/{group}"
        site.call(site.allowed, path, method="POST", headers=headers, body=body)
    groups = site.call(site.allowed, "/v1/groups?limit=1")
    assert 'rel="next"' in groups["headers"]["link"]
    assert "x-request-id" in groups["headers"]
    file = site.call(site.allowed, "/v1/files?filename=a.txt", method="POST", body="text")
    url = f"/v1/files/{json.loads(file['text'])['id']}"
    whole = site.call(site.allowed, url)
    etag = whole["headers"]["etag"]
    assert (whole["status"], whole["text"]) == (200, "text")
    assert "a.txt" in whole["headers"]["content-disposition"]
    unchanged = site.call(site.allowed, url, headers={"If-None-Match": etag})
    assert (unchanged["status"], unchanged["headers"]["etag"]) == (304, etag)
    part = site.call(site.allowed, url, headers={"Range": "bytes=1-2"})
    assert (part["status"], part["text"]) == (206, "ex")
    assert part["headers"]["content-range"] == "bytes 1-2/4"


@pytest.mark.parametrize(
    ("path", "options", "status", "message"),
    [
        ("/v1/outputs/group", {"headers": {"Authorization": ""}}, 401, "access token is required"),
        ("/v1/outputs/unknown", {}, 404, "There is no group"),
        ("/v1/unknown", {}, 404, "This route does not exist"),
        ("/v1/outputs/group?limit=0", {}, 422, "greater than or equal to 1"),
        ("/v1/outputs/group", {"method": "PUT"}, 405, "POST"),
    ],
)
def test_a_page_in_a_browser_shows_the_message_of_an_error(
    site: Site, path: str, options: dict[str, Any], status: int, message: str
) -> None:
    answer = site.call(site.allowed, path, **options)
    assert answer.get("status") == status, answer
    assert message.lower() in answer["text"].lower()


def test_another_page_in_a_browser_cannot_store_or_read(site: Site) -> None:
    site.push(site.allowed, output(1))
    blocked = {"error": "Failed to fetch"}
    assert site.push(site.stranger, output(7)) == blocked
    for path in ("/v1/outputs/group", "/v1/exports/group", "/v1/unknown"):
        assert site.call(site.stranger, path) == blocked
    url = f"{site.service.url}/openapi.json"  # without a preflight
    assert site.stranger.evaluate(CALL, [url, {}]) == blocked
    assert site.allowed.evaluate(CALL, [url, {}])["status"] == 200
    found = json.loads(site.call(site.allowed, "/v1/outputs/group")["text"])["items"]
    assert [item["data"] for item in found] == [{"number": 1}]


def test_no_page_of_another_origin_can_use_logins_the_console_or_cookies(site: Site) -> None:
    blocked = {"error": "Failed to fetch"}
    for path in (
        "/v1/cookies",
        "/v1/local-storage",
        "/v1/sessions",
        "/console",
        "/console/api/session",
    ):
        assert site.call(site.allowed, path) == blocked
    assert site.call(site.allowed, "/v1/groups", credentials="include") == blocked
    key = {"gleanery-session-key": "x" * 43}
    assert site.call(site.allowed, "/v1/groups", headers=key) == blocked
    assert site.call(site.allowed, "/v1/groups")["status"] == 200


def test_the_example_of_a_page_works_as_written(site: Site) -> None:
    site.push(site.allowed, output(1))
    [script] = re.findall(r"^```js\n(.*?)^```", GUIDE, re.M | re.S)
    script = script.replace(ADDRESS, site.service.url).replace("limit=1000", "limit=1")
    call = f"async ([group, token]) => {{ {script}\nreturn await readOutputs(group, token); }}"
    [found] = site.allowed.evaluate(call, ["group", site.token])
    assert found["data"] == {"number": 1}
    with pytest.raises(Error, match="There is no group with this group_id"):
        site.allowed.evaluate(call, ["unknown", site.token])

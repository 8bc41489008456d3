"""The service behind nginx, below a path: a client follows every link of every response.

``make proxies`` installs nginx. Where it is missing, these tests are skipped.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urldefrag, urljoin

import httpx2
import pytest

from gleanery.service.api.operation import Operation
from gleanery.service.application import OPERATIONS
from tests.support.certificates import write_certificate
from tests.support.outputs import output
from tests.support.process import free_port
from tests.support.proxies import running_proxy
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.tenants import Names, create_one_of_everything

pytestmark = pytest.mark.thorough

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port}{tls};
        ssl_certificate {folder}/cert.pem;
        ssl_certificate_key {folder}/key.pem;
        location /data/ {{
            proxy_pass http://127.0.0.1:{service}/;
            proxy_http_version 1.1;
        }}
    }}
}}
"""
KINDS = (
    *("/docs", "/openapi.json", "/v1/blobs/", "/v1/files/"),
    *("/v1/outputs/", "/v1/reviews/", "/v1/groups/", "/v1/exports/"),
    *("/v1/groups?", "/v1/cookies?", "/v1/local-storage?", "/v1/sessions?"),
)
"""Starts of the paths of links that a response must contain."""
SIGNED = ("get_blob", "get_signed_export")
"""Operations that need a signed link."""
_LINK_HEADER = re.compile(r"<([^>]*)>")
_HTML_LINK = re.compile(r'(?:href|src|action)="([^"]*)"')


class Prefixed:
    """A service below a path, and the links that its responses contain."""

    def __init__(self, service: Service, certificate: Path) -> None:
        self._service = service
        self.url = service.url
        context = ssl.create_default_context(cafile=certificate)
        hooks = {"response": [self._note_links]}
        self.client = Client(service.url, service.token(), verify=context, event_hooks=hooks)
        self.stranger = Client(service.url, None, verify=context, event_hooks=hooks)
        self.links: set[str] = set()

    def _note_links(self, response: httpx2.Response) -> None:
        response.read()
        assert f"127.0.0.1:{self._service.settings.port}" not in response.text
        self.links |= {urldefrag(link)[0] for link in links_of(response)} - {self.url}

    def follow_all(self) -> dict[str, httpx2.Response]:
        """Follows all links, also those in the responses; returns the response to each."""
        responses: dict[str, httpx2.Response] = {}
        while self.links - responses.keys():
            link = min(self.links - responses.keys())
            assert link.startswith(f"{self.url}/"), link
            response = self.stranger.get(link)
            if response.status_code == 401:
                response = self.client.get(link)
            responses[link] = response
        return responses

    def close(self) -> None:
        self.client.close()
        self.stranger.close()


def links_of(response: httpx2.Response) -> Iterator[str]:
    """Yields all links of a response: of its headers, of an HTML page, and strings in JSON."""
    url = str(response.url)
    for link in _LINK_HEADER.findall(response.headers.get("link", "")):
        yield link
    if "location" in response.headers:
        yield urljoin(url, response.headers["location"])
    media_type = response.headers.get("content-type", "")
    if media_type.startswith("text/html"):
        for link in _HTML_LINK.findall(response.text):
            yield urljoin(url, link)
    if media_type.startswith("application/json"):
        yield from json_links(response.json(), url)


def json_links(value: Any, url: str) -> Iterator[str]:
    """Yields the strings in a JSON value that are addresses of the host of this URL."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from json_links(one, url)
    elif isinstance(value, str) and value.startswith(urljoin(url, "/")):
        yield value


@pytest.fixture(params=["http", "https"])
def prefixed(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Prefixed]:
    folder, port, scheme = tmp_path / "nginx", free_port(), request.param
    folder.mkdir()
    certificate, _ = write_certificate(folder)
    fresh = fresh_settings(engine, request, tmp_path / "service")
    url = f"{scheme}://127.0.0.1:{port}/data"
    service = Service(replace(fresh, base_url=url, behind_proxy=True))
    text = NGINX.format(
        folder=folder,
        port=port,
        service=service.settings.port,
        tls=" ssl" if scheme == "https" else "",
    )
    try:
        with running_proxy("nginx", ("-c",), text, folder, port):
            made = Prefixed(service, certificate)
            yield made
            made.close()
    finally:
        service.stop()


def request_of(operation: Operation, names: Names) -> tuple[str, dict[str, Any]]:
    """Path and query of a request that the operation answers with links, if it has any."""
    values = {
        "group_id": names["group"],
        "output_id": names["output"],
        "id": names["file"],
        "review_id": names["review"],
        "run_id": names["run"],
        "webhook_id": names["webhook"],
        "alert_id": names["alert"],
    }
    path = re.sub(r"\{(\w+)\}", lambda found: values[found[1]], operation.path)
    known = {"limit": 1, "source_url": names["source"], "etag": names["etag"], "history": "true"}
    if operation.name == "get_review_sample":
        known["job_id"] = names["job"]
    fields = operation.query.model_fields if operation.query is not None else {}
    return path, {name: value for name, value in known.items() if name in fields}


def test_every_link_can_be_followed(prefixed: Prefixed) -> None:
    """A new operation with GET is covered too; one that creates links needs a call here."""
    names = create_one_of_everything(prefixed.client)  # also a signed link to an export
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.name not in SIGNED:
            path, query = request_of(operation, names)
            answer = prefixed.client.get(path, params=query)
            assert answer.status_code == operation.status, answer.text
    followed = prefixed.follow_all()
    failed = {link: answer for link, answer in followed.items() if answer.status_code != 200}
    assert failed == {}
    for kind in KINDS:
        assert any(f"{prefixed.url}{kind}" in link for link in followed), kind


def test_the_next_page_of_a_group_with_any_name_can_be_followed(prefixed: Prefixed) -> None:
    name = quote("a b?c%2Fd#é+;&=..", safe="")
    prefixed.client.store(name, *map(output, range(3)))
    assert len(prefixed.client.items(name, limit=1)) == 3
    page = prefixed.client.get(f"/v1/changes/{name}", params={"limit": 2}).json()
    assert len(prefixed.client.get(page["metadata"]["next_url"]).json()["changes"]) == 1


def test_the_document_names_the_address_below_the_path(prefixed: Prefixed) -> None:
    document = prefixed.stranger.get("/openapi.json").json()
    [server] = document["servers"]
    for path in ("/healthz", "/readyz", "/docs", "/openapi.json", "/metrics"):
        assert path in document["paths"]
        assert prefixed.stranger.get(server["url"] + path).status_code == 200
    assert server["url"] in prefixed.stranger.get("/docs").text

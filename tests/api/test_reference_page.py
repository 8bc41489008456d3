"""The reference page: its content, its security policy, and its examples as programs.

``tests/slow/test_reference_in_browser.py`` uses the page in a browser.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery.service.application import OPERATIONS
from gleanery.sessions import FORMATS
from tests.api.test_openapi_examples import FORM, JSON, NDJSON, Story, calls
from tests.support.api_examples import EXAMPLES
from tests.support.html import Element, parse_html
from tests.support.process import environment
from tests.support.service import Client, Service
from tests.support.waiting import TIMEOUT_SECONDS

MAX_BYTES = 448 * 1024
LABELLED = ("input", "select", "textarea")
DOCUMENTED = [operation for operation in OPERATIONS if operation.path != "/"]  # it only redirects
WITHOUT_SNIPPET = (NDJSON, FORM)  # second media types of a body


@pytest.fixture(scope="module")
def response(service: Service) -> httpx2.Response:
    with service.stranger() as stranger:
        return stranger.get("/docs")


@pytest.fixture(scope="module")
def page(response: httpx2.Response) -> Element:
    return parse_html(response.text)


def source_hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def test_the_policy_allows_this_script_and_style_and_no_other(
    response: httpx2.Response, page: Element
) -> None:
    directives = dict(
        directive.split(" ", 1)
        for directive in response.headers["content-security-policy"].split("; ")
    )
    assert directives == {
        "default-src": "'none'",
        "script-src": source_hash(page.find("script").text),
        "style-src": source_hash(page.find("style").text),
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert response.headers["referrer-policy"] == "no-referrer"


def test_the_page_loads_nothing(page: Element) -> None:
    for element in page.walk():
        assert not element.attributes.keys() & {"src", "action", "style", "onclick"}, element.tag
        target = element.attributes.get("href", "#")
        assert target.startswith("#") or target == "openapi.json"
    assert "url(" not in page.find("style").text
    assert "@import" not in page.find("style").text


def test_the_page_is_complete_and_small(response: httpx2.Response, page: Element) -> None:
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert len(response.content) < MAX_BYTES
    articles = [article.attributes["id"] for article in page.find_all("article")]
    assert articles[0] == "get_outputs"
    assert {operation.name for operation in DOCUMENTED} < set(articles)
    for operation in DOCUMENTED:
        article = page.find("article", id=operation.name)
        assert article.find("p", class_="route").text == f"{operation.method} {operation.path}"
        assert page.find_all("a", href=f"#{operation.name}")


def test_each_status_code_is_explained_once(page: Element) -> None:
    """The introduction explains those of most operations, which would make the page large."""
    introduction = page.find("section", id="introduction")
    common = {code.text for code in introduction.find_all("code")}
    for operation in DOCUMENTED:
        details = page.find("article", id=operation.name).find("details", class_="statuses")
        own = {code.text for code in details.find_all("code")}
        assert set(details.find("small").text.split()) <= own | common
        assert not own & common


def test_the_formats_of_session_state_are_explained(page: Element) -> None:
    for name in ("export_session", "import_session"):
        text = page.find("article", id=name).text
        for one in FORMATS.values():
            assert f"- {one.name}: {one.description.replace('`', '')}" in text


def test_values_have_the_spelling_of_json_and_are_no_links(page: Element) -> None:
    text = page.find("article", id="ChangeOut").text
    assert 'change "create" or "update" or "delete"' in text


@pytest.mark.parametrize(
    ("article", "expected"),
    [
        ("GroupSettings", "key_fields array of string or null optional, 1 to 16 elements"),
        ("ReviewIn", "output_ids array of string or null optional, 1 to 1000 elements"),
        ("ReviewIn", "findings array of FindingIn or null optional, at most 1000 elements"),
        ("OutputIn", "files array of FileIn or null optional, at most 200 elements"),
        ("OutputIn", "source_url string at least 1 character"),
        ("set_cookies", "array of CookieIn at most 10000 elements, as application/json"),
        ("get_outputs", "country string query, optional, 1 to 100 characters"),
    ],
)
def test_limits_of_lists_and_texts_are_listed(page: Element, article: str, expected: str) -> None:
    assert expected in page.find("article", id=article).text


def test_the_introduction_says_what_happens_to_a_member_given_twice(page: Element) -> None:
    introduction = page.find("section", id="introduction").text
    assert "If a JSON object has a member twice, its last value counts." in introduction


def test_links_and_labels_have_targets(page: Element) -> None:
    ids = [element.attributes["id"] for element in page.walk() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    links = {link.attributes["href"] for link in page.find_all("a")} - {"openapi.json"}
    assert {link.removeprefix("#") for link in links} <= set(ids)
    labels = {label.attributes.get("for") for label in page.find_all("label")}
    for form in page.find_all("form"):
        for field in (element for element in form.walk() if element.tag in LABELLED):
            assert field.attributes.get("type") == "checkbox" or field.attributes["id"] in labels


def test_only_requests_that_change_data_need_consent(page: Element) -> None:
    for operation in DOCUMENTED:
        form = page.find("article", id=operation.name).find("form")
        boxes = form.find_all("input", type="checkbox")
        assert ["required" in box.attributes for box in boxes] == [True] * (
            operation.method != "GET"
        )


def test_the_examples_have_the_address_of_the_service(service: Service, page: Element) -> None:
    for operation in DOCUMENTED:
        article = page.find("article", id=operation.name)
        for language in ("curl", "python"):
            assert f"{service.url}/" in snippet(article, language)
    assert "gleanery.example.com" not in page.text


# --- examples as programs -------------------------------------------------------------------------


def snippet(article: Element, language: str) -> str:
    return article.find("div", class_=language).find("code").text


def run_curl(text: str, folder: Path, token: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    return run(["sh", "-c", text.replace("curl ", "curl -sS --fail-with-body ", 1)], folder, token)


def run_python(text: str, folder: Path, token: str) -> str:
    return run([sys.executable, "-c", text], folder, token)


def run(command: list[str], folder: Path, token: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(TOKEN=token, NO_PROXY="*"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (command[-1], done.stdout, done.stderr)
    return done.stdout


def with_real_values(text: str, story: Story) -> str:
    """Replaces the values of the examples by those that the service has generated."""
    known = sorted(story.real.items(), key=lambda item: -len(str(item[0][1])))
    for (_, example), real in known:
        text = re.sub(rf"(?<![\w.]){re.escape(str(example))}(?![\w.])", str(real), text)
    return text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("language", "run_snippet", "read"),
    [("curl", run_curl, json.loads), ("python", run_python, ast.literal_eval)],
)
def test_the_examples_run(
    language: str,
    run_snippet: Callable[[str, Path, str], str],
    read: Callable[[str], Any],
    page: Element,
    client: Client,
    tmp_path: Path,
) -> None:
    """One after another, each gets the response that stands beside it."""
    (tmp_path / "coffee.txt").write_text(EXAMPLES["store_file"].body)
    story = Story(client)
    assert client.token is not None
    for call in calls(client.get("/openapi.json").json()):
        if call.body is not None and call.body[0] in WITHOUT_SNIPPET:
            assert story.send(call).status_code == call.status
            continue
        text = snippet(page.find("article", id=call.name), language)
        printed = run_snippet(with_real_values(text, story), tmp_path, client.token)
        if call.media == JSON and not EXAMPLES[call.name].is_excerpt:
            story.compare(call.response, read(printed), call.name)
        elif call.media == "application/octet-stream":
            assert (tmp_path / "file").read_text() == call.response

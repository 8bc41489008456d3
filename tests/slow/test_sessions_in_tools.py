"""A login in Chromium is stored, and each tool is logged in with what it gets from the service.

The tools run as ``docs/how-to/use-a-session-in-a-tool.md`` says, in processes of their own.
``make sessions`` installs them and runs these tests. Without a tool its test is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.browser import chromium_path, running_chromium
from tests.support.examples import examples, is_shown
from tests.support.login_site import (
    HOST,
    LOGGED_IN,
    ORIGIN,
    PASSWORD,
    PORT,
    SUBDOMAIN,
    USER,
    LoginSite,
    running_login_site,
)
from tests.support.process import environment
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "how-to" / "use-a-session-in-a-tool.md").read_text()
TOOLS_PYTHON = ROOT / ".venv-session-tools" / "bin" / "python"
NODE_MODULES = ROOT / ".puppeteer" / "node_modules"
OWN_PROGRAM = (sys.executable, "-c")
TOOLS_PROGRAM = (str(TOOLS_PYTHON), "-c")
NODE_PROGRAM = ("node", "--input-type=module", "-e")
TIMEOUT_SECONDS = 120

ACCOUNT = f"{ORIGIN}/account"
OTHER_PATH = f"{ORIGIN}/"
OTHER_PORT = f"https://{HOST}/account"
OTHER_HOST = f"https://{SUBDOMAIN}:{PORT}/"
NO_LOCAL_STORAGE = f"{LOGGED_IN}, but the local storage is wrong"

State = dict[str, Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginSite]:
    with running_login_site(tmp_path_factory.mktemp("site")) as running:
        yield running


class Login(NamedTuple):
    """What a browser saves after a login."""

    state: State
    archive: bytes
    """The requests and responses, as an HTTP Archive (HAR)."""


@pytest.fixture(scope="module")
def login(site: LoginSite, tmp_path_factory: pytest.TempPathFactory) -> Login:
    archive = tmp_path_factory.mktemp("login") / "login.har"
    with running_chromium() as browser:
        context = browser.new_context(
            ignore_https_errors=True, proxy={"server": site.proxy}, record_har_path=archive
        )
        page = context.new_page()
        page.goto(f"{ORIGIN}/login")
        page.locator("[name=user]").fill(USER)
        page.locator("[name=password]").fill(PASSWORD)
        page.get_by_role("button").click()
        page.wait_for_url(ACCOUNT)
        assert page.locator("#status").text_content() == LOGGED_IN
        state = dict(context.storage_state())
        context.close()
    return Login(state, archive.read_bytes())


@pytest.fixture(scope="module")
def state(login: Login) -> State:
    """The storage state of a browser that has logged in."""
    return login.state


@pytest.fixture(scope="module")
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """One engine for most tests: the tools do not see which."""
    running = Service(fresh_settings("sqlite", request, tmp_path_factory.mktemp("service")))
    yield running
    running.stop()


class Workplace:
    """A folder where the commands of the guide run, with a service that has the session."""

    def __init__(self, folder: Path, site: LoginSite, client: Client) -> None:
        self.folder, self.client = folder, client
        arguments = ["--ignore-certificate-errors", f"--proxy-server={site.proxy}"]
        self._browser_arguments = arguments + ["--no-sandbox"] * (os.geteuid() == 0)
        trusted = str(site.certificate)
        (folder / "wgetrc").write_text(f"ca_certificate = {trusted}\ncontent_on_error = on\n")
        self._variables = {
            "TOKEN": client.token or "",
            "HTTPS_PROXY": site.proxy,
            "https_proxy": site.proxy,
            "CURL_CA_BUNDLE": trusted,
            "SSL_CERT_FILE": trusted,
            "REQUESTS_CA_BUNDLE": trusted,
            "WGETRC": str(folder / "wgetrc"),
            "SE_CHROMEDRIVER": shutil.which("chromedriver") or "",
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(folder),
        }

    def store(self, content: str | bytes) -> dict[str, Any]:
        """Imports what a tool has saved."""
        done = self.client.post("/v1/sessions/import", params={"url": ACCOUNT}, content=content)
        assert done.status_code == 200, done.text
        counts: dict[str, Any] = done.json()
        return counts

    def visit(
        self, tool: str, url: str, program: Sequence[str] = OWN_PROGRAM, also: str = "pass"
    ) -> str:
        """Runs what the guide says for a tool, and returns what the page at the URL shows.

        ``also`` is a statement that the program runs on that page.
        """
        section = self.translate(GUIDE.split(f"## {tool}\n")[1].split("\n## ")[0], url)
        for example in examples(section):
            printed = self.run(["bash", "-c", example.command])
        for text in re.findall(r"^```(?:python|javascript)\n(.*?)^```", section, re.M | re.S):
            extended = re.sub(r"^( *)(?=print\()", rf"\1{also}\n\1", text, flags=re.M)
            printed = self.run([*program, extended])
        [status] = re.findall('<p id="status">(.*?)</p>', printed)
        return str(status)

    def translate(self, text: str, url: str) -> str:
        """Replaces the service, the visited page, and the start of the browser."""
        options = f"executable_path={chromium_path()!r}, args={self._browser_arguments}"
        text = re.sub(rf"(?<!url=){re.escape(ACCOUNT)}", url, text)
        text = text.replace("http://127.0.0.1:8000", str(self.client.base_url).rstrip("/"))
        text = text.replace("chromium.launch()", f"chromium.launch({options})")
        text = text.replace("puppeteer.launch()", f"puppeteer.launch({self._puppeteer_options()})")
        text = text.replace('from "puppeteer"', 'from "puppeteer-core"')
        return text.replace("driver = webdriver.Chrome()", self._start_of_selenium())

    def _puppeteer_options(self) -> str:
        return json.dumps({"executablePath": chromium_path(), "args": self._browser_arguments})

    def _start_of_selenium(self) -> str:
        arguments = ["--headless=new", *self._browser_arguments]
        return (
            "options = webdriver.ChromeOptions()\n"
            f"options.binary_location = {chromium_path()!r}\n"
            f"for argument in {arguments}: options.add_argument(argument)\n"
            "driver = webdriver.Chrome(options)"
        )

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment(**self._variables),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert "<p" in done.stdout or done.returncode == 0, done.stderr
        return done.stdout

    def saved(self) -> bytes:
        """Returns the file ``saved``, which a program has written."""
        return (self.folder / "saved").read_bytes()


@pytest.fixture
def workplace(service: Service, site: LoginSite, state: State, tmp_path: Path) -> Workplace:
    return prepare(service, site, state, tmp_path)


def prepare(service: Service, site: LoginSite, state: State, folder: Path) -> Workplace:
    """Imports the session of the browser into the service."""
    client = service.client()
    workplace = Workplace(folder, site, client)
    done = workplace.store(json.dumps(state))
    assert (done["format"], done["losses"]) == ("playwright", [])
    assert done["cookies"]["created"] == len(site.cookies)
    return workplace


def require(*programs: str) -> None:
    """Skips the test if a program is missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: run make sessions")


def require_python_tools() -> None:
    if not TOOLS_PYTHON.exists():
        pytest.skip("needs Selenium and Scrapy: run make sessions")


def comparable(cookies: list[dict[str, Any]]) -> dict[Any, Any]:
    """Cookies by identity, as Playwright, CDP and Selenium describe them."""
    return {
        (cookie["domain"], cookie["path"], cookie["name"]): {
            "value": cookie["value"],
            "expires": int(cookie.get("expires", cookie.get("expiry", -1))),  # whole seconds
            "httpOnly": cookie["httpOnly"],
            "secure": cookie["secure"],
            "sameSite": cookie.get("sameSite", "Lax"),  # Playwright says so if there is none
        }
        for cookie in cookies
    }


def partitions(cookies: list[dict[str, Any]]) -> dict[str, tuple[str, bool]]:
    """Partitions by name, as Playwright and CDP describe them."""
    found = {cookie["name"]: (cookie, cookie.get("partitionKey")) for cookie in cookies}
    return {
        name: (key["topLevelSite"], key["hasCrossSiteAncestor"])
        if isinstance(key, dict)
        else (key, cookie["_crHasCrossSiteAncestor"])
        for name, (cookie, key) in found.items()
        if key is not None
    }


# --- browsers -------------------------------------------------------------------------------------

_SAVE_STATE = "context.storage_state(path='saved')"
_SAVE_CDP = "Path('saved').write_text(json.dumps(cdp.send('Network.getAllCookies')))"
_SAVE_SELENIUM = "Path('saved').write_text(json.dumps(driver.get_cookies()))"


def test_playwright(workplace: Workplace, state: State) -> None:
    check_playwright(workplace, state)


def test_playwright_from_postgresql(
    request: pytest.FixtureRequest, site: LoginSite, state: State, tmp_path: Path
) -> None:
    service = Service(fresh_settings("postgres", request, tmp_path / "service"))
    try:
        check_playwright(prepare(service, site, state, tmp_path), state)
    finally:
        service.stop()


def check_playwright(workplace: Workplace, state: State) -> None:
    assert workplace.visit("Playwright", ACCOUNT, also=_SAVE_STATE) == LOGGED_IN
    after = json.loads(workplace.saved())
    assert comparable(after["cookies"]) == comparable(state["cookies"])
    assert partitions(after["cookies"]) == partitions(state["cookies"]) != {}
    assert after["origins"] == state["origins"]
    assert workplace.store(workplace.saved())["cookies"]["unchanged"] == len(after["cookies"])
    for url in (OTHER_PATH, OTHER_PORT, OTHER_HOST):
        assert workplace.visit("Playwright", url) == LOGGED_IN


def test_cdp(workplace: Workplace, state: State) -> None:
    assert workplace.visit("CDP", ACCOUNT, also=_SAVE_CDP) == NO_LOCAL_STORAGE
    after = json.loads(workplace.saved())["cookies"]
    assert comparable(after) == comparable(state["cookies"])
    assert partitions(after) == partitions(state["cookies"])
    assert workplace.store(workplace.saved())["cookies"]["unchanged"] == len(after)
    assert workplace.visit("CDP", OTHER_HOST) == LOGGED_IN


def test_puppeteer(workplace: Workplace) -> None:
    require("node")
    if not NODE_MODULES.exists():
        pytest.skip("needs Puppeteer: run make sessions")
    (workplace.folder / "node_modules").symlink_to(NODE_MODULES)
    assert workplace.visit("Puppeteer", ACCOUNT, NODE_PROGRAM) == NO_LOCAL_STORAGE
    assert workplace.visit("Puppeteer", OTHER_HOST, NODE_PROGRAM) == LOGGED_IN


def test_selenium(workplace: Workplace, state: State) -> None:
    require("chromedriver")
    require_python_tools()
    assert workplace.visit("Selenium", ACCOUNT, TOOLS_PROGRAM, _SAVE_SELENIUM) == LOGGED_IN
    expected = [cookie | {"secure": True} for cookie in state["cookies"]]  # as chromedriver does
    assert comparable(json.loads(workplace.saved())) == comparable(expected)
    assert workplace.visit("Selenium", OTHER_HOST, TOOLS_PROGRAM) == LOGGED_IN


# --- programs without a browser -------------------------------------------------------------------


@pytest.mark.parametrize("program", ["curl", "wget"])
def test_curl_and_wget(program: str, workplace: Workplace) -> None:
    require(program)
    for url in (ACCOUNT, OTHER_PATH, OTHER_PORT, OTHER_HOST):
        assert workplace.visit(program, url) == LOGGED_IN


@pytest.mark.parametrize("form", ["Cookie header", "curl command"])
def test_a_request_for_one_page(form: str, workplace: Workplace) -> None:
    require("curl")
    assert workplace.visit(form, ACCOUNT) == LOGGED_IN


def test_requests(workplace: Workplace) -> None:
    for url in (ACCOUNT, OTHER_PATH, OTHER_PORT):
        assert workplace.visit("requests", url) == LOGGED_IN


def test_httpx2(workplace: Workplace) -> None:
    for url in (ACCOUNT, OTHER_PATH, OTHER_PORT, OTHER_HOST):
        assert workplace.visit("httpx2", url) == LOGGED_IN


def test_requests_stores_the_session_again(workplace: Workplace, state: State) -> None:
    change = f"browser.cookies.set('new', '1', domain='.{HOST}', path='/basket')"
    assert workplace.visit("Store the session again", ACCOUNT, also=change) == LOGGED_IN
    after = workplace.client.get("/v1/sessions/export", params={"domain": HOST}).json()
    cookies = comparable(after["cookies"])
    assert cookies.pop((f".{HOST}", "/basket", "new"))["value"] == "1"
    assert cookies == comparable(state["cookies"])


def test_scrapy(workplace: Workplace) -> None:
    require_python_tools()
    for url in (ACCOUNT, OTHER_PATH):
        assert workplace.visit("Scrapy", url, TOOLS_PROGRAM) == LOGGED_IN


# --- logins of other tools ------------------------------------------------------------------------

_FORM = "user=J%C3%BCrgen&password=pass+%26+word"


@pytest.mark.parametrize(
    ("command", "format_"),
    [
        ("curl -sS -o page.html -c saved -d", "netscape"),
        ("curl -sS -o page.html -D saved -d", "set-cookie"),
        (
            "wget -q -O page.html --save-cookies saved --keep-session-cookies --post-data",
            "netscape",
        ),
    ],
    ids=["curl -c", "curl -D", "wget"],
)
def test_a_login_of_curl_or_wget(
    command: str, format_: str, service: Service, site: LoginSite, tmp_path: Path
) -> None:
    require(command.partition(" ")[0])
    workplace = Workplace(tmp_path, site, service.client())
    workplace.run(["bash", "-c", f"{command} '{_FORM}' {ORIGIN}/login"])
    assert workplace.store(workplace.saved())["format"] == format_
    assert workplace.visit("curl", OTHER_PATH) == LOGGED_IN


def test_a_login_in_an_archive(
    login: Login, service: Service, site: LoginSite, tmp_path: Path
) -> None:
    require("curl")
    workplace = Workplace(tmp_path, site, service.client())
    assert workplace.store(login.archive)["format"] == "har"
    assert workplace.visit("curl", ACCOUNT) == LOGGED_IN


# --- losses ---------------------------------------------------------------------------------------

_LOST = {
    "playwright": [],
    "cdp": ["Local storage"],
    "puppeteer": ["Local storage"],
    "selenium": ["The partition", "Local storage"],
    "netscape": ["SameSite", "The partition", "Local storage"],
    "scrapy": [
        *("HttpOnly", "SameSite", "The expiry", "The partition", "Local storage"),
        "Whether a cookie is for one host only",
    ],
}


@pytest.mark.parametrize("format_", _LOST)
def test_an_export_says_what_the_tool_does_not_get(format_: str, workplace: Workplace) -> None:
    query = {"format": format_, "domain": HOST}
    done = workplace.client.get("/v1/sessions/export", params=query)
    sentences = json.loads(done.headers.get("Gleanery-Losses", "[]"))
    assert len(sentences) == len(_LOST[format_])
    for start in _LOST[format_]:
        assert any(sentence.startswith(start) for sentence in sentences), sentences


def test_the_guide_shows_the_losses(workplace: Workplace) -> None:
    introduction = workplace.translate(GUIDE.partition("\n## ")[0], ACCOUNT)
    [example] = examples(introduction)
    assert is_shown(workplace.run(["bash", "-c", example.command]), example.output)

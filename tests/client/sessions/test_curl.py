"""Curl commands, as Chrome and Firefox copy them for bash and for Windows."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from gleanery.sessions import Cookie, InvalidSession, SessionState, read, write
from tests.client.sessions import cookie_server

_URL = "https://shop.example/account?a[]=1&b='2'"
_HOST = "shop.example"
_COOKIES = (Cookie("sid", "S3CRET", _HOST), Cookie("cart", 'it\'s "50%"!\\ü😀', _HOST))
_CHROME_BASH = r"""curl 'https://shop.example/account?a=1&b=c' \
  -X 'POST' \
  -H 'accept: text/html,application/xhtml+xml;q=0.9' \
  -b $'sid=S3CRET; cart=it\'s "50%"\u0021\\\u00fc\ud83d\ude00' \
  -H 'referer: https://other.example/' \
  --data-raw $'a=b; c=\'d\'\n-b x=y'
"""
_FIREFOX_BASH = r"""curl --compressed 'https://shop.example/account' \
  -X POST \
  -H 'User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0' \
  -H 'Referer: https://other.example/' \
  -H $'Cookie: sid=S3CRET; cart=it\'s "50%"\x21\\ü😀' \
  --data-raw 'https://third.example'
"""
_CHROME_CMD = (
    'curl ^"https://shop.example/account?a=^%^20b^&c=d^" ^\r\n'
    '  -H ^"accept: */*^" ^\r\n'
    '  -b ^"sid=S3CRET; cart=it\'s ^\\^"50^%^\\^"^!^\\^\\ü😀^" ^\r\n'
    '  -H ^"user-agent: Mozilla/5.0 ^(Windows NT 10.0^)^" ^\r\n'
    '  --data-raw ^"a^\r\n\r\nb^"\r\n'
)
_FIREFOX_CMD = (
    'curl.exe "https://shop.example/account" ^\r\n'
    "  --compressed ^\r\n"
    '  -H "Cookie: sid=S3CRET; cart=it\'s ""50%""!\\\\ü😀" ^\r\n'
    '  -H "Priority: u=0, i"\r\n'
)


@pytest.mark.parametrize("text", [_CHROME_BASH, _FIREFOX_BASH, _CHROME_CMD, _FIREFOX_CMD])
def test_reads_the_commands_of_browsers(text: str) -> None:
    found = read(text)
    assert (found.format, found.state.cookies, found.losses) == ("curl", _COOKIES, ())


@pytest.mark.parametrize(
    "command",
    [
        "curl -sSLb 'a=1' shop.example",
        "$ curl --url https://shop.example/ -ba=1",
        "curl https://shop.example --cookie a=1 | grep b=2",
        "curl -x http://proxy.example:3128 -o out.html http://shop.example -H Cookie:a=1 > f",
        'curl "https://shop.example/" -H "cookie: \\\na=1"',
        "curl --max-time 10 --resolve shop.example:80:127.0.0.1 shop.example -b a=1",
    ],
)
def test_reads_commands_of_people(command: str) -> None:
    assert read(command).state.cookies == (Cookie("a", "1", _HOST),)


def test_reads_the_powershell_command_of_chromium() -> None:
    text = """$session = New-Object Microsoft.PowerShell.Commands.WebRequestSession
$session.UserAgent = "Mozilla/5.0"
$session.Cookies.Add((New-Object System.Net.Cookie("sid", "S3CRET", "/", "shop.example")))
$session.Cookies.Add((New-Object System.Net.Cookie("a", "`"`$$([char]252)", "/", ".shop.example")))
Invoke-WebRequest -UseBasicParsing -Uri "https://shop.example/account" `
-WebSession $session `
-Headers @{
  "accept"="*/*"
}
"""
    found = read(text)
    assert (found.format, found.losses) == ("curl", ())
    assert found.state.cookies == (_COOKIES[0], Cookie("a", '"$ü', _HOST, host_only=False))


def test_reads_several_commands() -> None:
    """Chrome copies all requests as commands with a semicolon. The last value counts."""
    text = "curl 'https://shop.example/' -b 'a=1; b=1' ;\ncurl 'https://shop.example/' -b a=2"
    pairs = {one.name: one.value for one in read(text).state.cookies}
    assert pairs == {"a": "2", "b": "1"}


def test_reads_all_requests_of_a_page() -> None:
    """The page of a WebSocket gets cookies, and a request of an extension has none."""
    text = "curl 'chrome-extension://abc/x.js' ;\ncurl 'wss://shop.example/live' -b 'a=1'"
    assert read(text).state.cookies == (Cookie("a", "1", _HOST),)


def test_each_request_of_a_command_has_its_own_cookies() -> None:
    text = "curl https://shop.example -b a=1 --next https://other.example -b b=2"
    cookies = read(text).state.cookies
    assert cookies == (Cookie("a", "1", _HOST), Cookie("b", "2", "other.example"))


def test_a_cookie_header_in_powershell_is_a_loss() -> None:
    text = 'Invoke-WebRequest -Uri "https://shop.example/" -Headers @{\n  "Cookie" = "a=1"\n}'
    found = read(text)
    assert found.state == SessionState()
    assert [(loss.subject, loss.records) for loss in found.losses] == [("cookie", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "curl https://shop.example/ -H 'authorization: Bearer S3CRET'",
        "curl https://shop.example/ -H 'Proxy-Authorization: x' -u anna:S3CRET",
        'Invoke-WebRequest -Uri "https://shop.example/" -Headers @{\n"Authorization"="S3CRET"\n}',
    ],
)
def test_the_authorization_is_a_loss(text: str) -> None:
    found = read(text)
    assert found.state == SessionState()
    assert [str(loss) for loss in found.losses] == [
        "The Authorization header is not kept: a session has only cookies and local storage "
        "(1 request)."
    ]


def test_a_cookie_file_is_a_loss() -> None:
    found = read("curl -b cookies.txt https://shop.example/")
    assert found.state == SessionState()
    assert [loss.subject for loss in found.losses] == ["cookie"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("curl -b 'sid=S3CRET", "a quote or an escape has no end"),
        ("curl -b sid=S3CRET", "add the parameter url"),
        ("curl -b sid=S3CRET ftp://S3CRET", "Expected a URL"),
        ("curl -b sid=S3CRET https://S3CRET:x/", "The URL is invalid"),
    ],
)
def test_an_error_does_not_contain_the_command(command: str, message: str) -> None:
    with pytest.raises(InvalidSession, match=message) as caught:
        read(command)
    assert "S3CRET" not in str(caught.value)


def test_reads_what_it_writes() -> None:
    written = write(SessionState(_COOKIES), "curl", _URL)
    found = read(written.text)
    assert (found.format, found.state.cookies) == ("curl", _COOKIES)
    assert (written.losses, found.losses) == ((), ())
    assert read(write(SessionState(), "curl", _URL).text).state == SessionState()


def test_a_shell_runs_the_written_command() -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    cookies = (Cookie("", "@v", "127.0.0.1"), Cookie("b", "'$(id)`id`\\", "127.0.0.1"))
    with cookie_server.running() as server:
        written = write(SessionState(cookies), "curl", f"{server.url}?a[]=1&b='2'$(id)")
        subprocess.run(["sh", "-c", written.text], check=True, capture_output=True)
        assert server.received == ["@v; b='$(id)`id`\\"]

"""A curl command, as browsers copy a request. Reads their PowerShell commands, too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby

from gleanery.client.sessions import cookie_headers, lines, powershell, shell_words
from gleanery.client.sessions.cookie_headers import COOKIE
from gleanery.client.sessions.document import Document
from gleanery.client.sessions.errors import InvalidSession
from gleanery.client.sessions.format import TEXT, Format
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie, SessionState
from gleanery.client.sessions.visibility import Page, page_of, parse_request_url

_START = re.compile(r"\s*(?:\$ )?curl(?:\.exe)?\s")
_PROGRAMS = ("curl", "curl.exe")
_TITLE = "A curl command"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE | re.ASCII)
_HEADERS = ("-H", "--header")
_COOKIES = ("-b", "--cookie")
_NEXT = ("-:", "--next")
_USER = ("-u", "--user")
_AUTHORIZATION = re.compile(r"\s*authorization\s*:", re.IGNORECASE)
_URL = "--url"
_SHORT_WITH_VALUE = frozenset("AbcCdDeEFHKmoPQrtTuUwxXyYz")
# Without the list, the value of an option is taken for a URL without a scheme.
_NAMES_WITH_VALUE = """
    abstract-unix-socket alt-svc aws-sigv4 cacert capath cert cert-type ciphers config
    connect-timeout connect-to continue-at cookie cookie-jar create-file-mode crlfile curves
    data data-ascii data-binary data-raw data-urlencode delegation dns-interface
    dns-ipv4-addr dns-ipv6-addr dns-servers doh-url dump-header ech egd-file engine
    etag-compare etag-save expect100-timeout form form-string ftp-account
    ftp-alternative-to-user ftp-method ftp-port ftp-ssl-ccc-mode happy-eyeballs-timeout-ms
    haproxy-clientip header hostpubmd5 hostpubsha256 hsts interface ip-tos ipfs-gateway json
    keepalive-cnt keepalive-time key key-type krb libcurl limit-rate local-port
    login-options mail-auth mail-from mail-rcpt max-filesize max-redirs max-time netrc-file
    noproxy oauth2-bearer output output-dir parallel-max pass pinnedpubkey preproxy proto
    proto-default proto-redir proxy proxy-cacert proxy-capath proxy-cert proxy-cert-type
    proxy-ciphers proxy-crlfile proxy-header proxy-key proxy-key-type proxy-pass
    proxy-pinnedpubkey proxy-service-name proxy-tls13-ciphers proxy-tlsauthtype
    proxy-tlspassword proxy-tlsuser proxy-user proxy1.0 pubkey quote random-file range rate
    referer request request-target resolve retry retry-delay retry-max-time sasl-authzid
    service-name sigalgs socks4 socks4a socks5 socks5-gssapi-service socks5-hostname
    speed-limit speed-time stderr telnet-option tftp-blksize time-cond tls-max tls13-ciphers
    tlsauthtype tlspassword tlsuser trace trace-ascii trace-config unix-socket upload-file
    upload-flags url url-query user user-agent variable vlan-priority write-out
"""
_LONG_WITH_VALUE = frozenset(f"--{name}" for name in _NAMES_WITH_VALUE.split())
_COOKIE_FILE = "The cookies of a file are not read: the command has only the name of the file"


@dataclass(slots=True)
class _Request:
    urls: list[str] = field(default_factory=list)
    cookies: list[str] = field(default_factory=list)
    has_authorization: bool = False

    @property
    def url(self) -> str | None:
        """The first word with a scheme; otherwise the first, to which curl adds http."""
        found = (url for url in self.urls if _SCHEME.match(url))
        return next(found, f"http://{self.urls[0]}" if self.urls else None)


def _detect(document: Document) -> bool:
    if document.is_json:
        return False
    return bool(_START.match(document.text)) or powershell.is_command(document.text)


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    if not _detect(document):
        raise InvalidSession("Expected a command that starts with curl")
    if powershell.is_command(document.text):
        return SessionState(tuple(powershell.read(document.text, losses)))
    cookies = (_read_request(one, losses, url) for one in _requests(document, losses))
    return SessionState(tuple(lines.limited(chain.from_iterable(cookies), "cookies")))


def _pages(document: Document, url: str | None) -> Iterator[Page]:
    if not powershell.is_command(document.text):  # its cookies have domains and paths
        yield from (_page_of(one, url) for one in _requests(document, Losses()) if one.cookies)


def _requests(document: Document, losses: Losses) -> Iterator[_Request]:
    text = document.text.lstrip().removeprefix("$ ")
    for words in lines.limited(shell_words.split(text), "commands"):
        if words[0] in _PROGRAMS:
            yield from (_parse(one, losses) for one in _split_at_next(words[1:]))


def _split_at_next(words: list[str]) -> Iterator[list[str]]:
    """Yield the words of each request of a command."""
    for is_next, request in groupby(words, lambda word: word in _NEXT):
        if not is_next:
            yield list(request)


def _read_request(request: _Request, losses: Losses, url: str | None) -> Iterator[Cookie]:
    losses.add_authorization(request.has_authorization)
    if request.cookies:
        page = _page_of(request, url)
        yield from cookie_headers.read_cookie_header(request.cookies, page, losses)


def _page_of(request: _Request, url: str | None) -> Page:
    if request.url is None:
        return page_of(url, "A curl command without a URL")
    return parse_request_url(request.url)


def _parse(words: list[str], losses: Losses) -> _Request:
    request = _Request()
    for option, value in _options(words):
        if option in _HEADERS:
            header = COOKIE.match(value)
            if header:
                request.cookies.append(value[header.end() :])
            request.has_authorization |= bool(_AUTHORIZATION.match(value))
        elif option in _USER:
            request.has_authorization = True
        elif option in _COOKIES and "=" in value:
            request.cookies.append(value)
        elif option in _COOKIES:
            losses.add("cookie", _COOKIE_FILE, "file")
        elif option == _URL:
            request.urls.append(value)
    return request


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options that have a value. A word without an option is the URL."""
    remaining = iter(words)
    for word in remaining:
        if not word.startswith("-"):
            yield _URL, word
        elif word.startswith("--"):
            if word in _LONG_WITH_VALUE:
                yield word, next(remaining, "")
        else:
            yield from _short_options(word, remaining)


def _short_options(word: str, remaining: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield the last of several short options, such as ``-sb``, if it has a value."""
    for position, letter in enumerate(word[1:], start=1):
        if letter in _SHORT_WITH_VALUE:
            yield f"-{letter}", word[position + 1 :] or next(remaining, "")
            return


def _write(state: SessionState, losses: Losses, url: str | None) -> str:
    page = page_of(url, _TITLE)
    header = cookie_headers.write_cookie_header(state.cookies, page, losses)
    # Without --globoff, curl takes brackets in a URL for a pattern.
    words = ["curl", "--globoff", str(url)]
    if header:
        words += ["--header", f"Cookie: {header}"]
    return shlex.join(words) + "\n"


FORMAT = Format(
    name="curl",
    title=_TITLE,
    description='"Copy as cURL" of a browser\'s developer tools. Reads "Copy as PowerShell", too',
    other_names=("copy-as-curl", "powershell"),
    media_type=TEXT,
    file_name="curl.sh",
    carries=frozenset(),
    detect=_detect,
    read=_read,
    write=_write,
    pages=_pages,
    needs_url=True,
)

"""A curl command, as browsers copy a request. Reads their PowerShell commands as well.

A command line of bash or of Windows' cmd is split into commands and words. A PowerShell command, as
Chromium copies it, has the cookies of its web session.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby

from gleanery.sessions import cookie_headers, records
from gleanery.sessions.browser_rules import Page, page_of, parse_request_url
from gleanery.sessions.cookie_headers import COOKIE
from gleanery.sessions.document import TEXT, Document, Format, limited
from gleanery.sessions.model import Cookie, InvalidSession, Losses, SessionState, split_domain

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
    return bool(_START.match(document.text)) or _is_powershell(document.text)


def _read(document: Document, losses: Losses, url: str | None) -> SessionState:
    if not _detect(document):
        raise InvalidSession("Expected a command that starts with curl")
    if _is_powershell(document.text):
        return SessionState(tuple(_read_powershell(document.text, losses)))
    cookies = (_read_request(one, losses, url) for one in _requests(document, losses))
    return SessionState(tuple(limited(chain.from_iterable(cookies), "cookies")))


def _pages(document: Document, url: str | None) -> Iterator[Page]:
    if not _is_powershell(document.text):  # its cookies have domains and paths
        yield from (_page_of(one, url) for one in _requests(document, Losses()) if one.cookies)


def _requests(document: Document, losses: Losses) -> Iterator[_Request]:
    text = document.text.lstrip().removeprefix("$ ")
    for words in limited(_split_words(text), "commands"):
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


_QUOTED = r'"([^`"]*(?:`.[^`"]*)*)"'
_POWERSHELL_COOKIE = re.compile(
    rf"New-Object System\.Net\.Cookie\({_QUOTED}, {_QUOTED}, {_QUOTED}, {_QUOTED}\)",
    re.DOTALL,
)
_POWERSHELL = re.compile(r"^\s*(?:\$session = New-Object|Invoke-WebRequest )", re.MULTILINE)
_POWERSHELL_HEADER = r'[{{;\n][ \t]*"{name}"[ \t]*='
_POWERSHELL_COOKIE_HEADER = re.compile(
    _POWERSHELL_HEADER.format(name="cookie"), re.IGNORECASE | re.ASCII
)
_POWERSHELL_AUTHORIZATION = re.compile(
    _POWERSHELL_HEADER.format(name="authorization"), re.IGNORECASE | re.ASCII
)
_NOT_READ = "The cookies of a Cookie header in a PowerShell command are not read: read it alone"
_POWERSHELL_ESCAPE = re.compile(r"`(.)|\$\(\[char\]([0-9]{1,5})\)", re.DOTALL)


def _is_powershell(text: str) -> bool:
    return _POWERSHELL.match(text) is not None


def _read_powershell(text: str, losses: Losses) -> Iterator[Cookie]:
    """Yield the cookies, which have a path and a domain, but no flags."""
    losses.add("cookie", _NOT_READ, "header", len(_POWERSHELL_COOKIE_HEADER.findall(text)))
    losses.add_authorization(len(_POWERSHELL_AUTHORIZATION.findall(text)))
    for index, match in enumerate(limited(_POWERSHELL_COOKIE.finditer(text), "cookies")):
        with records.at(f"cookies[{index}]"):
            name, value, path, domain = map(_unescape_powershell, match.groups())
            host, host_only = split_domain(domain)
            yield Cookie(name, value, host, host_only, path)


def _unescape_powershell(text: str) -> str:
    unescaped = _POWERSHELL_ESCAPE.sub(lambda match: match[1] or chr(int(match[2])), text)
    # Browsers write a character outside the basic plane as a pair of surrogates.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


_BASH = re.compile(
    r"""
      (?P<space>[ \t]+|\\\r?\n)
    | (?P<end>[\r\n;&|<>()]+)
    | '(?P<single>[^']*)'
    | \$'(?P<ansi_c>[^'\\]*(?:\\.[^'\\]*)*)'
    | \$?"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"
    | \\(?P<escaped>.)
    | (?P<plain>[^\s'"\\;&|<>()$]+|\$(?!['"])|[\f\v])
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_CMD = re.compile(
    r"""
      (?P<space>[ \t]+)
    | (?P<end>[\r\n&|<>]+)
    | "(?P<windows>[^"\\]*(?:(?:\\.|"")[^"\\]*)*)"
    | (?P<plain>[^\s"&|<>]+|[\f\v])
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_CARET = re.compile(r"\^(?:\r?\n(\r?\n)?|(.))")
_CARET_LINE_END = re.compile(r"\^\r?\n")
_ESCAPED_QUOTE = '^"'
_IS_CMD = re.compile(r"\S+[ \t]+(?:-[^\s\"']*[ \t]+)*\^\"|[^\n]* \^\r?\n")
_DOUBLE_ESCAPE = re.compile(r'\\(?:\r?\n|([$`"\\]))')
_WINDOWS_ESCAPE = re.compile(r'\\([\\"])|""')
_ANSI_C_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_ANSI_C = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_MAX_CODE_POINT = 0x10FFFF


def _split_words(text: str) -> Iterator[list[str]]:
    """Yield the words of each command. Raise InvalidSession if a quote has no end."""
    start = text.lstrip()
    is_cmd = _IS_CMD.match(start)
    tokens = _tokens(_CMD, _without_carets(start)) if is_cmd else _tokens(_BASH, start)
    words: list[str] = []
    parts: list[str] = []
    for kind, content in chain(tokens, [("end", "")]):
        if kind not in ("space", "end"):
            parts.append(_UNESCAPE[kind](content))
            continue
        if parts:
            words.append("".join(parts))
            parts = []
        if kind == "end" and words:
            yield words
            words = []


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise InvalidSession("The command is incomplete: a quote or an escape has no end")
        kind = str(match.lastgroup)
        yield kind, match[kind]
        position = match.end()


def _without_carets(text: str) -> str:
    """Remove the escape character of cmd, which has no effect between unescaped quotes."""
    if _ESCAPED_QUOTE in text:
        return _CARET.sub(lambda match: match[1] or match[2] or "", text)
    return _CARET_LINE_END.sub("", text)


def _unescape_double(text: str) -> str:
    return _DOUBLE_ESCAPE.sub(lambda match: match[1] or "", text)


def _unescape_windows(text: str) -> str:
    return _WINDOWS_ESCAPE.sub(lambda match: match[1] or '"', text)


def _unescape_ansi_c(text: str) -> str:
    unescaped = _ANSI_C_ESCAPE.sub(_ansi_c_character, text)
    # Browsers write a character outside the basic plane as a pair of surrogates.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _ansi_c_character(match: re.Match[str]) -> str:
    *hexadecimal, octal, letter = match.groups()
    if letter is not None:
        return _ANSI_C.get(letter, f"\\{letter}")
    digits = next((one for one in hexadecimal if one), None)
    code = int(digits, 16) if digits else int(octal, 8)
    return chr(code) if code <= _MAX_CODE_POINT else "\ufffd"


def _unchanged(text: str) -> str:
    return text


_UNESCAPE: dict[str, Callable[[str], str]] = {
    "single": _unchanged,
    "plain": _unchanged,
    "escaped": _unchanged,
    "ansi_c": _unescape_ansi_c,
    "double": _unescape_double,
    "windows": _unescape_windows,
}


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

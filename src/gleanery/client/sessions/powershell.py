"""PowerShell commands, as Chromium copies a request: the cookies of their web session."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gleanery.client.sessions import lines, records
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie, split_domain

_TEXT = r'"([^`"]*(?:`.[^`"]*)*)"'
_COOKIE = re.compile(
    rf"New-Object System\.Net\.Cookie\({_TEXT}, {_TEXT}, {_TEXT}, {_TEXT}\)", re.DOTALL
)
_COMMAND = re.compile(r"^\s*(?:\$session = New-Object|Invoke-WebRequest )", re.MULTILINE)
_HEADER = r'[{{;\n][ \t]*"{name}"[ \t]*='
_COOKIE_HEADER = re.compile(_HEADER.format(name="cookie"), re.IGNORECASE | re.ASCII)
_AUTHORIZATION = re.compile(_HEADER.format(name="authorization"), re.IGNORECASE | re.ASCII)
_NOT_READ = "The cookies of a Cookie header in a PowerShell command are not read: read it alone"
_ESCAPE = re.compile(r"`(.)|\$\(\[char\]([0-9]{1,5})\)", re.DOTALL)


def is_command(text: str) -> bool:
    return _COMMAND.match(text) is not None


def read(text: str, losses: Losses) -> Iterator[Cookie]:
    """Yield the cookies, which have a path and a domain, but no flags."""
    losses.add("cookie", _NOT_READ, "header", len(_COOKIE_HEADER.findall(text)))
    losses.add_authorization(len(_AUTHORIZATION.findall(text)))
    for index, match in enumerate(lines.limited(_COOKIE.finditer(text), "cookies")):
        with records.at(f"cookies[{index}]"):
            name, value, path, domain = map(_unescape, match.groups())
            host, host_only = split_domain(domain)
            yield Cookie(name, value, host, host_only, path)


def _unescape(text: str) -> str:
    unescaped = _ESCAPE.sub(lambda match: match[1] or chr(int(match[2])), text)
    # Browsers write a character outside the basic plane as a pair of surrogates.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

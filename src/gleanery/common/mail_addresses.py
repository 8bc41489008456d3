"""Addresses of people and servers of e-mail, as settings and webhooks write them."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

_MAX_ADDRESS, _MAX_LOCAL, _MAX_HOST = 254, 64, 253  # characters
# Without quotes and without characters that have a meaning in a header or in a URL.
_ATOM = "[A-Za-z0-9!$'*+^_`{|}~-]+"
_LOCAL = re.compile(rf"{_ATOM}([.]{_ATOM})*")
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}([.]{_LABEL})*")
_TOP_LABEL = re.compile("[0-9]*[A-Za-z-][A-Za-z0-9-]*")
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::(?P<port>[0-9]{1,5}))?")


def is_mail_address(text: str) -> bool:
    """Return True for an address in ASCII, such as ops@example.com."""
    local, _, domain = text.rpartition("@")
    return (
        len(text) <= _MAX_ADDRESS
        and len(local) <= _MAX_LOCAL
        and _LOCAL.fullmatch(local) is not None
        and _HOST.fullmatch(domain) is not None
        and "." in domain
        and _TOP_LABEL.fullmatch(domain.rpartition(".")[2]) is not None
    )


def split_server(text: str) -> tuple[str, int | None]:
    """Return the host and the port of HOST or HOST:PORT. Raise ValueError."""
    found = _SERVER.fullmatch(text)
    if found is None:
        raise ValueError(text)
    host, port = found["host"], None if found["port"] is None else int(found["port"])
    if host.startswith("["):
        host = str(IPv6Address(host[1:-1]))
    elif len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        raise ValueError(text)
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(text)
    return host, port


def is_server(text: str) -> bool:
    try:
        split_server(text)
    except ValueError:
        return False
    return True

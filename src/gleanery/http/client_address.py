"""The IP address of the other end of a connection."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

_UNKNOWN = b"unknown"
_MAX_LENGTH = 45  # of an IPv6 address that ends with an IPv4 address


def address_in(peer: object) -> bytes:
    """Returns the IP address in the peer of a socket, which is a sequence of host, port, ….

    A Unix socket has no address. An ASGI server may report any text, so the text is checked.
    """
    host = str(peer[0]) if isinstance(peer, tuple | list) and peer else ""
    return parse_address(host.partition("%")[0]) or _UNKNOWN  # without the zone of IPv6


def parse_address(text: str) -> bytes:
    """Returns an IP address in its usual form; nothing if the text is not one."""
    return _parse(text) if len(text) <= _MAX_LENGTH else b""


@lru_cache(maxsize=1024)
def _parse(text: str) -> bytes:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return b""
    return b"" if "%" in text else str(address).encode("ascii")

"""Host names: the one form in which a cookie's or an entry's domain is kept, and who sees it."""

from __future__ import annotations

import ipaddress
import re

import idna

# What can't stand in the host of a URL (the WHATWG's forbidden host code points), in ASCII.
_ASCII_HOST = re.compile(r"[^\x00-\x20#%/:<>?@\[\\\]^|\x7f-\U0010ffff]+")
_LONGEST = 253


def normalize(domain: str) -> str:
    """Lower case, IDN in its ASCII form, a leading dot kept.

    Raises ValueError with a sentence for the caller.
    """
    dot, host = ("." if domain.startswith(".") else ""), domain.removeprefix(".")
    if not host.isascii():
        host = _to_ascii(host)
    if not _ASCII_HOST.fullmatch(host) and not _is_bracketed_ipv6(host):
        raise ValueError("expected a host name, without scheme, port or path")
    if len(host) > _LONGEST or host.startswith(".") or ".." in host:
        raise ValueError("expected a host name of at most 253 characters and no empty label")
    return dot + host.lower()


def _to_ascii(host: str) -> str:
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise ValueError("this international host name has no ASCII form") from None


def _is_bracketed_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return host.startswith("[") and host.endswith("]")


def is_address(host: str) -> bool:
    """An IP address has no parent domains."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True

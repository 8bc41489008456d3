"""Host names: the normalized form in which domains of cookies and entries are stored."""

from __future__ import annotations

import ipaddress
import re

import idna

_LABEL = "[A-Za-z0-9_-]{1,63}"
DOMAIN_PATTERN = rf"^\.?({_LABEL}(\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]{{2,45}}\])$"
"""An ASCII host name or an IPv6 address in brackets, optionally with a leading dot."""

_PORT_NUMBER = "[0-9]{1,4}|[0-5][0-9]{4}|6([0-4][0-9]{3}|5([0-4][0-9]{2}|5([0-2][0-9]|3[0-5])))"
ORIGIN_PATTERN = (
    rf"^https?://({_LABEL}(\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]{{2,45}}\])(:({_PORT_NUMBER}))?/?$"
)
"""An origin: scheme, ASCII host, and perhaps a port."""

MAX_DOMAIN_LENGTH = 254

_DOMAIN = re.compile(DOMAIN_PATTERN.removesuffix("$") + r"\Z")
_PORT = re.compile(r":[0-9]{1,5}\Z")
_NUMBER_AT_END = re.compile(r"(?:\A|\.)(?:[0-9]+|0x[0-9a-f]*)\.?\Z")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65535
# Without re.ASCII, "s" also matches the long s of old prints.
_ORIGIN = re.compile(r"https?://([^/?#@\s]+?)(:[0-9]{1,5})?/?\Z", re.IGNORECASE | re.ASCII)
_INVALID_ORIGIN = "expected an origin such as https://shop.example, without path"


def normalize_domain(domain: str) -> str:
    """Convert a domain to lower case and an IDN to ASCII; keep a leading dot.

    Raise ValueError with a message for the client.
    """
    if not domain.isascii():
        dot = "." if domain.startswith(".") else ""
        domain = dot + _to_ascii(domain.removeprefix("."))
    if len(domain) > MAX_DOMAIN_LENGTH or not _DOMAIN.match(domain):
        raise ValueError("expected a host name, without scheme, port or path")
    return domain.lower()


def host_of_origin(origin: str) -> str:
    """Return the normalized host of an origin such as ``https://shop.example:8443``.

    Raise ValueError with a message for the client.
    """
    match = _ORIGIN.match(origin)
    if match is None:
        raise ValueError(_INVALID_ORIGIN)
    host = normalize_domain(match[1])
    if host.startswith("."):
        raise ValueError(_INVALID_ORIGIN)
    return host


def normalize_origin(origin: str) -> str:
    """Return an origin in lower case, with an ASCII host and without a default port.

    Raise ValueError with a message for the client.
    """
    host = host_of_origin(origin)
    scheme, _, rest = origin.rstrip("/").partition("://")
    port = rest.rpartition(":")[2] if _PORT.search(rest) else ""
    is_default = not port or int(port) == _DEFAULT_PORTS[scheme.lower()]
    if port and int(port) > _MAX_PORT:
        raise ValueError("expected a port up to 65535")
    return f"{scheme.lower()}://{host}" + ("" if is_default else f":{int(port)}")


def _to_ascii(host: str) -> str:
    """Encode label by label, because IDNA rejects ASCII labels with an underscore."""
    try:
        labels = idna.uts46_remap(host, std3_rules=False, transitional=False).split(".")
        return ".".join(
            label if label.isascii() else idna.encode(label).decode("ascii") for label in labels
        )
    except idna.IDNAError:
        raise ValueError("this international host name has no ASCII form") from None


def is_address(host: str) -> bool:
    """Return True if the host is an IP address, which has no parent domains."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def is_valid_in_browsers(host: str) -> bool:
    """Return False for a wrong address. Browsers take a host with a number at the end for one."""
    try:
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:-1])
        elif _NUMBER_AT_END.search(host):
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True

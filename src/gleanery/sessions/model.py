"""The model of session state, which every format is converted from and to.

It has the normalized form of hosts and origins, the cookies and entries, and the losses of a
conversion: what could not be kept, counted and described in one sentence each.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import idna

SameSite = Literal["Strict", "Lax", "None"]
MAX_EXPIRES = 253_402_300_799
"""The last second of the year 9999."""

_SAME_SITE = (None, *get_args(SameSite))
_HOST_RULE = (
    "The host of a cookie must be in lower case and ASCII, without a leading dot. A cookie for "
    "subdomains, too, has host_only=False"
)
_AUTHORIZATION = (
    "The Authorization header is not kept: a session has only cookies and local storage"
)

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


# --- errors and losses --------------------------------------------------------------------------


class InvalidSession(ValueError):
    """A document, a record or a URL is invalid. The message never contains a value."""


class MissingUrl(InvalidSession):
    """A document belongs to a page, and nobody says to which one."""


class Loss(NamedTuple):
    """One kind of loss. The sentence contains no name and no value."""

    subject: str
    """What is lost: a field of ``Cookie``, ``cookie``, ``local_storage``, ``indexed_db``,
    ``authorization``, ``priority`` or ``member``."""
    records: int
    """Number of records that are affected."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Losses:
    """Collects the losses of one conversion."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str, str]]()

    def add(self, subject: str, reason: str, noun: str = "cookie", count: int = 1) -> None:
        """Add a loss, if the count is not 0. Equal reasons become one sentence with the sum."""
        if count:
            self._counts[subject, reason, noun] += count

    def add_authorization(self, count: int = 1) -> None:
        """Add requests whose login is in the Authorization header, if there are any."""
        self.add("authorization", _AUTHORIZATION, "request", count)

    def found(self) -> tuple[Loss, ...]:
        return tuple(
            Loss(subject, count, f"{reason} ({count} {_plural(noun, count)}).")
            for (subject, reason, noun), count in self._counts.items()
        )


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


# --- hosts and origins --------------------------------------------------------------------------


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


def split_domain(domain: str) -> tuple[str, bool]:
    """Return the normalized host of a domain, and True if the domain has no leading dot.

    Raise InvalidSession.
    """
    try:
        normalized = normalize_domain(domain)
    except ValueError as error:
        raise InvalidSession(f"The domain is invalid: {error}") from None
    return normalized.removeprefix("."), not normalized.startswith(".")


def checked_origin(origin: str) -> str:
    """Return the normalized origin. Raise InvalidSession."""
    try:
        return normalize_origin(origin)
    except ValueError as error:
        raise InvalidSession(f"The origin is invalid: {error}") from None


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


# --- cookies and entries ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """The partition of a cookie (CHIPS): the site that embeds the cookie's host."""

    top_level_site: str
    """Scheme and registrable domain, such as ``https://shop.example``."""
    has_cross_site_ancestor: bool

    def __post_init__(self) -> None:
        _reject_characters("\0\r\n", "NUL, CR or LF", self.top_level_site)


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie. Its representation does not contain its value."""

    name: str
    value: str = field(repr=False)
    host: str
    """Normalized host name, without a leading dot."""
    host_only: bool = True
    """True if browsers send the cookie to its host only, not to subdomains."""
    path: str = "/"
    """An empty path is stored as ``/``, which means the same."""
    expires: int | None = None
    """Seconds since 1970; None for a session cookie."""
    secure: bool = False
    http_only: bool = False
    same_site: SameSite | None = None
    """None if it is not known. A browser then applies its default."""
    partition_key: PartitionKey | None = None

    def __post_init__(self) -> None:
        _reject_characters("\0\r\n", "NUL, CR or LF", self.name, self.value, self.path)
        if split_domain(self.host) != (self.host, True):
            raise InvalidSession(_HOST_RULE)
        if not self.path:
            object.__setattr__(self, "path", "/")
        if not self.name and not self.value:
            raise InvalidSession("A cookie needs a name or a value")
        if self.expires is not None and not 0 <= self.expires <= MAX_EXPIRES:
            raise InvalidSession("The expiry of a cookie must be in seconds, from 1970 to 9999")
        if self.same_site not in _SAME_SITE:
            raise InvalidSession('SameSite must be "Strict", "Lax", "None", or None if not known')

    @property
    def domain(self) -> str:
        """The domain in the spelling of browsers: a leading dot includes subdomains."""
        return self.host if self.host_only else f".{self.host}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What identifies a cookie in a browser. A later cookie with the same one replaces it."""
        return (self.domain, self.path, self.name, self.partition_key)


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """A local-storage entry. Its representation does not contain its value."""

    origin: str
    """Normalized origin such as ``https://shop.example:8443``, without a default port."""
    key: str
    value: str = field(repr=False)

    def __post_init__(self) -> None:
        _reject_characters("\0", "NUL", self.key, self.value)
        if checked_origin(self.origin) != self.origin:
            raise InvalidSession("The origin of an entry must be normalized")

    @property
    def identity(self) -> tuple[str, str]:
        return (self.origin, self.key)


@dataclass(frozen=True, slots=True)
class SessionState:
    """Cookies and local-storage entries."""

    cookies: tuple[Cookie, ...] = ()
    local_storage: tuple[StorageEntry, ...] = ()


def _reject_characters(characters: str, names: str, *texts: str) -> None:
    for text in texts:
        for character in characters:  # faster than any()
            if character in text:
                raise InvalidSession(f"A name, value or path must not contain {names}")
        if not text.isascii():
            _reject_surrogates(text)


def _reject_surrogates(text: str) -> None:
    """Rejects half of a surrogate pair, which has no UTF-8 form."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSession("A name, value or path must not contain lone surrogates") from None

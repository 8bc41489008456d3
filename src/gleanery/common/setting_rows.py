"""Rows of the table of settings: how each is declared, parsed and checked."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin
from urllib.parse import parse_qs, urlsplit

from gleanery.common.errors import SettingsError
from gleanery.common.mail_addresses import is_mail_address, is_server

T = TypeVar("T")

_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # a folder with such a name starts with ./
_RATE = re.compile(r"[1-9][0-9]{0,8}/(second|minute|hour|day)")
ANY_ORIGIN = "*"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ORIGIN_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
_HAS_HOST = re.compile(r"[A-Za-z0-9_.-]+\.[A-Za-z0-9]|localhost\b")  # and no scheme
# The same words as on the command line.
_TRUE = {"1", "true", "t", "yes", "y", "on"}
_FALSE = {"0", "false", "f", "no", "n", "off"}


# --- checks -------------------------------------------------------------------------------------


class Check(NamedTuple):
    """Condition on the value of one setting."""

    is_valid: Callable[[Any], object]
    rule: str
    """Completes the sentence "--option must be …"."""
    correct: Callable[[Any], str] | None = None
    """Returns the end of the sentence: what to write instead of an invalid value."""


def at_least(low: float) -> Check:
    return Check(lambda value: value >= low, f"at least {low}")


def above(low: float) -> Check:
    return Check(lambda value: value > low, f"above {low}")


def between(low: int, high: int) -> Check:
    return Check(lambda value: low <= value <= high, f"from {low} to {high}")


def one_of(*choices: str) -> Check:
    return Check(lambda value: value in choices, f"{', '.join(choices[:-1])} or {choices[-1]}")


def _is_base_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return (
        text.isascii()
        and parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and not (parts.query or parts.fragment)
    )


def _is_endpoint_url(text: str) -> bool:
    """Check for a URL without path: a signature of S3 is valid for one path only."""
    return _is_base_url(text) and urlsplit(text).path in ("", "/")


def _as_origin(text: str) -> str | None:
    """Return the origin of a URL as browsers send it; None if the URL has none."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
        if ":" in host:
            host = f"[{ipaddress.IPv6Address(host)}]"
        elif not host.isascii():
            host = host.encode("idna").decode()
    except ValueError:
        return None
    is_host = host.startswith("[") or _ORIGIN_HOST.fullmatch(host)
    if parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc or not is_host:
        return None
    has_port = port is not None and port != _DEFAULT_PORTS[parts.scheme]
    return f"{parts.scheme}://{host}{f':{port}' if has_port else ''}"


def _invalid_origins(origins: tuple[str, ...]) -> list[str]:
    if origins == (ANY_ORIGIN,):
        return []
    return [text for text in origins if _as_origin(text) != text]


def _correct_origin(origins: tuple[str, ...]) -> str:
    """Return what to write instead of the first invalid origin. A password is not repeated."""
    if ANY_ORIGIN in origins:
        return ", without other origins"
    text = _invalid_origins(origins)[0]
    if "@" in text:
        return ", without a user name"
    scheme = "http" if text.startswith(("localhost", "127.")) else "https"
    origin = _as_origin(f"{scheme}://{text}" if _HAS_HOST.match(text) else text)
    return f", not {text}" if origin is None else f": write {origin} instead of {text}"


def _is_blobs_location(text: str) -> bool:
    if not _SCHEME.match(text):
        return bool(text)
    parts = urlsplit(text)
    is_bucket = text.startswith("s3://") and _BUCKET.fullmatch(parts.netloc) is not None
    return is_bucket and not (parts.query or parts.fragment)


def _is_postgres_url(text: str) -> bool:
    return text.startswith(("postgresql://", "postgres://"))


def _is_replica_url(text: str) -> bool:
    """Check for one server: each is checked on its own, and can be left out."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    hosts = [parts.netloc.rpartition("@")[2], *parse_qs(parts.query).get("host", [])]
    return _is_postgres_url(text) and not any("," in host for host in hosts)


def _is_redis_url(text: str) -> bool:
    return text.startswith(("redis://", "rediss://"))


def _is_target(text: str) -> bool:
    """Check for a network, an address or the name of a host."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return _ORIGIN_HOST.fullmatch(text.lower()) is not None
    return True


POSITIVE = at_least(1)
NOT_NEGATIVE = at_least(0)
FOLDER = Check(lambda path: path.is_dir() or not path.exists(), "a folder, not a file")
FILE = Check(Path.is_file, "an existing file")
POSTGRES_URL = Check(_is_postgres_url, "a URL that starts with postgresql://")
REPLICA_URLS = Check(
    lambda urls: all(map(_is_replica_url, urls)),
    "a URL that starts with postgresql://, with one host",
)
TARGETS = Check(
    lambda targets: all(map(_is_target, targets)),
    "the name of a host, an address, or a network such as 10.1.0.0/16 without other bits",
)
MAIL_SERVER = Check(is_server, "the name or address of a host, or HOST:PORT")
MAIL_ADDRESS = Check(is_mail_address, "an e-mail address such as gleanery@example.com")
BASE_URL = Check(_is_base_url, "an http or https URL in ASCII, without query and fragment")
ENDPOINT_URL = Check(_is_endpoint_url, "an http or https URL in ASCII, without path and query")
ORIGINS = Check(
    lambda origins: not _invalid_origins(origins),
    "an origin as browsers send it, such as https://app.example.com, or * alone",
    _correct_origin,
)
BLOBS_LOCATION = Check(_is_blobs_location, "a folder or s3://bucket/prefix")
RATE_LIMIT = Check(
    _RATE.fullmatch, "a number of requests per second, minute, hour or day, such as 600/minute"
)
REDIS_URL = Check(_is_redis_url, "a URL that starts with redis:// or rediss://")


# --- rows ---------------------------------------------------------------------------------------


def setting(
    default: T,
    help_: str,
    check: Check | None = None,
    *,
    default_text: str = "",
    has_option: bool = True,
) -> T:
    """Declare a setting. The documentation shows ``default_text`` instead of the default."""
    row = {"help": help_, "check": check, "default_text": default_text, "has_option": has_option}
    return field(default=default, metadata=row)


class Setting(NamedTuple):
    """Row of the table, for the command line and the documentation."""

    name: str
    type: Any
    default: Any
    help: str
    check: Check | None
    default_text: str
    has_option: bool

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_list(self) -> bool:
        """True if the option can be repeated."""
        return get_origin(self.type) is tuple

    @property
    def variable(self) -> str:
        return f"GLEANERY_{self.name.upper()}"

    def source(self, value: Any) -> str:
        """Return the variable if it has this value, else the option: one of them is to correct."""
        text = os.environ.get(self.variable)
        try:
            is_from_variable = text is not None and self.parse(text) == value
        except SettingsError:
            is_from_variable = False
        return self.variable if is_from_variable else self.option

    def parse(self, text: str) -> Any:
        """Convert the value of the variable to the setting's type. Raises SettingsError."""
        if self.is_list:
            return tuple(text.split())
        types = [one for one in get_args(self.type) or [self.type] if one is not type(None)]
        [type_] = types
        if type_ is bool:
            return self._parse_bool(text)
        try:
            return type_(text)
        except ValueError:
            raise SettingsError(f"{self.variable} must be a number") from None

    def _parse_bool(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise SettingsError(f"{self.variable} must be true or false")
        return word in _TRUE

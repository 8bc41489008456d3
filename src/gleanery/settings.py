"""Settings of the service: one table of names, types, defaults, help texts and checks."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs, urlsplit

from gleanery.errors import SettingsError
from gleanery.values import suggestions

T = TypeVar("T")

_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # a folder with such a name starts with ./
_RATE = re.compile(r"[1-9][0-9]{0,8}/(second|minute|hour|day)")
_MAX_LINK_SECONDS = 7 * 24 * 3600  # the longest lifetime that S3 signs
ANY_ORIGIN = "*"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ORIGIN_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
_HAS_HOST = re.compile(r"[A-Za-z0-9_.-]+\.[A-Za-z0-9]|localhost\b")  # and no scheme
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104
_MIB, _GIB = 1024**2, 1024**3
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


def _at_least(low: float) -> Check:
    return Check(lambda value: value >= low, f"at least {low}")


def _above(low: float) -> Check:
    return Check(lambda value: value > low, f"above {low}")


def _between(low: int, high: int) -> Check:
    return Check(lambda value: low <= value <= high, f"from {low} to {high}")


def _one_of(*choices: str) -> Check:
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


_POSITIVE = _at_least(1)
_NOT_NEGATIVE = _at_least(0)
_FOLDER = Check(lambda path: path.is_dir() or not path.exists(), "a folder, not a file")
_FILE = Check(Path.is_file, "an existing file")
_POSTGRES_URL = Check(_is_postgres_url, "a URL that starts with postgresql://")
_REPLICA_URLS = Check(
    lambda urls: all(map(_is_replica_url, urls)),
    "a URL that starts with postgresql://, with one host",
)
_NO_BASE_URL = (
    "Give --base-url, the URL under which clients reach the service, such as "
    "https://data.example.com"
)
_BASE_URL = Check(_is_base_url, "an http or https URL in ASCII, without query and fragment")
_ENDPOINT_URL = Check(_is_endpoint_url, "an http or https URL in ASCII, without path and query")
_ORIGINS = Check(
    lambda origins: not _invalid_origins(origins),
    "an origin as browsers send it, such as https://app.example.com, or * alone",
    _correct_origin,
)
_BLOBS_LOCATION = Check(_is_blobs_location, "a folder or s3://bucket/prefix")
_RATE_LIMIT = Check(
    _RATE.fullmatch, "a number of requests per second, minute, hour or day, such as 600/minute"
)
_REDIS_URL = Check(_is_redis_url, "a URL that starts with redis:// or rediss://")


# --- the table ----------------------------------------------------------------------------------


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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one service.

    Each row is an option of ``gleanery serve``, a ``GLEANERY_…`` variable and a row of
    docs/settings.md, which ``make reference`` updates.
    """

    # Storage
    data: Path = setting(
        Path("gleanery-data"), "Folder of the SQLite database and its secret key.", _FOLDER
    )
    database: str | None = setting(
        None, "PostgreSQL database to use instead of SQLite.", _POSTGRES_URL
    )
    create: bool = setting(
        False,
        "Start with an empty SQLite database although the data folder shows that there was one: "
        "a secret key, files, or a database of 0 bytes is left.",
    )
    replica: tuple[str, ...] = setting(
        (),
        "Streaming replica of the PostgreSQL database, from which full pages are read. The option "
        "can be repeated; in the variable, URLs are separated by spaces.",
        _REPLICA_URLS,
        default_text="none",
    )
    max_replica_lag_seconds: float = setting(
        30.0,
        "Time that a replica may be behind its primary; one further behind is not read.",
        _above(0),
    )
    pool_size: int = setting(10, "Maximum number of PostgreSQL connections per worker.", _POSITIVE)
    pooling: str = setting(
        "session",
        "How a connection pooler in front of PostgreSQL shares connections: session also if there "
        "is none, transaction for PgBouncer's pool_mode transaction.",
        _one_of("session", "transaction"),
    )
    listen_database: str | None = setting(
        None,
        "Direct address of the PostgreSQL database, for notifications, which no transaction pooler "
        "passes on.",
        _POSTGRES_URL,
        default_text="the value of `--database`; required with `--pooling transaction`",
    )
    same_data: bool = setting(
        False,
        "Serve a PostgreSQL database that is a copy, or is on another server, because its data is "
        "the same: once after a move or an upgrade of the server.",
    )
    secret_key: str | None = setting(
        None,
        "Key that encrypts cookie and local-storage values: 32 bytes in base64. Several keys are "
        "separated by spaces. There is no option, because the process list would show it.",
        default_text="the file `secret.key` in the data folder",
        has_option=False,
    )
    blobs: str | None = setting(
        None,
        "Location of the bytes of files.",
        _BLOBS_LOCATION,
        default_text="the folder `blobs` in the data folder",
    )
    blobs_public_url: str | None = setting(
        None,
        "URL under which clients reach the S3 service of --blobs. Only links to files contain it.",
        _ENDPOINT_URL,
        default_text="the endpoint that the service uses",
    )

    # Network
    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on; 0 selects a free port.", _between(0, 65535))
    workers: int = setting(1, "Number of processes that serve requests.", _POSITIVE)
    base_url: str | None = setting(
        None,
        "URL under which clients reach the service. All URLs in responses start with it.",
        _BASE_URL,
        default_text="host and port; required with `--behind-proxy` and with `--host 0.0.0.0`",
    )
    behind_proxy: bool = setting(
        False,
        "Allow plain HTTP on any address, because a proxy terminates TLS. The log shows the client "
        "that the proxy appends to X-Forwarded-For.",
    )
    tls_cert: Path | None = setting(None, "Certificate chain in PEM format.", _FILE)
    tls_key: Path | None = setting(None, "Private key of the certificate in PEM format.", _FILE)
    cors_origin: tuple[str, ...] = setting(
        (),
        "Origin whose pages may call the API in a browser; * for every origin. The option can be "
        "repeated; in the variable, origins are separated by spaces. No origin may send cookies.",
        _ORIGINS,
        default_text="none",
    )

    # Connections
    max_connections: int = setting(
        2000,
        "Maximum number of client connections per worker. One more replaces a connection without a "
        "request in progress, or gets 503. Health checks and metrics are answered in any case.",
        _POSITIVE,
    )
    max_requests: int = setting(
        256, "Maximum number of requests in progress per worker; more get 503.", _POSITIVE
    )
    max_transfers: int = setting(
        64, "Maximum number of transfers of files and exports per worker; more get 503.", _POSITIVE
    )
    idle_seconds: int = setting(
        75,
        "Time after which an idle connection is closed. Set it above the keep-alive time of a "
        "proxy.",
        _POSITIVE,
    )
    stall_seconds: int = setting(
        30,
        "Time limit for a request head. A body or response that is slower than 1 KiB per "
        "second over this time is ended too.",
        _POSITIVE,
    )
    shutdown_seconds: int = setting(
        30, "Time that a shutdown waits for requests in progress.", _NOT_NEGATIVE
    )

    # Requests
    max_records: int = setting(10_000, "Maximum number of records in one array.", _POSITIVE)
    max_body_bytes: int = setting(
        32 * _MIB,
        "Maximum size of a request body, decompressed.",
        _POSITIVE,
        default_text="`33554432` (32 MiB)",
    )
    max_buffered_bytes: int = setting(
        128 * _MIB,
        "Maximum total size of the bodies of one organization's requests in progress, per worker; "
        "more get 503. Bodies of at most 64 KiB and files do not count.",
        _POSITIVE,
        default_text="`134217728` (128 MiB)",
    )
    max_unsent_bytes: int = setting(
        256 * _MIB,
        "Maximum total size of responses in memory that clients have not read, per worker. One "
        "organization gets half of it. A response waits for its turn for 30 seconds, and then gets "
        "503. Responses of at most 64 KiB, files and exports do not count.",
        _POSITIVE,
        default_text="`268435456` (256 MiB)",
    )
    max_json_values: int = setting(
        1_000_000,
        "Maximum number of JSON values in a request body, or in one line of NDJSON.",
        _POSITIVE,
    )
    max_file_bytes: int = setting(
        _GIB, "Maximum size of a file.", _POSITIVE, default_text="`1073741824` (1 GiB)"
    )
    max_export_bytes: int = setting(
        4 * _GIB,
        "Maximum size of an export as CSV or Parquet, and of its outputs as JSON lines. It is "
        "written to the folder `exports` in the data folder before it is sent.",
        _POSITIVE,
        default_text="`4294967296` (4 GiB)",
    )
    max_page_bytes: int = setting(
        16 * _MIB,
        "Maximum size of a page or list in a response, but at least one item. The rest is on the "
        "next page.",
        _POSITIVE,
        default_text="`16777216` (16 MiB)",
    )
    max_wait_seconds: int = setting(
        60,
        "Maximum duration of a long poll. Set it below the timeout of a proxy.",
        _NOT_NEGATIVE,
    )
    blob_url_seconds: int = setting(
        900, "Lifetime of a signed link to a file (blob_url).", _between(1, _MAX_LINK_SECONDS)
    )
    token_cache_seconds: float = setting(
        2.0,
        "Time for which a worker caches a token. A revoked token works for this time at most.",
        _NOT_NEGATIVE,
    )
    rate_limit: str | None = setting(
        None, "Maximum number of requests per token; more get 429.", _RATE_LIMIT
    )
    rate_limit_storage: str | None = setting(
        None,
        "Redis server that counts requests for all workers and nodes.",
        _REDIS_URL,
        default_text="memory of each worker",
    )

    # Retention
    tombstone_days: int = setting(
        30, "Time for which the change feed keeps tombstones of deleted outputs.", _POSITIVE
    )
    audit_days: int = setting(400, "Time for which an audit entry is kept.", _at_least(30))
    unreferenced_file_days: int = setting(
        7, "Time for which a file is kept that no output references.", _POSITIVE
    )
    sweep_seconds: float = setting(60.0, "Time between two sweeps of expired data.", _above(0))

    # Logging
    log_level: str = setting(
        "info", "Lowest level that is logged.", _one_of("debug", "info", "warning", "error")
    )
    log_format: str = setting(
        "auto",
        "Format of log lines; auto writes text to a terminal and JSON elsewhere.",
        _one_of("auto", "text", "json"),
    )
    slow_request_seconds: float = setting(
        1.0,
        "Time from which the log has a second line about a request; 0 for no such line.",
        _NOT_NEGATIVE,
    )
    metrics_organizations: int = setting(
        20,
        "Organizations with separate usage metrics in each worker; the others are summed up.",
        _between(0, 100),
    )

    @cached_property
    def address(self) -> str:
        """Base of all URLs in responses; never taken from a request."""
        if self.base_url is not None:
            return self.base_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    def checked_address(self) -> str:
        """Return the address, for a command that checks no other setting. Raises SettingsError."""
        if self.base_url is None and self.host in _WILDCARDS:
            raise SettingsError(_NO_BASE_URL)
        if self.base_url is not None and not _BASE_URL.is_valid(self.base_url):
            raise SettingsError(f"--base-url must be {_BASE_URL.rule}")
        return self.address

    @property
    def sqlite_file(self) -> Path:
        return self.data / "gleanery.sqlite"

    @property
    def key_file(self) -> Path:
        return self.data / "secret.key"

    @property
    def has_secret_key(self) -> bool:
        return self.secret_key is not None or self.key_file.exists()

    @property
    def blobs_location(self) -> str:
        """URL of the bucket, or path of the folder."""
        return self.blobs or str(self.data / "blobs")

    @property
    def blobs_folder(self) -> Path | None:
        """Folder of the blobs; None if they are in a bucket."""
        return None if self.blobs_location.startswith("s3://") else Path(self.blobs_location)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the ``GLEANERY_…`` variables. Raises SettingsError."""
        reject_empty_variables(environment)
        foreign = kubernetes_variables(environment)
        given = {
            row.name: row.parse(environment[row.variable])
            for row in table()
            if row.variable in environment and row.variable not in foreign
        }
        return cls(**given).check()

    def check(self) -> Settings:
        """Return these settings if they are valid; else raise SettingsError."""
        for problem in (*self._invalid_values(), *self._conflicts()):
            raise SettingsError(problem)
        return self

    def _invalid_values(self) -> Iterator[str]:
        for row in table():
            value = getattr(self, row.name)
            if value is not None and row.check is not None and not row.check.is_valid(value):
                place = f": {value.absolute()}" if isinstance(value, Path) else ""
                correction = "" if row.check.correct is None else row.check.correct(value)
                yield f"{row.source(value)} must be {row.check.rule}{place}{correction}"

    def _conflicts(self) -> Iterator[str]:
        """Problems between two settings."""
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "--tls-cert and --tls-key go together: give both or neither"
        if not (self.tls_cert or self.behind_proxy or _is_loopback(self.host)):
            yield (
                f"Plain HTTP on {self.host} would expose tokens and cookies: give --tls-cert and "
                "--tls-key, or --behind-proxy if a proxy terminates TLS"
            )
        if self.base_url is None and (self.behind_proxy or self.host in _WILDCARDS):
            yield _NO_BASE_URL
        if self.database is not None and self.secret_key is None:
            yield (
                "With --database, set the variable GLEANERY_SECRET_KEY to the key for cookie and "
                "local-storage values; openssl rand -base64 32 creates one"
            )
        if self.database is None and (self.pooling != "session" or self.listen_database):
            yield "--pooling and --listen-database need --database"
        if self.pooling == "transaction" and self.listen_database is None:
            yield (
                "--pooling transaction needs --listen-database: the direct address of the "
                "database, because no transaction pooler passes notifications on"
            )
        if self.replica and self.database is None:
            yield "--replica needs --database, the address of its primary"
        if self.blobs_public_url is not None and self.blobs_folder is not None:
            yield "--blobs-public-url needs --blobs with s3://bucket/prefix"
        if self.rate_limit_storage is not None and self.rate_limit is None:
            yield "--rate-limit-storage needs --rate-limit"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


@cache
def table() -> tuple[Setting, ...]:
    """All settings in the order of their declaration."""
    types = get_type_hints(Settings)
    return tuple(
        Setting(row.name, types[row.name], row.default, **row.metadata) for row in fields(Settings)
    )


# --- other variables ----------------------------------------------------------------------------

_PREFIX = "GLEANERY_"
_CLIENT_VARIABLES = frozenset({"SESSION_FILE", "TOKEN", "URL"})
_DEVELOPMENT_PREFIXES = ("BENCH_", "FAULT_", "FUZZ_", "SLOW_")
# For each service of a namespace, Kubernetes gives every pod variables with the service's name.
_KUBERNETES_NAME = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_KUBERNETES_PORT = re.compile(r"(\w+_)?PORT=(tcp|udp|sctp)://.*")


def kubernetes_variables(environment: Mapping[str, str]) -> list[str]:
    """List the variables that Kubernetes sets for a service with the name gleanery."""
    return [f"{_PREFIX}{name}" for name in _names(environment) if _is_kubernetes(name, environment)]


def reject_empty_variables(environment: Mapping[str, str], options: Iterable[str] = ()) -> None:
    """Raise SettingsError if the variable of a setting or option is empty.

    Its author expects an effect, and the default can be another database.
    """
    known = {*(row.variable for row in table()), *options}
    for name in sorted(known & environment.keys()):
        if not environment[name]:
            raise SettingsError(f"{name} is empty: give it a value, or unset it")


def environment_warnings(environment: Mapping[str, str], options: Iterable[str] = ()) -> list[str]:
    """Describe the ``GLEANERY_…`` variables that have no effect.

    ``options`` are the variables of command-line options that are not settings.
    """
    variables = {*(row.variable for row in table()), *options}
    known = {name.removeprefix(_PREFIX) for name in variables} | _CLIENT_VARIABLES
    foreign = kubernetes_variables(environment)
    warnings = [
        _unknown_variable(name, known)
        for name in _names(environment)
        if name not in known
        and f"{_PREFIX}{name}" not in foreign
        and not name.startswith(_DEVELOPMENT_PREFIXES)
    ]
    if foreign:
        names = ", ".join(foreign)
        warnings.append(
            f"ignored the variables that Kubernetes sets for a service: {names}; rename the "
            "service, or set enableServiceLinks: false in the pod"
        )
    return warnings


def _names(environment: Mapping[str, str]) -> list[str]:
    return sorted(name.removeprefix(_PREFIX) for name in environment if name.startswith(_PREFIX))


def _is_kubernetes(name: str, environment: Mapping[str, str]) -> bool:
    value = environment[f"{_PREFIX}{name}"]
    return bool(_KUBERNETES_NAME.fullmatch(name) or _KUBERNETES_PORT.fullmatch(f"{name}={value}"))


def _unknown_variable(name: str, known: Collection[str]) -> str:
    similar = suggestions.closest(name, known)
    if similar is not None:
        return f"unknown variable {_PREFIX}{name}; did you mean {_PREFIX}{similar}?"
    return f"unknown variable {_PREFIX}{name}; gleanery serve --help lists the variables"

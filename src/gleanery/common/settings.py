"""Settings of the service: one table of names, types, defaults, help texts and checks.

The environment can hold variables without an effect: of misspelled names, and of Kubernetes.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import get_type_hints

from gleanery.common import suggestions
from gleanery.common.errors import SettingsError
from gleanery.common.kubernetes import VARIABLE_PREFIX, kubernetes_variables, names_of
from gleanery.common.mail_addresses import split_server
from gleanery.common.setting_rows import (
    BASE_URL,
    BLOBS_LOCATION,
    ENDPOINT_URL,
    FILE,
    FOLDER,
    MAIL_ADDRESS,
    MAIL_SERVER,
    NOT_NEGATIVE,
    ORIGINS,
    POSITIVE,
    POSTGRES_URL,
    RATE_LIMIT,
    REDIS_URL,
    REPLICA_URLS,
    TARGETS,
    Setting,
    above,
    at_least,
    between,
    one_of,
    setting,
)

_MAX_LINK_SECONDS = 7 * 24 * 3600  # the longest lifetime that S3 signs
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104
_MIB, _GIB = 1024**2, 1024**3
_NO_BASE_URL = (
    "Give --base-url, the URL under which clients reach the service, such as "
    "https://data.example.com"
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one service.

    Each row is an option of ``gleanery serve``, a ``GLEANERY_…`` variable and a row of
    docs/settings.md, which ``make docs`` updates.
    """

    # Storage
    data: Path = setting(
        Path("gleanery-data"), "Folder of the SQLite database and its secret key.", FOLDER
    )
    database: str | None = setting(
        None, "PostgreSQL database to use instead of SQLite.", POSTGRES_URL
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
        REPLICA_URLS,
        default_text="none",
    )
    max_replica_lag_seconds: float = setting(
        30.0,
        "Time that a replica may be behind its primary; one further behind is not read.",
        above(0),
    )
    pool_size: int = setting(10, "Maximum number of PostgreSQL connections per worker.", POSITIVE)
    pooling: str = setting(
        "session",
        "How a connection pooler in front of PostgreSQL shares connections: session also if there "
        "is none, transaction for PgBouncer's pool_mode transaction.",
        one_of("session", "transaction"),
    )
    listen_database: str | None = setting(
        None,
        "Direct address of the PostgreSQL database, for notifications, which no transaction pooler "
        "passes on.",
        POSTGRES_URL,
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
        BLOBS_LOCATION,
        default_text="the folder `blobs` in the data folder",
    )
    blobs_public_url: str | None = setting(
        None,
        "URL under which clients reach the S3 service of --blobs. Only links to files contain it.",
        ENDPOINT_URL,
        default_text="the endpoint that the service uses",
    )

    # Network
    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on; 0 selects a free port.", between(0, 65535))
    workers: int = setting(1, "Number of processes that serve requests.", POSITIVE)
    base_url: str | None = setting(
        None,
        "URL under which clients reach the service. All URLs in responses start with it.",
        BASE_URL,
        default_text="host and port; required with `--behind-proxy` and with `--host 0.0.0.0`",
    )
    behind_proxy: bool = setting(
        False,
        "Allow plain HTTP on any address, because a proxy terminates TLS. The log shows the client "
        "that the proxy appends to X-Forwarded-For.",
    )
    tls_cert: Path | None = setting(None, "Certificate chain in PEM format.", FILE)
    tls_key: Path | None = setting(None, "Private key of the certificate in PEM format.", FILE)
    cors_origin: tuple[str, ...] = setting(
        (),
        "Origin whose pages may call the API in a browser; * for every origin. The option can be "
        "repeated; in the variable, origins are separated by spaces. No origin may send cookies.",
        ORIGINS,
        default_text="none",
    )
    webhook_allow: tuple[str, ...] = setting(
        (),
        "Host, address or network inside the operator's network to which webhooks may send events, "
        "with http as well, such as receiver.internal or 10.1.0.0/16. It holds for all "
        "organizations. The option can be repeated; in the variable, values are separated by "
        "spaces.",
        TARGETS,
        default_text="none: only public addresses, with https",
    )

    # E-mail
    smtp_server: str | None = setting(
        None,
        "Mail server that sends the e-mail of webhooks, as HOST or HOST:PORT. Without a port it is "
        "465 with --smtp-tls tls, else 587.",
        MAIL_SERVER,
        default_text="none: webhooks cannot have the format email",
    )
    smtp_sender: str | None = setting(
        None,
        "Address from which e-mail comes.",
        MAIL_ADDRESS,
        default_text="none; required with `--smtp-server`",
    )
    smtp_tls: str = setting(
        "starttls",
        "Encryption of the connection to the mail server: starttls after its beginning, tls from "
        "the beginning, or none. The certificate is verified.",
        one_of("starttls", "tls", "none"),
    )
    smtp_username: str | None = setting(
        None, "User name for the mail server.", default_text="none: no login"
    )
    smtp_password: str | None = setting(
        None,
        "Password for the mail server. There is no option, because the process list would show it.",
        default_text="none",
        has_option=False,
    )

    # Connections
    max_connections: int = setting(
        2000,
        "Maximum number of client connections per worker. One more replaces a connection without a "
        "request in progress, or gets 503. Health checks and metrics are answered in any case.",
        POSITIVE,
    )
    max_requests: int = setting(
        256, "Maximum number of requests in progress per worker; more get 503.", POSITIVE
    )
    max_transfers: int = setting(
        64, "Maximum number of transfers of files and exports per worker; more get 503.", POSITIVE
    )
    idle_seconds: int = setting(
        75,
        "Time after which an idle connection is closed. Set it above the keep-alive time of a "
        "proxy.",
        POSITIVE,
    )
    stall_seconds: int = setting(
        30,
        "Time limit for a request head. A body or response that is slower than 1 KiB per "
        "second over this time is ended too.",
        POSITIVE,
    )
    shutdown_seconds: int = setting(
        30, "Time that a shutdown waits for requests in progress.", NOT_NEGATIVE
    )

    # Requests
    max_records: int = setting(10_000, "Maximum number of records in one array.", POSITIVE)
    max_body_bytes: int = setting(
        32 * _MIB,
        "Maximum size of a request body, decompressed.",
        POSITIVE,
        default_text="`33554432` (32 MiB)",
    )
    max_buffered_bytes: int = setting(
        128 * _MIB,
        "Maximum total size of the bodies of one organization's requests in progress, per worker; "
        "more get 503. Bodies of at most 64 KiB and files do not count.",
        POSITIVE,
        default_text="`134217728` (128 MiB)",
    )
    max_unsent_bytes: int = setting(
        256 * _MIB,
        "Maximum total size of responses in memory that clients have not read, per worker. One "
        "organization gets half of it. A response waits for its turn for 30 seconds, and then gets "
        "503. Responses of at most 64 KiB, files and exports do not count.",
        POSITIVE,
        default_text="`268435456` (256 MiB)",
    )
    max_json_values: int = setting(
        1_000_000,
        "Maximum number of JSON values in a request body, or in one line of NDJSON.",
        POSITIVE,
    )
    max_file_bytes: int = setting(
        _GIB, "Maximum size of a file.", POSITIVE, default_text="`1073741824` (1 GiB)"
    )
    max_export_bytes: int = setting(
        4 * _GIB,
        "Maximum size of an export as CSV or Parquet, and of its outputs as JSON lines. It is "
        "written to the folder `exports` in the data folder before it is sent.",
        POSITIVE,
        default_text="`4294967296` (4 GiB)",
    )
    max_page_bytes: int = setting(
        16 * _MIB,
        "Maximum size of a page or list in a response, but at least one item. The rest is on the "
        "next page.",
        POSITIVE,
        default_text="`16777216` (16 MiB)",
    )
    max_wait_seconds: int = setting(
        60,
        "Maximum duration of a long poll. Set it below the timeout of a proxy.",
        NOT_NEGATIVE,
    )
    blob_url_seconds: int = setting(
        900, "Lifetime of a signed link to a file (blob_url).", between(1, _MAX_LINK_SECONDS)
    )
    token_cache_seconds: float = setting(
        2.0,
        "Time for which a worker caches a token. A revoked token works for this time at most.",
        NOT_NEGATIVE,
    )
    rate_limit: str | None = setting(
        None, "Maximum number of requests per token; more get 429.", RATE_LIMIT
    )
    rate_limit_storage: str | None = setting(
        None,
        "Redis server that counts requests for all workers and nodes.",
        REDIS_URL,
        default_text="memory of each worker",
    )

    # Retention
    tombstone_days: int = setting(
        30, "Time for which the change feed keeps tombstones of deleted outputs.", POSITIVE
    )
    audit_days: int = setting(400, "Time for which an audit entry is kept.", at_least(30))
    unreferenced_file_days: int = setting(
        7, "Time for which a file is kept that no output references.", POSITIVE
    )
    sweep_seconds: float = setting(60.0, "Time between two sweeps of expired data.", above(0))

    # Logging
    log_level: str = setting(
        "info", "Lowest level that is logged.", one_of("debug", "info", "warning", "error")
    )
    log_format: str = setting(
        "auto",
        "Format of log lines; auto writes text to a terminal and JSON elsewhere.",
        one_of("auto", "text", "json"),
    )
    slow_request_seconds: float = setting(
        1.0,
        "Time from which the log has a second line about a request; 0 for no such line.",
        NOT_NEGATIVE,
    )
    metrics_organizations: int = setting(
        20,
        "Organizations with separate usage metrics in each worker; the others are summed up.",
        between(0, 100),
    )
    metrics_groups: int = setting(
        0,
        "Groups whose jobs have metrics, those with the most complete runs. Anybody who reaches "
        "/metrics sees the names of these groups and jobs.",
        between(0, 100),
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
        if self.base_url is not None and not BASE_URL.is_valid(self.base_url):
            raise SettingsError(f"--base-url must be {BASE_URL.rule}")
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
        yield from self._mail_conflicts()

    def _mail_conflicts(self) -> Iterator[str]:
        has_login = self.smtp_username is not None
        if (self.smtp_server is None) != (self.smtp_sender is None):
            yield "--smtp-server and --smtp-sender go together: give both or neither"
        if has_login != (self.smtp_password is not None):
            yield "--smtp-username and GLEANERY_SMTP_PASSWORD go together: give both or neither"
        if not has_login:
            return
        if self.smtp_server is None:
            yield "--smtp-username needs --smtp-server"
        elif self.smtp_tls == "none" and not _is_loopback(split_server(self.smtp_server)[0]):
            yield "--smtp-tls none would expose the password of the mail server"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def table() -> tuple[Setting, ...]:
    """All settings in the order of their declaration."""
    types = get_type_hints(Settings)
    return tuple(
        Setting(row.name, types[row.name], row.default, **row.metadata) for row in fields(Settings)
    )


# --- other variables ----------------------------------------------------------------------------

_CLIENT_VARIABLES = frozenset({"GROUP", "JOB", "RUN_ID", "SESSION_FILE", "TOKEN", "URL"})
_DEVELOPMENT_PREFIXES = ("BENCH_", "FAULT_", "FUZZ_", "SLOW_")


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
    known = {name.removeprefix(VARIABLE_PREFIX) for name in variables} | _CLIENT_VARIABLES
    foreign = kubernetes_variables(environment)
    warnings = [
        _unknown_variable(name, known)
        for name in names_of(environment)
        if name not in known
        and f"{VARIABLE_PREFIX}{name}" not in foreign
        and not name.startswith(_DEVELOPMENT_PREFIXES)
    ]
    if foreign:
        names = ", ".join(foreign)
        warnings.append(
            f"ignored the variables that Kubernetes sets for a service: {names}; rename the "
            "service, or set enableServiceLinks: false in the pod"
        )
    return warnings


def _unknown_variable(name: str, known: Collection[str]) -> str:
    similar = suggestions.closest(name, known)
    if similar is not None:
        return f"unknown variable {VARIABLE_PREFIX}{name}; did you mean {VARIABLE_PREFIX}{similar}?"
    return f"unknown variable {VARIABLE_PREFIX}{name}; gleanery serve --help lists the variables"

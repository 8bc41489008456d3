"""The settings of one service: read once by the command line, checked, then frozen."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gleanery.errors import SettingsError

_RATE = re.compile(r"[1-9][0-9]{0,8}/(second|minute|hour|day)")
_LONGEST_LINK = 7 * 24 * 3600  # what S3 signs at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every field is a flag of ``gleanery serve`` and a ``GLEANERY_…`` variable.

    The secret key is a variable only: a flag would show it to everyone who lists processes.
    """

    data: Path = Path("gleanery-data")
    database: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    base_url: str | None = None
    behind_proxy: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    secret_key: str | None = None
    max_records: int = 10_000
    max_body_bytes: int = 32 * 1024 * 1024
    blobs: str | None = None
    max_file_bytes: int = 1024 * 1024 * 1024
    blob_url_seconds: int = 900
    unnamed_file_days: int = 7
    token_cache_seconds: float = 2.0
    pool_size: int = 10
    idle_seconds: int = 75
    stall_seconds: int = 30
    longest_wait: int = 60
    max_connections: int = 2000
    max_requests: int = 256
    max_transfers: int = 64
    rate_limit: str | None = None
    rate_limit_storage: str | None = None
    tombstone_days: int = 30
    audit_days: int = 400
    sweep_seconds: float = 60.0
    shutdown_seconds: int = 30
    log_level: str = "info"
    log_format: str = "auto"

    @property
    def address(self) -> str:
        """What ``next_url`` begins with; never taken from a request."""
        if self.base_url is not None:
            return self.base_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    @property
    def sqlite_file(self) -> Path:
        return self.data / "gleanery.sqlite"

    @property
    def key_file(self) -> Path:
        return self.data / "secret.key"

    @property
    def blobs_place(self) -> str:
        """The bucket's URL, or the folder."""
        return self.blobs or str(self.data / "blobs")

    @property
    def blobs_folder(self) -> Path | None:
        """The folder, if it is no bucket."""
        return None if self.blobs_place.startswith("s3://") else Path(self.blobs_place)

    def check(self) -> Settings:
        """These settings, if a service can run on them; else SettingsError says what to do."""
        for problem in self._problems():
            raise SettingsError(problem)
        return self

    def _problems(self) -> list[str]:
        return [
            sentence
            for is_wrong, sentence in (
                (
                    (self.tls_cert is None) != (self.tls_key is None),
                    "--tls-cert and --tls-key go together: give both or neither",
                ),
                *(
                    (path is not None and not path.is_file(), f"There is no file {path}")
                    for path in (self.tls_cert, self.tls_key)
                ),
                (
                    not self._is_private(),
                    f"Tokens and cookies may not travel in plain HTTP on {self.host}: give "
                    "--tls-cert and --tls-key, or --behind-proxy if TLS ends in front",
                ),
                (
                    self.data.exists() and not self.data.is_dir(),
                    f"--data must be a folder, and {self.data} is a file",
                ),
                (
                    self.base_url is None and (self.behind_proxy or self._is_wildcard()),
                    "Give --base-url, the address under which clients reach the service, "
                    "such as https://data.example.com",
                ),
                (
                    self.base_url is not None and not _is_base_url(self.base_url),
                    "--base-url must be an http or https address in plain ASCII without query or "
                    "fragment",
                ),
                (
                    self.database is not None and not _is_postgres(self.database),
                    "--database must be a URL that begins with postgresql://; "
                    "leave it out for the embedded database",
                ),
                (
                    self.database is not None and self.secret_key is None,
                    "With --database the environment variable GLEANERY_SECRET_KEY must hold the "
                    "key for cookie and local-storage values: openssl rand -base64 32 makes one",
                ),
                (self.workers < 1, "--workers must be at least 1"),
                (not 0 <= self.port <= 65535, "--port must be from 0 to 65535"),
                (self.max_records < 1, "--max-records must be at least 1"),
                (self.max_body_bytes < 1, "--max-body-bytes must be at least 1"),
                (
                    self.blobs is not None and not _is_blobs_place(self.blobs),
                    "--blobs must be a folder or s3://bucket/prefix",
                ),
                (self.max_file_bytes < 1, "--max-file-bytes must be at least 1"),
                (
                    not 1 <= self.blob_url_seconds <= _LONGEST_LINK,
                    "--blob-url-seconds must be from 1 to 604800",
                ),
                (self.unnamed_file_days < 1, "--unnamed-file-days must be at least 1"),
                (self.pool_size < 1, "--pool-size must be at least 1"),
                (self.token_cache_seconds < 0, "--token-cache-seconds must be 0 or more"),
                (self.idle_seconds < 1, "--idle-seconds must be at least 1"),
                (self.stall_seconds < 1, "--stall-seconds must be at least 1"),
                (self.longest_wait < 0, "--longest-wait must be 0 or more"),
                (self.max_connections < 1, "--max-connections must be at least 1"),
                (self.max_requests < 1, "--max-requests must be at least 1"),
                (self.max_transfers < 1, "--max-transfers must be at least 1"),
                (
                    self.rate_limit is not None and not _RATE.fullmatch(self.rate_limit),
                    "--rate-limit must be a number of requests and second, minute, hour or day, "
                    "such as 600/minute",
                ),
                (
                    self.rate_limit_storage is not None and not _is_redis(self.rate_limit_storage),
                    "--rate-limit-storage must be a URL that begins with redis:// or rediss://; "
                    "leave it out to count in each worker",
                ),
                (
                    self.rate_limit_storage is not None and self.rate_limit is None,
                    "--rate-limit-storage needs --rate-limit",
                ),
                (self.tombstone_days < 1, "--tombstone-days must be at least 1"),
                (self.audit_days < 30, "--audit-days must be at least 30"),
                (self.sweep_seconds <= 0, "--sweep-seconds must be above 0"),
                (
                    self.log_level not in ("debug", "info", "warning", "error"),
                    "--log-level must be debug, info, warning or error",
                ),
                (
                    self.log_format not in ("auto", "text", "json"),
                    "--log-format must be auto, text or json",
                ),
            )
            if is_wrong
        ]

    def _is_private(self) -> bool:
        return self.tls_cert is not None or self.behind_proxy or _is_loopback(self.host)

    def _is_wildcard(self) -> bool:
        return self.host in ("0.0.0.0", "::")  # noqa: S104


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


def _is_blobs_place(place: str) -> bool:
    if "://" not in place:
        return bool(place)
    parts = urlsplit(place)
    return parts.scheme == "s3" and bool(parts.netloc) and not (parts.query or parts.fragment)


def _is_redis(url: str) -> bool:
    return url.startswith(("redis://", "rediss://"))


def _is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))

"""The certificate of the service: loading, reloading, and the warning before it expires."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings

_log = logging.getLogger("gleanery")
_WATCH_SECONDS = 2.0
_DAY = 86_400
_WARNING_DAYS = 14
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of TLS 1.3 are fixed

FileVersions = Sequence[tuple[int, ...]]


class _Loaded(NamedTuple):
    context: ssl.SSLContext
    expires: datetime


class Certificates:
    """The TLS context of new connections. Open connections keep the context they have."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load the files. Raise SettingsError."""
        self._certificate = certificate
        self._key = key
        self._versions = self._read_versions()
        self._reported_versions: FileVersions | None = None
        self._loaded = _load(certificate, key)
        self._next_warning = 0.0

    def context(self) -> ssl.SSLContext:
        return self._loaded.context

    @property
    def expires(self) -> float:
        """Unix time at which the certificate expires."""
        return self._loaded.expires.timestamp()

    def reload(self) -> None:
        """Read the files again. Invalid files are logged, and the old certificate stays."""
        versions = self._read_versions()
        try:
            _reject_pipes(self._certificate, self._key)
            loaded = _load(self._certificate, self._key)
            self._reject_expired(loaded)
        except Exception as error:  # an unexpected one must not end the watch
            self._report_invalid(versions, error)
            return
        self._loaded = loaded
        self._versions = versions
        self._next_warning = 0.0
        _log.info("loaded the TLS certificate", extra={"expires": str(self._loaded.expires)})
        self.warn_before_expiry()

    def _reject_expired(self, loaded: _Loaded) -> None:
        """Raise SettingsError if an expired certificate would replace a valid one."""
        if loaded.expires <= datetime.now(UTC) < self._loaded.expires:
            raise SettingsError("The new certificate has expired")

    def _report_invalid(self, versions: FileVersions, error: Exception) -> None:
        """Log once for each version: the key may be replaced a moment after the certificate."""
        if versions != self._reported_versions:
            self._reported_versions = versions
            _log.error(
                "the TLS certificate was not reloaded; the old one stays in use",
                extra={"reason": str(error)},
            )

    async def watch(self) -> None:
        """Reload the certificate when a file changes, until it is cancelled."""
        while True:
            self.warn_before_expiry()
            await asyncio.sleep(_WATCH_SECONDS)
            if self._read_versions() != self._versions:
                self.reload()

    def warn_before_expiry(self) -> None:
        """Log once a day that the certificate expires soon, or has expired."""
        if time.monotonic() < self._next_warning:
            return
        self._next_warning = time.monotonic() + _DAY
        days = (self._loaded.expires - datetime.now(UTC)).total_seconds() / _DAY
        extra = {"expires": str(self._loaded.expires), "file": str(self._certificate)}
        if days <= 0:
            _log.error("the TLS certificate has expired: renew it", extra=extra)
        elif days < _WARNING_DAYS:
            _log.warning("the TLS certificate expires soon: renew it", extra=extra)

    def _read_versions(self) -> FileVersions:
        """Return what changes when a file or a symbolic link is replaced or written."""
        return [_version(self._certificate), _version(self._key)]


def _version(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _reject_pipes(*paths: Path) -> None:
    """Raise SettingsError for a pipe or device: to read it could take for ever."""
    for path in paths:
        if path.exists() and not path.is_file():
            raise SettingsError(f"{path} is not a regular file")


def open_certificates(settings: Settings) -> Certificates | None:
    """Load the certificate of the settings, if they have one. Raises SettingsError."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key)


def _load(certificate: Path, key: Path) -> _Loaded:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    text = certificate.read_bytes()
    key.read_bytes()  # an error of the next step does not name the file
    try:
        context.load_cert_chain(certificate, key, password=_reject_encrypted)
        expires = x509.load_pem_x509_certificates(text)[0].not_valid_after_utc
    except (ssl.SSLError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError("--tls-key is not the private key of --tls-cert") from None
        raise SettingsError(
            "--tls-cert and --tls-key must be a certificate and its private key, both PEM"
        ) from None
    return _Loaded(context, expires)


def _reject_encrypted() -> bytes:
    """Refuse an encrypted key. OpenSSL would ask for the password on the terminal."""
    raise SettingsError(
        "The private key of --tls-key is encrypted: decrypt it with openssl pkey -in KEY -out "
        "NEWKEY, and make the new file readable only for the service"
    )

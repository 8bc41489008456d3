"""Opens connections to the hosts of a URL, and ends connections."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import asyncpg

from gleanery.errors import SettingsError
from gleanery.storage.postgres.connect_errors import DATABASE, check_url, explain, split_url

_CONNECT_SECONDS = 4.0
_TARGET = "target_session_attrs"
_PRIMARY_TARGETS = ("primary", "read-write")
# The host cannot be used now, and another one may be the primary.
_NEXT_HOST_ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.TargetServerAttributeNotMatched,
)


class Hosts:
    """The hosts of a URL, of which one is the primary; or one host that is a replica.

    The driver has one limit of time for all hosts, which a silent one would use up. So each host is
    tried with a limit of its own, beginning with the one that worked last.
    """

    def __init__(self, url: str, option: str = DATABASE, is_replica: bool = False) -> None:
        """``option`` is the one with the URL."""
        self._url, self._option, self._is_replica = url, option, is_replica
        self._last: str | None = None

    def check(self) -> None:
        """Raises SettingsError if the URL cannot be used."""
        check_url(self._url, self._option, () if self._is_replica else _PRIMARY_TARGETS)
        try:
            urls = _urls_of_hosts(self._url)
        except ValueError:
            urls = []
        if not urls:
            raise SettingsError(f"{self._option} needs at least one host, and one port or one each")

    def explain(self, error: Exception) -> str:
        """Returns a sentence for the operator, who cannot connect because of the error."""
        return explain(error, self._url, self._option)

    async def connect(self, *_: Any, seconds: float = _CONNECT_SECONDS, **options: Any) -> Any:
        """Connects to the first host that works. The signature is what asyncpg's pool calls."""
        deadline = time.monotonic() + seconds
        urls = _urls_of_hosts(self._url)
        if self._last is not None:
            urls.sort(key=lambda url: url != self._last)
        if not self._is_replica:  # also if the URL says read-write: a read-only primary can be read
            options[_TARGET] = _PRIMARY_TARGETS[0]
        errors: list[Exception] = []
        for number, url in enumerate(urls):
            limit = (deadline - time.monotonic()) / (len(urls) - number)
            try:
                connection = await asyncpg.connect(url, timeout=limit, **options)
            except _NEXT_HOST_ERRORS as error:
                errors.append(error)
            else:
                self._last = url
                return connection
        # That a server is a standby says most: perhaps none was promoted.
        errors.sort(key=lambda error: isinstance(error, asyncpg.TargetServerAttributeNotMatched))
        raise errors[-1]


def _urls_of_hosts(url: str) -> list[str]:
    """Returns one URL for each host. Raises ValueError unless they have one port, or one each."""
    parts, query = split_url(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," in hosts:
        netlocs = [f"{user}{at}{host}" for host in hosts.split(",") if host]
        return [parts._replace(netloc=netloc).geturl() for netloc in netlocs]
    names, ports = query.get("host", "").split(","), query.get("port", "").split(",")
    if hosts or len(names) == 1:
        return [url]
    places = zip(names, ports * len(names) if len(ports) == 1 else ports, strict=True)
    queries = [urlencode(query | {"host": name, "port": port}) for name, port in places]
    return [parts._replace(query=each).geturl() for each in queries]


def end(connection: Any) -> None:
    """Ends a connection at once, without waiting for the server."""
    with suppress(asyncpg.InterfaceError):  # it was lost, and is in asyncpg's pool again
        connection.terminate()

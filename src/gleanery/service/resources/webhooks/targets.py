"""Targets of webhooks: which URLs and addresses the service may send to.

A client chooses the URL, so it could make the service reach into the operator's network. The rules:

- A URL has https, a host, and no user name. ``--webhook-allow`` names hosts and networks of which
  http is accepted as well.
- A name is resolved for each new connection. If one of its addresses is not a public one, the
  target is refused. Only ``--webhook-allow`` makes exceptions.
- The connection goes to an address that was checked. So a name that resolves to another address
  a moment later changes nothing.

A webhook of the format email has a ``mailto:`` URL instead. The operator sets the mail server, so
these rules do not apply to it.

An IPv6 address can contain an IPv4 address, which is then checked as well. Operating systems read
``2130706433``, ``0177.0.0.1`` and ``127.1`` as addresses. They are resolved before the check.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import idna

from gleanery.common.mail_addresses import is_mail_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host."""

_RESOLVERS = 256  # threads: each may wait for a slow name server
_RESOLVE_SECONDS = 5.0
_REFUSED_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_REFUSED_SUFFIXES = (".localhost", ".localdomain")
_REFUSED_NETWORKS = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",  # a public address with which machines of Azure reach their host
            "192.0.0.0/24",  # addresses of protocols
            "192.88.99.0/24",  # relays of 6to4
            "::/96",  # an IPv4 address in an old form
            "fec0::/10",  # site-local
            "2001::/32",  # Teredo
            "64:ff9b:1::/48",  # NAT64 inside a network
            "3fff::/20",  # examples in documents
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_HTTPS_ONLY = "use https: only hosts that --webhook-allow names get events with http"
_REFUSED = "this address is not a public one: the operator can allow it with --webhook-allow"
_NO_NAME = "the host is not a valid name"
_MAX_NAME = 253  # characters
_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}([.]{_LABEL})*")
_PORTS = {"http": 80, "https": 443}
MAILTO = "mailto:"
MAX_RECIPIENTS = 20
_EXPECTED_ADDRESSES = (
    f"expected mailto: and 1 to {MAX_RECIPIENTS} addresses with commas between them, such as "
    "mailto:ops@example.com,lead@example.com, and nothing else"
)
_NOT_MAIL = "a URL with mailto: needs the format email"


class TargetRefused(ValueError):
    """The service does not send to this target. The message is for the owner of the webhook."""


class Allowed(NamedTuple):
    """What ``--webhook-allow`` names."""

    hosts: frozenset[str]
    networks: Sequence[Network]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Allowed:
        hosts, networks = set(), []
        for text in texts:
            try:
                networks.append(ip_network(text))
            except ValueError:
                hosts.add(text.lower().rstrip("."))
        return cls(frozenset(hosts), tuple(networks))

    def includes(self, host: str, addresses: Iterable[Address]) -> bool:
        """Return True if the host, or each of these addresses, is allowed."""
        return host in self.hosts or all(
            any(address in network for network in self.networks) for address in addresses
        )


async def resolve_with_system(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, as the operating system finds them."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(
        _threads(), lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return [str(one[4][0]) for one in found]


@cache
def _threads() -> ThreadPoolExecutor:
    """Return threads that only wait for name servers, so that nothing else waits for these."""
    return ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")


class Targets:
    """Checks the URLs of webhooks, and the addresses of their hosts."""

    def __init__(self, allow: Iterable[str], resolve: Resolve = resolve_with_system) -> None:
        self._allowed = Allowed.parse(allow)
        self._resolve = resolve

    def check_url(self, url: str) -> str:
        """Return the URL in its normal form. Raise ValueError if it cannot be a target.

        A name is not resolved, so the addresses are not checked yet.
        """
        if url[: len(MAILTO)].lower() == MAILTO:
            raise ValueError(_NOT_MAIL)
        parts = _split(url)
        host = _normal_host(parts)
        literal = _literal(host)
        if not self._may_be_allowed(host, literal):
            if parts.scheme == "http":
                raise ValueError(_HTTPS_ONLY)
            if _is_local_name(host) or (literal is not None and is_internal(literal)):
                raise ValueError(_REFUSED)
        port = f":{parts.port}" if parts.port not in (None, _PORTS[parts.scheme]) else ""
        shown = f"[{host}]" if ":" in host else host
        return parts._replace(netloc=f"{shown}{port}", path=parts.path or "/").geturl()

    def _may_be_allowed(self, host: str, literal: Address | None) -> bool:
        """Return True if ``--webhook-allow`` names the host, or may name its addresses."""
        if literal is not None:
            return self._allowed.includes(host, [literal])
        return host in self._allowed.hosts or bool(self._allowed.networks)

    async def addresses(self, host: str, port: int, *, is_encrypted: bool) -> Sequence[str]:
        """Return the addresses to which a connection may go. Raise ``TargetRefused``."""
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                found = await self._resolve(host, port)
        except TimeoutError:
            raise TargetRefused("the address of the host was not found in time") from None
        except UnicodeError:  # from the codec of names, before a name server is asked
            raise TargetRefused(_NO_NAME) from None
        addresses = [ip_address(text) for text in dict.fromkeys(found)]
        if not addresses:
            raise TargetRefused("the host has no address")
        if not self._allowed.includes(host.lower().rstrip("."), addresses):
            if not is_encrypted:
                raise TargetRefused(_HTTPS_ONLY)
            if any(self._is_refused(address) for address in addresses):
                raise TargetRefused(_REFUSED)
        return [str(address) for address in addresses]

    def _is_refused(self, address: Address) -> bool:
        return is_internal(address) and not self._allowed.includes("", [address])


def check_mail_url(url: str) -> str:
    """Return the URL of a webhook of the format email in its normal form. Raise ValueError."""
    if url[: len(MAILTO)].lower() != MAILTO:
        raise ValueError(_EXPECTED_ADDRESSES)
    addresses = [_normal_mail_address(text) for text in url[len(MAILTO) :].split(",")]
    if len(addresses) > MAX_RECIPIENTS:
        raise ValueError(_EXPECTED_ADDRESSES)
    return MAILTO + ",".join(dict.fromkeys(addresses))


def mail_addresses(url: str) -> list[str]:
    """Return the addresses of a URL that was checked."""
    return url.removeprefix(MAILTO).split(",")


def _normal_mail_address(text: str) -> str:
    local, _, domain = text.rpartition("@")
    if not domain.isascii():
        try:
            domain = idna.encode(domain, uts46=True).decode()
        except idna.IDNAError:
            raise ValueError(_EXPECTED_ADDRESSES) from None
    address = f"{local}@{domain.lower()}"
    if not is_mail_address(address):
        raise ValueError(_EXPECTED_ADDRESSES)
    return address


def is_internal(address: Address) -> bool:
    """Return True unless the address is a public one of the Internet, for one receiver."""
    if any(address in network for network in _REFUSED_NETWORKS):
        return True
    if embedded := [*_embedded(address)]:
        return any(map(is_internal, embedded))
    return not address.is_global or address.is_multicast or address.is_reserved


def _embedded(address: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses to which an IPv6 address may lead."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            yield address.ipv4_mapped
        if address.sixtofour is not None:
            yield address.sixtofour
        if address in _NAT64:
            yield IPv4Address(int(address) & 0xFFFFFFFF)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError("expected a URL such as https://example.com/events") from None
    if parts.scheme not in _PORTS or not parts.hostname or not has_port:
        raise ValueError("expected a URL such as https://example.com/events")
    if "@" in parts.netloc:
        raise ValueError("put no user name and no password into the URL")
    if parts.fragment:
        raise ValueError("remove the fragment, the part after #")
    if not url.isprintable() or " " in url or not (parts.path + parts.query).isascii():
        raise ValueError("encode spaces and characters outside ASCII with %")
    return parts


def _normal_host(parts: SplitResult) -> str:
    """Return the host in lower case and in ASCII."""
    host = parts.hostname or ""
    if "[" in parts.netloc:
        return _normal_address(host)
    try:
        name = host if host.isascii() else idna.encode(host, uts46=True).decode()
    except idna.IDNAError:
        raise ValueError(_NO_NAME) from None
    name = name.removesuffix(".")
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise ValueError(_NO_NAME)
    return name


def _normal_address(text: str) -> str:
    """Return the IPv6 address between the brackets of a URL."""
    if "%" in text:
        raise ValueError("an address with a zone cannot be a target")
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise ValueError("the host is not a valid IPv6 address") from None


def _literal(host: str) -> Address | None:
    """Return the address that the host is, in any form that operating systems understand."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return None


def _is_local_name(host: str) -> bool:
    return host in _REFUSED_NAMES or host.endswith(_REFUSED_SUFFIXES)

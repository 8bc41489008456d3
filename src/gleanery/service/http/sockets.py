"""What the system knows about a socket: the client's address, and bytes it has not received."""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import socket
import struct
import termios
from functools import lru_cache

_NUMBER = struct.Struct("i")  # answer of the system to TIOCOUTQ
_UNKNOWN = b"unknown"
_MAX_LENGTH = 45  # of an IPv6 address that ends with an IPv4 address
_SO_PEERNAME = 28  # of Linux
# Size of the system's structure for the address of a socket, and the position of the IP address.
_STRUCTURES = {socket.AF_INET: (16, slice(4, 8)), socket.AF_INET6: (28, slice(8, 24))}


def address_of(transport: asyncio.Transport) -> bytes:
    """Return the IP address of the client of a transport that is not closed yet."""
    peer = transport.get_extra_info("peername")
    return address_in(_reset_peer(transport) if peer is None else peer)


def _reset_peer(transport: asyncio.Transport) -> tuple[str] | None:
    """Return the peer of a socket that its client has reset, if the system knows it.

    A client can send a request and reset the connection before it is accepted.
    """
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family not in _STRUCTURES:
        return None
    size, position = _STRUCTURES[connected.family]
    try:
        peer = connected.getsockopt(socket.SOL_SOCKET, _SO_PEERNAME, size)
    except OSError:  # another system than Linux
        return None
    return (socket.inet_ntop(connected.family, peer[position]),)


def address_in(peer: object) -> bytes:
    """Return the IP address in the peer of a socket, which is a sequence of host, port, ….

    A Unix socket has no address. An ASGI server may report any text, so the text is checked.
    """
    host = str(peer[0]) if isinstance(peer, tuple | list) and peer else ""
    return parse_address(host.partition("%")[0]) or _UNKNOWN  # without the zone of IPv6


def parse_address(text: str) -> bytes:
    """Return an IP address in its usual form; nothing if the text is not one."""
    return _parse(text) if len(text) <= _MAX_LENGTH else b""


@lru_cache(maxsize=1024)
def _parse(text: str) -> bytes:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return b""
    return b"" if "%" in text else str(address).encode("ascii")


def unconfirmed_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that the system has not sent, or whose receipt is not confirmed.

    A transport has no socket when TLS is closed, shortly before its protocol is told.
    """
    connected = transport.get_extra_info("socket")
    if connected is None:
        return 0
    try:
        answer = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(_NUMBER.size))
    except OSError:  # only Linux knows this of a socket
        return 0
    return int(_NUMBER.unpack(answer)[0])

"""A TCP proxy that a test can stop, start, freeze and point to another server."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
import threading
from contextlib import suppress

from tests.support.waiting import wait_until

Address = tuple[str, int] | str
"""Host and port, or the path of a Unix socket."""


class Forwarder:
    """Forwards the connections to one port of loopback."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._may_forward = threading.Event()
        self._may_forward.set()
        self.withholds = threading.Event()
        """Set when a frozen proxy has received something."""
        self.hides_ends = False
        """If True, a connection that the server ends stays open for its client."""
        self.has_hidden_end = threading.Event()
        """Set when the client has everything that the server has sent before the end."""
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            self.port = int(reserved.getsockname()[1])

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """Refuses new connections, and ends those that exist."""
        if self._listener is not None:
            _shut_down(self._listener)
            self._listener.close()
            self._listener = None
        for each in list(self._open):
            _shut_down(each)

    def freeze(self) -> None:
        """Forwards nothing more, and closes no connection, as a server that does not respond."""
        self._may_forward.clear()

    def thaw(self) -> None:
        """Forwards what was withheld, and everything after it."""
        self._may_forward.set()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = _connect(self.target)
        except OSError:
            client.close()
            return
        self._open |= {client, server}
        back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
        back.start()
        self._copy(client, server)
        back.join()
        self._open -= {client, server}
        client.close()
        server.close()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if not self._may_forward.is_set():
                    self.withholds.set()
                    self._may_forward.wait()
                sink.sendall(piece)
        if self.hides_ends:
            wait_until(lambda: not _unacknowledged_bytes(sink))
            self.has_hidden_end.set()
            return
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _unacknowledged_bytes(each: socket.socket) -> int:
    """Number of the bytes that the other side has not received yet."""
    return int.from_bytes(fcntl.ioctl(each, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def _connect(target: Address) -> socket.socket:
    if not isinstance(target, str):
        return socket.create_connection(target)
    server = socket.socket(socket.AF_UNIX)
    server.connect(target)
    return server


def _shut_down(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)

"""Links to exports, and a client that reads an export slowly."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.support.service import Client
from tests.support.waiting import TIMEOUT_SECONDS

_RECEIVE_BUFFER = 4096


def export_link(client: Client, group: str = "group", **query: str) -> str:
    """Creates a signed link to an export."""
    response = client.post(f"/v1/exports/{group}/links", params=query)
    assert response.status_code == 200, response.text
    return str(response.json()["url"])


class SlowExport:
    """An export whose client has read only the head of the response so far.

    The receive buffer is small, so the service waits soon. The server's own buffer can take some
    megabytes.
    """

    def __init__(self, client: Client, path: str = "/v1/exports/group") -> None:
        parts = urlsplit(str(client.base_url))
        assert parts.hostname is not None
        assert parts.port is not None
        connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
        connection.sock = socket.socket()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        connection.sock.settimeout(TIMEOUT_SECONDS)
        connection.sock.connect((parts.hostname, parts.port))
        connection.request("GET", path, headers={"Authorization": f"Bearer {client.token}"})
        self._connection = connection
        self._response = connection.getresponse()
        assert self._response.status == 200
        self.cursor = int(self._response.headers["Gleanery-Cursor"])

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def read_rest(self) -> list[dict[str, Any]]:
        """Reads the outputs. Raises an exception if the response is truncated."""
        text = self._response.read()
        self._connection.close()
        assert text == b"" or text.endswith(b"\n")
        return [json.loads(line) for line in text.splitlines()]

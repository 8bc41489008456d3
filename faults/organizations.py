"""Organizations that use several nodes of one service, and choose a node for each request."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from faults.service import CLIENT_TIMEOUT, Service


class SpreadTransport(httpx2.BaseTransport):
    """Sends each request to one of the nodes, so that a client depends on no single node."""

    def __init__(self, nodes: Sequence[Service]) -> None:
        self._ports = [node.port for node in nodes]
        self._transport = httpx2.HTTPTransport(verify=False)  # loopback has no TLS

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=random.choice(self._ports))
        return self._transport.handle_request(request)

    def close(self) -> None:
        self._transport.close()


@dataclass(frozen=True)
class Organization:
    """One organization with a token for all nodes."""

    organization: str
    token: str
    nodes: Sequence[Service]

    def client(self) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.nodes[0].url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=CLIENT_TIMEOUT,
            transport=SpreadTransport(self.nodes),
        )

"""Gleanery: a self-hosted data service for web scraping.

from gleanery import Client

for output in Client().outputs("shop-prices"):
    print(output.data)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gleanery.common.version import __version__

if TYPE_CHECKING:
    from gleanery.client import AsyncClient, Client, ClientError

__all__ = ["AsyncClient", "Client", "ClientError", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the client on first use: the service does not need it."""
    if name not in ("AsyncClient", "Client", "ClientError"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gleanery import client

    return getattr(client, name)

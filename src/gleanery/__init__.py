"""Gleanery: a self-hosted data service for web scraping.

from gleanery import Client

for output in Client().outputs("shop-prices"):
    print(output.data)

The clients and all errors that they raise are here; other names are in ``gleanery.client``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gleanery.common.version import __version__

if TYPE_CHECKING:
    from gleanery.client import (
        ApiError,
        AsyncClient,
        Client,
        ClientError,
        Conflict,
        ConnectionFailed,
        CursorExpired,
        ErrorDetail,
        ExportError,
        ExportFailed,
        FileChanged,
        Forbidden,
        Invalid,
        InvalidExport,
        InvalidResponse,
        InvalidState,
        InvalidWebhook,
        LeaseLost,
        NotConfigured,
        NotFound,
        PushFailed,
        RateLimited,
        ServerError,
        TimedOut,
        TooLarge,
        Unauthorized,
        Unavailable,
    )

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "CursorExpired",
    "ErrorDetail",
    "ExportError",
    "ExportFailed",
    "FileChanged",
    "Forbidden",
    "Invalid",
    "InvalidExport",
    "InvalidResponse",
    "InvalidState",
    "InvalidWebhook",
    "LeaseLost",
    "NotConfigured",
    "NotFound",
    "PushFailed",
    "RateLimited",
    "ServerError",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import the client on first use: the service does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gleanery import client

    return getattr(client, name)

"""The Python client library: reads, stores and exports data over HTTP, and converts sessions.

It imports nothing from the rest of Gleanery. Names are imported on first use, so that a program
that needs one of them does not load the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gleanery.client._async.client import AsyncClient
    from gleanery.client._async.pager import AsyncPager
    from gleanery.client._sync.client import Client
    from gleanery.client._sync.pager import Pager
    from gleanery.client.errors import (
        ApiError,
        ClientError,
        Conflict,
        ConnectionFailed,
        CursorExpired,
        ErrorDetail,
        Forbidden,
        Invalid,
        InvalidResponse,
        InvalidState,
        NotConfigured,
        NotFound,
        RateLimited,
        ServerError,
        TimedOut,
        TooLarge,
        Unauthorized,
        Unavailable,
    )
    from gleanery.client.models import File, Output, StoredFile
    from gleanery.client.pushes import ItemError, PushFailed, PushReport
    from gleanery.client.uploads import FileChanged

_MODULES = {
    "_async.client": ["AsyncClient"],
    "_async.pager": ["AsyncPager"],
    "_sync.client": ["Client"],
    "_sync.pager": ["Pager"],
    "errors": [
        "ApiError",
        "ClientError",
        "Conflict",
        "ConnectionFailed",
        "CursorExpired",
        "ErrorDetail",
        "Forbidden",
        "Invalid",
        "InvalidResponse",
        "InvalidState",
        "NotConfigured",
        "NotFound",
        "RateLimited",
        "ServerError",
        "TimedOut",
        "TooLarge",
        "Unauthorized",
        "Unavailable",
    ],
    "models": ["File", "Output", "StoredFile"],
    "pushes": ["ItemError", "PushFailed", "PushReport"],
    "uploads": ["FileChanged"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncPager",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "CursorExpired",
    "ErrorDetail",
    "File",
    "FileChanged",
    "Forbidden",
    "Invalid",
    "InvalidResponse",
    "InvalidState",
    "ItemError",
    "NotConfigured",
    "NotFound",
    "Output",
    "Pager",
    "PushFailed",
    "PushReport",
    "RateLimited",
    "ServerError",
    "StoredFile",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

"""HTTP/1.1 server: reads requests from sockets and hands them to an application.

It imports nothing else of gleanery. ``docs/http-server.md`` describes it.
"""

from gleanery.http.application import Application, Header, Request, unless_disconnected
from gleanery.http.client_address import address_in, parse_address
from gleanery.http.connection import Connection
from gleanery.http.errors import (
    BadRequest,
    ClientDisconnected,
    HeadTooLarge,
    HttpError,
    InvalidForm,
    PreconditionFailed,
    RangeNotSatisfiable,
    RequestTimeout,
    TooManyConnections,
    UnsupportedExpectation,
    UnsupportedMethod,
    UnsupportedTransferEncoding,
    UnsupportedVersion,
)
from gleanery.http.head import HeaderBlock
from gleanery.http.limits import Limits
from gleanery.http.registry import ConnectionRegistry, ManagedConnection
from gleanery.http.server import HttpServer

__all__ = [
    "Application",
    "BadRequest",
    "ClientDisconnected",
    "Connection",
    "ConnectionRegistry",
    "HeadTooLarge",
    "Header",
    "HeaderBlock",
    "HttpError",
    "HttpServer",
    "InvalidForm",
    "Limits",
    "ManagedConnection",
    "PreconditionFailed",
    "RangeNotSatisfiable",
    "Request",
    "RequestTimeout",
    "TooManyConnections",
    "UnsupportedExpectation",
    "UnsupportedMethod",
    "UnsupportedTransferEncoding",
    "UnsupportedVersion",
    "address_in",
    "parse_address",
    "unless_disconnected",
]

"""HTTP/1.1 server: reads requests from sockets and hands them to an application.

It imports nothing else of gleanery. ``docs/http-server.md`` describes it.
"""

from gleanery.service.http.application import (
    Application,
    BadRequest,
    ClientDisconnected,
    Header,
    HeaderBlock,
    HeadTooLarge,
    HttpError,
    InvalidForm,
    PreconditionFailed,
    RangeNotSatisfiable,
    Request,
    RequestTimeout,
    TooManyConnections,
    UnsupportedExpectation,
    UnsupportedMethod,
    UnsupportedTransferEncoding,
    UnsupportedVersion,
    unless_disconnected,
)
from gleanery.service.http.connection import Connection
from gleanery.service.http.registry import ConnectionRegistry, Limits, ManagedConnection
from gleanery.service.http.server import HttpServer
from gleanery.service.http.sockets import address_in, parse_address

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

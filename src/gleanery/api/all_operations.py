"""All operations that the service routes: those of the API and of the console, and OPTIONS *."""

from __future__ import annotations

from gleanery.api.console.operations import CONSOLE_OPERATIONS
from gleanery.api.handlers import system
from gleanery.api.operation import Operation
from gleanery.api.operations import OPERATIONS

# OpenAPI cannot describe it, because its target is not a path.
_SERVER_OPTIONS = Operation(
    method="OPTIONS",
    path="*",
    handler=system.server_options,
    title="Options of the server",
    description="Returns the methods that the service knows.",
    status=204,
)
ALL_OPERATIONS = (*OPERATIONS, *CONSOLE_OPERATIONS, _SERVER_OPTIONS)

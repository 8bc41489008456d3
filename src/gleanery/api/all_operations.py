"""All operations that the service routes: those of the API, and those of the console."""

from __future__ import annotations

from gleanery.api.console.operations import CONSOLE_OPERATIONS
from gleanery.api.operations import OPERATIONS

ALL_OPERATIONS = (*OPERATIONS, *CONSOLE_OPERATIONS)

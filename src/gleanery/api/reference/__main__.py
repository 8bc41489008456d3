"""The command that prints docs/reference.md; ``make reference`` runs it."""

from __future__ import annotations

from gleanery.api import openapi
from gleanery.api.operations import OPERATIONS
from gleanery.api.reference import markdown
from gleanery.settings import Settings

print(markdown(openapi.document(OPERATIONS, Settings())), end="")

"""Print docs/reference.md; ``make reference`` runs it."""

from __future__ import annotations

from gleanery.api import openapi
from gleanery.api.app import RESOURCES
from gleanery.api.reference import markdown
from gleanery.settings import Settings

print(markdown(openapi.document(RESOURCES, Settings())), end="")

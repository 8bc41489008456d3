"""Print docs/reference.md; ``make reference`` runs it."""

from __future__ import annotations

from gleanery.service.api import openapi
from gleanery.service.api.reference import markdown
from gleanery.service.application import RESOURCES
from gleanery.service.foundation.settings import Settings

print(markdown(openapi.document(RESOURCES, Settings())), end="")

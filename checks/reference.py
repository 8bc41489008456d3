"""Print docs/reference.md; ``make docs`` runs it."""

from __future__ import annotations

from gleanery.common.settings import Settings
from gleanery.service.api import openapi
from gleanery.service.api.reference import markdown
from gleanery.service.application import RESOURCES

print(markdown(openapi.document(RESOURCES, Settings())), end="")

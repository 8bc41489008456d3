"""The reference: the OpenAPI document as an HTML page and as Markdown."""

from gleanery.service.api.reference.content import markdown
from gleanery.service.api.reference.page import ReferencePage, build_page

__all__ = ["ReferencePage", "build_page", "markdown"]

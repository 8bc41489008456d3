"""The reference: the OpenAPI document as an HTML page and as Markdown."""

from gleanery.api.reference.markdown import markdown
from gleanery.api.reference.page import ReferencePage, build_page

__all__ = ["ReferencePage", "build_page", "markdown"]

"""The description of the API for clients: the OpenAPI document and the reference page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from gleanery.api import openapi, reference
from gleanery.api.operation import Resource
from gleanery.settings import Settings


class Description:
    """Both forms, made on first use."""

    def __init__(self, resources: Sequence[Resource], settings: Settings) -> None:
        self._resources = resources
        self._settings = settings

    @cached_property
    def _document(self) -> openapi.Document:
        return openapi.document(self._resources, self._settings)

    @cached_property
    def openapi_json(self) -> bytes:
        return openapi.encoded(self._document)

    @cached_property
    def reference_page(self) -> reference.ReferencePage:
        return reference.build_page(self._document)

"""Outputs and their files, as a scraper sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from gleanery.models.fields import (
    Name,
    NonEmptyText,
)
from gleanery.models.inputs import Input, Query, custom_error
from gleanery.service.resources.files.models import CheckedFile, FieldName, FileIn

_BARE_ITEM = (
    "is missing: bare items need job_id and url_field. Without both, and without key_field, each "
    "element is an output with job_id, source_url and data"
)
_NOT_AN_OUTPUT = (
    "is not an output, which has job_id, source_url and data. For bare items, as scrapers write "
    "them, add the parameters job_id and url_field to the URL"
)


class OutputIn(Input):
    """Scraped output to store."""

    job_id: Name = Field(
        description="Lasting source of the output, such as one site or one spider. It is not one "
        "run: a new `job_id` for each run stores every output again."
    )
    source_url: NonEmptyText
    data: dict[str, Any] = Field(
        description="Integers keep every digit. A number with a fraction or an exponent is rounded "
        "to a double: send one with more digits as a string."
    )
    key: NonEmptyText | None = Field(
        default=None, description="Identifies the output when it is scraped again."
    )
    tags: dict[str, Any] | None = Field(
        default=None,
        description="The filters `country` and `region` use the members with these names.",
    )
    files: Annotated[list[CheckedFile], Field(max_length=200)] | None = Field(
        default=None, description="Files of the output."
    )

    @classmethod
    def _problems(cls, value: dict[str, Any]) -> list[InitErrorDetails]:
        if value.keys().isdisjoint(("job_id", "source_url", "data")):
            return [custom_error("bare_item", _NOT_AN_OUTPUT, ())]
        return super()._problems(value)

    def checked(self) -> Output:
        return Output(self.job_id, self.source_url, self.data, self.key, self.tags, self.files)


class Output(NamedTuple):
    """Validated output."""

    job_id: str
    source_url: str
    data: dict[str, Any]
    key: str | None = None
    tags: dict[str, Any] | None = None
    files: Sequence[FileIn] | None = None


class IngestQuery(Query):
    """How the elements of a batch are read."""

    job_id: Name | None = Field(
        default=None,
        description="Job of bare items, together with `url_field`. Each element of the body is "
        "then the `data` of an output.",
    )
    url_field: FieldName | None = Field(
        default=None, description="Member of a bare item that is its `source_url`."
    )
    key_field: FieldName | None = Field(
        default=None,
        description="Member of a bare item that is its `key`: a string or an integer. Default: the "
        "group's `key_fields`, or else the URL.",
    )
    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="stop: an invalid element is an error of the request. skip: the valid elements "
        "are stored, and the response lists the others.",
    )

    @model_validator(mode="after")
    def _require_both(self) -> IngestQuery:
        """Require job_id and url_field, if one of the parameters of bare items is given."""
        given = {"job_id": self.job_id, "url_field": self.url_field, "key_field": self.key_field}
        missing = [name for name in ("job_id", "url_field") if given[name] is None]
        if missing and any(given.values()):
            errors = [custom_error("missing_parameter", _BARE_ITEM, (name,)) for name in missing]
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self

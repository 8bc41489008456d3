"""What clients send and receive about exports and the links to them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import Text, WholeNumber
from gleanery.service.foundation.models import DateTimeOut
from gleanery.service.resources.outputs.models import OutputFilters


class ExportQuery(OutputFilters):
    """Filters and format of an export."""

    format: Literal["jsonl", "csv", "parquet"] = Field(
        default="jsonl",
        description="jsonl: one JSON object per line, sent while it is read. csv and parquet: a "
        "table with a column for each member of an output and for each key of its `data`, in the "
        "same form as `gleanery export` writes it. It is sent when it is complete.",
    )


class ExportLinkQuery(ExportQuery):
    """Filters and format of the export, and the validity of the link."""

    valid_seconds: WholeNumber = Field(
        default=3600,
        ge=60,
        le=604_800,
        description="Time for which the link is valid: a minute to a week.",
    )


class SignedExportQuery(ExportQuery):
    """Signed parts of a link to an export."""

    organization: Text = Field(description="Value from the link.")
    token: Text = Field(description="Value from the link: the number of the token.")
    expires: Text = Field(description="Value from the link.")
    signature: Text = Field(description="Value from the link.")


class ExportLink(TypedDict):
    """Signed link to an export."""

    url: Annotated[str, Field(description="It works without a token, and only for reading.")]
    expires: Annotated[DateTimeOut, Field(description="End of its validity.")]

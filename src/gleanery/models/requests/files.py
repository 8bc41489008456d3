"""Queries about files."""

from __future__ import annotations

from pydantic import Field

from gleanery.models.fields import NonEmptyText, Text
from gleanery.models.inputs import Query


class FileUpload(Query):
    """Source of an uploaded file."""

    source_url: Text = Field(
        default="", max_length=4096, description="URL from which the scraper downloaded it."
    )
    etag: Text = Field(default="", max_length=1024, description="ETag of the download.")
    filename: Text = Field(default="", max_length=255, description="File name for downloads.")


class FileQuery(Query):
    """Source of the file to find."""

    source_url: NonEmptyText = Field(description="Value from the upload.")
    etag: Text = Field(default="", description="Value from the upload.")


class BlobQuery(Query):
    """Signed parts of a link to a file."""

    organization: Text = Field(description="Value from the link.")
    expires: Text = Field(description="Value from the link.")
    signature: Text = Field(description="Value from the link.")

"""What clients send and receive about files, and about the files of an output."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    MAX_NAME_LENGTH,
    FileId,
    NonEmptyText,
    Text,
    as_validation_error,
)
from gleanery.service.foundation.models import DateTimeOut, Input, Query, condition

FieldName = Annotated[NonEmptyText, Field(max_length=MAX_NAME_LENGTH)]


class FileIn(Input):
    """File of an output: an uploaded file by its `id`, or a file that is stored elsewhere."""

    model_config = ConfigDict(
        json_schema_extra=condition(
            {
                "anyOf": [
                    {"required": [name], "properties": {name: {"type": "string"}}}
                    for name in ("id", "source_url", "file_url")
                ]
            }
        )
    )

    field: Text = Field(description="Path inside `data`, such as `attachments[0].url`.")
    id: FileId | None = Field(default=None, description="`id` in the response of `POST /v1/files`.")
    source_url: Text | None = None
    file_url: Text | None = None
    file_type: Text | None = None
    file_checksum: Text | None = None
    file_metadata: dict[str, Any] | None = None


def _check_file(file: FileIn) -> FileIn:
    if file.id is None and file.source_url is None and file.file_url is None:
        raise ValueError("refers to no file: give the id of an uploaded file, or a file_url")
    return file


CheckedFile = Annotated[FileIn, AfterValidator(as_validation_error("file", _check_file))]


class FileOut(TypedDict):
    """File of an output."""

    id: str
    field: Annotated[str, Field(description="Path inside `data`.")]
    url_etag_hash: str
    blob_key: str
    blob_url: str
    source_url: str
    create_date: DateTimeOut
    file_url: str
    file_type: str
    file_checksum: str
    file_metadata: dict[str, Any]


class StoredFile(TypedDict):
    """Uploaded file."""

    id: str
    blob_key: str
    file_checksum: str
    file_type: str
    url_etag_hash: str
    size: int


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

"""Responses about outputs, their files and their exports."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.models.responses.common import DateTime, ErrorDetailOut, PageMetadata, WriteCounts
from gleanery.service.resources.files.models import FileOut


class OutputResult(TypedDict):
    """Result of one output of a batch."""

    id: int
    output_id: str
    change: Literal["created", "updated", "unchanged"]


class IngestCounts(WriteCounts):
    """Result of stored outputs: the counts and, with `on_error=skip`, the skipped elements."""

    skipped: NotRequired[
        Annotated[int, Field(description="With `on_error=skip`: number of skipped elements.")]
    ]
    errors: NotRequired[
        Annotated[
            list[ErrorDetailOut],
            Field(description="With `on_error=skip`: the first 100 errors of skipped elements."),
        ]
    ]


class IngestResult(IngestCounts):
    """Result of a batch: the counts, and one result per element of the batch, in its order."""

    results: Annotated[
        list[OutputResult | None], Field(description="null for an element that is skipped.")
    ]


class NdjsonResult(IngestCounts):
    """Result of an NDJSON body: the counts, and the number of its lines."""

    lines: int


class OutputOut(TypedDict):
    """Stored output."""

    source_url: str
    data: dict[str, Any]
    id: int
    output_id: str
    root_job_id: str
    create_date: DateTime
    update_date: DateTime
    last_scraped_date: DateTime
    key_hash: str
    value_hash: str
    is_approved: bool
    tags: dict[str, Any]
    files: list[FileOut]


class OutputPage(TypedDict):
    """Page of a group's outputs, in the order of their last change."""

    metadata: PageMetadata
    items: list[OutputOut]

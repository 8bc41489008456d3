"""Query of the audit log."""

from __future__ import annotations

from pydantic import Field

from gleanery.models.fields import MAX_INT64, WholeNumber
from gleanery.models.inputs import Query


class AuditQuery(Query):
    """Part of the audit log to read."""

    cursor: WholeNumber = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="Only entries after this cursor, or after a time in microseconds since 1970.",
    )
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")

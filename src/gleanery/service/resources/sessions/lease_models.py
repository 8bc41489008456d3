"""Bodies and responses of leases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    MAX_NAME_LENGTH,
    Domain,
    Name,
    ReadFormat,
    Text,
    WrittenFormat,
    float_to_integer,
)
from gleanery.service.foundation.models import DateTimeOut, Input, condition, custom_error
from gleanery.service.resources.sessions.models import ImportCounts

MAX_LEASE_SECONDS = 3600

LeaseSeconds = Annotated[int, Field(ge=1, le=MAX_LEASE_SECONDS), BeforeValidator(float_to_integer)]


_JSON_TYPES = ["object", "array", "string"]
StateIn = Annotated[
    Any, WithJsonSchema({"type": [*_JSON_TYPES, "null"], "additionalProperties": True, "items": {}})
]
StateOut = Annotated[
    Any, WithJsonSchema({"type": _JSON_TYPES, "additionalProperties": True, "items": {}})
]


class LeaseIn(Input):
    """Session to lease, and for how long."""

    domain: Domain = Field(description="Host. A leading dot includes its subdomains.")
    profile: Name = Field(default="default", description="Account of the domain.")
    seconds: LeaseSeconds = Field(
        description=f"Time until the lease expires: 1 to {MAX_LEASE_SECONDS} seconds."
    )
    holder: Text | None = Field(
        default=None, max_length=MAX_NAME_LENGTH, description="Who holds the lease, for people."
    )
    format: WrittenFormat = Field(
        default="playwright", description="Format of the state, as in an export."
    )


class LeaseChange(Input):
    """Changes of a session, and what happens to its lease."""

    model_config = ConfigDict(
        json_schema_extra=condition(
            {
                "dependentRequired": {"format": ["state"], "replace": ["state"]},
                "if": {"properties": {"release": {"const": True}}, "required": ["release"]},
                "then": {"properties": {"seconds": {"type": "null"}}},
            }
        )
    )

    seconds: LeaseSeconds | None = Field(
        default=None,
        description=f"Time until the lease expires, from now: 1 to {MAX_LEASE_SECONDS} seconds. It never "
        "shortens a lease. Without it, the lease keeps its expiry.",
    )
    state: StateIn = Field(default=None, description="Cookies and local storage to store.")
    format: ReadFormat = Field(
        default="auto", description="Format of the state, as in an import. `auto` recognises it."
    )
    replace: bool = Field(
        default=False,
        description="true: deletes the other records of the leased domain. A format without local "
        "storage deletes only cookies. A Cookie header or a curl command deletes only those that "
        "its page gets. A state without any record is an error.",
    )
    release: bool = Field(default=False, description="true: returns the lease.")

    @model_validator(mode="after")
    def _reject_contradictions(self) -> LeaseChange:
        problems = [
            custom_error("conflict", 'has no effect without "state"', [name])
            for name in ("format", "replace")
            if name in self.model_fields_set and self.state is None
        ]
        if self.release and self.seconds is not None:
            msg = 'contradicts "release": send one of them'
            problems.append(custom_error("conflict", msg, ["seconds"]))
        if problems:
            raise ValidationError.from_exception_data(type(self).__name__, problems)
        return self


class LeaseOut(TypedDict):
    """Lease, without the state of the session."""

    id: str
    domain: str
    profile: str
    holder: Annotated[str | None, Field(description="Who holds it, as the holder said.")]
    token_id: Annotated[int, Field(description="Token that acquired it.")]
    acquire_date: DateTimeOut
    expires: DateTimeOut
    seconds: Annotated[
        int,
        Field(
            description="Whole seconds that are left. A holder counts them from the moment at "
            "which it sent the request."
        ),
    ]


class AcquiredLease(LeaseOut):
    """Lease with the state of the session."""

    state: Annotated[StateOut, Field(description="Cookies and local storage, in the format.")]
    losses: Annotated[list[str], Field(description="What the format cannot carry.")]


class ChangedLease(LeaseOut):
    """Lease after a change of its session; `seconds` is 0 if it was returned."""

    cookies: ImportCounts
    local_storage: ImportCounts
    losses: Annotated[list[str], Field(description="What could not be stored.")]

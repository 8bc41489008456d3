"""What clients send and receive about webhooks and their deliveries."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    MAX_INT64,
    Name,
    Text,
    WholeNumber,
    restrict_names,
)
from gleanery.service.foundation.models import (
    DateTimeOut,
    Input,
    PageMetadata,
    Query,
    custom_error,
)
from gleanery.service.resources.events.storing import EVENT_NAMES, EventName

MAX_URL_LENGTH = 2000
_MAX_GROUPS = 100
MAX_HEADERS = 10
_MAX_HEADER_NAME, MAX_HEADER_VALUE = 100, 2000  # characters
# A token of HTTP.
_HEADER_NAME_PATTERN = rf"^[A-Za-z0-9!#$%&'*+.^_`|~-]{{1,{_MAX_HEADER_NAME}}}$"
# Visible ASCII, with spaces and tabs inside.
_HEADER_VALUE_PATTERN = rf"^[!-~](?:[\t -~]{{0,{MAX_HEADER_VALUE - 2}}}[!-~])?$"
_RESERVED_HEADERS = {
    *("connection", "content-encoding", "content-length", "content-type", "expect", "host"),
    *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
}
_RESERVED_PREFIXES = ("proxy-", "webhook-")
_EXPECTED_NAME = f"expected a name of 1 to {_MAX_HEADER_NAME} letters, digits and signs such as -"
_RESERVED_NAME = "the service sets this header itself: leave it out"
_SAME_NAME = "the header is given twice: names do not differ by upper and lower case"
_EXPECTED_VALUE = (
    f"expected a value of 1 to {MAX_HEADER_VALUE} visible ASCII characters, with spaces and tabs "
    "only between them"
)
Format = Literal["standard", "slack", "discord", "teams", "email"]
DeliveryStatus = Literal["waiting", "delivered", "failed"]


def _check_headers(headers: dict[str, str | None]) -> dict[str, str | None]:
    """Return the headers. Raise ValidationError with a problem for each wrong one."""
    problems, seen = [], set[str]()
    for name, value in headers.items():
        if problem := _header_problem(name, value, seen):
            problems.append(custom_error("webhook_header", problem, [name[:_MAX_HEADER_NAME]]))
        seen.add(name.lower())
    if problems:
        raise ValidationError.from_exception_data("headers", problems)
    return headers


def _header_problem(name: str, value: str | None, seen: set[str]) -> str | None:
    """Return what is wrong, without the value. The names in ``seen`` are in lower case."""
    if not re.fullmatch(_HEADER_NAME_PATTERN, name):
        return _EXPECTED_NAME
    lower = name.lower()
    as_read = re.sub(r"[^a-z0-9]", "-", lower)  # by CGI and WSGI, where webhook_id is webhook-id
    if as_read in _RESERVED_HEADERS or as_read.startswith(_RESERVED_PREFIXES):
        return _RESERVED_NAME
    if lower in seen:
        return _SAME_NAME
    if value is not None and not re.fullmatch(_HEADER_VALUE_PATTERN, value):
        return _EXPECTED_VALUE
    return None


_HeaderName = Annotated[str, Field(json_schema_extra={"pattern": _HEADER_NAME_PATTERN})]
_HeaderValue = Annotated[str, Field(json_schema_extra={"pattern": _HEADER_VALUE_PATTERN})]
_Headers = Annotated[
    dict[_HeaderName, _HeaderValue | None],
    Field(max_length=MAX_HEADERS, json_schema_extra=restrict_names),
    AfterValidator(_check_headers),
]


class WebhookIn(Input):
    """Webhook to create, or the new settings of one."""

    url: Text = Field(
        min_length=1,
        max_length=MAX_URL_LENGTH,
        description="Address that gets the events, with https. Addresses inside the network of the "
        "service are refused, unless `--webhook-allow` names them. With the format email, "
        "mailto: and 1 to 20 addresses with commas between them.",
    )
    events: Annotated[list[EventName], Field(min_length=1, max_length=len(EVENT_NAMES))] = Field(
        description="Events that the address gets. outputs.changed: a group has changed; the "
        "change feed has the changes. run.finished: a run has ended and, if it is complete, was "
        "compared. review.created: somebody has reviewed a job. delivery.failed: all attempts to "
        "deliver an event have failed. webhook.disabled: the service has disabled another webhook. "
        "alert.opened and alert.closed: a monitor has found a problem, or it is over. "
        "session.invalid is reserved, and not sent yet. test is sent on request, even if it is not "
        "listed."
    )
    groups: Annotated[list[Name], Field(min_length=1, max_length=_MAX_GROUPS)] | None = Field(
        default=None,
        description="Only events of these groups, which may not exist yet. By default all.",
    )
    description: Text | None = Field(default=None, max_length=500, description="For people.")
    format: Format = Field(
        default="standard",
        description="standard: the event as JSON. slack, discord and teams: a short message for a "
        "chat. email: a message to the addresses of the URL, if the operator has set a mail "
        "server. Alerts of one run are one event for people, and one event each for standard.",
    )
    headers: _Headers | None = Field(
        default=None,
        description="Headers that each request to the address has, such as `Authorization`: at "
        f"most {MAX_HEADERS}, with names of at most {_MAX_HEADER_NAME} and values of at most "
        f"{MAX_HEADER_VALUE:,} characters. Values are visible ASCII, with spaces and tabs inside. "
        "They are stored encrypted, and never shown. null keeps the stored value of a header, as "
        "long as `url` has the same scheme, host and port. Names are compared ignoring case. "
        "Headers that the service sets itself are refused, except `User-Agent` and `Accept`. An "
        "e-mail has none.",
    )


class WebhookOut(TypedDict):
    """Webhook of the organization, without its secret."""

    id: str
    url: str
    events: list[EventName]
    groups: list[str] | None
    description: str
    format: Format
    headers: Annotated[
        dict[str, None],
        Field(description="Names of the headers, each with null: values are never shown."),
    ]
    status: Annotated[
        Literal["enabled", "disabled"],
        Field(description="disabled: it gets no events until somebody enables it."),
    ]
    create_date: DateTimeOut
    update_date: DateTimeOut
    disabled_date: DateTimeOut | None
    disabled_reason: Annotated[str | None, Field(description="Why the service disabled it.")]
    failing_since: Annotated[
        DateTimeOut | None, Field(description="First failed attempt since the last success.")
    ]
    old_secret_expires: Annotated[
        DateTimeOut | None,
        Field(description="After a rotation, deliveries have a second signature until then."),
    ]


class WebhookWithSecret(WebhookOut):
    """Webhook with its secret, which is shown only once."""

    secret: Annotated[str, Field(description="Verifies the signatures. Store it now.")]


class WebhookPage(TypedDict):
    """All webhooks of the organization, oldest first."""

    metadata: PageMetadata
    webhooks: list[WebhookOut]


class DeliveriesQuery(Query):
    """Filters and paging of deliveries."""

    status: DeliveryStatus | None = Field(
        default=None, description="Only deliveries with this status."
    )
    event: EventName | None = Field(default=None, description="Only deliveries of this event.")
    limit: WholeNumber = Field(default=50, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Only deliveries before this position."
    )


class AttemptOut(TypedDict):
    """Attempt to deliver an event."""

    date: DateTimeOut
    status_code: Annotated[
        int | None,
        Field(
            description="Status of the response, or the code of the mail server's reply. null: "
            "there was none."
        ),
    ]
    duration_ms: int
    response: Annotated[
        str | None,
        Field(
            description="First 1,024 bytes of the response's body, or of the mail server's reply, "
            "as text."
        ),
    ]
    error: Annotated[
        str | None,
        Field(
            description="Why the attempt failed. If only some recipients of an e-mail were "
            "refused, it did not fail, and this says which. Else null."
        ),
    ]


class DeliveryOut(TypedDict):
    """Event for a webhook, with the attempts to deliver it."""

    delivery_id: Annotated[
        str,
        Field(
            description="The header `webhook-id`, which is the same in each attempt; "
            "`Gleanery-Delivery-Id` in an e-mail."
        ),
    ]
    event: EventName
    group_id: Annotated[str | None, Field(description="Group that the event is about.")]
    status: Annotated[
        DeliveryStatus,
        Field(
            description="waiting: there will be another attempt. delivered: a response had a "
            "status from 200 to 299, or the mail server accepted the message. failed: there is no "
            "further attempt."
        ),
    ]
    create_date: DateTimeOut
    attempts: Annotated[list[AttemptOut], Field(description="The last 20, oldest first.")]
    next_attempt_date: Annotated[
        DateTimeOut | None,
        Field(description="Planned time of the next attempt; null if there is none."),
    ]


class DeliveryPage(TypedDict):
    """Page of deliveries, newest first."""

    metadata: PageMetadata
    deliveries: list[DeliveryOut]

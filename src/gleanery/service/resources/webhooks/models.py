"""What clients send and receive about webhooks and their deliveries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import MAX_INT64, Name, Text, WholeNumber
from gleanery.service.foundation.models import DateTimeOut, Input, PageMetadata, Query
from gleanery.service.resources.events.storing import EVENT_NAMES, EventName

MAX_URL_LENGTH = 2000
_MAX_GROUPS = 100
Format = Literal["standard", "slack", "discord", "teams"]
DeliveryStatus = Literal["waiting", "delivered", "failed"]


class WebhookIn(Input):
    """Webhook to create, or the new settings of one."""

    url: Text = Field(
        min_length=1,
        max_length=MAX_URL_LENGTH,
        description="Address that gets the events, with https. Addresses inside the network of the "
        "service are refused, unless `--webhook-allow` names them.",
    )
    events: Annotated[list[EventName], Field(min_length=1, max_length=len(EVENT_NAMES))] = Field(
        description="Events that the address gets. outputs.changed: a group has changed; the "
        "change feed has the changes. run.finished: a run has ended and, if it is complete, was "
        "compared. review.created: somebody has reviewed a job. delivery.failed: all attempts to "
        "deliver an event have failed. webhook.disabled: the service has disabled another webhook. "
        "alert.opened, alert.closed and session.invalid are reserved, and not sent yet. test is "
        "sent on request, even if it is not listed."
    )
    groups: Annotated[list[Name], Field(min_length=1, max_length=_MAX_GROUPS)] | None = Field(
        default=None,
        description="Only events of these groups, which may not exist yet. By default all.",
    )
    description: Text | None = Field(default=None, max_length=500, description="For people.")
    format: Format = Field(
        default="standard",
        description="standard: the event as JSON. The others are short messages for a chat.",
    )


class WebhookOut(TypedDict):
    """Webhook of the organization, without its secret."""

    id: str
    url: str
    events: list[EventName]
    groups: list[str] | None
    description: str
    format: Format
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
    status_code: Annotated[int | None, Field(description="null: there was no response.")]
    duration_ms: int
    response: Annotated[
        str | None, Field(description="First 1,024 bytes of the response's body, as text.")
    ]
    error: Annotated[str | None, Field(description="Why the attempt failed; null if it did not.")]


class DeliveryOut(TypedDict):
    """Event for a webhook, with the attempts to deliver it."""

    delivery_id: Annotated[
        str, Field(description="The header `webhook-id`, which is the same in each attempt.")
    ]
    event: EventName
    group_id: Annotated[str | None, Field(description="Group that the event is about.")]
    status: Annotated[
        DeliveryStatus,
        Field(
            description="waiting: there will be another attempt. delivered: a response had a "
            "status from 200 to 299. failed: there is no further attempt."
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

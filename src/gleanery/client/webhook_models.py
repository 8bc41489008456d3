"""Webhooks and deliveries, as responses describe them. Unknown members are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Raw, Struct

from gleanery.client.models import PageMetadata

WebhookFormat = Literal["standard", "slack", "discord", "teams", "email"]
"""``standard`` is the event as JSON, ``email`` an e-mail, the others are messages for a chat."""
DeliveryStatus = Literal["waiting", "delivered", "failed"]
"""``waiting`` has another attempt, ``failed`` has none."""


class Webhook(Struct, frozen=True, gc=False, kw_only=True):
    """Address that gets events, without its secret."""

    id: str
    url: str
    events: list[str]
    groups: list[str] | None
    """Groups whose events it gets; None for all."""
    description: str
    format: str
    headers: dict[str, None] = {}
    """Names of the headers that go with each request. Their values are not shown."""
    status: Literal["enabled", "disabled"]
    create_date: datetime
    update_date: datetime
    disabled_date: datetime | None
    disabled_reason: str | None
    """Why the service has disabled it."""
    failing_since: datetime | None
    """Time of the first failed attempt since the last success."""
    old_secret_expires: datetime | None
    """After a rotation, deliveries have a second signature until then."""


class WebhookWithSecret(Webhook, frozen=True, gc=False, kw_only=True):
    """Webhook with its secret, which is not shown."""

    secret: str
    """With it, ``gleanery.client.webhooks.verify`` checks the requests that the webhook gets."""

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"WebhookWithSecret({members})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the members that the library Rich may show."""
        return [(name, getattr(self, name)) for name in Webhook.__struct_fields__]


class DeliveryAttempt(Struct, frozen=True, gc=False, kw_only=True):
    """Attempt to deliver an event."""

    date: datetime
    status_code: int | None
    """None if there was no response."""
    duration_ms: int
    response: str | None
    """The first 1,024 bytes of the body of the response."""
    error: str | None
    """Why the attempt failed; None if it did not."""


class Delivery(Struct, frozen=True, gc=False, kw_only=True):
    """Event for a webhook, with the attempts to deliver it."""

    delivery_id: str
    """The header ``webhook-id``, which is the same in each attempt."""
    event: str
    group_id: str | None
    """Group that the event is about."""
    status: DeliveryStatus
    create_date: datetime
    attempts: list[DeliveryAttempt]
    """The last 20, oldest first."""
    next_attempt_date: datetime | None
    """None if there is no further attempt."""


class WebhookPage(Struct, frozen=True, gc=False, kw_only=True):
    """All webhooks of an organization."""

    webhooks: list[Webhook]


class DeliveryPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of deliveries."""

    metadata: PageMetadata
    deliveries: list[Delivery]


class RawDeliveryPage(Struct, frozen=True, gc=False, kw_only=True):
    """Page of deliveries that are not decoded."""

    metadata: PageMetadata
    deliveries: list[Raw]

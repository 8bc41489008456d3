"""The operations of webhooks, with their examples."""

from __future__ import annotations

from typing import Any

from gleanery.service.api.examples import DELETED, GROUP_ID, LAST_PAGE, REVIEW_DATE
from gleanery.service.api.operation import Example, Operation, Resource
from gleanery.service.foundation.models import Deleted
from gleanery.service.resources.webhooks import handlers
from gleanery.service.resources.webhooks.models import (
    DeliveriesQuery,
    DeliveryOut,
    DeliveryPage,
    WebhookIn,
    WebhookOut,
    WebhookPage,
    WebhookWithSecret,
)

_WEBHOOK_ID = "9d2c6b1e4f7a4c3d8e5f60718293a4b5"
_DELIVERY_ID = "msg_4f1e2d3c5b6a79880706f5e4d3c2b1a0"
_IN_WEBHOOK = {"webhook_id": _WEBHOOK_ID}
_SETTINGS: dict[str, Any] = {
    "url": "https://hooks.example.com/gleanery",
    "events": ["outputs.changed", "run.finished"],
    "groups": [GROUP_ID],
    "description": "Warehouse",
    "headers": {"X-Api-Key": "Xq2mB7fRz0aL"},
}
_WEBHOOK = {
    "id": _WEBHOOK_ID,
    **_SETTINGS,
    "format": "standard",
    "headers": {"X-Api-Key": None},
    "status": "enabled",
    "create_date": REVIEW_DATE,
    "update_date": REVIEW_DATE,
    "disabled_date": None,
    "disabled_reason": None,
    "failing_since": None,
    "old_secret_expires": None,
}
_SECRET = {"secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDaGp2Z2x0eXM="}
_NEW_SECRET = {"secret": "whsec_5WUzYk0yqGf1b3l0S2pXcUhvTnZ4dEE2cEdkRThtQzQ="}
_DELIVERY: dict[str, Any] = {
    "delivery_id": _DELIVERY_ID,
    "event": "test",
    "group_id": None,
    "status": "waiting",
    "create_date": REVIEW_DATE,
    "attempts": [],
    "next_attempt_date": REVIEW_DATE,
}

_OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/webhooks",
        handler=handlers.create_webhook,
        title="Create a webhook",
        description="Lets an address get events. The response has the secret that verifies their "
        "signatures, as [Standard Webhooks](https://www.standardwebhooks.com) define them. It is "
        "shown only here. An organization has at most 100 webhooks.",
        scopes=("webhooks:write",),
        body=WebhookIn,
        response=WebhookWithSecret,
        extra_errors=(409,),
        example=Example(body=_SETTINGS, response=_WEBHOOK | _SECRET),
    ),
    Operation(
        method="GET",
        path="/v1/webhooks",
        handler=handlers.get_webhooks,
        title="Get webhooks",
        description="All webhooks of the organization, oldest first, without their secrets, and "
        "without the values of their headers.",
        scopes=("webhooks:read",),
        response=WebhookPage,
        example=Example(response={"metadata": LAST_PAGE, "webhooks": [_WEBHOOK]}),
    ),
    Operation(
        method="GET",
        path="/v1/webhooks/{webhook_id}",
        handler=handlers.get_webhook,
        title="Get a webhook",
        description="One webhook, without its secret, and without the values of its headers.",
        scopes=("webhooks:read",),
        response=WebhookOut,
        example=Example(path=_IN_WEBHOOK, response=_WEBHOOK),
    ),
    Operation(
        method="PUT",
        path="/v1/webhooks/{webhook_id}",
        handler=handlers.set_webhook,
        title="Change a webhook",
        description="Replaces all settings of a webhook. A member that is left out gets its "
        "default: without `headers`, all headers are removed. A header with null keeps its value, "
        "so you can send back what GET returns. The secret stays. What waits is sent at once, to "
        "the new address.",
        scopes=("webhooks:write",),
        body=WebhookIn,
        response=WebhookOut,
        example=Example(path=_IN_WEBHOOK, body=_SETTINGS, response=_WEBHOOK),
    ),
    Operation(
        method="POST",
        path="/v1/webhooks/{webhook_id}/test",
        handler=handlers.test_webhook,
        title="Test a webhook",
        description="Sends the event `test`. The deliveries of the webhook show the result.",
        scopes=("webhooks:write",),
        response=DeliveryOut,
        extra_errors=(409,),
        example=Example(path=_IN_WEBHOOK, response=_DELIVERY),
    ),
    Operation(
        method="POST",
        path="/v1/webhooks/{webhook_id}/rotate",
        handler=handlers.rotate_webhook_secret,
        title="Rotate the secret of a webhook",
        description="Creates a new secret. For 24 hours, deliveries have a signature of each "
        "secret, so the receiver can change over without a gap.",
        scopes=("webhooks:write",),
        response=WebhookWithSecret,
        extra_errors=(409,),
        example=Example(
            path=_IN_WEBHOOK,
            response=_WEBHOOK | {"old_secret_expires": "2026-03-03T10:30:00Z"} | _NEW_SECRET,
        ),
    ),
    Operation(
        method="POST",
        path="/v1/webhooks/{webhook_id}/enable",
        handler=handlers.enable_webhook,
        title="Enable a webhook",
        description="Enables a webhook that the service has disabled. Events that waited are sent. "
        "Events that happened while it was disabled are not stored, but a group that has changed "
        "sends `outputs.changed`.",
        scopes=("webhooks:write",),
        response=WebhookOut,
        example=Example(path=_IN_WEBHOOK, response=_WEBHOOK),
    ),
    Operation(
        method="GET",
        path="/v1/webhooks/{webhook_id}/deliveries",
        handler=handlers.get_deliveries,
        title="Get deliveries",
        description="The events for a webhook, newest first, with the attempts to deliver them. "
        "They are kept for 30 days. Of the delivered `outputs.changed` of a group, only the last "
        "is kept. A page can have fewer deliveries than `limit`, and still a next page.",
        scopes=("webhooks:read",),
        query=DeliveriesQuery,
        response=DeliveryPage,
        example=Example(
            path=_IN_WEBHOOK,
            query={"event": "test"},
            response={"metadata": LAST_PAGE, "deliveries": [_DELIVERY]},
        ),
    ),
    Operation(
        method="POST",
        path="/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
        handler=handlers.redeliver,
        title="Send an event again",
        description="Sends an event again, whether it was delivered or not, with the same "
        "`webhook-id`. Its schedule of attempts begins again.",
        scopes=("webhooks:write",),
        response=DeliveryOut,
        extra_errors=(409,),
        example=Example(
            path=_IN_WEBHOOK | {"delivery_id": _DELIVERY_ID},
            response=_DELIVERY,
        ),
    ),
    Operation(
        method="DELETE",
        path="/v1/webhooks/{webhook_id}",
        handler=handlers.delete_webhook,
        title="Delete a webhook",
        description="Deletes a webhook with its secret and its deliveries. What waits is not sent.",
        scopes=("webhooks:write",),
        response=Deleted,
        example=Example(path=_IN_WEBHOOK, response=DELETED),
    ),
)

RESOURCE = Resource(
    tags={"webhooks": "Addresses that get events, and the deliveries to them."},
    operations=_OPERATIONS,
)

# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Webhooks: addresses that get events, and the deliveries to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gleanery.client._sync.pager import Pager
from gleanery.client._sync.requester import Requester
from gleanery.client.pages import DeliveryPages
from gleanery.client.requests import Parameter, Request, json_request, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.webhook_models import (
        Delivery,
        DeliveryStatus,
        Webhook,
        WebhookFormat,
        WebhookWithSecret,
    )

_NEWEST = 2**63 - 1  # position before every delivery


class Webhooks:
    """Methods of the client for webhooks."""

    _requester: Requester

    def webhooks(self) -> list[Webhook]:
        """Return all webhooks of the organization, oldest first, without their secrets."""
        from gleanery.client.webhook_models import WebhookPage

        page = self._requester.fetch(Request("GET", path("webhooks")), WebhookPage)
        return page.webhooks

    def get_webhook(self, webhook_id: str) -> Webhook:
        """Return one webhook, without its secret."""
        from gleanery.client.webhook_models import Webhook

        request = Request("GET", path("webhooks", webhook_id))
        return self._requester.fetch(request, Webhook)

    def create_webhook(
        self,
        url: str,
        events: Iterable[str],
        groups: Iterable[str] | None = None,
        description: str | None = None,
        format: WebhookFormat = "standard",  # noqa: A002
        headers: Mapping[str, str | None] | None = None,
    ) -> WebhookWithSecret:
        """Let an address get events, such as ``["run.finished"]``, of all groups or of some.

        ``headers`` go with each request to the address, such as ``{"X-Api-Key": "…"}``. No call
        returns their values.

        Store the ``secret`` of the result: no other call returns it. If the response is lost, the
        request is not sent again, because that could create a second webhook. Then ``webhooks``
        shows whether there is one, which you can delete.
        """
        from gleanery.client.webhook_models import WebhookWithSecret

        settings = _settings(url, events, groups, description, format, headers)
        request = json_request("POST", path("webhooks"), settings)
        request.is_repeatable = False
        return self._requester.fetch(request, WebhookWithSecret)

    def set_webhook(
        self,
        webhook_id: str,
        *,
        url: str,
        events: Iterable[str],
        groups: Iterable[str] | None = None,
        description: str | None = None,
        format: WebhookFormat = "standard",  # noqa: A002
        headers: Mapping[str, str | None] | None = None,
    ) -> Webhook:
        """Replace the settings of a webhook. A setting that is left out is reset.

        The secret stays. What waits is sent at once, to the new address. Without ``headers``, all
        headers are removed. None keeps the value of a header, as long as the URL has the same
        scheme, host and port: ``headers=webhook.headers`` keeps all.
        """
        from gleanery.client.webhook_models import Webhook

        settings = _settings(url, events, groups, description, format, headers)
        request = json_request("PUT", path("webhooks", webhook_id), settings)
        return self._requester.fetch(request, Webhook)

    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook with its secret and its deliveries. What waits is not sent."""
        self._requester.delete(path("webhooks", webhook_id))

    def test_webhook(self, webhook_id: str) -> Delivery:
        """Send the event ``test``. The delivery is waiting: ``deliveries`` has its result."""
        return self._send_event("webhooks", webhook_id, "test")

    def rotate_webhook_secret(self, webhook_id: str) -> WebhookWithSecret:
        """Give a webhook a new secret. For 24 hours, the old one signs as well.

        Store the ``secret`` of the result: no other call returns it. If the response is lost, the
        request is not sent again: call this method again, because a webhook can have five secrets.
        """
        from gleanery.client.webhook_models import WebhookWithSecret

        request = Request("POST", path("webhooks", webhook_id, "rotate"), is_repeatable=False)
        return self._requester.fetch(request, WebhookWithSecret)

    def enable_webhook(self, webhook_id: str) -> Webhook:
        """Enable a webhook that the service has disabled. Events that waited are sent."""
        from gleanery.client.webhook_models import Webhook

        request = Request("POST", path("webhooks", webhook_id, "enable"))
        return self._requester.fetch(request, Webhook)

    def deliveries(
        self,
        webhook_id: str,
        *,
        status: DeliveryStatus | None = None,
        event: str | None = None,
        cursor: int = _NEWEST,
        page_size: int = 100,
        limit: int | None = None,
    ) -> Pager[Delivery]:
        """Return the events for a webhook with the attempts to deliver them, newest first."""
        filters: dict[str, Parameter] = {"status": status, "event": event}

        def read_page(position: int, size: int) -> Response:
            parameters = {**filters, "cursor": position, "limit": size}
            target = path("webhooks", webhook_id, "deliveries")
            return self._requester.send(Request("GET", target, parameters))

        return Pager(read_page, DeliveryPages(), cursor=cursor, page_size=page_size, limit=limit)

    def redeliver(self, webhook_id: str, delivery_id: str) -> Delivery:
        """Send an event again, whether it was delivered or not, with the same id."""
        return self._send_event("webhooks", webhook_id, "deliveries", delivery_id, "redeliver")

    def _send_event(self, *segments: str) -> Delivery:
        from gleanery.client.webhook_models import Delivery

        return self._requester.fetch(Request("POST", path(*segments)), Delivery)


def _settings(
    url: str,
    events: Iterable[str],
    groups: Iterable[str] | None,
    description: str | None,
    format_: WebhookFormat,
    headers: Mapping[str, str | None] | None,
) -> dict[str, object]:
    return {
        "url": url,
        "events": _names("events", events),
        "groups": None if groups is None else _names("groups", groups),
        "description": description,
        "format": format_,
        "headers": None if headers is None else dict(headers),
    }


def _names(parameter: str, names: Iterable[str]) -> list[str]:
    """Return the names as a list. A text would be a list of its characters."""
    if isinstance(names, str):
        raise TypeError(f"{parameter} must be a list of names, not one name")
    return list(names)

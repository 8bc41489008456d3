"""The handlers of webhooks and their deliveries."""

from __future__ import annotations

from gleanery.service.api.context import AnyContext, RequestContext, api_url
from gleanery.service.api.response import Response
from gleanery.service.foundation.models import Deleted, PageMetadata
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.webhooks import deliveries, endpoints
from gleanery.service.resources.webhooks.dispatcher import Dispatcher
from gleanery.service.resources.webhooks.models import (
    DeliveriesQuery,
    DeliveryPage,
    WebhookIn,
    WebhookPage,
)
from gleanery.service.resources.webhooks.targets import Targets, check_mail_url


async def create_webhook(context: RequestContext[None, WebhookIn]) -> Response:
    services, now = context.services, context.services.clock()
    url = _checked_url(context, context.body)
    await services[Dispatcher].prepare()
    webhook = await endpoints.create(
        context.database, services.vault, context.body, url, now, context.actor
    )
    services[Dispatcher].wake()
    return Response(encode(webhook))


async def get_webhooks(context: AnyContext) -> Response:
    found = await endpoints.read_all(context.database, context.services.clock())
    metadata = PageMetadata(next_url=None, next_cursor=None)
    return Response(encode(WebhookPage(metadata=metadata, webhooks=found)))


async def get_webhook(context: AnyContext) -> Response:
    webhook_id, now = context.path["webhook_id"], context.services.clock()
    return Response(encode(await endpoints.read_one(context.database, webhook_id, now)))


async def set_webhook(context: RequestContext[None, WebhookIn]) -> Response:
    services, now = context.services, context.services.clock()
    url, webhook_id = _checked_url(context, context.body), context.path["webhook_id"]
    webhook = await endpoints.change(
        context.database, services.vault, webhook_id, context.body, url, now, context.actor
    )
    services[Dispatcher].wake()
    return Response(encode(webhook))


async def delete_webhook(context: AnyContext) -> Response:
    now = context.services.clock()
    await endpoints.delete(context.database, context.path["webhook_id"], now, context.actor)
    return Response(encode(Deleted(deleted=1)))


async def rotate_webhook_secret(context: AnyContext) -> Response:
    services = context.services
    webhook = await endpoints.rotate(
        context.database,
        services.vault,
        context.path["webhook_id"],
        services.clock(),
        context.actor,
    )
    return Response(encode(webhook))


async def enable_webhook(context: AnyContext) -> Response:
    now, webhook_id = context.services.clock(), context.path["webhook_id"]
    webhook = await endpoints.enable(context.database, webhook_id, now, context.actor)
    context.services[Dispatcher].wake()
    return Response(encode(webhook))


async def test_webhook(context: AnyContext) -> Response:
    now, webhook_id = context.services.clock(), context.path["webhook_id"]
    delivery = await deliveries.store_test(context.database, webhook_id, now, context.actor)
    return Response(encode(delivery))


async def get_deliveries(context: RequestContext[DeliveriesQuery, None]) -> Response:
    webhook_id = context.path["webhook_id"]
    found = await deliveries.read_page(context.database, webhook_id, context.query, context.cursor)
    metadata = PageMetadata(next_url=None, next_cursor=found.next_cursor)
    if found.next_cursor is not None:
        query = dict(context.next_page_parameters) | {"cursor": found.next_cursor}
        address = context.services.settings.address
        metadata["next_url"] = api_url(address, "webhooks", webhook_id, "deliveries", query=query)
    return Response(encode(DeliveryPage(metadata=metadata, deliveries=[*found.deliveries])))


async def redeliver(context: AnyContext) -> Response:
    now, path = context.services.clock(), context.path
    delivery = await deliveries.redeliver(
        context.database, path["webhook_id"], path["delivery_id"], now, context.actor
    )
    return Response(encode(delivery))


def _checked_url(context: AnyContext, webhook: WebhookIn) -> str:
    """Return the URL in its normal form. Raise InvalidRequest if it cannot be a target."""
    is_mail = webhook.format == "email"
    if is_mail and context.services.settings.smtp_server is None:
        raise endpoints.no_mail_server()
    if is_mail and webhook.headers:
        raise endpoints.no_mail_headers()
    try:
        if is_mail:
            return check_mail_url(webhook.url)
        return context.services[Targets].check_url(webhook.url)
    except ValueError as error:
        raise endpoints.invalid_url(str(error)) from None

"""Responses that are arrays: the part of a list that a request selects, and its next page."""

from __future__ import annotations

from gleanery.api import urls
from gleanery.api.context import AnyContext
from gleanery.api.response import Response
from gleanery.http import Header
from gleanery.storage.paging import ListPage, PageLimits


def limits_of(context: AnyContext) -> PageLimits:
    """Return the limits of the page that the request selects."""
    max_bytes = context.services.settings.max_page_bytes
    return PageLimits(context.cursor, context.query.limit, max_bytes, context.hold_response)


def array_response(context: AnyContext, page: ListPage, *segments: str) -> Response:
    """Return the records as an array; the Link header has the URL of the next page.

    ``segments`` are the path of the list below ``/v1``.
    """
    headers: tuple[Header, ...] = ()
    if page.next_cursor is not None:
        query = dict(context.next_page_parameters) | {"cursor": page.next_cursor}
        headers = urls.next_page(context, *segments, query=query)
    return Response(b"[", more=(b",".join(page.records), b"]"), headers=headers)

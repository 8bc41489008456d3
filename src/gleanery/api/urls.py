"""URLs of the service itself, such as the URL of the next page."""

# MERGED gleanery.api.lists: Responses that are arrays: the part of a list that a request selects, and its next page.

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from gleanery.api.context import AnyContext
from gleanery.api.response import Response
from gleanery.http import Header
from gleanery.storage.paging import ListPage, PageLimits


def address(base: str, *segments: str, query: Mapping[str, object]) -> str:
    """Return the URL of a path below ``/v1``, given as segments, with a query."""
    path = "/".join(quote(segment, safe="") for segment in segments)
    return f"{base}/v1/{path}?{urlencode(query)}"


def next_page(
    context: AnyContext, *segments: str, query: Mapping[str, object]
) -> tuple[tuple[bytes, bytes], ...]:
    """Return the Link header with the URL of the next page, for responses that are arrays."""
    target = address(context.services.settings.address, *segments, query=query)
    return ((b"link", f'<{target}>; rel="next"'.encode("ascii")),)


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
        headers = next_page(context, *segments, query=query)
    return Response(b"[", more=(b",".join(page.records), b"]"), headers=headers)

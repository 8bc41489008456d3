"""Lists: how the items of a page and the position of the next one are read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from gleanery.client.errors import InvalidResponse
from gleanery.client.responses import Response, decode, next_cursor

if TYPE_CHECKING:
    from msgspec import Raw

    from gleanery.client.models import Change, Output, RunRecord, Version
    from gleanery.client.monitor_models import Alert
    from gleanery.client.webhook_models import Delivery

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Page(NamedTuple, Generic[T]):
    """Items of a page, and the position of the next one; None on the last page."""

    items: list[T]
    next_cursor: int | None
    end: int | None = None
    """Position after the last page, if the list has one: it can grow from there."""


class PageFormat(Protocol[T_co]):
    """Reads one kind of page."""

    def read(self, response: Response) -> Page[Any]:
        """Return the decoded items, which have the type of the format."""

    def read_raw(self, response: Response) -> Page[Raw]:
        """Return each item as its JSON text, without decoding it."""


class OutputPages:
    """Pages of outputs."""

    def read(self, response: Response) -> Page[Output]:
        from gleanery.client.models import OutputPage

        page = decode(response, OutputPage)
        return Page(page.items, page.metadata.next_cursor)

    def read_raw(self, response: Response) -> Page[Raw]:
        from gleanery.client.models import RawOutputPage

        page = decode(response, RawOutputPage)
        return Page(page.items, page.metadata.next_cursor)

    def read_as(self, response: Response, kind: type[T]) -> Page[T]:
        """Return the items decoded as another type."""
        page = decode(response, _page_of(kind))  # type: ignore[arg-type]
        return Page(page.items, page.metadata.next_cursor)


@cache
def _page_of(kind: Hashable) -> type[Any]:
    from msgspec import defstruct

    from gleanery.client.models import PageMetadata

    members = [("metadata", PageMetadata), ("items", list[kind])]  # type: ignore[valid-type]
    return defstruct("Page", members, gc=False)


class VersionPages:
    """Pages of an output's versions."""

    def read(self, response: Response) -> Page[Version]:
        from gleanery.client.models import VersionPage

        page = decode(response, VersionPage)
        return Page(page.versions, page.metadata.next_cursor)

    def read_raw(self, response: Response) -> Page[Raw]:
        from gleanery.client.models import RawVersionPage

        page = decode(response, RawVersionPage)
        return Page(page.versions, page.metadata.next_cursor)


class RunPages:
    """Pages of runs."""

    def read(self, response: Response) -> Page[RunRecord]:
        from gleanery.client.models import RunPage

        page = decode(response, RunPage)
        return Page(page.runs, page.metadata.next_cursor)

    def read_raw(self, response: Response) -> Page[Raw]:
        from gleanery.client.models import RawRunPage

        page = decode(response, RawRunPage)
        return Page(page.runs, page.metadata.next_cursor)


class DeliveryPages:
    """Pages of deliveries."""

    def read(self, response: Response) -> Page[Delivery]:
        from gleanery.client.webhook_models import DeliveryPage

        page = decode(response, DeliveryPage)
        return Page(page.deliveries, page.metadata.next_cursor)

    def read_raw(self, response: Response) -> Page[Raw]:
        from gleanery.client.webhook_models import RawDeliveryPage

        page = decode(response, RawDeliveryPage)
        return Page(page.deliveries, page.metadata.next_cursor)


class AlertPages:
    """Pages of alerts."""

    def read(self, response: Response) -> Page[Alert]:
        from gleanery.client.monitor_models import AlertPage

        page = decode(response, AlertPage)
        return Page(page.alerts, page.metadata.next_cursor)

    def read_raw(self, response: Response) -> Page[Raw]:
        from gleanery.client.monitor_models import RawAlertPage

        page = decode(response, RawAlertPage)
        return Page(page.alerts, page.metadata.next_cursor)


class ChangePages:
    """Pages of changes."""

    def read(self, response: Response) -> Page[Change]:
        from gleanery.client.models import ChangePage

        page = decode(response, ChangePage)
        return Page(page.changes, page.metadata.next_cursor, page.cursor)

    def read_raw(self, response: Response) -> Page[Raw]:
        from gleanery.client.models import RawChangePage

        page = decode(response, RawChangePage)
        return Page(page.changes, page.metadata.next_cursor, page.cursor)


class ArrayPages(Generic[T]):
    """Pages that are arrays. The Link header has the position of the next one."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    def read(self, response: Response) -> Page[T]:
        return Page(decode(response, list[self._kind]), _next_number(response))  # type: ignore[name-defined]

    def read_raw(self, response: Response) -> Page[Raw]:
        from msgspec import Raw

        items = decode(response, list[Raw])
        return Page(items, _next_number(response))


def _next_number(response: Response) -> int | None:
    cursor = next_cursor(response)
    if cursor is None:
        return None
    if not cursor.isdecimal():
        raise InvalidResponse("The cursor in the Link header of the response is not a number")
    return int(cursor)


class RecordList(list[T]):
    """Records of all pages of a list, and the version of the list."""

    def __init__(self, records: Iterable[T], etag: str) -> None:
        super().__init__(records)
        self.etag = etag
        """Version for ``if_match``: a write then fails if the list has changed since."""

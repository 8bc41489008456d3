"""Push: storing the items of any iterable, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from gleanery.client._async.concurrency import Items
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.requests import Request, path

if TYPE_CHECKING:
    from gleanery.client.pushes import ProgressCallback, PushReport

MAX_BATCH_SIZE = 1000
MAX_BATCH_BYTES = 1024 * 1024
"""The service stores so many lines of NDJSON, and so many bytes, in one transaction."""
_DEFAULT_URL_FIELD = "url"


class AsyncPush:
    """Methods of the client that store outputs."""

    _requester: AsyncRequester

    async def push(
        self,
        group: str,
        items: Items,
        *,
        job_id: str | None = None,
        url_field: str | None = None,
        key_field: str | None = None,
        batch_size: int = MAX_BATCH_SIZE,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        on_error: Literal["fail", "skip"] = "fail",
        on_progress: ProgressCallback | None = None,
    ) -> PushReport:
        """Store items in a group, in their order. One batch is in memory.

        With ``job_id``, an item is the ``data`` of an output, and ``url_field`` (default: ``url``)
        names its URL. Without it, an item is an output: ``{"job_id", "source_url", "data", …}``.
        An item is a dict or another object with members; or one line of JSON, as text or bytes.

        Each batch is stored exactly once, also if it is sent several times. With
        ``on_error="skip"``, invalid items are left out, and the report lists them. Otherwise
        the first invalid item raises PushFailed, and its batch is not stored. An error of
        ``items`` itself, or Ctrl-C while it waits, is raised after the items before it are stored.
        A note of the error says how many.
        """
        from gleanery.client._async.pusher import AsyncPusher

        _check_arguments(items, batch_size, max_batch_bytes, on_error)
        if job_id is not None and url_field is None:
            url_field = _DEFAULT_URL_FIELD
        parameters = {"job_id": job_id, "url_field": url_field, "key_field": key_field}
        pusher = AsyncPusher(
            self._requester,
            Request("POST", path("outputs", group), parameters),
            batch_size,
            max_batch_bytes,
            on_error == "skip",
            on_progress,
        )
        return await pusher.push(items)


def _check_arguments(items: Any, batch_size: int, max_batch_bytes: int, on_error: str) -> None:
    if isinstance(items, str | bytes | dict):
        raise TypeError("items must be an iterable of items, such as a list or an open file")
    if not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise ValueError(f"batch_size must be between 1 and {MAX_BATCH_SIZE}")
    if not 1 <= max_batch_bytes <= MAX_BATCH_BYTES:
        raise ValueError(f"max_batch_bytes must be between 1 and {MAX_BATCH_BYTES}")
    if on_error not in ("fail", "skip"):
        raise ValueError("on_error must be fail or skip")

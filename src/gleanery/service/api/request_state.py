"""What the API knows of a request from its admission to its end, and of the requests before it.

The state is in ``request.state``. A client that pages sends the same request many times, except for
the cursor. A client that polls sends exactly the same one. The HTTP server recognises the headers;
the memo recognises the target, so that a repetition is not parsed again. The memo is stored in the
header block, so it ends with the connection.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from gleanery.service.api.binding import BoundQuery
from gleanery.service.api.operation import Operation
from gleanery.service.foundation.scheduling.byte_limits import (
    ByteReservation,
    UnsentBytes,
    UnsentResponse,
)
from gleanery.service.foundation.scheduling.fair_shares import Slot
from gleanery.service.foundation.security.tokens import Grant
from gleanery.service.foundation.values.compression import Codec
from gleanery.service.http import Header, HeaderBlock


class RequestState:
    """Data about one request from its admission to its end."""

    __slots__ = (
        "admitted",
        "body_bytes",
        "bound",
        "caller",
        "cursor",
        "idle_seconds",
        "is_response_sent",
        "organization",
        "rate_limit_headers",
        "received_bytes",
        "sent_bytes",
        "slot",
        "stored_outputs",
        "token",
        "unrecorded",
        "unsent",
    )

    def __init__(self, caller: bytes) -> None:
        self.caller = caller
        """Digest of the Authorization header."""
        self.slot: Slot | None = None
        self.body_bytes: ByteReservation | None = None
        """The bytes of the body in memory; None for a request without such a body."""
        self.unsent: UnsentResponse | None = None
        """The bytes of a large response in memory; None for a small one."""
        self.bound: BoundRequest | None = None
        """Set if the request repeats the previous one, except for the cursor."""
        self.cursor = 0
        """Cursor of such a request."""
        self.rate_limit_headers: Sequence[Header] = ()
        self.is_response_sent = False
        """True if the response is written, and only the write buffer has to drain."""
        self.admitted = time.perf_counter()
        self.idle_seconds = 0.0
        """Seconds in which the request waited for its client, or for a change."""
        self.organization: int | None = None
        """Id for the log and the usage; None without a valid token or a valid link."""
        self.token: int | None = None
        """Id of the token, for the log."""
        self.received_bytes = 0
        """Bytes of the body that were read, before they are decompressed."""
        self.sent_bytes = 0
        """Bytes of the response's body, compressed if it is."""
        self.stored_outputs = 0
        """Outputs that the request has created or updated."""
        self.unrecorded: tuple[str, bytes, int, float] | None = None
        """Operation, id, status and start of a request whose response is not recorded yet."""

    def identify(self, grant: Grant) -> None:
        """Note whose request it is, for the log and the usage."""
        self.organization, self.token = grant.organization_id, grant.token_id

    @property
    def organization_id(self) -> int | None:
        """The tenant that holds the slot."""
        return None if self.slot is None else self.slot.organization_id

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Count the time in the context as time for which the service is not responsible."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.idle_seconds += time.perf_counter() - started

    def unsent_response(self, limit: UnsentBytes) -> UnsentResponse:
        """Return the bytes that the response holds; none at first."""
        if self.unsent is None:
            assert self.slot is not None
            self.unsent = UnsentResponse(limit, self.slot.organization_id)
        return self.unsent

    def release(self) -> None:
        """Releases what the request holds of the limits that it shares with others."""
        if self.unsent is not None:
            self.unsent.release()
        if self.body_bytes is not None:
            self.body_bytes.release()
        if self.slot is not None:
            self.slot.release()
            self.slot = None


# 18 digits are always below the maximum, so such a cursor is valid.
_CURSOR = re.compile(rb"(?:.*&)?cursor=([1-9][0-9]{0,17})(?:&.*)?")
_MAX_DIGITS = 18


class BoundRequest(NamedTuple):
    """The operation of a request, and its arguments except for the body."""

    operation: Operation
    path: dict[str, str]
    query: BoundQuery


class RequestMemo:
    """Cached results for requests with the same headers."""

    __slots__ = (
        "_around_cursor",
        "_path",
        "_query",
        "bound",
        "caller",
        "codec",
        "is_codec_known",
    )

    def __init__(self) -> None:
        self.caller = b""
        """Digest of the Authorization header; empty until the authenticator computes it."""
        self.bound: BoundRequest | None = None
        """The last request that was bound."""
        self.codec: Codec | None = None
        """Codec that the client accepts; valid if ``is_codec_known``."""
        self.is_codec_known = False
        self._path = self._query = b""
        self._around_cursor: tuple[bytes, bytes] | None = None

    def store(self, path: bytes, query: bytes, bound: BoundRequest) -> None:
        self.bound, self._path, self._query = bound, path, query
        self._around_cursor = None

    def find_cursor(self, path: bytes, query: bytes) -> int | None:
        """Return the cursor if the request differs from the stored one only in its cursor."""
        if self.bound is None or path != self._path:
            return None
        if query == self._query:
            return self.bound.query.cursor
        if self._around_cursor is None:  # computed late: most headers are never sent again
            self._around_cursor = _around_cursor(self._query)
        before, after = self._around_cursor
        if not (before and query.startswith(before) and query.endswith(after)):
            return None
        digits = query[len(before) : len(query) - len(after)]
        if not digits.isdigit() or digits[:1] == b"0" or len(digits) > _MAX_DIGITS:
            return None
        return int(digits)


def _around_cursor(query: bytes) -> tuple[bytes, bytes]:
    """Return the query before and after the cursor; empty if it has no cursor."""
    found = _CURSOR.fullmatch(query)
    if found is None:
        return b"", b""
    return query[: found.start(1)], query[found.end(1) :]


def memo_of(block: HeaderBlock) -> RequestMemo:
    """Return the memo of a header block; create it at the first request."""
    memo: RequestMemo | None = block.memo
    if memo is None:
        memo = block.memo = RequestMemo()
    return memo

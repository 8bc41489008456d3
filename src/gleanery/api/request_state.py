"""The API's own data about one request, kept in ``request.state``."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.api.repeats import BoundRequest
from gleanery.http import Header
from gleanery.scheduling.byte_limits import ByteReservation
from gleanery.scheduling.limits import Slot


class RequestState:
    """Data about one request from its admission to its end."""

    __slots__ = (
        "body_bytes",
        "bound",
        "caller",
        "cursor",
        "is_response_sent",
        "rate_limit_headers",
        "slot",
    )

    def __init__(self, caller: bytes) -> None:
        self.caller = caller
        """Digest of the Authorization header."""
        self.slot: Slot | None = None
        self.body_bytes: ByteReservation | None = None
        """The bytes of the body in memory; None for a request without such a body."""
        self.bound: BoundRequest | None = None
        """Set if the request repeats the previous one, except for the cursor."""
        self.cursor = 0
        """Cursor of such a request."""
        self.rate_limit_headers: Sequence[Header] = ()
        self.is_response_sent = False
        """True if the response is written, and only the write buffer has to drain."""

    @property
    def organization_id(self) -> int | None:
        """The tenant that holds the slot."""
        return None if self.slot is None else self.slot.organization_id

    def release(self) -> None:
        """Releases what the request holds of the limits that it shares with others."""
        if self.body_bytes is not None:
            self.body_bytes.release()
        if self.slot is not None:
            self.slot.release()
            self.slot = None

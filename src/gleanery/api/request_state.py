"""The API's own data about one request, kept in ``request.state``."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.api.repeats import BoundRequest
from gleanery.http import Header
from gleanery.scheduling.byte_limits import ByteReservation, UnsentBytes, UnsentResponse
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
        self.unrecorded: tuple[str, bytes, int, float] | None = None
        """Operation, id, status and start of a request whose response is not recorded yet."""

    @property
    def organization_id(self) -> int | None:
        """The tenant that holds the slot."""
        return None if self.slot is None else self.slot.organization_id

    def unsent_response(self, limit: UnsentBytes) -> UnsentResponse:
        """Returns the bytes that the response holds; none at first."""
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

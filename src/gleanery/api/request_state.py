"""The API's own data about one request, kept in ``request.state``."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.api.repeats import BoundRequest
from gleanery.http import Header
from gleanery.scheduling.limits import Slot


class RequestState:
    """Data about one request from its admission to its end."""

    __slots__ = ("bound", "caller", "cursor", "is_answered", "rate_limit_headers", "slot")

    def __init__(self, caller: bytes) -> None:
        self.caller = caller
        """Digest of the Authorization header."""
        self.slot: Slot | None = None
        self.bound: BoundRequest | None = None
        """Set if the request repeats the one before, except for the cursor."""
        self.cursor = 0
        """Cursor of such a request."""
        self.rate_limit_headers: Sequence[Header] = ()
        self.is_answered = False
        """Tells if the response is sent, and only the client is still behind with reading."""

    @property
    def organization_id(self) -> int | None:
        """The tenant for which the slot is counted."""
        return None if self.slot is None else self.slot.organization_id

    def release_slot(self) -> None:
        if self.slot is not None:
            self.slot.release()
            self.slot = None

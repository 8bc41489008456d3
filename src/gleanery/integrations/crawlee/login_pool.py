"""Pool of Crawlee with one session for each stored login."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crawlee.sessions import Session, SessionPool

from gleanery.integrations.crawlee.pooled_login import PooledLogin


class LoginPool(SessionPool):
    """Pool whose sessions have the profiles of their logins as ids.

    A session that Crawlee has retired, for example after the status 403, is replaced by another one
    with the same login: otherwise the requests that are bound to the profile would fail.
    """

    def __init__(self, logins: Sequence[PooledLogin], **options: Any) -> None:
        super().__init__(
            max_pool_size=len(logins), create_session_function=self._create_session, **options
        )
        self._logins = logins

    async def __aenter__(self) -> SessionPool:
        for login in self._logins:  # a crawler that runs again starts with an empty pool
            login.session = None
        return await super().__aenter__()

    async def get_session(self) -> Session:
        """Return a random session. Raise LeaseLost if the lease of a login has ended."""
        self._renew()
        return await super().get_session()

    async def get_session_by_id(self, session_id: str) -> Session | None:
        """Return the session of a profile. Raise LeaseLost if the lease of a login has ended."""
        self._renew()
        return await super().get_session_by_id(session_id)

    def _renew(self) -> None:
        """Replace the sessions that are no longer usable."""
        for login in self._logins:
            login.require_held()
        if all(login.has_session for login in self._logins):
            return
        self._remove_retired_sessions()
        for login in self._logins:
            if not login.has_session:
                self.add_session(login.create_session())

    def _create_session(self) -> Session:
        missing = (login for login in self._logins if not login.has_session)
        return next(missing, self._logins[0]).create_session()

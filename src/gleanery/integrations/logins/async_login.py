"""A stored login: loaded at the start, with or without a lease, and saved back."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gleanery.client import (
    AsyncClient,
    AsyncLease,
    ChangedLease,
    ClientError,
    Conflict,
    ImportResult,
)
from gleanery.integrations.logins.errors import LoginExpired, login_expired, session_changed

if TYPE_CHECKING:
    from gleanery.client.session_documents import SessionDocument

_log = logging.getLogger("gleanery.integrations")


class AsyncLogin:
    """Session of a domain and profile, a context manager that loads it at the start.

    With a lease, no other client with a lease uses it until the end of the block.
    """

    def __init__(
        self,
        client: AsyncClient,
        domain: str,
        profile: str,
        *,
        lease: bool,
        seconds: int,
        wait: float | None,
    ) -> None:
        self._client = client
        self._session = client.session(domain, profile=profile)
        self._new_lease = self._session.lease(seconds, wait=wait) if lease else None
        self._exits = AsyncExitStack()
        self.domain = domain
        self.profile = profile
        self.lease: AsyncLease | None = None
        self.etag = ""
        self.state: dict[str, Any] = {}
        """Session as it was loaded, for ``new_context(storage_state=…)`` of Playwright."""
        self.problem: LoginExpired | None = None
        """Reason why the session cannot be logged in, if there is one."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r}, profile={self.profile!r})"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as exits:
            if self._new_lease is None:
                exported = await self._session.export()
                self.state, self.etag = exported.content, exported.etag
            else:
                self.lease = await exits.enter_async_context(self._new_lease)
                self.state, self.etag = self.lease.playwright(), self.lease.etag
            self.problem = await self._find_problem()
            self._exits = exits.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._exits.__aexit__(kind, error, traceback)

    @property
    def is_held(self) -> bool:
        """False if the lease has ended: another holder may use the session now."""
        return self.lease is None or self.lease.is_held

    async def save(
        self, document: SessionDocument, *, replace: bool = False, overwrite: bool = False
    ) -> None:
        """Store the session. Raise SessionChanged if another client has changed it meanwhile.

        With ``replace``, stored records that the document does not have are deleted. With
        ``overwrite``, the changes of other clients are not noticed.
        """
        if_match = None if overwrite else self.etag
        try:
            saved = await self._store(document, replace, if_match)
        except Conflict as error:
            raise session_changed(self.domain, error) from error
        self.etag = saved.etag
        for loss in saved.losses:
            _log.info("The session of %s is not saved completely: %s", self.domain, loss)

    async def save_login(self, document: SessionDocument) -> None:
        """Store a new login, and load it."""
        await self.save(document)
        self.state = (await self._session.export()).content
        self.problem = await self._find_problem()

    async def _store(
        self, document: SessionDocument, replace: bool, if_match: str | None
    ) -> ChangedLease | ImportResult:
        if self.lease is not None:
            return await self.lease.store(document, replace=replace, if_match=if_match)
        return await self._session.store(document, replace=replace, if_match=if_match)

    async def _find_problem(self) -> LoginExpired | None:
        """Return an error if there is no valid cookie, unless the login never had one.

        The loaded state has no expired records, so only the service knows about them.
        """
        if self.state["cookies"]:
            return None
        summaries = await self._client.sessions(self.domain, profile=self.profile)
        has_expired = any(summary.expired for summary in summaries)
        if self.state["origins"] and not has_expired:
            return None
        return login_expired(self.domain, self.profile, has_expired)


class AsyncSavedSession:
    """Session in a tool, which is saved at the end of its block, also after an error."""

    _errors: tuple[type[Exception], ...] = (ClientError,)
    """Errors that can keep the session from being saved."""

    def __init__(self, stored: AsyncLogin) -> None:
        self._stored = stored
        self._exits = AsyncExitStack()

    async def save(self) -> None:
        """Store the session."""
        raise NotImplementedError

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            async with self._exits:
                await self.save()
            return
        try:
            await self._save_after(error)
        finally:
            await self._exits.__aexit__(kind, error, traceback)

    async def _save_after(self, error: BaseException) -> None:
        """Save what the block has changed before its error, which is not replaced by another."""
        try:
            await self.save()
        except self._errors as failure:
            message = f"The session of {self._stored.domain} is not saved: {failure}"
            error.add_note(message)
            _log.warning("%s", message)

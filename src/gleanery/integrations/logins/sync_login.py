# Generated from async_login.py by checks/sync_client.py: edit that module, and run make client.
"""A stored login: loaded at the start, with or without a lease, and saved back."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gleanery.client import (
    ChangedLease,
    Client,
    ClientError,
    Conflict,
    ImportResult,
    Lease,
)
from gleanery.integrations.logins.errors import LoginExpired, login_expired, session_changed

if TYPE_CHECKING:
    from gleanery.client.session_documents import SessionDocument

_log = logging.getLogger("gleanery.integrations")


class Login:
    """Session of a domain and profile, a context manager that loads it at the start.

    With a lease, no other client with a lease uses it until the end of the block.
    """

    def __init__(
        self,
        client: Client,
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
        self._exits = ExitStack()
        self.domain = domain
        self.profile = profile
        self.lease: Lease | None = None
        self.etag = ""
        self.state: dict[str, Any] = {}
        """Session as it was loaded, for ``new_context(storage_state=…)`` of Playwright."""
        self.problem: LoginExpired | None = None
        """Reason why the session cannot be logged in, if there is one."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r}, profile={self.profile!r})"

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            if self._new_lease is None:
                exported = self._session.export()
                self.state, self.etag = exported.content, exported.etag
            else:
                self.lease = exits.enter_context(self._new_lease)
                self.state, self.etag = self.lease.playwright(), self.lease.etag
            self.problem = self._find_problem()
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exits.__exit__(kind, error, traceback)

    @property
    def is_held(self) -> bool:
        """False if the lease has ended: another holder may use the session now."""
        return self.lease is None or self.lease.is_held

    def save(
        self, document: SessionDocument, *, replace: bool = False, overwrite: bool = False
    ) -> None:
        """Store the session. Raise SessionChanged if another client has changed it meanwhile.

        With ``replace``, stored records that the document does not have are deleted. With
        ``overwrite``, the changes of other clients are not noticed.
        """
        if_match = None if overwrite else self.etag
        try:
            saved = self._store(document, replace, if_match)
        except Conflict as error:
            raise session_changed(self.domain, error) from error
        self.etag = saved.etag
        for loss in saved.losses:
            _log.info("The session of %s is not saved completely: %s", self.domain, loss)

    def save_login(self, document: SessionDocument) -> None:
        """Store a new login, and load it."""
        self.save(document)
        self.state = (self._session.export()).content
        self.problem = self._find_problem()

    def _store(
        self, document: SessionDocument, replace: bool, if_match: str | None
    ) -> ChangedLease | ImportResult:
        if self.lease is not None:
            return self.lease.store(document, replace=replace, if_match=if_match)
        return self._session.store(document, replace=replace, if_match=if_match)

    def _find_problem(self) -> LoginExpired | None:
        """Return an error if there is no valid cookie, unless the login never had one.

        The loaded state has no expired records, so only the service knows about them.
        """
        if self.state["cookies"]:
            return None
        summaries = self._client.sessions(self.domain, profile=self.profile)
        has_expired = any(summary.expired for summary in summaries)
        if self.state["origins"] and not has_expired:
            return None
        return login_expired(self.domain, self.profile, has_expired)


class SavedSession:
    """Session in a tool, which is saved at the end of its block, also after an error."""

    _errors: tuple[type[Exception], ...] = (ClientError,)
    """Errors that can keep the session from being saved."""

    def __init__(self, stored: Login) -> None:
        self._stored = stored
        self._exits = ExitStack()

    def save(self) -> None:
        """Store the session."""
        raise NotImplementedError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            with self._exits:
                self.save()
            return
        try:
            self._save_after(error)
        finally:
            self._exits.__exit__(kind, error, traceback)

    def _save_after(self, error: BaseException) -> None:
        """Save what the block has changed before its error, which is not replaced by another."""
        try:
            self.save()
        except self._errors as failure:
            message = f"The session of {self._stored.domain} is not saved: {failure}"
            error.add_note(message)
            _log.warning("%s", message)

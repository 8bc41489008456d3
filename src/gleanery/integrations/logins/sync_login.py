# Generated from async_login.py by checks/sync_client.py: edit that module, and run make client.
"""A stored login: loaded at the start, with or without a lease, and saved back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
    LeaseLost,
)
from gleanery.integrations.logins import states
from gleanery.integrations.logins.states import (
    LoginExpired,
    SessionChanged,
    has_no_login,
    login_expired,
    session_changed,
)

if TYPE_CHECKING:
    from gleanery.client.session_models import SessionDocument

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
        login_cookies: Sequence[str] = (),
    ) -> None:
        self._client = client
        self._session = client.session(domain, profile=profile)
        self._new_lease = self._session.lease(seconds, wait=wait) if lease else None
        self._exits = ExitStack()
        self.domain = domain
        self.profile = profile
        self.login_cookies = states.check_names(login_cookies)
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

    def require_held(self) -> None:
        """Raise LeaseLost if the lease has ended."""
        if not self.is_held:
            raise LeaseLost(
                f"The lease of {self.domain} has ended: another holder may use the session now"
            )

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
        # Without a lease, the version of a result includes other hosts of the profile.
        self.etag = saved.etag if self.lease else (self._session.export()).etag
        for loss in saved.losses:
            _log.warning("The session of %s is not saved completely: %s", self.domain, loss)

    def save_login(self, document: SessionDocument) -> None:
        """Store a new login, and load it. If another client has logged in meanwhile, load that."""
        try:
            self.save(document)
        except SessionChanged as error:
            _log.warning("%s", error)
        exported = self._session.export()
        self.state, self.etag = exported.content, exported.etag
        self.problem = self._find_problem()

    def _store(
        self, document: SessionDocument, replace: bool, if_match: str | None
    ) -> ChangedLease | ImportResult:
        if self.lease is not None:
            return self.lease.store(document, replace=replace, if_match=if_match)
        return self._session.store(document, replace=replace, if_match=if_match)

    def _find_problem(self) -> LoginExpired | None:
        """Return an error if there is no valid login.

        Without names of cookies, every cookie can be the login, and so can local storage, unless
        there were cookies. The loaded state has no expired records: only the service knows them.
        """
        names = self.login_cookies
        if states.has_login(self.state, names) and (names or self.state["cookies"]):
            return None
        summaries = self._client.sessions(self.domain, profile=self.profile)
        has_expired = any(summary.expired for summary in summaries)
        if not names and self.state["origins"] and not has_expired:
            return None
        return login_expired(self.domain, self.profile, bool(summaries), names)


class SavedSession:
    """Session in a tool, which is saved at the end of its block, even after an error.

    It is not saved if its login has failed, or if the error is LoginExpired: the cookies of an
    anonymous visitor would replace the login.
    """

    _errors: tuple[type[Exception], ...] = (ClientError,)
    """Errors that can keep the session from being saved."""

    def __init__(self, stored: Login) -> None:
        self._stored = stored
        self._exits = ExitStack()
        self._has_failed_login = False

    def save(self) -> None:
        """Store the session, if it has changed."""
        raise NotImplementedError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            with self._exits:
                self._save_at_end()
            return
        try:
            self._save_after(error)
        finally:
            self._exits.__exit__(kind, error, traceback)

    def _save_at_end(self) -> None:
        """Save the session. A conflict is no error: the work is done, and others have saved."""
        if self._has_failed_login:
            _log.warning("The session of %s is not saved: its login failed", self._stored.domain)
            return
        try:
            self.save()
        except SessionChanged as conflict:
            _log.warning("%s", conflict)

    def _save_after(self, error: BaseException) -> None:
        """Save what the block has changed before its error, which is not replaced by another."""
        if self._has_failed_login or has_no_login(error):
            return
        try:
            self.save()
        except self._errors as failure:
            message = f"The session of {self._stored.domain} is not saved: {failure}"
            error.add_note(message)
            _log.warning("%s", message)

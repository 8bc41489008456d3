# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Leases: one holder at a time uses the session of a domain and profile."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gleanery.client import leases
from gleanery.client._sync.concurrency import Repetition, run_in_thread, sleep
from gleanery.client._sync.requester import Requester
from gleanery.client.errors import ClientError, Conflict, LeaseLost, NotFound
from gleanery.client.requests import Request, path, to_json, write_headers
from gleanery.client.responses import Response, decode

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    from gleanery.client.session_models import AcquiredLease, ChangedLease, SessionDocument
    from gleanery.sessions import SessionState


class Lease:
    """Lease of a session, which is acquired, renewed and returned by its context.

        with client.session("shop.example").lease(300, wait=60) as lease:
            context = browser.new_context(storage_state=lease.playwright())
            ...
            lease.store(context.storage_state())

    Only ``store`` changes the session. Stop using the session when ``is_held`` is False: another
    holder may have it. The time counts from the moment at which the last successful request was
    sent, so it ends here before it ends at the service. If this process dies, it ends by itself.
    """

    def __init__(
        self,
        requester: Requester,
        domain: str,
        profile: str,
        seconds: int,
        holder: str | None,
        wait: float | None,
    ) -> None:
        self._requester = requester
        self.domain = domain
        self.profile = profile
        self._seconds = seconds
        self._holder = holder
        self._wait = wait or 0
        self._renewals = Repetition(self._renew)
        self._acquired: AcquiredLease | None = None
        self._deadline = 0.0
        self._is_returned = False
        self._is_lost = False
        self.etag = ""
        """Version of the session when it was acquired or last stored, for ``if_match``."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r}, profile={self.profile!r})"

    def __enter__(self) -> Self:
        from gleanery.client.session_models import AcquiredLease

        if self._acquired is not None:
            raise RuntimeError("A lease is used once: call lease() again")
        sent, response = self._acquire()
        self._acquired = decode(response, AcquiredLease)
        self._deadline = sent + self._acquired.seconds
        self.etag = response.headers.get("etag", "")
        if self.seconds_left < self._seconds / 2:  # retries have used up the time
            self._change({"seconds": self._seconds})
        self._renewals.start(leases.pause(self.seconds_left))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LeaseLost:
            if error is None:
                raise
        except ClientError as failure:
            _warn(f"The lease of {self.domain} ends by itself: {failure}")

    @property
    def seconds_left(self) -> float:
        """Seconds for which the session may still be used, if no renewal follows."""
        if self._is_lost or self._is_returned:
            return 0.0
        return max(self._deadline - leases.now(), 0.0)

    @property
    def is_held(self) -> bool:
        """True while the session may be used."""
        return self.seconds_left > 0

    @property
    def losses(self) -> list[str]:
        """What the state cannot have, one sentence for each reason."""
        return self._require_acquired().losses

    @property
    def state(self) -> SessionState:
        """Session as it was acquired, which ``gleanery.sessions`` converts."""
        from gleanery import sessions

        return sessions.read(self.playwright(), "playwright").state

    def playwright(self) -> dict[str, Any]:
        """Return the acquired session for ``new_context(storage_state=…)`` of Playwright."""
        from msgspec.json import decode as parse

        return parse(self._require_acquired().state, type=dict[str, Any])

    def cookiejar(self) -> CookieJar:
        """Return the acquired cookies for requests, httpx2, httpx and urllib."""
        from gleanery import sessions

        content: CookieJar = sessions.to_cookiejar(self.state).content
        return content

    def store(
        self,
        document: SessionDocument,
        *,
        format: str = "auto",  # noqa: A002
        replace: bool = False,
        if_match: str | None = None,
    ) -> ChangedLease:
        """Store the records of a document that pages on the leased domain see; renew the lease.

        Raise LeaseLost, and store nothing, if the lease has ended. With ``replace``, the other
        records of the domain are deleted. ``if_match`` is ``etag``: if a client without a lease has
        changed the session meanwhile, nothing is stored, and the error is Conflict.
        """
        from msgspec.structs import replace as with_members

        from gleanery.client.session_models import page_of, prepare

        page = page_of(self.domain)
        prepared = run_in_thread(prepare, document, format, page)
        body = {
            "state": run_in_thread(prepared.to_value),
            "format": prepared.format,
            "replace": replace,
            "seconds": self._seconds,
        }
        changed = self._change(body, if_match)
        self.etag = changed.etag
        return with_members(changed, losses=[*prepared.losses, *changed.losses])

    def release(self) -> None:
        """Return the lease. Raise LeaseLost if it has ended before."""
        if self._is_returned:
            return
        self._renewals.stop()
        self._require_acquired()
        try:
            self._requester.send(Request("DELETE", self._path))
        except NotFound as error:
            if not error.is_explained:  # a proxy does not find the service
                raise
            if error.attempts == 1:  # else an earlier attempt may have returned it
                raise self._lose() from None
        self._is_returned = True

    @property
    def _path(self) -> str:
        return path("sessions", "leases", self._require_acquired().id)

    def _require_acquired(self) -> AcquiredLease:
        if self._acquired is None:
            raise RuntimeError("The lease is not acquired: use it in a with statement")
        if self._is_lost:
            raise self._lose()
        return self._acquired

    def _acquire(self) -> tuple[float, Response]:
        """Return the response, and the time at which its request was sent, or before."""
        last, is_uncertain = leases.now() + self._wait, False
        while True:
            sent = leases.now()
            try:
                return sent, self._requester.send(self._acquisition())
            except ClientError as error:
                left = last - leases.now()
                is_uncertain |= leases.is_uncertain(error)
                if left > 0 and isinstance(error, Conflict):
                    sleep(leases.poll_delay(error.retry_after, left))
                    continue
                if is_uncertain:
                    leases.explain_lost_response(error, self._seconds)
                raise

    def _acquisition(self) -> Request:
        body = {
            "domain": self.domain,
            "profile": self.profile,
            "seconds": self._seconds,
            "holder": self._holder or leases.default_holder(),
        }
        return Request(
            "POST", path("sessions", "leases"), headers=write_headers(None), body=to_json(body)
        )

    def _renew(self) -> float | None:
        """Renew the lease. Return the seconds until the next renewal; None after the end."""
        try:
            self._change({"seconds": self._seconds}, is_renewal=True)
        except LeaseLost as error:
            _warn(str(error))
        except ClientError as error:
            _warn(f"The lease of {self.domain} is not renewed yet: {error}")
        return leases.pause(self.seconds_left) if self.is_held else None

    def _change(
        self, body: dict[str, Any], if_match: str | None = None, is_renewal: bool = False
    ) -> ChangedLease:
        """Renew the lease, and store what the body has. A renewal leaves time for the next one."""
        from msgspec.structs import replace as with_members

        from gleanery.client.session_models import ChangedLease

        sent = leases.now()
        request = Request(
            "PUT",
            self._path,
            headers=write_headers(if_match),
            body=to_json(body),
            is_retried=not is_renewal,
            max_timeout=leases.renewal_timeout(self.seconds_left) if is_renewal else None,
        )
        try:
            response = self._requester.send(request)
        except NotFound as error:
            if not error.is_explained:  # a proxy does not find the service
                raise
            raise self._lose() from None
        changed = decode(response, ChangedLease)
        self._deadline = max(self._deadline, sent + changed.seconds)
        return with_members(changed, etag=response.headers.get("etag", ""))

    def _lose(self) -> LeaseLost:
        self._is_lost = True
        return LeaseLost(
            f"The lease of {self.domain} has ended: another holder may use the session now"
        )


def _warn(message: str) -> None:
    import logging  # takes 10 ms

    logging.getLogger("gleanery.client").warning("%s", message)

"""Errors that are reported to clients, independent of HTTP."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gleanery.common.errors import ExplainedError

MAX_DETAILS = 100
"""The most details that one response lists, so that a response is never large."""
MORE_PROBLEMS = "more_problems"
"""Type of the detail that says that not every problem is listed."""


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """One problem: its location, a message and a stable type. It never contains a value."""

    loc: tuple[str, ...]
    msg: str
    type: str


class GleaneryError(ExplainedError):
    """Error that is reported to the client, with its details."""

    def __init__(self, *details: ErrorDetail) -> None:
        super().__init__("; ".join(detail.msg for detail in details))
        self.details = details


def first_problems(details: Sequence[ErrorDetail]) -> Sequence[ErrorDetail]:
    """Return at most ``MAX_DETAILS`` problems. If there are more, the last detail says so."""
    if len(details) <= MAX_DETAILS:
        return details
    msg = f"There are more problems: only the first {MAX_DETAILS - 1} are listed"
    more = ErrorDetail(details[0].loc[:1], msg, MORE_PROBLEMS)
    return (*details[: MAX_DETAILS - 1], more)


class InvalidRequest(GleaneryError):
    """The request fails validation; each problem is one detail."""


class Unauthenticated(GleaneryError):
    """The request has no valid token."""

    def __init__(self, msg: str, is_token_invalid: bool = False) -> None:
        super().__init__(ErrorDetail(("header", "authorization"), msg, "unauthenticated"))
        self.is_token_invalid = is_token_invalid
        """True if the token is empty, incomplete, unknown, revoked or expired."""


def no_token() -> Unauthenticated:
    return Unauthenticated("An access token is required: send Authorization: Bearer <token>")


def wrong_scheme() -> Unauthenticated:
    return Unauthenticated("The scheme is not Bearer: send Authorization: Bearer <token>")


def empty_token() -> Unauthenticated:
    msg = "The token is empty: is the variable with the token set?"
    return Unauthenticated(msg, is_token_invalid=True)


def incomplete_token() -> Unauthenticated:
    """Return the error for a text that cannot be a token: its format or its checksum is wrong."""
    msg = "This is not a complete Gleanery token: copy all of it again"
    return Unauthenticated(msg, is_token_invalid=True)


def invalid_token() -> Unauthenticated:
    """Return the error for an unknown and for a revoked token. The message does not say which."""
    return Unauthenticated("This access token is not valid", is_token_invalid=True)


def expired_token() -> Unauthenticated:
    msg = "This access token has expired: ask the operator for a new one"
    return Unauthenticated(msg, is_token_invalid=True)


def no_session() -> Unauthenticated:
    """Return the error for a request of the console without a session, or from another page."""
    return Unauthenticated("The session of the console has ended: sign in again")


def revoked_session() -> Unauthenticated:
    """Return the error for a session whose token is revoked. Its secrets prove who asks."""
    return Unauthenticated("The token of your session was revoked: sign in with another one")


class ConfirmationRequired(GleaneryError):
    """The action needs a recent proof that the person has the token."""

    def __init__(self) -> None:
        msg = "Sign in again with your token or a login link: the last sign-in is too long ago"
        super().__init__(ErrorDetail(("header", "cookie"), msg, "confirmation_required"))


class Forbidden(GleaneryError):
    """The token is valid but does not have the scope."""

    def __init__(self, scope: str) -> None:
        advice = "ask the operator for one that has it (gleanery token create --scopes)"
        msg = f"This token lacks the scope {scope}: {advice}"
        super().__init__(ErrorDetail(("header", "authorization"), msg, "forbidden"))


_NOT_FOUND = "Your organization has no record of this name"


class NotFound(GleaneryError):
    """The record does not exist, or belongs to another organization: the same response."""

    def __init__(self, loc: tuple[str, ...] = ("path",), msg: str = _NOT_FOUND) -> None:
        super().__init__(ErrorDetail(loc, msg, "not_found"))


def no_group() -> NotFound:
    return NotFound(("path", "group_id"), "There is no group with this group_id")


def no_job() -> NotFound:
    return NotFound(("path", "job_id"), "This group has no job with this job_id")


def no_output() -> NotFound:
    return NotFound(("path", "output_id"), "This group has no output with this output_id")


def no_review() -> NotFound:
    return NotFound(("path", "review_id"), "This group has no review with this review_id")


def no_run() -> NotFound:
    return NotFound(("path", "run_id"), "This group has no run with this run_id")


def no_file() -> NotFound:
    return NotFound(("path", "id"), "There is no file with this id")


def no_lease() -> NotFound:
    """Return the error for an unknown lease, and for one that has ended: the same response."""
    msg = "There is no lease with this id: it has expired, or was returned"
    return NotFound(("path", "lease_id"), msg)


def no_webhook() -> NotFound:
    return NotFound(("path", "webhook_id"), "There is no webhook with this id")


def no_delivery() -> NotFound:
    return NotFound(("path", "delivery_id"), "This webhook has no delivery with this delivery_id")


def no_alert() -> NotFound:
    return NotFound(("path", "alert_id"), "There is no alert with this id")


def no_record(parameter: str) -> NotFound:
    """Return the error for a path parameter that names nothing."""
    known = {"group_id": no_group, "job_id": no_job, "output_id": no_output, "id": no_file}
    known |= {"lease_id": no_lease, "review_id": no_review, "run_id": no_run}
    known |= {"webhook_id": no_webhook, "delivery_id": no_delivery}
    known |= {"alert_id": no_alert}
    return known[parameter]() if parameter in known else NotFound(("path", parameter))


class ReferenceNotFound(GleaneryError):
    """The body refers to records that do not exist; each of the first ones is one detail."""

    def __init__(self, *details: ErrorDetail, positions: Collection[int]) -> None:
        super().__init__(*first_problems(details))
        self.references = details
        """The first problems, without a note that there are more."""
        self.positions = positions
        """The positions of all elements with such a reference."""


class Conflict(GleaneryError):
    """The Idempotency-Key was used for a different request."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "idempotency-key"),
                "This key was used for a different request: choose a new one",
                "conflict",
            )
        )


class RunConflict(GleaneryError):
    """The run has ended, is of another job, or has nothing to decide."""

    def __init__(self, loc: tuple[str, ...], msg: str) -> None:
        super().__init__(ErrorDetail(loc, msg, "run_conflict"))


class WebhookConflict(GleaneryError):
    """The state of the webhook, or the number of webhooks, does not allow the request."""

    def __init__(self, loc: tuple[str, ...], msg: str) -> None:
        super().__init__(ErrorDetail(loc, msg, "webhook_conflict"))


class AlertConflict(GleaneryError):
    """The state or the kind of the alert does not allow the request."""

    def __init__(self, loc: tuple[str, ...], msg: str) -> None:
        super().__init__(ErrorDetail(loc, msg, "alert_conflict"))


class Leased(GleaneryError):
    """The session cannot be leased now."""

    def __init__(self, msg: str, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(ErrorDetail(("body", "domain"), msg, "leased"))


class CursorExpired(GleaneryError):
    """The cursor or date is too old: changes after it may be missing from the feed."""

    def __init__(self, parameter: str) -> None:
        subject = "This cursor has expired: start again with cursor 0"
        if parameter == "changed_after":
            subject = "Not all deletions since this date are known: start again without this date"
        msg = f"{subject}, and drop the outputs that you do not receive again"
        super().__init__(ErrorDetail(("query", parameter), msg, "gone"))


class VersionExpired(GleaneryError):
    """The version of an output at this time is no longer kept."""

    def __init__(self) -> None:
        msg = (
            "The version at this time is no longer kept: the group's keep_versions and keep_days "
            "say which versions are"
        )
        super().__init__(ErrorDetail(("query", "at"), msg, "gone"))


class ReviewedStateLost(GleaneryError):
    """The position of a review is from before a restore: the reviewer has seen another state."""

    def __init__(self) -> None:
        msg = "This cursor is from before the database was restored: look at the outputs again"
        super().__init__(ErrorDetail(("body", "as_of"), msg, "gone"))


class MethodNotAllowed(GleaneryError):
    """The path exists, but not with this method."""

    def __init__(self, allowed: Iterable[str], advice: str = "") -> None:
        self.allowed = ", ".join(sorted(allowed))
        msg = f"This path allows {self.allowed}{advice}"
        super().__init__(ErrorDetail(("method",), msg, "method_not_allowed"))


class BodyTooLarge(GleaneryError):
    """The body is larger than the limit."""

    def __init__(self, limit: int, subject: str = "The body", advice: str = "") -> None:
        self.limit = limit
        msg = f"{subject} may have at most {limit} bytes{advice}"
        super().__init__(ErrorDetail(("body",), msg, "too_large"))


class CompressionTooStrong(GleaneryError):
    """The body is many times larger than what was sent."""

    def __init__(self, any_ratio_bytes: int, max_ratio: int) -> None:
        msg = (
            f"A body that decompresses to more than {any_ratio_bytes} bytes may have at most "
            f"{max_ratio} times its compressed size: send it without Content-Encoding"
        )
        super().__init__(ErrorDetail(("body",), msg, "too_large"))


class BadRequest(GleaneryError):
    """The request is not valid HTTP."""

    def __init__(self, reason: str = "") -> None:
        msg = "This is not valid HTTP/1.1" + (f": {reason}" if reason else "")
        super().__init__(ErrorDetail(("request",), msg, "bad_request"))


class UnsupportedHttp(GleaneryError):
    """The request uses a part of HTTP that the service does not support."""


class UnsupportedVersion(UnsupportedHttp):
    """The version of HTTP is neither 1.0 nor 1.1."""

    def __init__(self) -> None:
        msg = "Send the request in HTTP/1.1"
        super().__init__(ErrorDetail(("request",), msg, "unsupported_version"))


class ChunksRequired(UnsupportedHttp):
    """The response has no known length, and a client of HTTP/1.0 would not notice a truncation."""

    def __init__(self) -> None:
        msg = (
            "An export needs HTTP/1.1, in which a truncation is noticed: send the request in "
            "HTTP/1.1; in nginx, set proxy_http_version 1.1"
        )
        super().__init__(ErrorDetail(("request",), msg, "unsupported_version"))


class UnsupportedExpectation(UnsupportedHttp):
    """The Expect header asks for something other than 100-continue."""

    def __init__(self) -> None:
        msg = "Only 100-continue can be expected: send another value or no Expect header"
        super().__init__(ErrorDetail(("header", "expect"), msg, "unsupported_expectation"))


class HeadTooLarge(GleaneryError):
    """The request line and headers are larger than the limit."""

    def __init__(self, limit: int) -> None:
        msg = f"The request line and headers may have at most {limit} bytes"
        super().__init__(ErrorDetail(("header",), msg, "too_large"))


class RequestTimeout(GleaneryError):
    """The client took too long to send its request."""

    def __init__(self) -> None:
        super().__init__(ErrorDetail(("request",), "The request arrived too slowly", "too_slow"))


class InvalidSignature(GleaneryError):
    """The signed link was changed or has expired. The message does not say which."""

    def __init__(self, advice: str = "read the output again for a new one") -> None:
        msg = f"This link is not valid or has expired: {advice}"
        super().__init__(ErrorDetail(("query", "signature"), msg, "forbidden"))


_OTHER_FILE = "The file has another ETag: its ETag is the checksum of its bytes, in quotes"


class PreconditionFailed(GleaneryError):
    """The file or list does not have the ETag that the client expects."""

    def __init__(self, msg: str = _OTHER_FILE) -> None:
        super().__init__(ErrorDetail(("header", "if-match"), msg, "precondition_failed"))


class RangeNotSatisfiable(GleaneryError):
    """The requested range starts after the end of the file."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(ErrorDetail(("header", "range"), f"The file has {size} bytes", "range"))


class UnsupportedMedia(GleaneryError):
    """The operation does not accept the Content-Type or Content-Encoding of the body."""

    def __init__(self, header: str, msg: str) -> None:
        super().__init__(ErrorDetail(("header", header), msg, "unsupported_media_type"))


class UnsupportedCoding(UnsupportedMedia):
    """The operation does not accept the Content-Encoding of the body."""

    def __init__(self, msg: str, accepted: str) -> None:
        super().__init__("content-encoding", msg)
        self.accepted = accepted
        """Codings that the operation accepts, as in Accept-Encoding."""


DISK_FULL = "the disk is full: free some space"


class Unavailable(GleaneryError):
    """The database or another part is not available; the request may succeed later."""

    retry_after = 1

    def __init__(
        self, msg: str = "The database is not available now; try again", reason: str | None = None
    ) -> None:
        self.reason = reason
        """A known cause, for the log and for commands; clients do not get it."""
        super().__init__(ErrorDetail(("server",), msg, "unavailable"))

    @property
    def explanation(self) -> str:
        return str(self) if self.reason is None else f"{self}. Reason: {self.reason}"


class SchemaLocked(Unavailable):
    """The schema cannot be read, because a migration has locked it and has not committed yet."""

    def __init__(self) -> None:
        msg = "The schema is locked by a migration; try again"
        super().__init__(msg, reason="the table migrations is locked, perhaps by a migration")


class Overloaded(GleaneryError):
    """The service, or the organization's share of it, has no free slot."""

    retry_after = 1
    needed_bytes = 0
    """Bytes of memory without which the response cannot be read; 0 if something else is scarce."""

    def __init__(self, msg: str = "Too many requests are in progress; try again") -> None:
        super().__init__(ErrorDetail(("server",), msg, "busy"))


class ValidationSuspended(GleaneryError):
    """The group's schema was too costly a short time ago, so no data is validated against it."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        msg = (
            "Validating other data against the group's schema took too much time or memory: make "
            f"the schema simpler, or try again in {retry_after} s"
        )
        super().__init__(ErrorDetail(("body",), msg, "schema"))


class RateLimited(GleaneryError):
    """The token has reached its rate limit."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        msg = f"This token has reached its rate limit; try again in {retry_after} s"
        super().__init__(ErrorDetail(("header", "authorization"), msg, "too_often"))

"""Cross-origin requests (CORS): which pages may call the API in a browser.

A browser shows a page the response of another origin only if the response allows that origin. The
setting ``--cors-origin`` lists the origins. Without it, nothing of this module is used.

- Credentials, such as cookies, are never allowed: a page sends its token in ``Authorization``. So a
  page never acts with rights that only its visitor has. ``*`` allows every page that has a token.
- The console is left out, because it belongs to its own origin alone.
- Routes of logins are left out: those with a scope of ``session:``. A page cannot set the cookies
  of another site, so it does not need them. A script that is injected into a page could read them.
- All other responses of the API have the headers, and errors have them as well. Otherwise a browser
  would hide the message, and show an error of CORS.
- A response depends on ``Origin``, so it has ``Vary: Origin``, unless every origin is allowed.
- Before a request with a token, a browser sends a preflight, which has none. It is answered at the
  admission: without authentication, and without the database. It is answered under overload as
  well, because the page can read the error of its request only after a successful preflight.
- If a head cannot be read, as with status 431, its ``Origin`` is not known. Then the response
  allows an origin only if the setting has exactly one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gleanery.common.setting_rows import ANY_ORIGIN
from gleanery.common.settings import Settings
from gleanery.service.api.operation import Operation
from gleanery.service.api.response import Response, respond
from gleanery.service.http import Header, Request

ALLOWED_HEADERS = (
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Range",
    "X-Request-ID",
)
"""Headers of requests that the API reads and that a script can set."""
EXPOSED_HEADERS = (
    "Accept-Encoding",
    "Accept-Ranges",
    "Allow",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Range",
    "ETag",
    "Gleanery-Cursor",
    "Link",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-ID",
)
"""Headers of responses that the API sends. Without this list, scripts can read few headers."""
PREFLIGHT_RESPONSE = Response(
    b"",
    204,
    headers=(
        (b"access-control-allow-methods", b"DELETE, GET, HEAD, POST, PUT"),
        (b"access-control-allow-headers", ", ".join(ALLOWED_HEADERS).encode()),
        (b"access-control-max-age", b"7200"),  # the most that Chromium accepts
    ),
)
"""Response to every preflight; ``CrossOrigin.respond`` adds the origin."""

_ORIGIN, _REQUESTED_METHOD = b"origin", b"access-control-request-method"
_VARY = (b"vary", b"origin")
_API, _DESCRIPTION = b"/v1/", b"/openapi.json"
_UNREAD = b"/"  # path of a request whose head could not be read


class CrossOrigin:
    """Recognises preflights, and adds the headers of CORS to responses."""

    def __init__(self, origins: Sequence[str], operations: Iterable[Operation]) -> None:
        logins = {
            operation.path.partition("/{")[0].encode()
            for operation in operations
            if any(scope.startswith("session:") for scope in operation.scopes)
        }
        self._logins = tuple(path for path in logins if path.startswith(_API))
        exposed = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())
        allowed: dict[bytes, tuple[Header, ...]] = {
            origin.encode(): ((b"access-control-allow-origin", origin.encode()), exposed)
            for origin in origins
        }
        self._is_any = ANY_ORIGIN in origins
        self._only = next(iter(allowed.values())) if len(allowed) == 1 else ()
        self._by_origin = {origin: (_VARY, *headers) for origin, headers in allowed.items()}

    @classmethod
    def from_settings(
        cls, settings: Settings, operations: Iterable[Operation]
    ) -> CrossOrigin | None:
        """Return None if the setting is absent."""
        return cls(settings.cors_origin, operations) if settings.cors_origin else None

    def is_preflight(self, request: Request) -> bool:
        """Return True for a preflight of an allowed origin."""
        headers = request.headers
        return (
            request.method == "OPTIONS"
            and _REQUESTED_METHOD in headers
            and (self._is_any or headers.get(_ORIGIN) in self._by_origin)
            and self._is_shared(request.path)
        )

    def respond(
        self,
        request: Request,
        response: Response,
        request_id: bytes,
        rate_limit_headers: Iterable[Header],
    ) -> None:
        """Send the response, except for the rest of a long body, with the headers of CORS."""
        headers = (*rate_limit_headers, *self._headers(request))
        respond(request, response, request_id, headers)

    def _headers(self, request: Request) -> tuple[Header, ...]:
        if not request.headers and request.path == _UNREAD:
            return self._only
        if not self._is_shared(request.path):
            return ()
        if self._is_any:
            return self._only
        return self._by_origin.get(request.headers.get(_ORIGIN, b""), (_VARY,))

    def _is_shared(self, path: bytes) -> bool:
        """Return True for a path that pages of other origins may use.

        The router compares the path as it was sent, so no other spelling leads to a login.
        """
        return (path.startswith(_API) and not path.startswith(self._logins)) or path == _DESCRIPTION

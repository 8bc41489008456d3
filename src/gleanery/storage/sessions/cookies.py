"""Cookies: one per organization, domain, path and name."""

from __future__ import annotations

from gleanery.models.responses import CookieOut
from gleanery.models.session_state import Cookie
from gleanery.storage.database import Row
from gleanery.storage.sessions.kinds import HOST_IS_PARENT, PreparedRecord, RecordKind
from gleanery.values.hashing import hash_parts

_NO_EXPIRY = -1


def _hash_identity(organization_id: int, domain: str, path: str, name: str) -> bytes:
    return hash_parts("cookie", organization_id, domain, path or "/", name)


def _prepare(organization_id: int, cookie: Cookie) -> PreparedRecord:
    domain, name, path = cookie.domain, cookie.name, cookie.path
    # Browsers have no date before 1970. Such a cookie has expired, and -1 means "no expiry".
    expires = None if cookie.expires is None else max(cookie.expires, 0)
    flags = (cookie.secure, cookie.http_only)
    columns = (domain, domain.removeprefix("."), name, path, *flags, expires)
    identity = _hash_identity(organization_id, domain, path, name)
    return PreparedRecord(identity, domain, columns, cookie.value)


def _to_response(organization_id: int, value: str, row: Row) -> CookieOut:
    _, _, domain, host, name, path, secure, http_only, expires = row
    return CookieOut(
        name=name,
        value=value,
        url=f"{'https' if secure else 'http'}://{host}/{path.removeprefix('/')}",
        domain=domain,
        path=path,
        expires=_NO_EXPIRY if expires is None else expires,
        http_only=bool(http_only),
        secure=bool(secure),
    )


COOKIES = RecordKind[Cookie, CookieOut](
    table="cookies",
    columns=("domain", "host", "name", "path", "secure", "http_only", "expires"),
    identity_columns=("domain", "path", "name"),
    name_column="name",
    replaced_columns=("path", "secure", "http_only", "expires"),
    visible_if=f"host = $4 OR {HOST_IS_PARENT}",
    hash_identity=_hash_identity,
    prepare=_prepare,
    to_response=_to_response,
    read_action="get_cookies",
    store_action="set_cookies",
    delete_action="delete_cookies",
)

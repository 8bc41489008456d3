"""Cookies: one per organization, profile, domain, path, name and partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.sessions.kinds import HOST_IS_PARENT, PreparedRecord, RecordKind
from gleanery.service.resources.sessions.models import CookieOut
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE, NOT_GIVEN, Cookie
from gleanery.service.storage.database import Row
from gleanery.sessions import model

_NO_EXPIRY = -1
_COLUMNS = (
    *("domain", "host", "name", "path", "secure", "http_only", "expires", "host_only"),
    *("same_site", "partition_site", "cross_site_ancestor", "profile", "host_only_stated"),
)
_POSITIONS = {column: position for position, column in enumerate(_COLUMNS)}
_HOST_ONLY = (_POSITIONS["host_only"], _POSITIONS["host_only_stated"])
_PARTITION = (_POSITIONS["partition_site"], _POSITIONS["cross_site_ancestor"])


def _hash_identity(
    organization_id: int,
    domain: str,
    path: str,
    name: str,
    profile: str,
    partition_site: str | None,
    cross_site_ancestor: bool | None,
) -> bytes:
    """Hashes what identifies a cookie.

    Values from before there were profiles are encrypted with this hash. So it must not change
    for a cookie of the default profile without a partition.
    """
    parts: tuple[str | int, ...] = ("cookie", organization_id, domain, path or "/", name)
    if partition_site is not None:
        parts += (profile, partition_site, int(bool(cross_site_ancestor)))
    elif profile != DEFAULT_PROFILE:
        parts += (profile,)
    return hash_parts(*parts)


def _prepare(organization_id: int, cookie: Cookie) -> PreparedRecord:
    domain, name, path, profile = cookie.domain, cookie.name, cookie.path, cookie.profile
    host = domain.removeprefix(".")
    # Browsers have no date before 1970. Such a cookie has expired, and -1 means "no expiry".
    expires = None if cookie.expires is None else max(cookie.expires, 0)
    kept: tuple[int, ...] = ()
    host_only, same_site, partition = cookie.host_only, cookie.same_site, cookie.partition_key
    is_stated = host_only is not NOT_GIVEN
    if not is_stated:
        kept, host_only = _HOST_ONLY, domain == host
    if same_site is NOT_GIVEN:
        kept, same_site = (*kept, _POSITIONS["same_site"]), None
    alternative = None
    if partition is NOT_GIVEN:
        kept, partition = kept + _PARTITION, None
        alternative = (profile, host, name, domain, path or "/")
    site, ancestor = (
        (None, None)
        if partition is None
        else (partition.top_level_site, partition.has_cross_site_ancestor)
    )
    flags = (cookie.secure, cookie.http_only, expires, host_only)
    columns = (domain, host, name, path, *flags, same_site, site, ancestor, profile, is_stated)
    identity = _hash_identity(organization_id, domain, path, name, profile, site, ancestor)
    return PreparedRecord(identity, domain, columns, cookie.value, kept, alternative)


def _to_response(organization_id: int, value: str, row: Row) -> CookieOut:
    _, _, domain, host, name, path, secure, http_only, expires, *_ = row
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
    columns=_COLUMNS,
    identity_columns=(
        *("domain", "path", "name"),
        *("profile", "partition_site", "cross_site_ancestor"),
    ),
    name_column="name",
    replaced_columns=(
        *("path", "secure", "http_only", "expires"),
        *("host_only", "host_only_stated", "same_site"),
    ),
    uncompared_columns=("host_only_stated",),
    # Clients that send no hostOnly expect their cookies for subdomains. Exports follow browsers.
    visible_if=f"host = $5 OR NOT (host_only AND host_only_stated) AND {HOST_IS_PARENT}",
    alternative_column="partition_site",
    alternative_index="cookies_partitioned",
    alternative_member="partitionKey",
    ambiguous="It is not clear which cookie is meant: partitioned cookies with this domain, path "
    "and name are stored. Send partitionKey, which is empty for the cookie without a partition",
    find_alternatives="""
SELECT identity, profile, host, name, domain, CASE path WHEN '' THEN '/' ELSE path END
FROM cookies
WHERE organization_id = $1 AND profile = $2 AND host = $3 AND name = $4
    AND partition_site IS NOT NULL AND domain = $5 AND (path = $6 OR path = '' AND $6 = '/')
""",
    hash_identity=_hash_identity,
    prepare=_prepare,
    to_response=_to_response,
    read_action="get_cookies",
    store_action="set_cookies",
    delete_action="delete_cookies",
    extra_columns=("updated_at",),
)


# --- whole cookies ------------------------------------------------------------------------------


class StoredCookie(NamedTuple):
    """A stored cookie in the model of every format."""

    cookie: model.Cookie
    updated_at: int
    """Microseconds since 1970."""


def to_stored(value: str, row: Row) -> StoredCookie:
    """Convert a decrypted value and a row of a list. Raise InvalidSession."""
    return StoredCookie(_to_model(value, row[2:]), row[-1])


def without_value(row: Row) -> model.Cookie:
    """Convert the identity and the columns of a cookie. Raise InvalidSession."""
    return _to_model("-", row[1:])


def _to_model(value: str, columns: Sequence[Any]) -> model.Cookie:
    _, host, name, path, secure, http_only, expires, host_only, same_site, *rest = columns
    site, ancestor, *_ = rest
    return model.Cookie(
        name=name,
        value=value,
        host=host,
        host_only=bool(host_only),
        path=path or "/",
        expires=expires,
        secure=bool(secure),
        http_only=bool(http_only),
        same_site=same_site,
        partition_key=None if site is None else model.PartitionKey(site, bool(ancestor)),
    )

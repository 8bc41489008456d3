"""Cookies and local-storage entries to store, in the spelling of this API or of browsers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails

from gleanery.service.foundation.field_types import (
    CookieId,
    Domain,
    Expiry,
    HeaderText,
    IgnoredDateTime,
    IgnoredNumber,
    NotOpaque,
    NumericGroupId,
    Origin,
    PartitionKey,
    SameSite,
    Text,
)
from gleanery.service.foundation.models import Input, condition, custom_error
from gleanery.sessions import model
from gleanery.sessions.model import host_of_origin

_DOT = "."
_NULL = {"type": "null"}
_STRING = {"type": "string"}


DEFAULT_PROFILE = "default"
"""The profile of the routes that have no parameter for it."""


class NotGiven(Enum):
    """The value of a member that the client does not give, so that the stored value is kept."""

    NOT_GIVEN = "not given"


NOT_GIVEN = NotGiven.NOT_GIVEN


class Cookie(NamedTuple):
    """Validated cookie."""

    domain: str
    name: str
    value: str
    secure: bool = False
    http_only: bool = False
    expires: int | None = None
    """Seconds since 1970; None for a session cookie."""
    path: str = ""
    host_only: bool | NotGiven = NOT_GIVEN
    """Without it, and without a stored value: True if the domain has no leading dot."""
    same_site: str | NotGiven | None = NOT_GIVEN
    partition_key: model.PartitionKey | NotGiven | None = NOT_GIVEN
    """Without it: the cookie without a partition or, if there is none, the only partitioned one."""
    profile: str = DEFAULT_PROFILE


class LocalStorageEntry(NamedTuple):
    """Validated local-storage entry."""

    domain: str
    key: str
    value: str
    group_id: int = 0
    path: str = "/"
    expires: int | None = None
    """Seconds since 1970; None if it never expires."""
    origin: str | NotGiven | None = NOT_GIVEN
    """Normalized origin; None for any origin of the host.

    Without it: the entry without an origin or, if there is none, the only one with an origin.
    """
    profile: str = DEFAULT_PROFILE


# --- JSON Schema --------------------------------------------------------------------------------


def _at_most_one(*names: str) -> dict[str, Any]:
    """JSON Schema: only one of these members has a value."""
    choices = [{other: _NULL for other in names if other != name} for name in names]
    return {"anyOf": [{"properties": choice} for choice in choices]}


def _exactly_one(*names: str) -> dict[str, Any]:
    """JSON Schema: one of these members has a value, the others do not."""
    return {
        "anyOf": [
            {
                "required": [name],
                "properties": {other: _STRING if other == name else _NULL for other in names},
            }
            for name in names
        ]
    }


# --- cookies ------------------------------------------------------------------------------------


class CookieIn(Input):
    """Cookie to store. Only domain, name and value are required.

    Members in the spelling of browsers and their extensions are accepted, too.
    """

    model_config = ConfigDict(
        json_schema_extra=condition(
            {
                "allOf": [
                    _at_most_one("http_only", "httpOnly"),
                    _at_most_one("same_site", "sameSite"),
                    _at_most_one("expires", "expiry", "expirationDate"),
                    {
                        "anyOf": [
                            {"properties": {"hostOnly": {"enum": [False, None]}}},
                            {"properties": {"domain": {"pattern": r"^[^.]"}}},
                        ]
                    },
                ]
            }
        )
    )

    domain: Domain = Field(description="Host. A leading dot includes its subdomains.")
    name: HeaderText
    value: HeaderText
    secure: bool | None = None
    http_only: bool | None = None
    expires: Expiry = Field(
        default=None,
        description="Date-time or epoch seconds. Without it, or with -1, a session cookie.",
    )
    path: HeaderText | None = None
    camel_case_http_only: bool | None = Field(
        default=None, alias="httpOnly", description="Same as `http_only`."
    )
    expiry: Expiry = Field(default=None, description="Same as `expires`.")
    expiration_date: Expiry = Field(
        default=None, alias="expirationDate", description="Same as `expires`."
    )
    session: bool | None = Field(
        default=None, description="true: a session cookie, even if it has a date of expiry."
    )
    host_only: bool | None = Field(
        default=None,
        alias="hostOnly",
        description="Without it, the stored value is kept. A new cookie is host-only if its domain "
        "has no leading dot. true is an error if the domain has one. A list for a subdomain leaves "
        "out a cookie only if true was sent or imported.",
    )
    same_site: SameSite | None = Field(
        default=None,
        description="strict, lax, none, no_restriction (none) or unspecified (removes it). Without "
        "it, the stored value is kept.",
    )
    camel_case_same_site: SameSite | None = Field(
        default=None, alias="sameSite", description="Same as `same_site`."
    )
    partition_key: PartitionKey = Field(
        default=None,
        alias="partitionKey",
        description="Site of a partitioned cookie (CHIPS). Without it, the stored cookie that has "
        "the same values; else the cookie without a partition; if there is none, the only "
        "partitioned one. The empty string: no partition. Not clear is an error.",
    )
    cross_site_ancestor: bool | None = Field(
        default=None,
        alias="_crHasCrossSiteAncestor",
        description="`hasCrossSiteAncestor` of a `partitionKey` that is a string.",
    )
    partition_key_opaque: NotOpaque = Field(
        default=None,
        alias="partitionKeyOpaque",
        description="true is an error: such a partition exists only in its browser.",
    )
    first_party_domain: Text | None = Field(
        default=None, alias="firstPartyDomain", description="Ignored."
    )
    priority: Text | None = Field(default=None, description="Ignored.")
    same_party: bool | None = Field(default=None, alias="sameParty", description="Ignored.")
    size: IgnoredNumber = Field(default=None, description="Ignored.")
    source_port: IgnoredNumber = Field(default=None, alias="sourcePort", description="Ignored.")
    source_scheme: Text | None = Field(default=None, alias="sourceScheme", description="Ignored.")
    store_id: Text | None = Field(default=None, alias="storeId", description="Ignored.")
    id: CookieId = Field(default=None, description="Ignored.")
    url: Text | None = Field(
        default=None, description="Ignored: it follows from domain, path and secure."
    )


_FIXED_MEMBERS = {"domain", "name", "value", "secure", "http_only", "expires", "path"}


def _to_cookie(given: CookieIn) -> Cookie:
    """Merge the spellings. Raise ValidationError if they contradict each other."""
    if not given.model_fields_set <= _FIXED_MEMBERS:
        _reject(given, _cookie_conflicts(given))
    expires = _first(given.expires, given.expiry, given.expiration_date)
    return Cookie(
        given.domain,
        given.name,
        given.value,
        bool(given.secure),
        bool(_first(given.http_only, given.camel_case_http_only)),
        None if given.session else expires,
        given.path or "",
        NOT_GIVEN if given.host_only is None else given.host_only,
        _same_site(given),
        _partition_key(given),
    )


def _same_site(given: CookieIn) -> str | NotGiven | None:
    value = _first(given.same_site, given.camel_case_same_site)
    return NOT_GIVEN if value is None else value or None


def _partition_key(given: CookieIn) -> model.PartitionKey | NotGiven | None:
    partition = given.partition_key
    if partition is None:
        return NOT_GIVEN
    if not partition.site:
        return None
    ancestor = _first(partition.has_cross_site_ancestor, given.cross_site_ancestor)
    if ancestor is None:  # a cookie of another site is set by a frame in a page of this site
        ancestor = not _includes(f".{host_of_origin(partition.site)}", _host(given))
    return model.PartitionKey(partition.site, ancestor)


def _host(given: CookieIn) -> str:
    return given.domain.removeprefix(_DOT)


def _cookie_conflicts(given: CookieIn) -> Iterator[InitErrorDetails]:
    yield from _conflicts(http_only=given.http_only, httpOnly=given.camel_case_http_only)
    yield from _conflicts(same_site=given.same_site, sameSite=given.camel_case_same_site)
    yield from _conflicts(
        expires=given.expires, expiry=given.expiry, expirationDate=given.expiration_date
    )
    if given.host_only and given.domain.startswith(_DOT):
        msg = "a domain with a leading dot is not host-only: remove the dot, or send false"
        yield custom_error("conflict", msg, ["hostOnly"])


CheckedCookie = Annotated[CookieIn, AfterValidator(_to_cookie)]
"""Type of a cookie in a body; its value is a ``Cookie``."""


# --- local storage ------------------------------------------------------------------------------


class LocalStorageIn(Input):
    """Local-storage entry to store: a domain or origin, a key or name, and a value."""

    model_config = ConfigDict(
        json_schema_extra=condition(
            {"allOf": [_exactly_one("domain", "origin"), _exactly_one("key", "name")]}
        )
    )

    domain: Domain | None = Field(
        default=None, description="Host. A leading dot includes its subdomains."
    )
    key: Text | None = None
    value: Text
    group_id: NumericGroupId | None = Field(
        default=None,
        description="`id` of the group that uses the entry. Without it, or with 0, every group.",
    )
    path: Text | None = Field(default=None, description="Default: /.")
    expires: Expiry = Field(
        default=None, description="Date-time or epoch seconds. Without it, never."
    )
    name: Text | None = Field(default=None, description="Same as `key`.")
    origin: Origin | None = Field(
        default=None,
        description="Origin such as `https://shop.example:8443`; its host is the domain. Without "
        "it, the stored entry that has the same values; else the entry for any origin of the host; "
        "if there is none, the only one with an origin. Not clear is an error.",
    )
    id: NumericGroupId | None = Field(default=None, description="Ignored.")
    organization_id: NumericGroupId | None = Field(default=None, description="Ignored.")
    create_date: IgnoredDateTime | None = Field(default=None, description="Checked, not stored.")
    update_date: IgnoredDateTime | None = Field(default=None, description="Checked, not stored.")


def _to_entry(given: LocalStorageIn) -> LocalStorageEntry:
    """Merge the spellings. Raise ValidationError if one is missing or they contradict."""
    _reject(given, _entry_conflicts(given))
    origin = given.origin
    return LocalStorageEntry(
        given.domain or host_of_origin(origin or ""),
        _first(given.key, given.name),
        given.value,
        given.group_id or 0,
        "/" if given.path is None else given.path,
        given.expires,
        NOT_GIVEN if origin is None else origin,
    )


def _entry_conflicts(given: LocalStorageIn) -> Iterator[InitErrorDetails]:
    domain, origin = given.domain, given.origin
    if domain is None and origin is None:
        yield custom_error("missing", "is missing", ["domain"])
    if given.key is None and given.name is None:
        yield custom_error("missing", "is missing", ["key"])
    yield from _conflicts(key=given.key, name=given.name)
    if domain is None or origin is None:
        return
    if not _includes(domain, host_of_origin(origin)):
        yield custom_error("conflict", 'is not part of "domain": send one of them', ["origin"])


def _includes(domain: str, host: str) -> bool:
    if not domain.startswith(_DOT):
        return host == domain
    return host == domain.removeprefix(_DOT) or host.endswith(domain)


CheckedEntry = Annotated[LocalStorageIn, AfterValidator(_to_entry)]
"""Type of an entry in a body; its value is a ``LocalStorageEntry``."""


# --- spellings ----------------------------------------------------------------------------------


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _conflicts(**spellings: Any) -> Iterator[InitErrorDetails]:
    """Yield an error for each spelling whose value differs from that of the first."""
    given = [(name, value) for name, value in spellings.items() if value is not None]
    for name, value in given[1:]:
        if value != given[0][1]:
            msg = f'differs from "{given[0][0]}", which means the same: send one of them'
            yield custom_error("conflict", msg, [name])


def _reject(given: Input, problems: Iterator[InitErrorDetails]) -> None:
    found = list(problems)
    if found:
        raise ValidationError.from_exception_data(type(given).__name__, found)

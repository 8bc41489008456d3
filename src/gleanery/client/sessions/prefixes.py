"""The rules of name prefixes such as ``__Host-`` (RFC 6265bis)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie

_REASON = "A cookie is left out, because browsers reject it: {rule}"


@dataclass(frozen=True, slots=True)
class _Rule:
    prefix: str
    sentence: str
    is_for_host: bool
    is_http_only: bool

    def is_met_by(self, cookie: Cookie) -> bool:
        # Servers take a cookie without a name, which is sent as its value, for one with a name.
        return (
            bool(cookie.name)
            and cookie.secure
            and (cookie.http_only or not self.is_http_only)
            and (not self.is_for_host or (cookie.host_only and cookie.path == "/"))
        )


# The first rule that matches counts, so the longest prefix is first.
_RULES = (
    _Rule(
        "__host-http-",
        "__Host-Http- requires a name, Secure, HttpOnly, the path / and no domain",
        is_for_host=True,
        is_http_only=True,
    ),
    _Rule(
        "__host-",
        "__Host- requires a name, Secure, the path / and no domain",
        is_for_host=True,
        is_http_only=False,
    ),
    _Rule(
        "__http-",
        "__Http- requires a name, Secure and HttpOnly",
        is_for_host=False,
        is_http_only=True,
    ),
    _Rule(
        "__secure-",
        "__Secure- requires a name and Secure",
        is_for_host=False,
        is_http_only=False,
    ),
)
_LONGEST = max(len(rule.prefix) for rule in _RULES)


def without_violations(cookies: Iterable[Cookie], losses: Losses) -> Iterator[Cookie]:
    """Yield the cookies that browsers accept; count the others as losses."""
    for cookie in cookies:
        rule = _rule_of(cookie)
        if rule is None or rule.is_met_by(cookie):
            yield cookie
        else:
            losses.add("cookie", _REASON.format(rule=rule.sentence))


def with_implied_fields(cookie: Cookie, missing: Collection[str]) -> Cookie:
    """Add the flags that a format does not say, and that the name of the cookie requires."""
    rule = _rule_of(cookie)
    if rule is None:
        return cookie
    return replace(
        cookie,
        secure=cookie.secure or "secure" in missing,
        http_only=cookie.http_only or (rule.is_http_only and "http_only" in missing),
    )


def _rule_of(cookie: Cookie) -> _Rule | None:
    start = (cookie.name or cookie.value)[:_LONGEST].lower()  # browsers accept any case
    return next((rule for rule in _RULES if start.startswith(rule.prefix)), None)

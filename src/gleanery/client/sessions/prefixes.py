"""The rules of the name prefixes ``__Secure-`` and ``__Host-`` (RFC 6265bis)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie

_REASON = "A cookie is left out, because browsers reject it: {prefix} requires {rule}"
_SECURE_RULE = "a name and Secure"
_HOST_RULE = "a name, Secure, the path / and no domain"


def without_violations(cookies: Iterable[Cookie], losses: Losses) -> Iterator[Cookie]:
    """Yields the cookies that browsers accept; counts the others as losses."""
    for cookie in cookies:
        sent = (cookie.name or cookie.value).lower()  # browsers compare the prefixes in any case
        if sent.startswith("__secure-") and not _meets_secure_rule(cookie):
            losses.add("cookie", _REASON.format(prefix="__Secure-", rule=_SECURE_RULE))
        elif sent.startswith("__host-") and not _meets_host_rule(cookie):
            losses.add("cookie", _REASON.format(prefix="__Host-", rule=_HOST_RULE))
        else:
            yield cookie


def _meets_secure_rule(cookie: Cookie) -> bool:
    """A cookie without a name is sent as its value, which servers take for a name."""
    return bool(cookie.name) and cookie.secure


def _meets_host_rule(cookie: Cookie) -> bool:
    return _meets_secure_rule(cookie) and cookie.host_only and cookie.path == "/"

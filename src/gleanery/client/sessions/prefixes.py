"""The rules of the name prefixes ``__Secure-`` and ``__Host-`` (RFC 6265bis)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie

_REASON = "A cookie is left out, because browsers reject it: {prefix} requires {rule}"
_SECURE_RULE = "Secure"
_HOST_RULE = "Secure, the path / and no domain"


def without_violations(cookies: Iterable[Cookie], losses: Losses) -> Iterator[Cookie]:
    """Yields the cookies that browsers accept; counts the others as losses."""
    for cookie in cookies:
        prefix = cookie.name.lower()  # browsers compare the prefixes in any case
        if prefix.startswith("__secure-") and not cookie.secure:
            losses.add("cookie", _REASON.format(prefix="__Secure-", rule=_SECURE_RULE))
        elif prefix.startswith("__host-") and not _meets_host_rule(cookie):
            losses.add("cookie", _REASON.format(prefix="__Host-", rule=_HOST_RULE))
        else:
            yield cookie


def _meets_host_rule(cookie: Cookie) -> bool:
    return cookie.secure and cookie.host_only and cookie.path == "/"

"""The rules of browsers for a cookie. A tool that sets many cookies fails if one breaks a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from urllib.parse import quote

from gleanery.client.sessions import hostnames
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie

_CONTROLS = "\x00-\x1f\x7f"
_NAME = re.compile(rf"(?! )[^;={_CONTROLS}]*(?<! )\Z")
_VALUE = re.compile(rf"(?! )[^;{_CONTROLS}]*(?<! )\Z")
_MAX_BYTES = 4096
_MAX_PATH_BYTES = 1024
_INVALID = "A cookie is left out, because browsers reject its name, value, host or path"
_PARTITION_RULE = "A cookie is left out, because browsers reject its partition"
_SAME_SITE_RULE = "SameSite None is omitted, because browsers reject it without Secure"


def accepted(cookies: Iterable[Cookie], losses: Losses) -> Iterator[Cookie]:
    """Yield the cookies in a form that browsers accept; count the differences as losses.

    The rules of name prefixes are checked before.
    """
    for cookie in cookies:
        if not _is_valid(cookie):
            losses.add("cookie", _INVALID)
        elif not _has_valid_partition(cookie):
            losses.add("cookie", _PARTITION_RULE)
        else:
            yield _with_valid_same_site(cookie, losses)


def _is_valid(cookie: Cookie) -> bool:
    return (
        _NAME.match(cookie.name) is not None
        and _VALUE.match(cookie.value) is not None
        and (cookie.name != "" or "=" not in cookie.value)
        and len(cookie.name.encode()) + len(cookie.value.encode()) <= _MAX_BYTES
        and hostnames.is_valid_in_browsers(cookie.host)
        and cookie.path.startswith("/")
        and ";" not in cookie.path
        and len(quote(cookie.path)) <= _MAX_PATH_BYTES
    )


def _has_valid_partition(cookie: Cookie) -> bool:
    """Return True if there is none, or one of a valid site. A partition requires Secure."""
    if cookie.partition_key is None:
        return True
    host = cookie.partition_key.top_level_site.partition("://")[2]
    return cookie.secure and hostnames.is_valid_in_browsers(host)


def _with_valid_same_site(cookie: Cookie, losses: Losses) -> Cookie:
    if cookie.same_site != "None" or cookie.secure:
        return cookie
    losses.add("same_site", _SAME_SITE_RULE)
    return replace(cookie, same_site=None)

"""Host-only cookies for tools that send every cookie to subdomains, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import Cookie

_COLLISION = "A cookie for one host is left out, because another one is for its subdomains, too"


def without_host_only(
    cookies: Sequence[Cookie], is_kept: Callable[[Cookie], bool], reason: str, losses: Losses
) -> Iterator[Cookie]:
    """Yield a domain cookie instead of each host-only cookie that the tool cannot keep.

    Count it as a loss with this reason.
    """
    identities = {cookie.identity for cookie in cookies}
    for cookie in cookies:
        if not cookie.host_only or is_kept(cookie):
            yield cookie
            continue
        wider = replace(cookie, host_only=False)
        if wider.identity in identities:
            losses.add("cookie", _COLLISION)
        else:
            losses.add("host_only", reason)
            yield wider

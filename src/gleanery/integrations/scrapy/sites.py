"""Sites: the hosts that share a session."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from http.cookiejar import Cookie

from tldextract import TLDExtract

from gleanery.sessions import InvalidSession, hostnames
from gleanery.sessions.cookiejar import host_of

# The list of public suffixes of the package: a download would block the reactor.
_split = TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


@lru_cache(maxsize=10_000)
def session_domain(host: str) -> str | None:
    """Return the domain of the session that a host uses: its site, with a leading dot.

    Hosts of a site share cookies, so they share a session and its lease. An address, a host
    without a dot, and a public suffix such as ``github.io`` have a session of their own. An
    invalid host has none.
    """
    try:
        return f"[{ipaddress.IPv6Address(host)}]"
    except ValueError:
        pass
    try:
        normal = hostnames.normalize(host.rstrip("."))
    except ValueError:
        return None
    if "." not in normal or hostnames.is_address(normal):
        return normal
    return _site(normal)


def _site(host: str) -> str:
    parts = _split(host)
    if not parts.suffix:  # a private top-level domain, such as corp
        return "." + ".".join(host.split(".")[-2:])
    return f".{parts.domain}.{parts.suffix}" if parts.domain else host


def group_by_site(jar: Iterable[Cookie]) -> dict[str, list[Cookie]]:
    """Return the cookies of a jar by the domain of the session that they belong to."""
    sites: defaultdict[str, list[Cookie]] = defaultdict(list)
    for cookie in jar:
        site = _site_of_cookie(cookie.domain)
        if site is not None:
            sites[site].append(cookie)
    return sites


@lru_cache(maxsize=10_000)
def _site_of_cookie(domain: str) -> str | None:
    try:
        return session_domain(host_of(domain))
    except InvalidSession:
        return None

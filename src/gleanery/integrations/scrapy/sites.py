"""Sites: the hosts that share a session."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from tldextract import TLDExtract

from gleanery.client.sessions import hostnames

# Scrapy's cookies use the same list of public suffixes.
_split = TLDExtract(include_psl_private_domains=True)


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

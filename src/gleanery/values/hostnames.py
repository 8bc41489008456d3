"""Host names: the one form in which a cookie's or an entry's domain is kept, and who sees it."""

from __future__ import annotations

import ipaddress
import re

import idna

_LABEL = "[A-Za-z0-9_-]{1,63}"
DOMAIN = rf"^\.?({_LABEL}(\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]{{2,45}}\])$"
"""A host name in ASCII or an IPv6 address in brackets, perhaps with a leading dot."""

LONGEST = 254

_FORM = re.compile(DOMAIN.removesuffix("$") + r"\Z")


def normalize(domain: str) -> str:
    """Lower case, IDN in its ASCII form, a leading dot kept.

    Raises ValueError with a sentence for the caller.
    """
    if not domain.isascii():
        dot = "." if domain.startswith(".") else ""
        domain = dot + _to_ascii(domain.removeprefix("."))
    if len(domain) > LONGEST or not _FORM.match(domain):
        raise ValueError("expected a host name, without scheme, port or path")
    return domain.lower()


def _to_ascii(host: str) -> str:
    """Label by label: one in ASCII may hold what IDNA does not know, such as an underscore."""
    try:
        labels = idna.uts46_remap(host, std3_rules=False, transitional=False).split(".")
        return ".".join(
            label if label.isascii() else idna.encode(label).decode("ascii") for label in labels
        )
    except idna.IDNAError:
        raise ValueError("this international host name has no ASCII form") from None


def is_address(host: str) -> bool:
    """An IP address has no parent domains."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True

"""What kind of bytes a file holds: by the bytes themselves, else by what was said of them."""

from __future__ import annotations

import re

import puremagic

HEAD_BYTES = 4096
"""How much of a file's beginning is enough to tell."""

UNKNOWN = "application/octet-stream"
_FORM = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")


def media_type(head: bytes, declared: str) -> str:
    """The type of a file with this beginning, which a Content-Type header declared."""
    try:
        found = puremagic.from_string(head, mime=True)
    except (puremagic.PureError, ValueError):
        found = ""
    if found and found != UNKNOWN:
        return str(found)
    plain = declared.partition(";")[0].strip().lower()
    return plain if _FORM.fullmatch(plain) else UNKNOWN

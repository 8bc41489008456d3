"""What kind of bytes a file holds: by the bytes themselves, else by what was said of them."""

from __future__ import annotations

import re

HEAD_BYTES = 4096
"""How much of a file's beginning is enough to tell."""

UNKNOWN = "application/octet-stream"
_FORM = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_BY_DEFAULT = "application/x-www-form-urlencoded"  # what curl says unless it is told otherwise
_SURE = 0.3  # three bytes that are always the same; two may be the first letters of a table
_ZIP = "application/zip"
_CONTAINERS = (b"PK", b"\xd0\xcf\x11\xe0")  # of many kinds of document
_BY_WORDS = re.compile(r"text/|.*[/+](json|xml)$|application/mbox")


def media_type(head: bytes, declared: str) -> str:
    """The type of a file with this beginning, which a Content-Type header declared.

    Text can't be told by its beginning, nor what is inside an archive: there the declared counts.
    """
    said = declared.partition(";")[0].strip().lower()
    said = said if _FORM.fullmatch(said) and said != _BY_DEFAULT else UNKNOWN
    told = _told_by(head)
    if not told or said in told:
        return said
    is_open = head.startswith(_CONTAINERS) or _BY_WORDS.match(told[0])
    if is_open and said != UNKNOWN:
        return said
    return _ZIP if head.startswith(b"PK") else told[0]


def _told_by(head: bytes) -> list[str]:
    """The types that begin like this, as far as that is sure, the likeliest first."""
    import puremagic  # with the first file: its table takes a tenth of the whole start to load

    try:
        matches = puremagic.magic_string(head)
    except (puremagic.PureError, ValueError):
        return []
    most = max((match.confidence for match in matches), default=0.0)
    if most < _SURE:
        return []
    types = [match.mime_type.strip() for match in matches if match.confidence == most]
    return [one for one in types if _FORM.fullmatch(one) and one != UNKNOWN]

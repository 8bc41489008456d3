"""Media types: detects the type of a file from its first bytes and its declared type."""

from __future__ import annotations

import re

HEAD_BYTES = 4096
"""The number of bytes at the start of a file that detection needs."""

UNKNOWN = "application/octet-stream"
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_MIN_CONFIDENCE = 0.3  # a match of three bytes; a match of two may be the start of a CSV file
_ZIP = "application/zip"
_CONTAINERS = (b"PK", b"\xd0\xcf\x11\xe0")  # ZIP and OLE: formats of many document types
_TEXT_TYPE = re.compile(r"text/|.*[/+](json|xml)$|application/mbox")


def media_type(head: bytes, declared: str) -> str:
    """Return the media type of a file from its first bytes and its Content-Type header.

    The declared type wins for text and for containers: the first bytes do not identify those.
    """
    declared = declared.partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(declared):
        declared = UNKNOWN
    detected = _detect(head)
    if not detected or declared in detected:
        return declared
    is_ambiguous = head.startswith(_CONTAINERS) or _TEXT_TYPE.match(detected[0])
    if is_ambiguous and declared != UNKNOWN:
        return declared
    return _ZIP if head.startswith(b"PK") else detected[0]


def _detect(head: bytes) -> list[str]:
    """Return the types with the highest confidence, or none if the confidence is too low."""
    import puremagic  # imported on first use: its table takes a tenth of the start to load

    try:
        matches = puremagic.magic_string(head)
    except (puremagic.PureError, ValueError):
        return []
    confidence = max((match.confidence for match in matches), default=0.0)
    if confidence < _MIN_CONFIDENCE:
        return []
    types = [match.mime_type.strip() for match in matches if match.confidence == confidence]
    return [name for name in types if _MEDIA_TYPE.fullmatch(name) and name != UNKNOWN]

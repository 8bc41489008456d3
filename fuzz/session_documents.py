"""Fuzz targets of session documents: one for each format, and one for the detection.

A document is read, or rejected with one clear error that repeats no part of it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from gleanery import sessions
from gleanery.sessions import (
    FORMATS,
    Cookie,
    InvalidSession,
    PartitionKey,
    SessionState,
    StorageEntry,
)
from gleanery.sessions.conversion import AUTO

SECRET = "s3cr3t"
"""In every name, value, path and host of the seeds; never in an error or in a loss."""
HOST = f"{SECRET}.example"
URL = f"https://{HOST}/a"
MAX_MESSAGE = 300
STATE = SessionState(
    (
        Cookie(SECRET, f"{SECRET} ", HOST),
        Cookie(f"{SECRET}1", SECRET, HOST, host_only=False, path="/a", expires=2_000_000_000),
        Cookie(
            *(f"__Secure-{SECRET}", f'"{SECRET}"', HOST, True, f"/{SECRET}", 1, True, True, "None"),
            PartitionKey(f"https://{HOST}", has_cross_site_ancestor=False),
        ),
    ),
    (StorageEntry(f"https://{HOST}:8443", SECRET, f'{{"a":"{SECRET}\\u2028"}}'),),
)
READERS = (*FORMATS, AUTO)


def seeds(name: str) -> tuple[bytes, ...]:
    """Returns documents of the format; of all formats for the detection."""
    written = [sessions.write(STATE, one, URL).text for one in FORMATS if name in (one, AUTO)]
    return (*(text.encode() for text in written), b'{"cookies":[{}],"origins":[{}]}', b"a=b; c")


def target(name: str) -> Callable[[bytes], None]:
    """Returns the check of one reader."""
    return lambda content: check(name, content)


def check(name: str, content: Any) -> None:
    """Accepted content is written and read back as itself; a rejection is clear."""
    try:
        found = sessions.read(content, name, URL)
    except InvalidSession as error:
        check_error(error)
        return
    assert all(SECRET not in loss.sentence for loss in found.losses)
    assert SECRET not in repr(found.losses)
    check_rewritten(found.format, found.state)


def check_error(error: InvalidSession) -> None:
    """The message is one short line, and nothing that is logged repeats the document."""
    message = str(error)
    assert message.isprintable()
    assert 0 < len(message) < MAX_MESSAGE
    assert SECRET not in repr(error)
    assert SECRET not in "".join(traceback.format_exception(error))


def check_rewritten(name: str, state: SessionState) -> None:
    """A format writes what it has read, and counts what only its reader understands."""
    written = sessions.write(state, name, URL)
    is_empty = isinstance(written.content, str) and not written.content.strip()
    kept = SessionState() if is_empty else sessions.read(written.text, name, URL).state
    left_out = sum(loss.records for loss in written.losses if loss.subject == "cookie")
    assert len(kept.cookies) == len(state.cookies) - left_out
    assert written.losses or kept == state

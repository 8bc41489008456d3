"""Session state: converts cookies and local storage between the formats of browsers and tools.

    from pathlib import Path

    from gleanery.client import sessions

    found = sessions.read(Path("cookies.txt"))
    written = sessions.write(found, "playwright")
    browser.new_context(storage_state=written.content)

    jar = sessions.to_cookiejar(found).content
    requests.get("https://shop.example/", cookies=jar)

``read`` recognises the format. ``FORMATS`` has the names of all of them. A format that does not
say which page its cookies belong to, such as a Cookie header, needs ``url``. Each result lists in
``losses`` what could not be kept. An error is an ``InvalidSession``. No error, no loss and no
``repr`` contains the value of a cookie or of an entry.

See ``docs/explanation/session-formats.md``.
"""

from gleanery.sessions.conversion import ReadResult, WriteResult, read, write
from gleanery.sessions.cookiejar import from_cookiejar, to_cookiejar
from gleanery.sessions.formats import FORMATS
from gleanery.sessions.model import (
    Cookie,
    InvalidSession,
    Loss,
    PartitionKey,
    SameSite,
    SessionState,
    StorageEntry,
)

__all__ = [
    "FORMATS",
    "Cookie",
    "InvalidSession",
    "Loss",
    "PartitionKey",
    "ReadResult",
    "SameSite",
    "SessionState",
    "StorageEntry",
    "WriteResult",
    "from_cookiejar",
    "read",
    "to_cookiejar",
    "write",
]

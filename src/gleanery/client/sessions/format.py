"""The description of a format: how it is recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gleanery.client.sessions.document import Document
from gleanery.client.sessions.losses import Losses
from gleanery.client.sessions.model import SessionState
from gleanery.client.sessions.visibility import Page

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
OPTIONAL_FIELDS = (
    "host_only",
    "path",
    "expires",
    "secure",
    "http_only",
    "same_site",
    "partition_key",
)
"""Fields of a cookie that some formats do not have."""


def _no_pages(document: Document, url: str | None) -> Iterable[Page]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: how it is recognised, read and written."""

    name: str
    """The name in ``read``, ``write`` and the API."""
    title: str
    """The name in sentences for people, such as ``cookies.txt``."""
    description: str
    """What it is, for people who choose a format. Backquotes mark code."""
    other_names: tuple[str, ...] = ()
    """What people also call it. The names are suggested, and not accepted."""
    media_type: str
    file_name: str
    carries: frozenset[str]
    """The ``OPTIONAL_FIELDS`` that the format has, and ``local_storage``."""
    detect: Callable[[Document], bool]
    """Returns True if a document has the format. Two formats never detect the same document."""
    read: Callable[[Document, Losses, str | None], SessionState]
    """Reads a document; the third argument is the URL that the document belongs to."""
    write: Callable[[SessionState, Losses, str | None], Any]
    """Returns a text or a JSON value. The state has only what the format carries."""
    pages: Callable[[Document, str | None], Iterable[Page]] = _no_pages
    """Returns the pages whose requests a document has, if its cookies have no domain and path."""
    needs_url: bool = False
    """True if a document has the cookies of one page, whose URL ``write`` needs."""

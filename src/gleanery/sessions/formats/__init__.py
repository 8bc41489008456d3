"""The formats by name, in the order in which ``auto`` tries them."""

from __future__ import annotations

from gleanery.sessions.document import Format
from gleanery.sessions.formats import (
    browsers,
    curl,
    har,
    headers,
    netscape,
    playwright,
    scrapy,
    selenium,
)

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        playwright.FORMAT,
        browsers.CDP,
        browsers.PUPPETEER,
        selenium.FORMAT,
        browsers.EXTENSION,
        scrapy.FORMAT,
        har.FORMAT,
        netscape.FORMAT,
        curl.FORMAT,
        headers.SET_COOKIE_FORMAT,
        headers.COOKIE_FORMAT,
    )
}
NAMES = {name: one.name for one in FORMATS.values() for name in (one.name, *one.other_names)}
"""The name of a format by each of the names that people call it."""

"""The formats by name, in the order in which ``auto`` tries them."""

from __future__ import annotations

from gleanery.client.sessions.format import Format
from gleanery.client.sessions.formats import (
    cdp,
    cookie,
    curl,
    extension,
    har,
    netscape,
    playwright,
    scrapy,
    selenium,
    set_cookie,
)

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        playwright.FORMAT,
        cdp.CDP,
        cdp.PUPPETEER,
        selenium.FORMAT,
        extension.FORMAT,
        scrapy.FORMAT,
        har.FORMAT,
        netscape.FORMAT,
        curl.FORMAT,
        set_cookie.FORMAT,
        cookie.FORMAT,
    )
}
NAMES = {name: one.name for one in FORMATS.values() for name in (one.name, *one.other_names)}
"""The name of a format by each of the names that people call it."""

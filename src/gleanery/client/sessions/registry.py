"""The formats by name, in the order in which ``auto`` tries them."""

from __future__ import annotations

from gleanery.client.sessions.format import Format
from gleanery.client.sessions.formats import cookie, curl, netscape, playwright, set_cookie

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        playwright.FORMAT,
        netscape.FORMAT,
        curl.FORMAT,
        set_cookie.FORMAT,
        cookie.FORMAT,
    )
}

"""Headers of webhooks, as options and files of ``gleanery webhooks`` give them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gleanery.cli.data.command import UserError


def parse_headers(
    texts: Sequence[str] | None, file: str | None, token_file: str | None
) -> dict[str, str]:
    """Return the headers of the options and of the file. Messages never contain a value."""
    lines = [*(texts or ())]
    if file is not None:
        if file == token_file == "-":
            raise UserError("--header-file and --token-file cannot both be standard input")
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        try:
            lines += [line for line in content.decode().splitlines() if line.strip()]
        except UnicodeDecodeError:
            raise UserError("--header-file must be text: one header per line") from None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not name or not colon:
            raise UserError("--header needs NAME:VALUE, such as 'X-Api-Key: abc'")
        if name.lower() in map(str.lower, headers):
            raise UserError(f"--header has the name {name} twice: give it once")
        headers[name] = value
    return headers


def merge_headers(stored: Mapping[str, None], given: Mapping[str, str]) -> dict[str, str | None]:
    """Return all headers. None keeps the stored value, and an empty value removes the header."""
    names = {name.lower() for name in given}
    kept = {name: None for name in stored if name.lower() not in names}
    return kept | {name: value for name, value in given.items() if value}

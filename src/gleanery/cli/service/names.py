"""Names that operators give to organizations and tokens."""

from __future__ import annotations

import unicodedata

from gleanery.errors import SettingsError

_MAX_LENGTH = 200
_UNPRINTABLE = "Cc"  # the category of control characters


def check_name(option: str, name: str, max_length: int = _MAX_LENGTH) -> None:
    """Raise SettingsError unless the name can be stored and shown in one line."""
    is_printable = not any(unicodedata.category(letter) == _UNPRINTABLE for letter in name)
    if not name or name != name.strip() or len(name) > max_length or not is_printable:
        raise SettingsError(
            f"{option} must be a name of 1 to {max_length} characters, without control "
            "characters, and without spaces at its start or end"
        )

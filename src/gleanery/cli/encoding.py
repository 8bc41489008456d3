"""Text of arguments, variables and output: UTF-8 in every locale."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence

from gleanery.errors import SettingsError


def use_utf8() -> None:
    """Start the command again in UTF-8 mode, if the locale has another encoding.

    Python decodes arguments and variables before the first line of a program, so only a new start
    changes how. It keeps the process id.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def escape_unprintable_output() -> None:
    """Let characters that the terminal cannot show appear as escape sequences."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def check_input(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise SettingsError if an argument or a variable of a setting is not UTF-8."""
    for number, argument in enumerate(arguments, 1):
        _check(f"Argument {number}", argument)
    for name, value in environment.items():
        if name.startswith("GLEANERY_"):
            _check(name, value)


def _check(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python has decoded invalid bytes to surrogates
        raise SettingsError(f"{name} is not valid UTF-8: write it in a UTF-8 terminal") from None

"""Encoding of arguments, variables and output: UTF-8 in every locale."""

from __future__ import annotations

import io
import os
import sys


def use_utf8() -> None:
    """Start the command again in UTF-8 mode, if the locale has another encoding.

    Python decodes arguments and variables before the first line of a program, so only a new start
    changes how. It keeps the process id. Worker processes inherit the variable.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        program = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, program, os.environ | {"PYTHONUTF8": "1"})  # noqa: S606


def escape_unprintable_output() -> None:
    """Let characters that the terminal cannot show appear as escape sequences."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

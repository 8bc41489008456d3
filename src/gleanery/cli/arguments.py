"""Checks of all arguments and variables before a command reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gleanery.errors import SettingsError


def check_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise SettingsError if an argument is empty, or an argument or variable is not UTF-8.

    What follows ``--`` belongs to the program that ``gleanery sessions lease`` runs.
    """
    if list(arguments[:2]) == ["sessions", "lease"] and "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    for number, argument in enumerate(arguments, 1):
        _check_utf8(f"Argument {number}", argument)
    for name, value in environment.items():
        if name.startswith("GLEANERY_"):
            _check_utf8(name, value)
    _reject_empty(arguments)


def _check_utf8(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python has decoded invalid bytes to surrogates
        raise SettingsError(f"{name} is not valid UTF-8: write it in a UTF-8 terminal") from None


def _reject_empty(arguments: Sequence[str]) -> None:
    """Raise SettingsError for ``--data ""``: it is often a variable of a script that is not set.

    As a path it would be the current folder.
    """
    for before, argument in pairwise(["", *arguments]):
        is_option = before.startswith("--") and "=" not in before
        if not argument:
            name = before if is_option else "An argument"
            raise SettingsError(f"{name} is empty: give it a value")
        if argument.startswith("--") and argument.endswith("=") and argument.count("=") == 1:
            raise SettingsError(f"{argument[:-1]} is empty: give it a value")

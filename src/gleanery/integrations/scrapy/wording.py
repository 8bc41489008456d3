"""Parts of messages about a number of items."""

from __future__ import annotations


def items(number: int, adjective: str = "") -> str:
    """Return the number with its noun, such as "1 invalid item" or "2 invalid items"."""
    noun = f"{adjective} item" if adjective else "item"
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def items_are(number: int, adjective: str = "") -> str:
    """Return the beginning of a sentence, such as "1 invalid item is"."""
    return f"{items(number, adjective)} {'is' if number == 1 else 'are'}"


def they_are(number: int) -> str:
    """Return the beginning of a second sentence about these items."""
    return "It is" if number == 1 else "They are"

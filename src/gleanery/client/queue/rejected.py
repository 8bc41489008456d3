"""Items that the service rejects because they are invalid: which they are, and where they stay."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gleanery.client import Client, PushReport


class Pushed(NamedTuple):
    """Result of a push."""

    report: PushReport
    rejected: list[bytes]
    """Every line that is not stored because it is invalid, in their order."""


def push_lines(client: Client, group: str, lines: Sequence[bytes]) -> Pushed:
    """Store lines, and find out which the service rejects.

    A response explains only the first 100 errors. The other lines are sent again, until all
    rejected ones are known. What is stored already does not change.
    """
    first = report = client.push(group, lines, on_error="skip")
    rejected: set[int] = set()
    sent: Sequence[int] = range(len(lines))  # positions of the lines of the last request
    while report.skipped:
        known = {sent[error.index] for error in report.errors}
        if not known or report.skipped == len(sent):
            known = set(sent)
        rejected |= known
        if len(known) >= report.skipped:
            break
        sent = [position for position in sent if position not in known]
        report = client.push(group, [lines[position] for position in sent], on_error="skip")
    return Pushed(first, [lines[position] for position in sorted(rejected)])


class RejectedItems:
    """File with the rejected items of one run. The first one creates it."""

    def __init__(self, folder: Path, group: str, job: str) -> None:
        self._group = group
        self.path = folder / f"{plain_name(group)}-{plain_name(job)}-{time.time_ns()}.jsonl"

    def add(self, lines: Sequence[bytes]) -> None:
        """Append lines. Raise OSError if that fails."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "wb") as file:
            file.writelines(line + b"\n" for line in lines)

    def advice(self, number: int) -> str:
        """Return sentences that say where these items are, and how to store them later."""
        command = shlex.join(["gleanery", "push", self._group, str(self.path)])
        condition = (
            "When it is valid, store it" if number == 1 else "When they are valid, store them"
        )
        return f"{they_are(number)} in {self.path}. {condition} with: {command}"


def plain_name(name: str) -> str:
    """Return a name for a part of a file name."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]


# --- parts of messages about a number of items --------------------------------------------------


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

"""Pushes of outputs: with the keys that the group needs, and with all rejected lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gleanery.client import Client, PushReport
from gleanery.integrations.scrapy.keys import uses_group_key, without_key
from gleanery.integrations.scrapy.settings import GleanerySettings


class Pushed(NamedTuple):
    """Result of a push."""

    report: PushReport
    rejected: list[bytes]
    """Every line that is not stored because it is invalid, in their order."""


class OutputPusher:
    """Stores outputs in the group of the settings."""

    def __init__(self, settings: GleanerySettings) -> None:
        self._settings = settings
        self._uses_group_key: bool | None = None  # unknown until the service has said it

    def push(self, client: Client, lines: Sequence[bytes]) -> Pushed:
        """Store lines. Raise KeyConflict if their keys would be other ones than the group has."""
        if self._uses_group_key is None:
            self._uses_group_key = uses_group_key(client, self._settings)
        if self._uses_group_key and len(self._settings.key_fields) == 1:
            lines = [without_key(line) for line in lines]
        return _push_lines(client, self._settings.require_group(), lines)


def _push_lines(client: Client, group: str, lines: Sequence[bytes]) -> Pushed:
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

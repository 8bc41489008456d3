"""The file that keeps items which are not stored, because they are invalid."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from gleanery.integrations.scrapy.wording import they_are


class RejectedItems:
    """File with the rejected items of one crawl. The first one creates it."""

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

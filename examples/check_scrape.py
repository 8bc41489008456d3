"""Check the newest run of a job: exit with 1 if it is missing, too small, or lost a field.

A scraper can end without an error although the site has blocked it or has changed its pages. Run
this after it, with the time at which it started:
``python check_scrape.py GROUP JOB --since 2026-11-17T04:00:00Z --outputs 290``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime

from gleanery import Client
from gleanery.client.models import Fields


def problems(fields: Fields, outputs: int, since: datetime) -> Iterator[str]:
    """Describe what is wrong with the newest run."""
    newest = max(fields.runs, key=lambda run: run.last_date, default=None)
    if newest is None or newest.last_date < since:
        yield f"The job has stored nothing since {since.isoformat()}"
    elif newest.outputs < outputs:
        yield f"The newest run has {newest.outputs} outputs; at least {outputs} are expected"
    for drift in fields.drift:
        if drift.now < drift.before:
            yield f"{drift.path} is filled in {drift.now:.0%}; {drift.before:.0%} is usual"


def time(text: str) -> datetime:
    """Parse a time. Without an offset it is local time."""
    return datetime.fromisoformat(text).astimezone()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("group")
    parser.add_argument("job")
    parser.add_argument("--outputs", type=int, default=1, help="fewest outputs; default: 1")
    parser.add_argument("--since", type=time, required=True, help="start of the scraper")
    arguments = parser.parse_args()
    with Client() as client:
        fields = client.fields(arguments.group, arguments.job)
    found = list(problems(fields, arguments.outputs, arguments.since))
    if found:
        sys.exit("\n".join(f"{arguments.group}, job {arguments.job}: {text}" for text in found))
    print(f"{arguments.group}, job {arguments.job}: no problem")


if __name__ == "__main__":
    main()

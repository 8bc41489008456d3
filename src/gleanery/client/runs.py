"""Runs: that of a push or a process, errors about an ended one, the message of a failed one."""

from __future__ import annotations

import os
from enum import Enum
from typing import NamedTuple

from gleanery.client.errors import ApiError

# ``gleanery run exec`` gives a run to a program in these variables.
RUN_VARIABLE = "GLEANERY_RUN_ID"
GROUP_VARIABLE = "GLEANERY_GROUP"
JOB_VARIABLE = "GLEANERY_JOB"

AFTER_ENDED_RUN = "The run of gleanery run exec ended before this one"
"""Message of a run that has only a part of what its program sends."""
MAX_MESSAGE = 2000
"""Characters of a message that the service accepts."""
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


class DefaultRun(Enum):
    """Type of ``run_id`` that is left out. None is a choice: it means no run."""

    OF_PROCESS = "the run of gleanery run exec, if it fits"


class PushRun(NamedTuple):
    """Run into which a push stores its items."""

    run_id: str | None
    """None for the implicit runs."""
    job: str | None = None
    """Job of the run, if the items may be of other jobs. Those do not belong to the run."""
    is_default: bool = False
    """True if the caller did not choose the run. Items are stored without it if it has ended."""


def choose_run(run_id: str | DefaultRun | None, group: str, job: str | None) -> PushRun:
    """Return the run of a push. Without a choice, it is that of this process."""
    if not isinstance(run_id, DefaultRun):
        return PushRun(run_id)
    job_of_run = os.environ.get(JOB_VARIABLE) or None if job is None else None
    return PushRun(run_of_environment(group, job), job_of_run, is_default=True)


def run_of_environment(group: str, job: str | None) -> str | None:
    """Return the run in which ``gleanery run exec`` has started this process, if it fits."""
    given = {GROUP_VARIABLE: group} if job is None else {GROUP_VARIABLE: group, JOB_VARIABLE: job}
    if any((os.environ.get(name) or value) != value for name, value in given.items()):
        return None
    return os.environ.get(RUN_VARIABLE) or None


def concerns_run(error: Exception | None) -> bool:
    """Return True if a push failed because its run has ended, or was deleted with its group."""
    return describe_problem(error) is not None


def describe_problem(error: Exception | None) -> str | None:
    """Return what is wrong with the run of a push; None if something else is."""
    details = error.detail if isinstance(error, ApiError) else ()
    return next((detail.msg for detail in details if detail.loc == ("query", "run_id")), None)


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an error, as the message of a run."""
    try:
        text = str(error)
    except Exception:  # an exception of a scraper can have a faulty __str__
        text = ""
    name = type(error).__name__
    return shorten_message(f"{name}: {text}" if text else name)


def describe_skipped(count: int) -> str:
    """Return the message of a run that is partial because items are not valid."""
    return f"Invalid items were left out: {count:,}"


def shorten_message(text: str) -> str:
    """Return a text that the service accepts: it is valid Unicode, has no NUL and is not long."""
    valid = text.encode("utf-8", "replace").decode().replace("\0", "?")
    if len(valid) <= MAX_MESSAGE:
        return valid
    return valid[: MAX_MESSAGE - 1] + _ELLIPSIS


def warn(message: str) -> None:
    """Log a warning."""
    import logging  # takes 10 ms

    logging.getLogger("gleanery.client").warning("%s", message)

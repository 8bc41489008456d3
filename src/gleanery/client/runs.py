"""Runs: that of this process, errors about an ended one, and the message of a failed one."""

from __future__ import annotations

import os

from gleanery.client.errors import ApiError

# ``gleanery run exec`` gives a run to a program in these variables.
RUN_VARIABLE = "GLEANERY_RUN_ID"
GROUP_VARIABLE = "GLEANERY_GROUP"
JOB_VARIABLE = "GLEANERY_JOB"

MAX_MESSAGE = 2000
"""Characters of a message that the service accepts."""
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def run_of_environment(group: str, job: str | None) -> str | None:
    """Return the run in which ``gleanery run exec`` has started this process, if it fits."""
    given = {GROUP_VARIABLE: group} if job is None else {GROUP_VARIABLE: group, JOB_VARIABLE: job}
    if any(os.environ.get(name, value) != value for name, value in given.items()):
        return None
    return os.environ.get(RUN_VARIABLE) or None


def concerns_run(error: Exception | None) -> bool:
    """Return True if a push failed because its run has ended, or was deleted with its group."""
    return isinstance(error, ApiError) and any(
        detail.loc == ("query", "run_id") for detail in error.detail
    )


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an error, as the message of a run."""
    try:
        text = str(error)
    except Exception:  # an exception of a scraper can have a faulty __str__
        text = ""
    name = type(error).__name__
    return shorten_message(f"{name}: {text}" if text else name)


def shorten_message(text: str) -> str:
    """Return a text that the service accepts: it is valid Unicode, has no NUL and is not long."""
    valid = text.encode("utf-8", "replace").decode().replace("\0", "?")
    if len(valid) <= MAX_MESSAGE:
        return valid
    return valid[: MAX_MESSAGE - 1] + _ELLIPSIS

"""What all commands on data share: their declaration, their failures and their output.

A command is declared with examples for its help. A failure is one sentence that says what to do,
and an exit status. Output is a table for people, or JSON for scripts.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Annotated, Any

import click

from gleanery.cli.commands import INTERRUPTED
from gleanery.cli.declaration import CommandGroup, Option
from gleanery.cli.terminal import print_table, printable
from gleanery.client.errors import (
    ApiError,
    ClientError,
    ConnectionFailed,
    ErrorDetail,
    Forbidden,
    Invalid,
    InvalidResponse,
    InvalidState,
    NotConfigured,
    NotFound,
    ServerError,
    TimedOut,
    Unauthorized,
)
from gleanery.common.errors import SettingsError

FAILURE = 1
USER_ERROR = 2
_USER_ERRORS = (
    SettingsError,
    NotConfigured,
    Unauthorized,
    Forbidden,
    NotFound,
    Invalid,
    InvalidState,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_ADVICE: tuple[tuple[type[ClientError], str], ...] = (
    (ConnectionFailed, "Is the service running there?"),
    (TimedOut, "Is the service running there?"),
    (InvalidResponse, "Check the address of the service."),
    (Unauthorized, "Run gleanery login with a valid token, or set GLEANERY_TOKEN."),
)
_OPTIONS = {
    "base_url": "--service",
    "token": "--token-file",
    "format": "--format",
    "overwrite=True": "--overwrite",
}
"""Options of commands for the parameters of the library."""
_OPTION_OF_MEMBER = {
    "output_ids": "--output",
    "findings": "--finding",
    "as_of": "--as-of",
    "at": "--at",
    "labels": "--label",
    "status": "--status",
    "retain_days": "--retain-days",
    "keep_versions": "--keep-versions",
    "keep_days": "--keep-days",
    "run_timeout_minutes": "--run-timeout-minutes",
    "key_fields": "--key-field",
    "schema": "--schema",
    "display_name": "--display-name",
    "missing": "--missing",
    "event": "--event",
    "events": "--event",
    "groups": "--group",
    "description": "--description",
    "headers": "--header",
    "muted_until": "--until",
}
"""Options of commands for members and parameters of a request."""
_NAMED_BY_MESSAGE = {"decision", "webhook_id", "delivery_id", "alert_id", "normal"}
"""Members and parameters whose messages say what they are about."""
_PARAMETER = re.compile(rf"\bgive ({'|'.join(_OPTIONS)})(?!\w)")
_MAX_SHOWN = 60  # characters of a value
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

AsJson = Annotated[bool, Option("--json", help="Print JSON, for scripts.")]
Command = Callable[..., None]


# --- declaration --------------------------------------------------------------------------------


def data_command(
    app: CommandGroup, name: str, *, examples: Sequence[str]
) -> Callable[[Command], Command]:
    """Add a function to the commands of an app.

    Its errors become one sentence and an exit status: 1 for a failure, 2 for an error of the
    user, 130 for Ctrl-C.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**values: Any) -> None:
            try:
                command(**values)
                sys.stdout.flush()  # reports a full disk or a closed pipe here, not at the exit
            except BrokenPipeError:  # the reader, such as head, has enough
                _discard_output()
                raise click.exceptions.Exit(1) from None
            except (ClientError, CommandFailed, SettingsError, OSError) as error:
                failure = to_failure(error)
                _fail(str(failure), failure.status)
            except (KeyboardInterrupt, click.Abort):
                _fail("interrupted", INTERRUPTED)

        app.declare(name, help=_help(command), epilog=epilog(examples))(run)
        return command

    return decorate


def _help(command: Command) -> str:
    """Return the docstring with one line per paragraph: the terminal decides where lines end."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def epilog(examples: Sequence[str]) -> str:
    """Return the end of a help text."""
    return "\n".join(["Examples:", *(f"$ {example}" for example in examples)])


def _fail(message: str, status: int) -> None:
    """Print why the command ends, and end it."""
    with suppress(OSError):  # nobody reads standard error
        click.echo(f"gleanery: {printable(message)}", err=True)
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    raise click.exceptions.Exit(status)


def _discard_output() -> None:
    """Let the output that cannot be written go to the null device.

    Python writes it again at its exit, and would report the error a second time.
    """
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), sys.stdout.fileno())


# --- failures -----------------------------------------------------------------------------------


class CommandFailed(Exception):
    """Failure of a command, with a message for its user."""

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status


class UserError(CommandFailed):
    """Wrong use of a command: other arguments can succeed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USER_ERROR)


def to_failure(error: Exception) -> CommandFailed:
    """Return the message and the exit status of an error."""
    if isinstance(error, CommandFailed):
        return error
    return CommandFailed(
        _message(error), USER_ERROR if isinstance(error, _USER_ERRORS) else FAILURE
    )


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'standard output'}: {error.strerror or error}"
    if isinstance(error, ApiError):
        message = "; ".join(map(_describe, error.detail)).replace("the parameter url", "--url")
    else:
        message = name_options(str(error))
    advice = _advice(error)
    return message if advice is None else join_sentences(message, advice)


def name_options(message: str) -> str:
    """Return a message of the library with options in the place of parameters."""
    return _PARAMETER.sub(lambda found: f"give {_OPTIONS[found[1]]}", message)


def join_sentences(*sentences: str) -> str:
    """Return the sentences as one text. Only the last one may lack its full stop."""
    *others, last = sentences
    ended = [text if text.endswith((".", "?")) else f"{text}." for text in others]
    return " ".join([*ended, last])


def _describe(detail: ErrorDetail) -> str:
    """Return the message, with the name of the parameter or member that the user gave."""
    is_given = detail.loc and detail.loc[0] in ("path", "query", "body")
    if not is_given or not detail.loc[1:]:
        return detail.msg
    place, name, *inner = detail.loc
    if name in _NAMED_BY_MESSAGE:
        return detail.msg
    option = _OPTION_OF_MEMBER.get(name)
    if name == "run_id":
        option = "RUN_ID" if place == "path" else "--run"
    if option is None:
        return f"{'.'.join(detail.loc[1:])}: {detail.msg}"
    if name == "missing" and inner:
        return f"{option}-{inner[0].replace('_', '-')}: {detail.msg}"
    if name == "headers" and inner:
        return f"{option} {inner[0]}: {detail.msg}"
    number = f" (number {int(inner[0]) + 1})" if inner and inner[0].isdecimal() else ""
    return f"{option}{number}: {detail.msg}"


def _advice(error: Exception) -> str | None:
    if isinstance(error, ServerError) and error.request_id is not None:
        return f"The log of the service has more under the request id {error.request_id}."
    if isinstance(error, NotFound) and is_about_group(error):
        return "The command gleanery groups lists them."
    if isinstance(error, NotFound) and _is_about(error, "webhook_id"):
        return "The command gleanery webhooks list lists them."
    if isinstance(error, NotFound) and _is_about(error, "delivery_id"):
        return "The command gleanery webhooks deliveries lists them."
    if isinstance(error, NotFound) and _is_about(error, "alert_id"):
        return "The command gleanery alerts list lists them."
    if isinstance(error, NotFound) and _is_about_route(error):
        return "Check the address of the service."
    return next((text for kind, text in _ADVICE if isinstance(error, kind)), None)


def _is_about_route(error: NotFound) -> bool:
    """Return True if the service does not know the path: its address has another prefix."""
    return all(detail.loc == ("path",) for detail in error.detail) and error.is_explained


def is_about_group(error: NotFound) -> bool:
    """Return True if the group of the request does not exist."""
    return _is_about(error, "group_id")


def is_about_job(error: NotFound) -> bool:
    """Return True if the group does not have the job of the request."""
    return _is_about(error, "job_id")


def _is_about(error: NotFound, parameter: str) -> bool:
    places = ("path", parameter), ("query", parameter)
    return any(detail.loc in places for detail in error.detail)


@contextmanager
def uncertain(advice: str) -> Iterator[None]:
    """Add advice to an error after which the service may have executed the request."""
    try:
        yield
    except ClientError as error:
        if _is_rejection(error):
            raise
        failure = to_failure(error)
        raise CommandFailed(join_sentences(str(failure), advice), failure.status) from None


def _is_rejection(error: ClientError) -> bool:
    """Return True if the service has surely not executed the request."""
    if isinstance(error, ConnectionFailed | TimedOut):
        return not error.was_connected
    return isinstance(error, ApiError) and error.status < 500


# --- output -------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """Print one JSON document. Dates, Structs and dataclasses are allowed in it."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_json_array(items: Iterable[bytes]) -> None:
    """Print JSON documents as one array, each in a line."""
    separator = "[\n"
    for item in items:
        sys.stdout.write(separator + item.decode())
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def shorten(value: Any) -> str:
    """Return a value as JSON text, and of a long one only the start."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + _ELLIPSIS


def show_date(date: datetime | None) -> str:
    """Return a date for people, in UTC."""
    return "" if date is None else date.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def is_narrow(width: int) -> bool:
    """Return True if a table of this width is not readable. A pipe takes lines of any length."""
    return sys.stdout.isatty() and shutil.get_terminal_size().columns < width


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    empty: str,
    unbroken: Sequence[str] = (),
) -> None:
    """Print a table, or a sentence on standard error if it has no row.

    A narrow terminal breaks the lines of columns, except those that are unbroken.
    """
    found = [*rows]
    if found:
        print_table(columns, found, unbroken)
    else:
        click.echo(empty, err=True)


def print_blocks(blocks: Iterable[Sequence[str]], empty: str) -> None:
    """Print some lines for each block, for a narrow terminal. Print them as soon as they come."""
    is_empty = True
    for lines in blocks:
        is_empty = False
        for line in lines:
            click.echo(printable(line))
    if is_empty:
        click.echo(empty, err=True)


def print_members(members: Mapping[str, str | None]) -> None:
    """Print a line for each member that has a value."""
    for name, value in members.items():
        if value:
            click.echo(printable(f"{name}: {value}"))

"""The connection of commands to a service: ``gleanery login`` and ``logout``, and the client.

A command takes the address and the token from its options, from variables or from the login.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from gleanery.cli.data.command import UserError, data_command, is_about_group, is_about_job
from gleanery.cli.data.progress import Progress
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.cli.terminal import printable
from gleanery.client.configuration import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    Credentials,
    is_loopback,
    normalize,
    read_credentials,
    remove_credentials,
    resolve,
    write_credentials,
)
from gleanery.client.errors import ClientError, NotFound
from gleanery.client.requests import View
from gleanery.common import suggestions

if TYPE_CHECKING:
    from gleanery.client import Client


app = CommandGroup()

SHORT_WORK_RETRIES = 2
"""A person waits about a second for the error of a service that does not run."""
LONG_WORK_RETRIES = 8
"""Long work survives half a minute without the service, such as its restart."""
_MAX_TOKEN_BYTES = 4096
GroupName = Annotated[
    str, Argument(metavar="GROUP", help="Name of a group; gleanery groups lists them.")
]
ViewName = Annotated[
    View,
    Option(
        "--view", help="full: outputs as they are. approved: each in its last approved version."
    ),
]
Url = Annotated[
    str | None,
    Option(
        "--service",
        metavar="URL",
        envvar=URL_VARIABLE,
        help="Address of the service. Default: that of gleanery login.",
    ),
]
TokenFile = Annotated[
    str | None,
    Option(
        "--token-file",
        metavar="FILE",
        help=f"File with the token; - is standard input. Default: {TOKEN_VARIABLE}, or the token "
        "of gleanery login.",
    ),
]
_DEFAULT_URL = "http://127.0.0.1:8000"


@contextmanager
def open_client(
    url: str | None,
    token_file: str | None,
    progress: Progress | None = None,
    *,
    is_long: bool = False,
    retries: int | None = None,
) -> Iterator[Client]:
    """Open a client with the options of a command. Retries are shown in the progress.

    Long work has a progress or is named so. It survives a longer absence of the service, unless
    the number of retries is given.
    """
    from gleanery.client import Client

    token = None if token_file is None else read_token(token_file)
    if retries is None:
        is_long = is_long or progress is not None
        retries = LONG_WORK_RETRIES if is_long else SHORT_WORK_RETRIES
    echo = partial(click.echo, err=True)
    shown = _shown_log(echo, echo) if progress is None else _shown_log(progress.note, progress.warn)
    with Client(url, token, max_retries=retries) as client, shown:
        _warn_of_plain_http(client.base_url)
        yield client


def _warn_of_plain_http(url: str) -> None:
    """Warn if others can read the token, unless the user has allowed it at the login."""
    if not url.startswith("http:") or is_loopback(url):
        return
    login = read_credentials()
    if login is None or login.url != url:
        click.echo(
            "gleanery: warning: the token crosses the network unencrypted: use https://", err=True
        )


@contextmanager
def known_group(client: Client, group: str) -> Iterator[None]:
    """Name the most similar group if the group does not exist."""
    try:
        yield
    except NotFound as error:
        if not is_about_group(error):
            raise
        raise UserError(f"There is no such group{_hint(client, group)}") from None


def _hint(client: Client, group: str) -> str:
    """Return the most similar group, if the token may list the groups."""
    try:
        names = [known.group_id for known in client.groups(page_size=1000, limit=1000)]
    except ClientError:
        names = []
    return _advise(group, names, "gleanery groups")


def _advise(name: str, known: list[str], command: str) -> str:
    similar = suggestions.closest(name, known)
    if similar is not None:
        return f"; did you mean {similar}? The command {command} lists them."
    return f": the command {command} lists them"


@contextmanager
def known_job(client: Client, group: str, job: str | None) -> Iterator[None]:
    """Name the most similar job if the group does not have the job."""
    try:
        yield
    except NotFound as error:
        if job is None or not is_about_job(error):
            raise
        try:
            names = [known.job_id for known in client.group(group).jobs]
        except ClientError:  # the token may not read the group
            names = []
        command = shlex.join(["gleanery", "groups", group])
        raise UserError(f"The group has no such job{_advise(job, names, command)}") from None


@contextmanager
def _shown_log(note: Callable[[str], None], warn: Callable[[str], None]) -> Iterator[None]:
    """Show the retries and the warnings that the client logs."""
    log = logging.getLogger("gleanery.client")
    handler, level = _NoteHandler(note, warn), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _NoteHandler(logging.Handler):
    """Shows log records."""

    def __init__(self, note: Callable[[str], None], warn: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        show = self._warn if record.levelno >= logging.WARNING else self._note
        show(printable(record.getMessage()))


def read_token(source: str) -> str:
    """Read a token from a file, or from standard input for ``-``."""
    try:
        if source == "-":
            content = sys.stdin.buffer.read(_MAX_TOKEN_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                content = file.read(_MAX_TOKEN_BYTES + 1)
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or len(content) > _MAX_TOKEN_BYTES or len(token.split()) != 1:
        place = "Standard input" if source == "-" else source
        raise UserError(f"{place} must contain one token, and nothing else: see --token-file")
    return token


@data_command(
    app,
    "login",
    examples=(
        "gleanery login",
        "gleanery login https://gleanery.example",
        "gleanery login https://gleanery.example --token-file token.txt",
        "pass show gleanery | gleanery login https://gleanery.example",
    ),
)
def login(
    url: Annotated[
        str | None,
        Argument(metavar="[URL]", help=f"Address of the service, such as {_DEFAULT_URL}."),
    ] = None,
    token_file: Annotated[
        str | None,
        Option("--token-file", metavar="FILE", help="File with the token; - is standard input."),
    ] = None,
    allow_http: Annotated[
        bool,
        Option(
            "--allow-http",
            help="Allow http:// to another machine, although the network can read the token.",
        ),
    ] = False,
) -> None:
    """Store the address of a service and a token for the other commands.

    The command asks for what is missing, and checks the token with the service. A token is never
    an argument, because other users of the machine could read it.
    """
    address = normalize(url or _ask_url())
    if address.startswith("http:") and not is_loopback(address) and not allow_http:
        raise UserError(
            "The token would cross the network unencrypted: use https://, or give --allow-http"
        )
    credentials = resolve(address, _choose_token(token_file))
    _check_token(credentials)
    file = write_credentials(credentials)
    click.echo(f"Logged in to {address}. The token is stored in {file}.")
    _warn_of_variables(address)
    click.echo("Next, list your groups: gleanery groups")


def _ask_url() -> str:
    default = os.environ.get(URL_VARIABLE) or _DEFAULT_URL
    if not sys.stdin.isatty():
        return default
    return str(click.prompt("Address of the service", default=default, err=True))


def _choose_token(token_file: str | None) -> str:
    if token_file is not None:
        return read_token(token_file)
    if not sys.stdin.isatty():
        return read_token("-")
    return str(click.prompt("Token (it is not shown)", hide_input=True, err=True))


def _check_token(credentials: Credentials) -> None:
    """Raise an error if the service does not know the token."""
    from gleanery.client import Client

    with Client(credentials.url, credentials.token, max_retries=1) as client:
        client.check()


def _warn_of_variables(address: str) -> None:
    """Name the variables that the other commands prefer to this login."""
    names = [TOKEN_VARIABLE] if TOKEN_VARIABLE in os.environ else []
    url = os.environ.get(URL_VARIABLE)
    if url is not None and normalize(url) != address:
        names.append(URL_VARIABLE)
    for name in names:
        click.echo(f"The variable {name} overrides this login: unset it to use the login", err=True)


@data_command(app, "logout", examples=("gleanery logout",))
def logout() -> None:
    """Remove the address and the token that gleanery login has stored.

    The token itself stays valid: gleanery token revoke revokes it.
    """
    file = remove_credentials()
    click.echo("You are not logged in." if file is None else f"Removed {file}.")

"""``gleanery login`` and ``gleanery logout``."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import read_token
from gleanery.cli.data.failures import UserError
from gleanery.client.configuration import (
    TOKEN_VARIABLE,
    URL_VARIABLE,
    Credentials,
    is_loopback,
    normalize,
    remove_credentials,
    resolve,
    write_credentials,
)

app = typer.Typer()

_DEFAULT_URL = "http://127.0.0.1:8000"


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
        typer.Argument(metavar="[URL]", help=f"Address of the service, such as {_DEFAULT_URL}."),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="File with the token; - is a pipe."),
    ] = None,
    allow_http: Annotated[
        bool,
        typer.Option(
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
    credentials = resolve(address, _token(token_file))
    _check(credentials)
    file = write_credentials(credentials)
    typer.echo(f"Logged in to {address}. The token is stored in {file}.")
    _warn_of_variables(address)
    typer.echo("Next, list your groups: gleanery groups")


def _ask_url() -> str:
    default = os.environ.get(URL_VARIABLE) or _DEFAULT_URL
    if not sys.stdin.isatty():
        return default
    return str(typer.prompt("Address of the service", default=default, err=True))


def _token(token_file: str | None) -> str:
    if token_file is not None:
        return read_token(token_file)
    if not sys.stdin.isatty():
        return read_token("-")
    return str(typer.prompt("Token (it is not shown)", hide_input=True, err=True))


def _check(credentials: Credentials) -> None:
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
        typer.echo(f"The variable {name} overrides this login: unset it to use the login", err=True)


@data_command(app, "logout", examples=("gleanery logout",))
def logout() -> None:
    """Remove the address and the token that gleanery login has stored.

    The token itself stays valid: gleanery token revoke revokes it.
    """
    file = remove_credentials()
    typer.echo("There is no login." if file is None else f"Removed {file}.")

"""``gleanery open``."""

from __future__ import annotations

import os
import sys
from urllib.parse import quote

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client

app = typer.Typer()


@data_command(app, "open", examples=("gleanery open shop-prices",))
def open_group(group: GroupName, url: Url = None, token_file: TokenFile = None) -> None:
    """Open the page of a group in the console, in a browser.

    The page shows the jobs and outputs of the group, and their reviews. The command prints its
    address, and only prints it on a machine without a browser.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        client.group(group)
        address = f"{client.base_url}/console#/groups/{quote(group, safe='')}"
    typer.echo(address)
    if _has_browser():
        import webbrowser

        webbrowser.open(address)


def _has_browser() -> bool:
    """Return False where only a browser for text can start, in the terminal of the command."""
    variables = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, variables))

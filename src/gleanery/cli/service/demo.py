"""``gleanery demo``."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from gleanery.admin import demo
from gleanery.cli.service.options import option, settings_options
from gleanery.cli.terminal import progress_bars
from gleanery.server.start import bound, prepare, serve_on
from gleanery.settings import Settings

app = typer.Typer()

_FREE_PORT = 'use a free port: gleanery demo --port 0, or make demo ARGS="--port 0"'


@app.command("demo")
@settings_options("port")
def demo_command(
    settings: Settings,
    data: Annotated[
        Path | None, option("data", "Folder for the sample; without it the sample is not kept.")
    ] = None,
) -> None:
    """Run the service with a sample organization, and print a token and commands to try."""
    with ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(TemporaryDirectory(prefix="gleanery-demo-")))
        _run(Settings(data=data, port=settings.port, log_level="warning").check())


def _run(settings: Settings) -> None:
    listener, settings = bound(settings, _FREE_PORT)
    is_new = not settings.sqlite_file.exists()
    asyncio.run(prepare(settings))
    with progress_bars() as progress:
        login = asyncio.run(demo.create_login(settings, is_new, progress))
    typer.echo(demo.introduction(settings.address, login, _program()))
    serve_on(listener, settings)


def _program() -> str:
    """Return this program as a shell finds it, which may not have it on its path."""
    if shutil.which("gleanery") is not None:
        return "gleanery"
    own = Path(sys.argv[0])
    if own.stem == "gleanery":
        return shlex.quote(str(own.absolute()))
    return f"{shlex.quote(sys.executable)} -m gleanery"

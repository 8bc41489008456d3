"""``gleanery demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gleanery.admin import demo
from gleanery.cli.options import DEFAULT, Port, option

app = typer.Typer()


@app.command("demo")
def demo_command(
    data: Annotated[
        Path | None, option("data", "Keep the sample here; without it nothing is kept.")
    ] = None,
    port: Port = DEFAULT.port,
) -> None:
    """Run the service over a generated sample organization and print lines to try."""
    demo.run(data, port)

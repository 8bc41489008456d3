"""Runs the commands of the second tutorial over both days of the shop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.shop import running_shop
from tests.project.test_examples import ROOT, folder, run
from tests.support.examples import Example, examples, is_shown
from tests.support.process import environment
from tests.support.service import Service

__all__ = ["folder"]

pytestmark = [
    pytest.mark.extended,  # make examples runs it
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True, scope="session"),
]

# The test starts the shop itself, and opens no browser.
_NOT_RUN = re.compile(r"(CLONE=|cd |\. venv|pip |python \$CLONE/examples/shop.py|gleanery open)")


def test_the_second_day_updates_what_has_changed(service: Service, folder: Path) -> None:
    token = service.token()
    variables = {
        "PATH": f"{folder / 'bin'}:{environment()['PATH']}",
        "CLONE": str(ROOT),
        "TOKEN": token,
        "DLT_DATA_DIR": str(folder),
        "RUNTIME__DLTHUB_TELEMETRY": "false",
    }
    with running_shop() as shop:
        text = (ROOT / "docs/tutorial-shop.md").read_text()
        text = text.replace("http://127.0.0.1:8000", service.url)
        text = text.replace("http://127.0.0.1:8080", shop.url)
        [script] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
        (folder / "load_shop.py").write_text(script)
        first, second = text.split("examples/shop.py --day 2")
        check(first, folder, variables)
        downloads = shop.counts["pdf"]
        shop.day = 2
        exported = {"GLEANERY_URL": service.url, "GLEANERY_TOKEN": token}
        variables |= exported | {"SOURCES__GLEANERY__TOKEN": token}
        check("```console" + second, folder, variables)
        assert (downloads, shop.counts["pdf"]) == (300, 300)


def check(text: str, folder: Path, variables: dict[str, str]) -> None:
    """Runs the commands, and compares their output with the page."""
    chosen: list[Example] = [one for one in examples(text) if not _NOT_RUN.match(one.command)]
    assert len(chosen) > 4
    outputs = run([example.command for example in chosen], folder, **variables)
    for example, printed in zip(chosen, outputs, strict=True):
        assert not example.output or is_shown(printed, example.output), (example, printed)

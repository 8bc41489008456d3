"""Runs of the example scrapers on two days of the test shop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from examples import shop
from gleanery import Client
from tests.support.process import environment
from tests.support.service import Service

_EXAMPLES = Path(shop.__file__).parent
_TIMEOUT_SECONDS = 900  # a browser on a busy machine takes long


def run_example(
    name: str, site: shop.Shop, service: Service, token: str, folder: Path, **variables: str
) -> str:
    """Runs an example scraper, and returns what it prints."""
    done = subprocess.run(
        [sys.executable, str(_EXAMPLES / name), site.url],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        env=environment(GLEANERY_URL=service.url, GLEANERY_TOKEN=token, **variables),
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.splitlines()[-1]


def expected_data(site: shop.Shop) -> list[dict[str, Any]]:
    """Data of all outputs on this day, without the ids of the files."""
    return [
        {**product._asdict(), "url": f"{site.url}/products/{number}"}
        for number in range(1, shop.PRODUCTS + 1)
        for product in [shop.product(number, site.day)]
    ]


def check_outputs(client: Client, group: str, site: shop.Shop) -> None:
    """Compares the outputs of a group, and their files, with the shop."""
    outputs = sorted(client.outputs(group, job_id="shop"), key=lambda one: str(one.data["sku"]))
    sheets = [output.data.pop("data_sheet") for output in outputs]
    assert [output.data for output in outputs] == expected_data(site)
    assert [[file.id for file in output.files] for output in outputs] == [[one] for one in sheets]
    assert {output.files[0].file_type for output in outputs} == {"application/pdf"}
    assert len(set(sheets)) == shop.PRODUCTS


def check_two_days(name: str, group: str, service: Service, folder: Path, **variables: str) -> None:
    """Scrapes the shop on both days: 12 outputs change, and no file is downloaded again."""
    token = service.token()
    with shop.running_shop() as site, Client(service.url, token) as client:
        first = run_example(name, site, service, token, folder, **variables)
        assert first == "300 created, 0 updated, 0 unchanged"
        check_outputs(client, group, site)
        site.day = 2
        second = run_example(name, site, service, token, folder, **variables)
        assert second == "0 created, 12 updated, 288 unchanged"
        check_outputs(client, group, site)
        assert site.counts["pdf"] == shop.PRODUCTS
        assert site.counts["welcome"] == 1, "the second day uses the login of the first"
        assert client.group(group).outputs == shop.PRODUCTS
        runs = [*client.runs(group, job_id="shop")]
        assert [run.status for run in runs] == ["complete", "complete"]
        assert [run.counts.outputs for run in runs] == [shop.PRODUCTS, shop.PRODUCTS]

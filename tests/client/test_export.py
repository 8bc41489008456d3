"""Exports with the client: each output once while others write, and links."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pyarrow.parquet
import pytest

from gleanery import AsyncClient, Client
from gleanery.client import ExportError, ExportReport, NotFound, Unavailable
from gleanery.tables import ExportWriter
from tests.support.service import Client as HttpClient
from tests.support.service import Service


def _output(n: int, **data: Any) -> dict[str, Any]:
    return {
        "job_id": "shop" if n % 2 else "market",
        "source_url": f"https://shop.example/{n}",
        "data": {"n": n, **data},
    }


@pytest.fixture
def stored(client: HttpClient) -> HttpClient:
    client.store("prices", *map(_output, range(20)))
    return client


@pytest.fixture
def exporter(service: Service, stored: HttpClient) -> Iterator[Client]:
    with Client(service.url, stored.token, max_retries=1) as made:
        yield made


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _numbers(path: Path) -> list[int]:
    return sorted(output["data"]["n"] for output in _read(path))


@pytest.mark.thorough
def test_each_output_is_there_once_while_others_write(
    exporter: Client, stored: HttpClient, tmp_path: Path
) -> None:
    path = tmp_path / "prices.jsonl"
    stored.store("prices", *map(_output, range(20, 2500)))

    def write_meanwhile(writer: ExportWriter) -> None:
        if writer.rows == 1000:  # after the first page: outputs that were read, and others
            changed = [_output(n, price=1) for n in range(990, 1010)]
            stored.store("prices", *changed, _output(2500))
            stored.delete(f"/v1/outputs/prices/{last['output_id']}")

    last = stored.items("prices", url="https://shop.example/2499")[0]
    report = exporter.export("prices", path, on_progress=write_meanwhile)
    assert _numbers(path) == [*range(2499), 2500]
    assert (report.rows, report.duplicates) == (2500, 10)
    assert report.bytes == path.stat().st_size

    assert report.cursor is not None
    copy = {output["output_id"]: output for output in _read(path)}
    for change in exporter.changes("prices", cursor=report.cursor).raw():
        found = json.loads(change)
        copy.pop(found["output_id"], None)
        if found["change"] != "delete":
            copy[found["output_id"]] = found["output"]
    now = {output["output_id"]: output for output in stored.items("prices", limit=1000)}
    assert copy == now


def test_filters_and_fields_choose_what_is_written(exporter: Client, tmp_path: Path) -> None:
    path = tmp_path / "prices.jsonl"
    report = exporter.export(
        "prices", path, job_id="shop", created_after=datetime(2020, 1, 1), fields=["data.n"]
    )
    assert report.rows == 10
    assert _read(path)[:2] == [{"data": {"n": 1}}, {"data": {"n": 3}}]
    assert exporter.export("prices", path, approved=True, overwrite=True).rows == 0


def test_the_ending_of_the_name_says_the_format(exporter: Client, tmp_path: Path) -> None:
    exporter.export("prices", tmp_path / "prices.csv", fields=["n"], limit=1)
    assert (tmp_path / "prices.csv").read_text().startswith("data_n")
    exporter.export("prices", tmp_path / "prices.csv", format="jsonl", limit=1, overwrite=True)
    assert len(_read(tmp_path / "prices.csv")) == 1
    with pytest.raises(ExportError, match="format is unknown: give format, or"):
        exporter.export("prices", tmp_path / "prices")
    with pytest.raises(ExportError, match="or give overwrite=True to replace it"):
        exporter.export("prices", tmp_path / "prices.csv")


def test_a_limit_ends_the_export(exporter: Client, tmp_path: Path) -> None:
    path = tmp_path / "prices.jsonl"
    report = exporter.export("prices", path, limit=11)
    assert (report.rows, report.cursor) == (11, None)
    assert exporter.export("prices", path, limit=0, overwrite=True).rows == 0


def test_an_export_that_fails_leaves_nothing(
    service: Service, stored: HttpClient, exporter: Client, tmp_path: Path
) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "HEAD":
            return httpx2.Response(200, headers={"gleanery-cursor": "7"})
        return httpx2.Response(503)

    path = tmp_path / "prices.jsonl"
    path.write_text("older")
    with pytest.raises(ExportError, match="exists"):
        exporter.export("prices", path)
    with pytest.raises(NotFound):
        exporter.export("other", path, overwrite=True)
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http_client:
        broken = Client(service.url, "token", max_retries=0, http_client=http_client)
        with pytest.raises(Unavailable):
            broken.export("prices", path, overwrite=True)
    assert os.listdir(tmp_path) == ["prices.jsonl"]
    assert path.read_text() == "older"


def test_a_link_works_without_a_token(exporter: Client) -> None:
    link = exporter.export_link("prices", job_id="shop", valid_seconds=60)
    lines = httpx2.get(link.url, verify=False).content.splitlines()
    assert len(lines) == 10
    assert link.expires - datetime.now(UTC) < timedelta(seconds=61)
    assert "signature" not in repr(link)
    with pytest.raises(NotFound):
        exporter.export_link("other")


@pytest.mark.thorough
def test_a_link_has_the_format_of_its_request(exporter: Client, tmp_path: Path) -> None:
    path = tmp_path / "prices.parquet"
    link = exporter.export_link("prices", format="parquet", job_id="shop")
    path.write_bytes(httpx2.get(link.url, verify=False, timeout=60).content)
    assert pyarrow.parquet.read_table(path).num_rows == 10


def test_the_asynchronous_client_does_the_same(
    service: Service, stored: HttpClient, tmp_path: Path
) -> None:
    async def export() -> ExportReport:
        async with AsyncClient(service.url, stored.token) as client:
            return await client.export("prices", tmp_path / "prices.jsonl", url="x")

    assert asyncio.run(export()).rows == 0


@pytest.mark.thorough
def test_an_output_that_is_deleted_and_stored_again_is_there_once(
    exporter: Client, stored: HttpClient, tmp_path: Path
) -> None:
    path = tmp_path / "prices.jsonl"
    stored.store("prices", *map(_output, range(20, 2500)))
    found = stored.items("prices", limit=1000)
    chosen = [output for output in found if output["data"]["n"] in (5, 2400)]  # one was read

    def replace(writer: ExportWriter) -> None:
        if writer.rows == 1000:
            for output in chosen:
                stored.delete(f"/v1/outputs/prices/{output['output_id']}")
            stored.store("prices", _output(5), _output(2400), _output(1200, price=1))

    report = exporter.export("prices", path, on_progress=replace)
    numbers = _numbers(path)
    assert len(numbers) == len(set(numbers))
    assert set(numbers) >= {*range(2500)} - {2400}  # this one did not exist all the time
    assert report.cursor is not None
    later = [change.output_id for change in exporter.changes("prices", cursor=report.cursor)]
    assert {output["output_id"] for output in chosen} <= set(later)


# --- the approved view ----------------------------------------------------------------------------


def _review(client: HttpClient, job: str, status: str) -> None:
    """Reviews a job, and waits until no output has the other approval."""
    review = {"job_id": job, "status": status}
    assert client.post("/v1/reviews/prices", json=review).status_code == 200
    other = "false" if status == "approved" else "true"
    while client.items("prices", job_id=job, approved=other, limit=1):
        pass


def test_the_approved_view_is_exported(
    exporter: Client, stored: HttpClient, tmp_path: Path
) -> None:
    _review(stored, "shop", "approved")
    stored.store("prices", *(_output(n, new=True) for n in range(0, 20, 3)))
    path = tmp_path / "prices.jsonl"
    report = exporter.export("prices", path, view="approved")
    assert (report.rows, _numbers(path)) == (10, [*range(1, 20, 2)])
    assert all("new" not in output["data"] for output in _read(path))
    link = exporter.export_link("prices", view="approved")
    assert httpx2.get(link.url, verify=False).content == path.read_bytes()
    exporter.export("prices", path, view="full", overwrite=True)
    assert len(_read(path)) == 20


@pytest.mark.thorough
def test_each_output_of_the_view_is_there_once_while_others_write(
    exporter: Client, stored: HttpClient, tmp_path: Path
) -> None:
    """Some outputs get newer values, approved or not; some leave the view, and some come again."""
    path = tmp_path / "prices.jsonl"
    stored.store("prices", *map(_output, range(20, 2500)))
    for job in ("market", "shop"):
        _review(stored, job, "approved")
    found = stored.items("prices", limit=1000)
    chosen = [output for output in found if output["data"]["n"] in (4, 2401)]  # one was read

    def write_meanwhile(writer: ExportWriter) -> None:
        if writer.rows == 1000:
            stored.store("prices", *(_output(n, new=True) for n in range(0, 2500, 50)))
            for output in chosen:
                stored.delete(f"/v1/outputs/prices/{output['output_id']}")
            stored.store("prices", _output(4), _output(2401), _output(2501))
            _review(stored, "market", "approved")
            stored.store("prices", *(_output(n, newest=True) for n in range(1900, 2100)))

    report = exporter.export("prices", path, view="approved", on_progress=write_meanwhile)
    numbers = _numbers(path)
    assert len(numbers) == len(set(numbers))
    assert {*range(2500)} - {4, 2401} <= set(numbers) <= {*range(2500)}
    assert report.cursor is not None
    copy = {output["output_id"]: output for output in _read(path)}
    cursor, is_complete = report.cursor, False
    while not is_complete:
        query = {"cursor": cursor, "limit": 1000, "view": "approved"}
        page = stored.get("/v1/changes/prices", params=query).json()
        for change in page["changes"]:
            copy.pop(change["output_id"], None)
            if change["change"] != "delete":
                copy[change["output_id"]] = change["output"]
        cursor, is_complete = page["cursor"], page["metadata"]["next_cursor"] is None
    view = stored.items("prices", limit=1000, view="approved")
    assert copy == {output["output_id"]: output for output in view}

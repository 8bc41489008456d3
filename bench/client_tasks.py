"""Programs that read a group of the stand-in, or write to it, each in a process of its own.

The program prints the processor time in seconds and the most memory in MiB. The time leaves out
imports and the first connection: a group of one page is read before.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Literal

from bench import dataset
from bench.stand_in import PAGE_SIZE, group_size

Task = Callable[[str, str, Path], int]
"""Reads a group from a URL, may write to a file, and returns the number of outputs."""


def _iterate_with_apify(url: str, group: str, file: Path) -> int:
    from apify_client import ApifyClient

    items = ApifyClient("token", api_url=url).dataset(group).iterate_items(chunk_size=PAGE_SIZE)
    return sum(1 for _ in items)


def _read_and_discard(url: str, group: str, file: Path) -> int:
    """Read the bytes of the pages with the HTTP library of our client, and nothing else."""
    import httpx2

    count = group_size(group)
    with httpx2.Client(base_url=url, verify=False) as http:
        for cursor in range(0, count, PAGE_SIZE):
            http.get(f"/v1/outputs/{group}?cursor={cursor}&limit={PAGE_SIZE}").raise_for_status()
    return count


def _iterate(url: str, group: str, file: Path) -> int:
    from gleanery import Client

    with Client(url, "token") as client:
        return sum(1 for _ in client.outputs(group))


def _export(
    format_: Literal["jsonl", "csv", "parquet"], data: Literal["columns", "json"] = "columns"
) -> Task:
    def run(url: str, group: str, file: Path) -> int:
        from gleanery import Client

        file.unlink(missing_ok=True)
        with Client(url, "token") as client:
            return client.export(group, file, format=format_, data=data).rows

    return run


def _export_by_command(*options: str) -> Task:
    """Run ``gleanery export`` in this process."""

    def run(url: str, group: str, file: Path) -> int:
        from gleanery.cli import main

        os.environ |= {"GLEANERY_URL": url, "GLEANERY_TOKEN": "token"}
        sys.argv = ["gleanery", "export", group, "-o", str(file), "--quiet", "--json", *options]
        file.unlink(missing_ok=True)
        with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
            main()
        return int(json.loads(printed.getvalue())["outputs"])

    return run


def _push_with_apify(url: str, group: str, file: Path) -> int:
    """Push without compression: our client compresses nothing for its own machine."""
    from apify_client import ApifyClient
    from apify_client.http_compressors import HttpCompressor

    class Uncompressed(HttpCompressor):
        content_encoding = "identity"

        def compress(self, data: bytes) -> bytes:
            return data

    client = ApifyClient("token", api_url=url, compression=Uncompressed())
    count = group_size(group)
    for start in range(0, count, PAGE_SIZE):
        client.dataset(group).push_items(_PUSHED[: count - start])
    return count


def _push(url: str, group: str, file: Path) -> int:
    from gleanery import Client

    count = group_size(group)
    with Client(url, "token") as client:
        starts = range(0, count, PAGE_SIZE)
        return sum(client.push(group, _PUSHED[: count - start]).items for start in starts)


_PUSHED = list(dataset.outputs(PAGE_SIZE))
TASKS: dict[str, Task] = {
    "apify-client": _iterate_with_apify,
    "apify-client, push": _push_with_apify,
    "push": _push,
    "httpx2": _read_and_discard,
    "iteration": _iterate,
    "JSONL": _export("jsonl"),
    "Parquet json": _export("parquet", "json"),
    "Parquet columns": _export("parquet"),
    "CSV": _export("csv"),
}
COMMANDS: dict[str, Task] = {
    "JSONL": _export_by_command("--format", "jsonl"),
    "Parquet json": _export_by_command("--format", "parquet", "--data", "json"),
    "Parquet columns": _export_by_command("--format", "parquet"),
    "CSV": _export_by_command("--format", "csv"),
}


def main(kind: str, task: str, url: str, group: str, file: str) -> None:
    run = COMMANDS[task] if kind == "command" else TASKS[task]
    run(url, str(PAGE_SIZE), Path(f"{file}.first"))
    start = time.process_time()
    count = run(url, group, Path(file))
    seconds = time.process_time() - start
    if count != group_size(group):
        sys.exit(f"{task} has read {count} outputs of {group_size(group)}")
    print(seconds, _most_memory())


def _most_memory() -> float:
    """Return the high-water mark of this program in MiB.

    ``ru_maxrss`` includes the process that started it.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])

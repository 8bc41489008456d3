"""Program that exports generated outputs, and prints the most memory that it used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from gleanery.tables import open_export
from tests.client.exports.outputs import output

_LARGE = 30_000_000


def _wide() -> Iterator[list[bytes]]:
    """5,000 keys, of which each output has ten."""
    for page in range(8):
        first = page * 1000
        yield [
            output(id_, {f"key {(id_ * 10 + at) % 5000}": f"value {id_}" for at in range(10)})
            for id_ in range(first, first + 1000)
        ]


def _large() -> Iterator[list[bytes]]:
    for id_ in range(3):
        yield [output(id_, {"text": "x" * _LARGE})]


def _drift() -> Iterator[list[bytes]]:
    """Types that change after the first row groups."""
    text = "x" * 900
    for page in range(60):
        value = page if page < 45 else str(page)
        yield [output(page * 1000 + at, {"a": value, "text": text}) for at in range(1000)]


def _main() -> None:
    case, folder = sys.argv[1:]
    with open_export(str(Path(folder) / "a"), "parquet") as export:
        for page in {"wide": _wide, "large": _large, "drift": _drift}[case]():
            export.write(page)
        export.finish()
    # getrusage would count the memory of the process that started this one, too.
    status = Path("/proc/self/status").read_text()
    print(json.dumps({"megabytes": int(status.partition("VmHWM:")[2].split()[0]) / 1024}))


if __name__ == "__main__":
    _main()

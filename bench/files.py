"""What files cost: a page of outputs that name three uploaded files each, beside one without."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

from bench import dataset
from bench.deployments import Service
from bench.environment import Environment
from bench.measurement import Turns, say
from bench.results import at_most

_OUTPUTS = min(dataset.LARGE_SIZE, 5_000)
_FILES = 3
_LIMIT = 1000


def measure(environment: Environment) -> None:
    deployment = environment.empty("files")
    with deployment.serving() as service:
        say(f"Uploading {_OUTPUTS * _FILES:,} files …")
        service.fill("without", dataset.outputs(_OUTPUTS))
        service.fill("with", list(_with_files(service)))  # a body that pauses would be given up
        paths = {group: deployment.pages(group, _LIMIT) for group in ("without", "with")}
        turns = Turns({group: partial(service.reads, paths[group]) for group in paths}).run()
        size = {group: len(service.get(paths[group][0])) for group in paths}
    work = f"{_LIMIT}-item page, SQLite, {_FILES} files an output, times as slow as none"
    more = f"; {size['with'] / size['without']:.2f} times the bytes"
    environment.notes.ratio(work, at_most(2), turns, "without", "with", more)


def _with_files(service: Service) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(8) as uploading:
        ids = list(uploading.map(partial(_upload, service), range(_OUTPUTS * _FILES)))
    for number, output in enumerate(dataset.outputs(_OUTPUTS)):
        mine = ids[number * _FILES : (number + 1) * _FILES]
        named = [{"field": f"images[{n}]", "id": file} for n, file in enumerate(mine)]
        yield output | {"files": named}


def _upload(service: Service, number: int) -> str:
    source = quote(f"https://shop.example/images/{number}.jpg", safe="")
    path = f"/v1/files?source_url={source}&filename={number}.jpg"
    return str(service.post(path, b"\xff\xd8\xff picture %d" % number, "image/jpeg")["id"])

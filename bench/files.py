"""Measurement of file links: a page of outputs with three files each, and a page without files."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

from bench import dataset
from bench.deployments import Service
from bench.environment import Environment
from bench.measurement import Comparison, print_progress
from bench.results import at_most

_OUTPUTS = min(dataset.LARGE_SIZE, 5_000)
_FILES = 3
_LIMIT = 1000
_WITHOUT, _WITH = "without files", "with files"
_GROUPS = {_WITHOUT: "without", _WITH: "with"}


def measure(environment: Environment) -> None:
    deployment = environment.new_deployment("files")
    with deployment.serve() as service:
        print_progress(f"Uploading {_OUTPUTS * _FILES:,} files …")
        service.store_outputs(_GROUPS[_WITHOUT], dataset.outputs(_OUTPUTS))
        # A list: the uploads would pause a streamed body, and the service would time it out.
        service.store_outputs(_GROUPS[_WITH], list(_outputs_with_files(service)))
        paths = {name: deployment.page_paths(group, _LIMIT) for name, group in _GROUPS.items()}
        comparison = Comparison(
            {name: partial(service.measure_reads, paths[name]) for name in paths}
        ).run()
        size = {name: len(service.get(paths[name][0])) for name in paths}
    label = f"{_LIMIT}-item page with {_FILES} files per output, SQLite: slowdown against no files"
    suffix = f"; {size[_WITH] / size[_WITHOUT]:.2f} times the bytes"
    environment.report.add_ratio(label, at_most(2), comparison, _WITHOUT, _WITH, suffix)


def _outputs_with_files(service: Service) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(8) as executor:
        ids = list(executor.map(partial(_upload, service), range(_OUTPUTS * _FILES)))
    for number, output in enumerate(dataset.outputs(_OUTPUTS)):
        output_ids = ids[number * _FILES : (number + 1) * _FILES]
        references = [{"field": f"images[{n}]", "id": id_} for n, id_ in enumerate(output_ids)]
        yield output | {"files": references}


def _upload(service: Service, number: int) -> str:
    """Upload one file and return its ID."""
    source = quote(f"https://shop.example/images/{number}.jpg", safe="")
    path = f"/v1/files?source_url={source}&filename={number}.jpg"
    return str(service.post(path, b"\xff\xd8\xff picture %d" % number, "image/jpeg")["id"])

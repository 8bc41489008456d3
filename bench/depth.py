"""Whether a page costs the same deep inside a group, and in a large one."""

from __future__ import annotations

from functools import partial

from bench import dataset
from bench.deployments import Deployment
from bench.environment import Environment
from bench.measurement import Notes, Turns
from bench.results import at_most


def measure(environment: Environment) -> None:
    for engine, deployment in environment.deployments().items():
        _note(environment.notes, engine, _turns(deployment))


def _turns(deployment: Deployment) -> Turns:
    places = len(deployment.places(dataset.LARGE_GROUP, 10))
    asked = {
        "first tenth": deployment.pages(dataset.LARGE_GROUP, 10, slice(places // 10)),
        "last tenth": deployment.pages(dataset.LARGE_GROUP, 10, slice(-places // 10, None)),
        f"of {dataset.LARGE_SIZE:,}": deployment.pages(dataset.LARGE_GROUP, 10),
        f"of {dataset.SMALL_SIZE:,}": deployment.pages(dataset.SMALL_GROUP, 10),
    }
    with deployment.serving() as service:
        return Turns({name: partial(service.reads, paths) for name, paths in asked.items()}).run()


def _note(notes: Notes, engine: str, turns: Turns) -> None:
    work = (
        f"{engine}: page in the last tenth of {dataset.LARGE_SIZE:,} times as slow as in the first"
    )
    notes.ratio(work, at_most(1.2), turns, "first tenth", "last tenth")
    work = f"{engine}: page of a group of {dataset.LARGE_SIZE:,} times as slow as of {dataset.SMALL_SIZE:,}"
    notes.ratio(
        work, at_most(1.2), turns, f"of {dataset.SMALL_SIZE:,}", f"of {dataset.LARGE_SIZE:,}"
    )

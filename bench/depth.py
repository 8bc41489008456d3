"""Whether a page costs the same deep inside a group, and in a large one."""

from __future__ import annotations

from functools import partial

from bench import data
from bench.deployments import Deployment
from bench.environment import Environment
from bench.measurement import Notes, Turns
from bench.results import at_most


def measure(environment: Environment) -> None:
    for engine, deployment in environment.deployments().items():
        _note(environment.notes, engine, _turns(deployment))


def _turns(deployment: Deployment) -> Turns:
    places = len(deployment.places(data.GROUP, 10))
    asked = {
        "first tenth": deployment.pages(data.GROUP, 10, slice(places // 10)),
        "last tenth": deployment.pages(data.GROUP, 10, slice(-places // 10, None)),
        f"of {data.MANY:,}": deployment.pages(data.GROUP, 10),
        f"of {data.FEW:,}": deployment.pages("few", 10),
    }
    with deployment.serving() as service:
        return Turns({name: partial(service.reads, paths) for name, paths in asked.items()}).run()


def _note(notes: Notes, engine: str, turns: Turns) -> None:
    work = f"{engine}: page in the last tenth of {data.MANY:,} times as slow as in the first"
    notes.ratio(work, at_most(1.2), turns, "first tenth", "last tenth")
    work = f"{engine}: page of a group of {data.MANY:,} times as slow as of {data.FEW:,}"
    notes.ratio(work, at_most(1.2), turns, f"of {data.FEW:,}", f"of {data.MANY:,}")

"""What filters cost: each, any two, two that never meet, and the newest by ``created_after``."""

from __future__ import annotations

import json
from functools import partial
from itertools import combinations, permutations
from urllib.parse import quote

from bench import dataset
from bench.deployments import Deployment, Service, moment
from bench.environment import Environment
from bench.load_generator import NotMeasured
from bench.measurement import Measure, Notes, Turns
from bench.results import at_most

_RARE = {
    "job_id": "rare",
    "url": "https://shop.example/rare",
    "country": "Iceland",
    "region": "IS-1",
}
_COMMON = {"job_id": "catalogue-1", "country": "Germany", "region": "DE-BY"}
_NEWEST = 100
_NONE = "no filter"


def measure(environment: Environment) -> None:
    for engine, deployment in environment.deployments().items():
        with deployment.serving() as service:
            work = f"{engine}: every filter, and any two, times as slow as none"
            _note_slowest(environment.notes, work, _any(deployment, service))
            work = f"{engine}: a common value and a rare one that never meet, times as slow as none"
            _note_slowest(environment.notes, work, _in_vain(deployment, service))
            turns = _newest(deployment, service)
        work = f"{engine}: created_after for the last {_NEWEST} of all, times as slow as none"
        environment.notes.ratio(work, at_most(2), turns, _NONE, "created_after")


def _any(deployment: Deployment, service: Service) -> Turns:
    turns = Turns({_NONE: partial(service.reads, deployment.pages(dataset.LARGE_GROUP, 10))})
    for name, queries in _filters(deployment.places(dataset.LARGE_GROUP, 10)).items():
        turns.add(name, partial(_filtered, service, queries, 10))
    return turns.run()


def _filters(places: list[int]) -> dict[str, list[str]]:
    """Each finds ten outputs at least: the rare ones lie far apart in the group.

    A place before the first of them leaves them all, and the longest way to search in vain.
    """
    before = _before_the_rare(places)
    early = [f"created_after={moment(place)}" for place in before]
    single = {name: _said(name, value) for name, value in _RARE.items()}
    double = {f"{a} and {b}": f"{single[a]}&{single[b]}" for a, b in combinations(single, 2)}
    return {
        **{name: _from(before, query) for name, query in (single | double).items()},
        "created_after": [f"created_after={moment(place)}" for place in places],
        **{
            f"{name} and created_after": [f"{query}&{since}" for since in early]
            for name, query in single.items()
        },
    }


def _before_the_rare(places: list[int]) -> list[int]:
    return places[: len(places) // (4 * dataset.RARE_MATCHES)]


def _from(places: list[int], query: str) -> list[str]:
    """The same from different cursors, as a client that pages would ask."""
    return [f"{query}&cursor={place}" for place in places]


def _in_vain(deployment: Deployment, service: Service) -> Turns:
    """The common value is the wrong one to search by. One connection: it may take long."""
    places = deployment.places(dataset.LARGE_GROUP, 10)
    turns = Turns({_NONE: partial(service.reads, deployment.pages(dataset.LARGE_GROUP, 10), 1)})
    for one, two in permutations(_RARE, 2):
        if one in _COMMON:
            query = f"{_said(one, _COMMON[one])}&{_said(two, _RARE[two])}"
            name = f"common {one} and rare {two}"
            queries = _from(_before_the_rare(places), query)
            turns.add(name, partial(_filtered, service, queries, 10, found=0, connections=1))
    return turns.run()


def _newest(deployment: Deployment, service: Service) -> Turns:
    turns = Turns({_NONE: partial(service.reads, deployment.pages(dataset.LARGE_GROUP, _NEWEST))})
    since = moment(deployment.order(dataset.LARGE_GROUP)[-_NEWEST])
    # The cursors lie before that moment: they change the request, not the answer.
    cursors = deployment.places(dataset.LARGE_GROUP, _NEWEST)
    queries = [f"created_after={since}&cursor={cursor}" for cursor in cursors]
    turns.add("created_after", partial(_filtered, service, queries, _NEWEST))
    return turns.run()


def _said(name: str, value: str) -> str:
    return f"{name}={quote(value, safe='')}"


def _filtered(
    service: Service,
    queries: list[str],
    limit: int,
    found: int | None = None,
    connections: int = 16,
) -> Measure:
    """Pages that find just so much, else full ones: with less they would seem cheaper."""
    paths = [f"/v1/outputs/{dataset.LARGE_GROUP}?limit={limit}&{query}" for query in queries]
    expected = limit if found is None else found
    for path in (paths[0], paths[-1]):
        items = json.loads(service.get(path))["items"]
        if len(items) != expected:
            raise NotMeasured(f"finds {len(items)} outputs, not {expected}")
    return partial(service.reads, paths, connections)


def _note_slowest(notes: Notes, work: str, turns: Turns) -> None:
    if missing := turns.missing(turns.gaps):
        notes.figure(work, at_most(3), None, missing)
        return
    filters = {name: rate for name, rate in turns.best.items() if name != _NONE}
    slowest = min(filters, key=lambda name: filters[name])
    notes.ratio(work, at_most(3), turns, _NONE, slowest, f" is the slowest of {len(filters)}")

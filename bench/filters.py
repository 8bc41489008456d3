"""What a filter costs: each, any two, and ``created_after`` for the newest of all outputs."""

from __future__ import annotations

import json
from functools import partial
from itertools import combinations
from urllib.parse import quote

from bench import data
from bench.ground import MANY, Ground
from bench.load import NotMeasured
from bench.measuring import Measure, Notes, Turns
from bench.nodes import Node, Service, moment
from bench.results import at_most

_RARE = {
    "job_id": "rare",
    "url": "https://shop.example/rare",
    "country": "Iceland",
    "region": "IS-1",
}
_GROUP = f"/v1/outputs/{data.GROUP}"
_NEWEST = 100
_NONE = "no filter"


def measure(ground: Ground) -> None:
    for engine, node in ground.nodes().items():
        with node.serving() as service:
            _note_any(ground.notes, engine, _any(node, service))
            turns = _newest(node, service)
        work = f"{engine}: created_after for the last {_NEWEST} of {MANY:,}, times as slow as none"
        ground.notes.ratio(work, at_most(2), turns, _NONE, "created_after")


def _any(node: Node, service: Service) -> Turns:
    turns = Turns({_NONE: partial(service.reads, node.pages(data.GROUP, 10))})
    for name, paths in _filtered(node.places(data.GROUP, 10)).items():
        turns.add(name, partial(_full_pages, service, paths, 10))
    return turns.run()


def _filtered(places: list[int]) -> dict[str, list[str]]:
    """Pages of ten outputs that lie far apart, as many as the rare values have.

    A moment before the first of them leaves them all, and the longest way to search in vain.
    """
    one_by_one = [f"created_after={moment(place)}" for place in places]
    said = {name: [f"{name}={quote(value, safe='')}"] for name, value in _RARE.items()}
    asked = said | {"created_after": one_by_one}
    said["created_after"] = one_by_one[: len(places) // (4 * data.RARE)]
    for one, two in combinations(said, 2):
        asked[f"{one} and {two}"] = [f"{a}&{b}" for a in said[one] for b in said[two]]
    return {name: [f"{_GROUP}?limit=10&{q}" for q in queries] for name, queries in asked.items()}


def _full_pages(service: Service, paths: list[str], limit: int) -> Measure:
    """A page that is not full would be cheaper than it seems."""
    for path in (paths[0], paths[-1]):
        items = json.loads(service.get(path))["items"]
        if len(items) != limit:
            raise NotMeasured(f"{len(items)} items instead of {limit}")
    return partial(service.reads, paths)


def _note_any(notes: Notes, engine: str, turns: Turns) -> None:
    work = f"{engine}: every filter, and any two, times as slow as none"
    if missing := turns.missing(turns.gaps):
        notes.figure(work, at_most(3), None, missing)
        return
    slowest = min(turns.best, key=lambda name: turns.best[name] if name != _NONE else float("inf"))
    more = f" is the slowest of {len(turns.best) - 1}"
    notes.ratio(work, at_most(3), turns, _NONE, slowest, more)


def _newest(node: Node, service: Service) -> Turns:
    turns = Turns({_NONE: partial(service.reads, node.pages(data.GROUP, _NEWEST))})
    since = moment(node.order(data.GROUP)[-_NEWEST])
    # The cursors lie before that moment: they change the request, not the answer.
    paths = [f"{path}&created_after={since}" for path in node.pages(data.GROUP, _NEWEST)]
    turns.add("created_after", partial(_full_pages, service, paths, _NEWEST))
    return turns.run()

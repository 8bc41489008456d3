"""A page beside the same bytes from bare ASGI and nginx, beside the peers, and from two workers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import dataset, peers, servers
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, Environment
from bench.load_generator import requests_per_second
from bench.measurement import Measure, Notes, Turns
from bench.results import at_least

_OF_BARE = {
    (10, "SQLite"): at_least(0.45),
    (10, "PostgreSQL"): at_least(0.20),
    (1000, "SQLite"): at_least(0.30),
    (1000, "PostgreSQL"): at_least(0.20),
}
_OF_THE_BEST_PEER = at_least(20)


def measure(environment: Environment) -> None:
    for limit in (10, 1000):
        turns = _turns(environment, limit)
        fastest_first = sorted(turns.best.items(), key=lambda pair: -pair[1])
        environment.notes.speeds[f"{limit} items a page"] = dict(fastest_first)
        _note(environment.notes, f"{limit}-item page", limit, turns)


def _turns(environment: Environment, limit: int) -> Turns:
    turns, folder = Turns(), environment.folder(f"web-{limit}")
    with ExitStack() as stack:
        for engine, deployment in environment.deployments().items():
            service = stack.enter_context(deployment.serving())
            turns.add(f"Gleanery, {engine}", partial(_ours, deployment, service, limit, folder))
        turns.add("bare ASGI", partial(_bare, stack, folder))
        turns.add("nginx", partial(_nginx, stack, folder))
        for peer in peers.PEERS:
            database = environment.database(f"{peer.name.split(',')[0].lower()}_{limit}")
            turns.add(peer.name, partial(_peer, stack, peer, folder, database, limit))
        return turns.run()


def _ours(deployment: Deployment, service: Service, limit: int, folder: Path) -> Measure:
    """Leaves a page in the folder, for those who only have to send it."""
    same = json.loads(service.get(deployment.pages(dataset.SMALL_GROUP, limit)[0]))["items"]
    peers.must_be_the_records([item | {"job_id": item["root_job_id"]} for item in same], 1, limit)
    paths = deployment.pages(dataset.LARGE_GROUP, limit)
    (folder / "page.json").write_bytes(service.get(paths[0]))
    return partial(service.reads, paths)


def _bare(stack: ExitStack, folder: Path) -> Measure:
    url = stack.enter_context(servers.bare_asgi(folder / "page.json"))
    return partial(requests_per_second, url, ["/"])


def _nginx(stack: ExitStack, folder: Path) -> Measure:
    url = stack.enter_context(servers.nginx(folder))
    return partial(requests_per_second, url, ["/page.json"])


def _peer(stack: ExitStack, peer: peers.Peer, folder: Path, database: str, limit: int) -> Measure:
    url = stack.enter_context(peer.serving(folder, database))
    return peer.measure(url, limit)


def _note(notes: Notes, page: str, limit: int, turns: Turns) -> None:
    for engine in ENGINES:
        target = _OF_BARE[limit, engine]
        work = f"{page}, {engine}, of bare ASGI"
        notes.ratio(work, target, turns, f"Gleanery, {engine}", "bare ASGI")
    names = [peer.name for peer in peers.PEERS]
    for name in ("nginx", *names):
        notes.ratio(f"{page}, SQLite, of {name}", None, turns, "Gleanery, SQLite", name)
    _note_the_best(notes, f"{page}, SQLite, of the best peer", turns, names)


def _note_the_best(notes: Notes, work: str, turns: Turns, names: list[str]) -> None:
    measured = [name for name in names if name in turns.best]
    missing = turns.missing(names)
    if not measured:
        notes.figure(work, _OF_THE_BEST_PEER, None, missing)
        return
    best = max(measured, key=lambda name: turns.best[name])
    more = f"; without {missing}" if missing else ""
    notes.ratio(work, _OF_THE_BEST_PEER, turns, "Gleanery, SQLite", best, more)


def workers(environment: Environment) -> None:
    """On all cores, which the load shares with them."""
    deployment = environment.deployment("SQLite")
    paths = deployment.pages(dataset.LARGE_GROUP, 10)
    with deployment.serving(core=None) as one, deployment.serving(workers=2, core=None) as two:
        turns = Turns({"two": partial(two.reads, paths, 32), "one": partial(one.reads, paths, 32)})
        turns.run()
    work = "two workers against one, 10-item page"
    environment.notes.ratio(work, at_least(1), turns, "two", "one")

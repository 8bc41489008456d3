"""Clients that write and follow while damage is done, and what must be true of it afterwards."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2

from faults.service import Service

WRITERS = 3
BATCH = 5  # outputs that are stored together
_SLOTS = 8  # batches that a writer stores again and again, each time with new values
REFUSED, CUT_OFF, HANGING = "refused", "cut off", "hanging"  # instead of a status
_EXPECTED = {"200", "503", "404", REFUSED, CUT_OFF}  # 404 before the first write
_UNDER_LOAD = (0.1, 0.35)  # seconds
_PAUSE = 0.03  # so that clients leave the processor to others
_WRITERS_PAUSE = 0.005  # short, so that the damage meets writes under way


class Moment(NamedTuple):
    """When an answer came, what it was, and how many seconds it took."""

    when: float
    status: str
    seconds: float


@dataclass
class Tally:
    """What clients were told, and how long that took."""

    statuses: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    without_retry_after: int = 0
    moments: list[Moment] = field(default_factory=list)

    def note(self, began: float, status: str, answer: httpx2.Response | None) -> None:
        now = time.monotonic()
        self.statuses[status] += 1
        self.slowest = max(self.slowest, now - began)
        self.moments.append(Moment(now, status, now - began))
        if answer is not None and status == "503" and "Retry-After" not in answer.headers:
            self.without_retry_after += 1


@dataclass
class Slot:
    """A batch that is stored again and again: the last version sent, and acknowledged."""

    sent: int = 0
    acknowledged: int = 0


class Client(threading.Thread):
    """Asks again and again until it is stopped, and keeps a tally."""

    pause = _PAUSE

    def __init__(self, service: Service, group: str) -> None:
        super().__init__()
        self._http = service.client()
        self.group = group
        self.tally = Tally()
        self.stopping = threading.Event()

    def reconnect(self, service: Service) -> None:
        """After its end as a thread, to ask once more."""
        self._http = service.client()

    def run(self) -> None:
        with self._http:
            while not self.stopping.is_set():
                self.turn()
                self.stopping.wait(self.pause)

    def turn(self) -> None:
        raise NotImplementedError

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response | None:
        """The answer; None if the connection broke, and with it the knowledge of what was done."""
        began, answer, word = time.monotonic(), None, REFUSED
        try:
            answer = self._http.request(method, path, **options)
            word = str(answer.status_code)
        except httpx2.ConnectError:
            pass  # nobody listens
        except httpx2.TimeoutException:
            word = HANGING
        except httpx2.TransportError:
            word = CUT_OFF
        self.tally.note(began, word, answer)
        return answer


class Writer(Client):
    """Stores batches, each under keys of its own and all of one version."""

    pause = _WRITERS_PAUSE

    def __init__(self, service: Service, group: str, name: str, padding: int = 0) -> None:
        super().__init__(service, group)
        self._writer = name
        self._padding = "x" * padding
        self._versions = itertools.count(1)
        self.slots = {f"{name}-{number}": Slot() for number in range(_SLOTS)}
        self._turns = itertools.cycle(self.slots.items())

    def turn(self) -> None:
        name, slot = next(self._turns)
        slot.sent = next(self._versions)
        data = {"slot": name, "version": slot.sent, "padding": self._padding}
        batch = [
            {"job_id": self._writer, "source_url": f"{name}/{number}", "data": data}
            for number in range(BATCH)
        ]
        answer = self.ask("POST", f"/v1/outputs/{self.group}", json=batch)
        if answer is not None and answer.status_code == 200:
            slot.acknowledged = slot.sent


class Reader(Client):
    """Reads the first page of the group."""

    def turn(self) -> None:
        self.ask("GET", f"/v1/outputs/{self.group}?limit=10")


class Follower(Client):
    """Keeps a picture of the group by its feed, and never starts over."""

    def __init__(self, service: Service, group: str) -> None:
        super().__init__(service, group)
        self._cursor = 0
        self.picture: dict[str, Any] = {}

    def turn(self) -> None:
        self.hear(wait=1)

    def hear(self, wait: int = 0) -> int:
        """How many changes came."""
        query = {"cursor": self._cursor, "limit": 1000, "wait": wait}
        answer = self.ask("GET", f"/v1/changes/{self.group}", params=query)
        if answer is None or answer.status_code != 200:
            return 0
        page = answer.json()
        self._cursor = page["cursor"]
        for change in page["changes"]:
            self.picture[change["output"]["output_id"]] = change["output"].get("data")
        return len(page["changes"])


@dataclass
class Findings:
    """What was found after the damage, over all rounds."""

    acknowledged: int = 0
    refused: int = 0
    cut_off: int = 0
    lost: int = 0
    half: int = 0
    disagreeing: int = 0
    unexpected: Counter[str] = field(default_factory=Counter)
    unsound: str = ""

    @property
    def is_well(self) -> bool:
        wrong = self.lost or self.half or self.disagreeing or self.unexpected
        return not (wrong or self.unsound)

    def __str__(self) -> str:
        sound = "sound" if not self.unsound else f"unsound: {self.unsound[:200]}"
        if self.unexpected:
            sound += f"; unexpected answers: {in_words(self.unexpected)}"
        return (
            f"{self.acknowledged:,} batches acknowledged, {self.refused:,} refused with 503, "
            f"{self.cut_off:,} cut off; "
            f"{self.lost} lost, {self.half} half, {self.disagreeing} times feed, follower or "
            f"counts disagreed with the outputs; {sound}"
        )


class Load:
    """Writers and a follower on one group."""

    def __init__(self, service: Service, group: str, writers: int, padding: int) -> None:
        self._service, self.group = service, group
        self.writers = [Writer(service, group, f"w{n}", padding) for n in range(writers)]
        self.readers: list[Client] = [Reader(service, group)]
        self.follower = Follower(service, group)

    @property
    def clients(self) -> list[Client]:
        return [*self.writers, *self.readers, self.follower]

    def acknowledged(self) -> int:
        return sum(writer.tally.statuses["200"] for writer in self.writers)

    def stop(self) -> None:
        """Writers last: what they write ends the others' long polls."""
        for clients in ([self.follower, *self.readers], self.writers):
            for client in clients:
                client.stopping.set()
            for client in clients:
                client.join()

    def check(self, findings: Findings) -> None:
        """Holds what there is now against what was acknowledged; the service must be well."""
        for client in self.clients:
            words = client.tally.statuses
            findings.unexpected.update({word: words[word] for word in words.keys() - _EXPECTED})
        with self._service.client() as http:
            items = list(_items(http, self.group))
            self._check_slots(items, findings)
            stands = {item["output_id"]: item["data"] for item in items}
            told = _caught_up(Follower(self._service, self.group))
            self.follower.reconnect(self._service)
            counted = http.get(f"/v1/groups/{self.group}").json()
            findings.disagreeing += told != stands
            findings.disagreeing += _caught_up(self.follower) != stands
            findings.disagreeing += counted["outputs"] != len(stands)
            by_job = sum(job["outputs"] for job in counted["jobs"])
            findings.disagreeing += by_job != len(stands)

    def _check_slots(self, items: list[dict[str, Any]], findings: Findings) -> None:
        versions: dict[str, list[int]] = {}
        for item in items:
            versions.setdefault(item["data"]["slot"], []).append(item["data"]["version"])
        for writer in self.writers:
            findings.acknowledged += writer.tally.statuses["200"]
            findings.refused += writer.tally.statuses["503"]
            findings.cut_off += writer.tally.statuses[CUT_OFF]
            for name, slot in writer.slots.items():
                found = versions.pop(name, [])
                newest = max(found, default=0)
                findings.half += bool(found) and (len(found), min(found)) != (BATCH, newest)
                findings.lost += not slot.acknowledged <= newest <= slot.sent
        findings.disagreeing += bool(versions)  # something that nobody has sent


@contextmanager
def load(service: Service, group: str, writers: int = WRITERS, padding: int = 0) -> Iterator[Load]:
    """Under way from here on; stopped, but not checked, at the end."""
    under_way = Load(service, group, writers, padding)
    for client in under_way.clients:
        client.start()
    try:
        yield under_way
    finally:
        under_way.stop()


def let_write() -> None:
    """Some time under load, so that the blow falls at another moment each time."""
    time.sleep(random.uniform(*_UNDER_LOAD))


def in_words(statuses: Counter[str]) -> str:
    return ", ".join(f"{count:,} × {status}" for status, count in sorted(statuses.items()))


def _items(http: httpx2.Client, group: str) -> Iterator[dict[str, Any]]:
    url: str | None = f"/v1/outputs/{group}?limit=1000"
    while url is not None:
        answer = http.get(url)
        assert answer.status_code == 200, answer.text
        yield from answer.json()["items"]
        url = answer.json()["metadata"]["next_url"]


def _caught_up(follower: Follower) -> dict[str, Any]:
    while follower.hear():
        pass
    return follower.picture

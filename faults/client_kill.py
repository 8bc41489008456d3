"""Client faults: the commands push, pull and export are killed, or the service, while they run."""

from __future__ import annotations

import csv
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import httpx2

from faults.commands import Command
from faults.environment import Environment
from faults.results import Result
from faults.service import Service
from faults.workload import Client, items_of

_VICTIMS = ("client", "service")
ITEMS = 10_000
"""Items of a group: a command reads or stores them in about a second."""
_KILLS_PER_TASK = 5
_START = 0.3  # part of the time of a command in which it starts, and a kill hits nothing
_JOB = "shop"
_BATCH = 1000
_CHANGED = 20  # outputs that the other writer stores at once
_SEGMENT = re.compile(r"pull-\d+-\d+\.jsonl")
_PULL_FILES = (".gleanery-state.json", ".gleanery-lock")
_TOO_LARGE = 1024 * 1024 * 1024  # for one field of a CSV file


@dataclass
class Findings:
    """Results of the checks, over all tasks."""

    kills: Counter[str] = field(default_factory=Counter)
    tasks: int = 0
    failures: int = 0
    """Runs that failed, and were started again."""
    compared: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    """Values that nobody wrote, or updates that nobody made."""
    leftovers: int = 0
    """Files of killed runs that are still there after a success."""

    @property
    def is_ok(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong or self.leftovers)

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks, {self.failures} runs failed and were repeated; {self.compared:,} "
            f"values compared: {self.lost} lost, {self.duplicated} duplicated, {self.wrong} wrong; "
            f"{self.leftovers} temporary files left"
        )

    def compare(self, expected: dict[str, range], found: Iterable[tuple[str, int]]) -> None:
        """Compare keys and versions. Each key is expected once, with a version in its range."""
        counts = Counter[str]()
        for key, version in found:
            counts[key] += 1
            self.compared += 1
            self.wrong += key in expected and version not in expected[key]
        self.lost += len(expected.keys() - counts.keys())
        self.duplicated += counts.total() - len(counts)


# --- another writer -----------------------------------------------------------------------------


class Versions(NamedTuple):
    """The last version of an output that was sent, and the last one that was acknowledged."""

    sent: int
    acknowledged: int


class OtherWriter(Client):
    """Updates outputs of a group, creates some, and may delete some, until it is stopped."""

    def __init__(
        self, service: Service, group: str, versions: dict[str, Versions], deletes: bool
    ) -> None:
        super().__init__(service, group)
        self._versions = versions
        self._deletes = deletes
        self._keys = list(versions)

    def step(self) -> None:
        keys = random.sample(self._keys, _CHANGED)
        created = f"new-{len(self._keys)}"
        self._keys.append(created)
        self._store([*keys, created])
        if self._deletes:
            self._remove(keys[0])

    def _store(self, keys: list[str]) -> None:
        for key in keys:
            old = self._versions.get(key, Versions(0, 0))
            self._versions[key] = Versions(old.sent + 1, old.acknowledged)
        items = [_output(key, self._versions[key].sent) for key in keys]
        response = self.request("POST", f"/v1/outputs/{self.group}", json=items)
        if response is not None and response.status_code == 200:
            for key in keys:
                self._versions[key] = Versions(*[self._versions[key].sent] * 2)

    def _remove(self, key: str) -> None:
        """Delete an output. A later step may create it again."""
        response = self.request("GET", f"/v1/outputs/{self.group}", params={"url": _url(key)})
        if response is not None and response.status_code == 200:
            for item in response.json()["items"]:
                self.request("DELETE", f"/v1/outputs/{self.group}/{item['output_id']}")


def _output(key: str, version: int) -> dict[str, Any]:
    return {"job_id": _JOB, "source_url": _url(key), "key": key, "data": _item(key, version)}


def _item(key: str, version: int) -> dict[str, Any]:
    words = "light warm waterproof recycled cotton steel narrow tall compact durable soft quiet"
    return {"key": key, "version": version, "url": _url(key), "description": words}


def _url(key: str) -> str:
    return f"https://shop.example/{key}"


# --- tasks --------------------------------------------------------------------------------------


class Task:
    """What a user wants to have done by one command, and the checks afterwards."""

    promise: ClassVar[str]
    name: ClassVar[str]
    is_repeated: ClassVar[bool] = False
    """Whether the command runs once more after the others have stopped, to get their changes."""

    def __init__(self, service: Service, folder: Path, number: int) -> None:
        self.service, self.folder, self.number = service, folder, number
        self.arguments: list[str] = []

    @contextmanager
    def others_write(self) -> Iterator[None]:
        """Let others change the group meanwhile."""
        yield

    def before_start(self) -> None:
        """Remember what the command must find."""

    def is_done(self) -> bool:
        """Return True if a killed command has done its work."""
        return False

    def damage(self) -> None:
        """Break the promise, to test the check."""
        raise NotImplementedError

    def leftovers(self) -> list[Path]:
        """Return the files that a command should have removed."""
        return []

    def check(self, findings: Findings) -> None:
        raise NotImplementedError


class Push(Task):
    """Items of a file are stored in a new group."""

    promise = "an item of a push is stored exactly once, also if the push is killed and repeated"
    name = "push"

    def __init__(self, service: Service, folder: Path, number: int) -> None:
        super().__init__(service, folder, number)
        self._group = f"push-{number}"
        file = folder / "items.jsonl"
        lines = (json.dumps(_item(f"item-{number}", 1)) for number in range(ITEMS))
        file.write_text("\n".join(lines))
        self.arguments = ["push", self._group, str(file), "--job", _JOB, "--key-field", "key"]

    def damage(self) -> None:
        with self.service.client() as http:
            for version in (2, 1):
                items = [_output("item-0", version)]
                http.post(f"/v1/outputs/{self._group}", json=items).raise_for_status()

    def check(self, findings: Findings) -> None:
        expected = {f"item-{number}": range(1, 2) for number in range(ITEMS)}
        with self.service.client() as http:
            findings.compare(expected, map(_version, items_of(http, self._group)))
            changes = list(_changes(http, self._group))
        findings.wrong += sum(change["change"] != "create" for change in changes)
        findings.wrong += len(changes) != ITEMS


class _Existing(Task):
    """A task with a group that exists, and that others change meanwhile."""

    deletes = False
    _groups: ClassVar[dict[tuple[str, str], dict[str, Versions]]] = {}

    def __init__(self, service: Service, folder: Path, number: int) -> None:
        super().__init__(service, folder, number)
        self.group = self.name
        known = self._groups.setdefault((service.url, self.group), {})
        self.versions = known or self._fill(known)

    def _fill(self, versions: dict[str, Versions]) -> dict[str, Versions]:
        keys = [f"item-{number}" for number in range(ITEMS)]
        with self.service.client() as http:
            for start in range(0, ITEMS, _BATCH):
                items = [_output(key, 1) for key in keys[start : start + _BATCH]]
                http.post(f"/v1/outputs/{self.group}", json=items).raise_for_status()
        versions.update({key: Versions(1, 1) for key in keys})
        return versions

    @contextmanager
    def others_write(self) -> Iterator[None]:
        writer = OtherWriter(self.service, self.group, self.versions, self.deletes)
        writer.start()
        try:
            yield
        finally:
            writer.stopping.set()
            writer.join()


class Pull(_Existing):
    """All changes of a group are written into a folder."""

    promise = "a pull writes every change exactly once and in order, also if it is killed"
    name = "pull"
    is_repeated = True
    deletes = True

    def __init__(self, service: Service, folder: Path, number: int) -> None:
        super().__init__(service, folder, number)
        self._target = folder / "pulled"
        self.arguments = ["pull", self.group, "-o", str(self._target)]

    def damage(self) -> None:
        last = _segments(self._target)[-1]  # no later change of the same output follows there
        last.write_bytes(b"".join(last.read_bytes().splitlines(keepends=True)[:-1]))

    def check(self, findings: Findings) -> None:
        cursors: list[int] = []
        copy: dict[str, tuple[str, int]] = {}
        for segment in _segments(self._target):
            for line in segment.read_text().splitlines():
                change = json.loads(line)
                cursors.append(change["cursor"])
                if change["change"] == "delete":
                    copy.pop(change["output_id"], None)
                else:
                    copy[change["output_id"]] = _version(change["output"])
        findings.duplicated += sum(b <= a for a, b in itertools.pairwise(cursors))
        with self.service.client() as http:
            stored = [_version(item) for item in items_of(http, self.group)]
        findings.compare({key: range(v, v + 1) for key, v in stored}, copy.values())
        findings.wrong += len(copy) > len(stored)

    def leftovers(self) -> list[Path]:
        known = {*_segments(self._target), *(self._target / name for name in _PULL_FILES)}
        return [path for path in self._target.iterdir() if path not in known]


class Export(_Existing):
    """A group is exported into a file, in each format in turn."""

    promise = "an exported file has every output exactly once, and is complete or not there"
    name = "export"

    _FORMATS: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("jsonl",),
        ("csv",),
        ("parquet",),
        ("parquet", "--data", "json"),
    )

    def __init__(self, service: Service, folder: Path, number: int) -> None:
        super().__init__(service, folder, number)
        format_, *options = self._FORMATS[number % len(self._FORMATS)]
        self._file = folder / "exported" / f"outputs.{format_}"
        self._file.parent.mkdir()
        self.arguments = ["export", self.group, "-o", str(self._file), "--format", format_]
        self.arguments += options
        self._at_start: dict[str, Versions] = {}

    def before_start(self) -> None:
        self._at_start = dict(self.versions)

    def is_done(self) -> bool:
        return self._file.exists()

    def damage(self) -> None:
        lines = self._file.read_bytes().splitlines(keepends=True)
        self._file.write_bytes(b"".join(lines[1:2] + lines[1:]))

    def check(self, findings: Findings) -> None:
        expected = {
            key: range(old.acknowledged, self.versions[key].sent + 1)
            for key, old in self._at_start.items()
            if old.acknowledged
        }
        findings.compare(expected, _read_rows(self._file))

    def leftovers(self) -> list[Path]:
        return [path for path in self._file.parent.iterdir() if path != self._file]


def _version(item: dict[str, Any]) -> tuple[str, int]:
    return item["data"]["key"], int(item["data"]["version"])


def _changes(http: httpx2.Client, group: str) -> Iterator[dict[str, Any]]:
    cursor: int | None = 0
    while cursor is not None:
        response = http.get(f"/v1/changes/{group}", params={"cursor": cursor, "limit": _BATCH})
        page = response.raise_for_status().json()
        yield from page["changes"]
        cursor = page["metadata"]["next_cursor"]


def _segments(folder: Path) -> list[Path]:
    """Return the segments of a pull in the order of their cursors."""
    segments = [path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name)]
    return sorted(segments, key=lambda path: int(path.stem.split("-")[-2]))


def _read_rows(file: Path) -> Iterator[tuple[str, int]]:
    if file.suffix == ".jsonl":
        yield from (_version(json.loads(line)) for line in file.read_text().splitlines())
        return
    rows = _read_csv(file) if file.suffix == ".csv" else _read_parquet(file)
    for row in rows:
        data = json.loads(row["data"]) if row.get("data") else None
        if data is not None:
            yield data["key"], int(data["version"])
        else:
            yield row["data_key"], int(row["data_version"])


def _read_csv(file: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(_TOO_LARGE)
    with file.open(newline="", encoding="utf-8-sig") as stream:
        yield from csv.DictReader(stream)


def _read_parquet(file: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    return rows


# --- the fault ----------------------------------------------------------------------------------


def start_service(environment: Environment, engine: str) -> Service:
    """Start a service for one task or several."""
    server = environment.start_server() if engine == "PostgreSQL" else None
    return environment.start_service(server.url() if server else None)


def kill_during(environment: Environment, task: type[Task], engine: str, rounds: int) -> Result:
    """Kill the client, and then the service, while the command runs."""
    return kill_on(environment, start_service(environment, engine), task, engine, rounds)


def kill_on(
    environment: Environment,
    service: Service,
    task: type[Task],
    engine: str,
    rounds: int,
    damaged: bool = False,
) -> Result:
    """Kill the client, and then the service, which runs already, while the command runs."""
    findings, numbers = Findings(), itertools.count()

    def new_task() -> Task:
        folder = environment.new_path(task.name)
        folder.mkdir()
        return task(service, folder, next(numbers))

    longest = _run_undisturbed(new_task(), findings, damaged)
    for victim in _VICTIMS:
        while findings.kills[victim] < rounds:
            kills = min(rounds - findings.kills[victim], _KILLS_PER_TASK)
            findings.kills[victim] += _interrupt(new_task(), victim, kills, longest, findings)
    fault = f"{rounds} × kill -9 of the client, {rounds} × of the service on {engine}, "
    return Result(
        task.promise, fault + f"during `gleanery {task.name}`", str(findings), findings.is_ok
    )


def _run_undisturbed(task: Task, findings: Findings, damaged: bool) -> float:
    """Run a command without a kill, and return the seconds that it takes."""
    with task.others_write():
        command = _start(task)
        start = time.monotonic()
        command.finish()
        seconds = time.monotonic() - start
    _finish(task, command)
    if damaged:
        task.damage()
    _check(task, command, findings)
    return seconds


def _interrupt(task: Task, victim: str, most: int, longest: float, findings: Findings) -> int:
    """Run a command with up to this many kills, and return their number."""
    kill = _kill_client if victim == "client" else _kill_service
    kills = 0
    with task.others_write():
        command = _start(task)
        while kills < most and not task.is_done():
            time.sleep(random.uniform(_START * longest, longest))
            if not kill(task, command):
                break
            kills += 1
    _finish(task, command)
    _check(task, command, findings)
    return kills


def _start(task: Task) -> Command:
    command = Command(task.service, task.folder / "log", *task.arguments)
    task.before_start()
    command.start()
    return command


def _kill_client(task: Task, command: Command) -> bool:
    """Kill the command and start it again. Return False if it had ended before."""
    if not command.kill():
        return False
    if not task.is_done():
        task.before_start()
        command.start()
    return True


def _kill_service(task: Task, command: Command) -> bool:
    """Kill the service and start it again. Return False if the command had ended before."""
    if not command.is_running():
        return False
    task.service.kill()
    task.service.start()
    if command.is_running() or task.is_done():
        return True
    task.before_start()
    command.start_if_failed()
    return True


def _finish(task: Task, command: Command) -> None:
    """Wait until the work is done. Others write no more."""
    if command.is_running() or not task.is_done():
        command.finish()
    if task.is_repeated:
        command.start()
        command.finish()


def _check(task: Task, command: Command, findings: Findings) -> None:
    findings.tasks += 1
    findings.failures += command.failures
    if command.has_succeeded():
        findings.leftovers += len(task.leftovers())
    task.check(findings)

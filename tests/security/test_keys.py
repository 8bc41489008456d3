"""Rotation of the secret key while the service runs, and removal of lost keys."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.security import vault
from gleanery.service.maintenance import key_rotation
from tests.support.databases import execute_sql
from tests.support.exports import export_link
from tests.support.outputs import output
from tests.support.postgres_server import PostgresServer
from tests.support.process import (
    Running,
    environment,
    gleanery,
    gleanery_in_process,
    kill_before_call,
    kill_before_rename,
    new_token,
    run_successfully,
    serving_process,
    serving_thread,
)
from tests.support.service import NO_TLS, Client, Service, new_secret_key
from tests.support.session_state import numbered_cookies, numbered_entries
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

KINDS = ("/v1/cookies", "/v1/local-storage")
STEP = ("gleanery.service.maintenance.key_rotation", "_reencrypt")  # encrypts 500 values


def listed(where: list[str], **variables: str) -> dict[str, tuple[int, str]]:
    """Output of ``keys list``: values and state of each key."""
    lines = run_successfully("keys", "list", *where, **variables).splitlines()[1:]
    found = [re.split(r" {2,}", line.strip()) for line in lines]
    return {key: (int(values), state) for key, values, state in found}


class Load:
    """Clients that write and read session state and follow links, and note what goes wrong.

    They are at work when the context begins, end with it, and then nothing must have gone wrong.
    """

    def __init__(self, *urls: str, token: str, links: tuple[str, ...] = ()) -> None:
        self.failures: list[str] = []
        self.requests = 0
        self._over = threading.Event()
        self._links = links
        self._threads = [
            threading.Thread(target=self._work, args=(urls, token, number)) for number in range(4)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.wait_for_more(1)
        return self

    def wait_for_more(self, requests: int) -> None:
        """Returns when so many more requests were answered, or one has failed."""
        enough = self.requests + requests
        wait_until(lambda: self.requests >= enough or self.failures)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.wait_for_more(20)
        self._over.set()
        for thread in self._threads:
            thread.join()
        if kind is None:
            assert self.failures == []
            assert self.requests > 20

    def _work(self, urls: tuple[str, ...], token: str, number: int) -> None:
        turn = 0
        while not self._over.is_set() and not self.failures:
            turn += 1
            with Client(urls[turn % len(urls)], token) as client:  # whichever worker has it
                self._take_turn(client, 10_000 + 50 * number, f"turn {turn} of ")

    def _take_turn(self, client: Client, first: int, value: str) -> None:
        for path, records in zip(KINDS, (numbered_cookies, numbered_entries), strict=True):
            self._note(client.post(path, json=records(range(first, first + 50), value)))
            answer = client.get(path)
            if self._note(answer):
                values = {one["value"] for one in answer.json()}
                if f"{value}{first}" not in values:
                    self.failures.append("what was just written is not there")
        for link in self._links:
            self._note(httpx2.get(link, verify=NO_TLS))
            [item] = client.items("linked")
            self._note(client.get(item["files"][0]["blob_url"]))

    def _note(self, answer: httpx2.Response) -> bool:
        self.requests += 1
        if answer.status_code != 200:
            self.failures.append(f"{answer.status_code} {answer.text[:200]}")
        return answer.status_code == 200


def linked(client: Client) -> str:
    """A link to a file that was made just now."""
    about = {"source_url": "https://a/1", "etag": "1"}
    file = client.post("/v1/files", params=about, content=b"some bytes").json()
    client.store("linked", output(1, files=[{"field": "f", "id": file["id"]}]))
    [item] = client.items("linked")
    return str(item["files"][0]["blob_url"])


def links(client: Client) -> tuple[str, str]:
    """Signed links to a file and to an export."""
    return linked(client), export_link(client, "linked")


def fill(client: Client, count: int) -> None:
    for path, records in zip(KINDS, (numbered_cookies, numbered_entries), strict=True):
        assert client.post(path, json=records(range(count))).status_code == 200


def everything_opens(client: Client, count: int) -> None:
    for path in KINDS:
        answer = client.get(path)
        assert answer.status_code == 200
        values = [one["value"] for one in answer.json()]
        assert values[:count] == [f"v{n}" for n in range(count)]


# --- rotation -----------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_key_file_is_rotated_under_load_without_an_error(tmp_path: Path) -> None:
    where, file = ["--data", str(tmp_path / "data")], tmp_path / "data" / "secret.key"
    # The sweep tells each worker that links are to be signed with another key.
    with serving_process(where, "--workers", "2", "--sweep-seconds", "0.3") as (url, running):
        token = new_token(where)
        with Client(url, token) as client:
            fill(client, 1000)
            with Load(url, token=token, links=links(client)) as load:
                for _ in range(2):  # the second time from a key that no process was started with
                    before = file.read_text()
                    told = run_successfully("keys", "rotate", *where)
                    assert re.search(r"^Encrypted 2[0-4]\d\d values again", told)
                    assert file.read_text().split()[1:] == before.split()
                    assert file.stat().st_mode & 0o777 == 0o600
                    load.wait_for_more(20)
            everything_opens(client, 1000)
        [(values, state)] = [row for row in listed(where).values() if row[0]]
        assert (values, state) == (2400, "available, active")
        assert not running.log
    told = run_successfully("keys", "retire", "--now", *where)
    assert told.count("is removed") == 2
    assert len(file.read_text().split()) == 1
    with serving_thread(where) as url, Client(url, token) as client:  # with the new key alone
        everything_opens(client, 1000)


@pytest.mark.extended
def test_nodes_with_both_keys_rotate_under_load_without_an_error(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    where = ["--data", str(tmp_path), "--database", postgres.new_database()]
    old, new = new_secret_key(), new_secret_key()
    both = {"GLEANERY_SECRET_KEY": f"{new} {old}"}
    with serving_thread(where, GLEANERY_SECRET_KEY=old) as first:
        token = new_token(where)
        with Client(first, token) as client:
            fill(client, 1000)
        # One node has been given both keys, the other not yet: both still encrypt with the old one.
        with serving_thread(where, **both) as second:
            with Load(first, second, token=token) as load:
                load.wait_for_more(20)
            assert [v for v in listed(where, **both).values() if v[0]] == [
                (2400, "available, active")
            ]
    with (
        serving_process(where, "--workers", "2", "--sweep-seconds", "0.3", **both) as (first, _),
        serving_process(where, **both) as (second, running),
    ):
        with Client(first, token) as client:
            with Load(first, second, token=token, links=links(client)):
                told = run_successfully("keys", "rotate", *where, **both)
                assert "Keep the old key until" in told
            everything_opens(client, 1000)
        assert not running.log
    alone = {"GLEANERY_SECRET_KEY": new}
    assert list(listed(where, **alone).values()) == [(2400, "available, active")]
    with serving_thread(where, **alone) as url, Client(url, token) as client:
        everything_opens(client, 1000)


def test_records_of_profiles_partitions_and_origins_are_rotated(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path)]
    cookie = {"name": "sid", "value": "s3cret", "domain": "a.com", "sameSite": "None"}
    partitioned = cookie | {"secure": True, "partitionKey": {"topLevelSite": "https://b.com"}}
    entry = {"origin": "http://a.com:8080", "localStorage": [{"name": "k", "value": "v"}]}
    state = {"cookies": [cookie, partitioned], "origins": [entry]}
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        client.post("/v1/cookies", json=[partitioned])
        second = {"profile": "second"}
        stored = client.post("/v1/sessions/import", params=second, json=state)
        assert stored.json()["losses"] == []
        query = second | {"format": "cdp"}
        before = client.get("/v1/sessions/export", params=query).json()
        assert "Encrypted 4 values again" in run_successfully("keys", "rotate", *where)
        assert client.get("/v1/sessions/export", params=query).json() == before
        assert len(client.get("/v1/cookies").json()) == 1
        assert "Removed 0 values" in run_successfully("keys", "forget", "--yes", *where)


def reencrypted(data: Path) -> int:
    """Number of values that the first key of the file encrypts."""
    first = vault.fingerprint(vault.KeyFile(data / "secret.key").read()[0])
    with closing(apsw.Connection(str(data / "gleanery.sqlite"))) as connection:
        kinds = ("cookies", "local_storage")
        counts = " + ".join(
            f"(SELECT count(*) FROM {kind} WHERE substr(encrypted_value, 1, 4) = ?1)"
            for kind in kinds
        )
        return int(connection.execute(f"SELECT {counts}", (first,)).get)


@pytest.mark.thorough
def test_a_killed_rotation_continues_when_it_is_run_again(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "data" / "secret.key"
    where = ["--data", str(data)]
    with serving_process(where, "--workers", "2") as (url, running):
        token = new_token(where)
        with Client(url, token) as client:
            fill(client, 4000)
            done = 0
            for _ in range(2):
                kill_before_call(STEP, 3, "keys", "rotate", *where)
                assert len(file.read_text().split()) == 2
                before, done = done, reencrypted(data)
                assert before < done < 8000
                assert sum(values for values, _ in listed(where).values()) == 8000
                everything_opens(client, 4000)
            first, _ = file.read_text().split()
            with Load(url, token=token):
                run_successfully("keys", "rotate", *where)
            assert file.read_text().split()[0] == first
            assert len(file.read_text().split()) == 2
            everything_opens(client, 4000)
        assert [row for row in listed(where).values() if row[0]] == [(8400, "available, active")]
        assert not running.log


@pytest.mark.thorough
def test_a_rotation_that_is_killed_while_it_writes_the_file_continues(tmp_path: Path) -> None:
    where, file = ["--data", str(tmp_path)], tmp_path / "secret.key"
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        fill(client, 10)
        [old] = file.read_text().split()
        kill_before_rename(0, "keys", "rotate", *where)
        assert file.read_text().split() == [old]
        everything_opens(client, 10)
        # The file is written, but the database does not name the new key yet.
        named = ("gleanery.service.storage.metadata", "begin_rotation")
        kill_before_call(named, 0, "keys", "rotate", *where)
        assert file.read_text().split()[1:] == [old]
        everything_opens(client, 10)
        run_successfully("keys", "rotate", *where)
        everything_opens(client, 10)
    assert len(file.read_text().split()) == 2
    kill_before_rename(0, "keys", "retire", "--now", *where)
    assert len(file.read_text().split()) == 2
    run_successfully("keys", "retire", "--now", *where)
    assert old not in file.read_text().split()
    assert [path.name for path in tmp_path.glob("secret.key*")] == ["secret.key"]
    assert list(listed(where).values()) == [(20, "available, active")]


@pytest.mark.thorough
def test_concurrent_rotations_lose_nothing(tmp_path: Path) -> None:
    where, file = ["--data", str(tmp_path / "data")], tmp_path / "data" / "secret.key"
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        fill(client, 3000)
        rotations = [Running("keys", "rotate", *where) for _ in range(3)]
        assert [rotation.process.wait(TIMEOUT_SECONDS) for rotation in rotations] == [0, 0, 0]
        for rotation in rotations:
            rotation.stop()
        everything_opens(client, 3000)
    assert 2 <= len(file.read_text().split()) <= 4
    assert [row for row in listed(where).values() if row[0]] == [(6000, "available, active")]


def test_a_link_is_valid_until_it_expires_although_its_key_is_old(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path)]
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        path = linked(client).removeprefix(url)
        told = run_successfully("keys", "rotate", *where)
        assert re.search(r"Keep the old key until 20\d\d-", told)
        assert any("links need it until" in state for _, state in listed(where).values())
    refused = gleanery_in_process("keys", "retire", *where)
    assert refused.returncode == 2
    assert re.search(r"Links to files need the key [0-9a-f]{8} until 20\d\d-", refused.stderr)
    assert "--now" in refused.stderr
    with serving_thread(where) as url:  # a process that was started after the rotation
        assert httpx2.get(url + path, verify=NO_TLS).content == b"some bytes"
    past = "UPDATE metadata SET value = '1' WHERE name LIKE 'retirement:%'"
    execute_sql(Settings(data=tmp_path), past)
    assert "is removed" in run_successfully("keys", "retire", *where)
    assert "There is no old key" in run_successfully("keys", "retire", *where)
    with serving_thread(where) as url:
        assert httpx2.get(url + path, verify=NO_TLS).status_code == 403


def test_keys_in_the_variable_are_needed_until_links_expire(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    where = ["--data", str(tmp_path), "--database", postgres.new_database()]
    old, new = new_secret_key(), new_secret_key()
    both = {"GLEANERY_SECRET_KEY": f"{new} {old}"}
    with serving_thread(where, GLEANERY_SECRET_KEY=old):
        pass
    refused = gleanery_in_process("keys", "retire", *where, **both)
    assert refused.returncode == 2
    assert "run gleanery keys rotate first" in refused.stderr
    assert "Keep the old key until" in run_successfully("keys", "rotate", *where, **both)
    refused = gleanery_in_process("keys", "retire", *where, **both)
    assert refused.returncode == 2
    assert "Links to files need the key" in refused.stderr
    told = run_successfully("keys", "retire", "--now", *where, **both)
    assert "can be removed from GLEANERY_SECRET_KEY" in told


def test_a_key_is_removed_at_once_if_there_are_no_links(tmp_path: Path) -> None:
    where, file = ["--data", str(tmp_path)], tmp_path / "secret.key"
    run_successfully("migrate", *where)  # no service has signed a link
    for _ in range(2):
        told = run_successfully("keys", "rotate", *where)
        assert "Keep the old key" not in told
        assert len(file.read_text().split()) == 1


def test_a_rotation_needs_a_new_key_in_the_variable(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    where = ["--data", str(tmp_path), "--database", postgres.new_database()]
    one = {"GLEANERY_SECRET_KEY": new_secret_key()}
    with serving_thread(where, **one):
        pass
    refused = gleanery_in_process("keys", "rotate", *where, **one)
    assert refused.returncode == 2
    assert "put a new one in front" in refused.stderr
    refused = gleanery_in_process("keys", "rotate", *where)
    assert refused.returncode == 2
    assert "set the variable GLEANERY_SECRET_KEY" in refused.stderr


# --- unavailable keys ---------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_value_under_an_unknown_key_is_503_and_can_be_removed(tmp_path: Path) -> None:
    where, settings = ["--data", str(tmp_path)], Settings(data=tmp_path)
    with serving_process(where) as (url, running), Client(url, new_token(where)) as client:
        fill(client, 3)
        strange = b"\x01\x02\x03\x04" + bytes(40)
        execute_sql(settings, "UPDATE cookies SET encrypted_value = $1 WHERE name = 'c1'", strange)
        answer = client.get("/v1/cookies")
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert "secret key" in answer.json()["detail"][0]["msg"]
        running.wait_for(lambda: any("gleanery keys list" in line for line in running.log))
        assert any("01020304" in line for line in running.log)
        assert listed(where)["01020304"] == (1, "missing")
        told = run_successfully("keys", "rotate", *where)  # the rest is not kept from a new key
        assert "Encrypted 5 values again" in told
        assert "1 values cannot be decrypted" in told
        assert client.get("/v1/cookies").status_code == 503
        assert "Removed 1 values" in run_successfully("keys", "forget", "--yes", *where)
        assert [one["name"] for one in client.get("/v1/cookies").json()] == ["c0", "c2"]
        # The other way out: to store the value again.
        execute_sql(settings, "UPDATE cookies SET encrypted_value = $1 WHERE name = 'c2'", strange)
        assert client.post("/v1/cookies", json=numbered_cookies(range(3))).json() == {
            "created": 1,
            "updated": 1,
            "unchanged": 1,
        }
        assert client.get("/v1/cookies").status_code == 200


@pytest.mark.thorough
def test_a_manipulated_record_can_be_removed(tmp_path: Path) -> None:
    where, settings = ["--data", str(tmp_path)], Settings(data=tmp_path)
    with serving_process(where) as (url, _), Client(url, new_token(where)) as client:
        fill(client, 3)
        execute_sql(settings, "UPDATE cookies SET domain = 'evil.com' WHERE name = 'c1'")
        execute_sql(settings, "UPDATE local_storage SET domain = 'evil.com' WHERE key = 'c1'")
        assert client.get("/v1/cookies").status_code == 500
        assert client.get("/v1/local-storage").status_code == 500
        assert "Removed 2 values" in run_successfully("keys", "forget", "--yes", *where)
        assert [one["name"] for one in client.get("/v1/cookies").json()] == ["c0", "c2"]
        assert len(client.get("/v1/local-storage").json()) == 2


@pytest.mark.thorough
def test_values_under_a_lost_key_file_can_be_removed(tmp_path: Path) -> None:
    where, file = ["--data", str(tmp_path)], tmp_path / "secret.key"
    with serving_thread(where) as url:
        token = new_token(where)
        with Client(url, token) as client:
            fill(client, 700)
            client.store("group", output(1))
    file.unlink()
    refused = gleanery("serve", *where, "--port", "0")
    assert refused.returncode == 2
    assert "gleanery keys forget" in refused.stderr
    assert not file.exists()
    unsure = gleanery("keys", "forget", *where)  # nobody says yes
    assert unsure.returncode == 1
    assert "1400 cookie and local-storage values" in unsure.stderr
    assert not file.exists()
    assert [state for _, state in listed(where).values()] == ["missing, active"]
    assert "Removed 1400 values" in run_successfully("keys", "forget", "--yes", *where)
    with serving_thread(where) as url, Client(url, token) as client:
        log = client.get("/v1/audit").json()["entries"]
        forgotten = [e["about"]["records"] for e in log if e["action"] == "forget_keys"]
        assert sum(forgotten) == 1400
        assert client.get("/v1/cookies").json() == []
        assert len(client.items("group")) == 1
        fill(client, 3)
        everything_opens(client, 3)


@pytest.mark.thorough
def test_no_key_is_created_for_a_database_that_does_not_name_its_key(tmp_path: Path) -> None:
    where, file = ["--data", str(tmp_path)], tmp_path / "secret.key"
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        fill(client, 3)
    forget_name = "DELETE FROM metadata WHERE name = 'key_fingerprint'"
    execute_sql(Settings(data=tmp_path), forget_name)
    right = file.read_bytes()
    file.unlink()
    for command in (["serve", "--port", "0"], ["keys", "rotate"]):
        refused = gleanery(*command, *where)
        assert refused.returncode == 2
        assert "is missing: put it back" in refused.stderr
        assert not file.exists()
    file.write_text(new_secret_key())
    file.chmod(0o600)
    refused = gleanery("serve", "--port", "0", *where)
    assert refused.returncode == 2
    assert "is not the one that encrypts" in refused.stderr
    file.write_bytes(right)
    with serving_thread(where):
        pass


@pytest.mark.thorough
def test_another_key_is_rejected_by_a_database_that_does_not_name_its_key(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    where, key = (
        ["--data", str(tmp_path), "--database", postgres.new_database()],
        new_secret_key(),
    )
    with (
        serving_thread(where, GLEANERY_SECRET_KEY=key) as url,
        Client(url, new_token(where)) as client,
    ):
        fill(client, 3)
    settings = Settings(data=tmp_path, database=where[-1], secret_key=key)
    execute_sql(settings, "DELETE FROM metadata WHERE name = 'key_fingerprint'")
    refused = gleanery("serve", "--port", "0", *where, GLEANERY_SECRET_KEY=new_secret_key())
    assert refused.returncode == 2
    assert "is not the one that encrypts" in refused.stderr
    with serving_thread(where, GLEANERY_SECRET_KEY=key):
        pass


def test_a_worker_creates_no_key(tmp_path: Path) -> None:
    """Workers start after the key was checked, and again when one is replaced."""
    where, file = ["--data", str(tmp_path)], tmp_path / "secret.key"
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        fill(client, 3)
    file.unlink()
    service = Service(Settings(data=tmp_path, port=0), is_prepared=True)
    with service.stranger() as nobody:
        assert "secret keys cannot be read" in nobody.get("/readyz").text
    service.stop()
    assert not file.exists()


def test_a_service_with_a_lost_key_in_memory_stops_using_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, look = ["--data", str(tmp_path)], key_rotation._undecryptable
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        fill(client, 3)
        (tmp_path / "secret.key").unlink()  # the service has it in memory

        async def look_and_store(*some: Any) -> AsyncIterator[Any]:
            async for found in look(*some):
                yield found
            assert client.post("/v1/cookies", json=numbered_cookies(range(5))).status_code == 200

        monkeypatch.setattr(key_rotation, "_undecryptable", look_and_store)
        run_successfully("keys", "forget", "--yes", *where)
        monkeypatch.undo()
        log = client.get("/v1/audit").json()["entries"]
        assert "rotate_keys" in [entry["action"] for entry in log]
    assert list(listed(where).values()) == [(5, "available, active")]


@pytest.mark.thorough
def test_values_under_another_key_can_be_removed(postgres: PostgresServer, tmp_path: Path) -> None:
    where = ["--data", str(tmp_path), "--database", postgres.new_database()]
    lost, found = (
        {"GLEANERY_SECRET_KEY": new_secret_key()},
        {"GLEANERY_SECRET_KEY": new_secret_key()},
    )
    with serving_thread(where, **lost) as url:
        token = new_token(where)
        with Client(url, token) as client:
            fill(client, 600)
    refused = gleanery("serve", *where, "--port", "0", **found)
    assert refused.returncode == 2
    assert "gleanery keys forget" in refused.stderr
    assert "Removed 1200 values" in run_successfully("keys", "forget", "--yes", *where, **found)
    assert "Removed 0 values" in run_successfully("keys", "forget", "--yes", *where, **found)
    with serving_thread(where, **found) as url, Client(url, token) as client:
        assert client.get("/v1/cookies").json() == []
        fill(client, 3)
        everything_opens(client, 3)


# --- memory -------------------------------------------------------------------------------------


@pytest.mark.extended
def test_a_rotation_needs_little_memory_for_large_values(tmp_path: Path) -> None:
    """The values have 120 MiB together, and would need four times as much at once."""
    where = ["--data", str(tmp_path)]
    with serving_thread(where) as url, Client(url, new_token(where)) as client:
        for number in range(30):
            entry = {"domain": "a.example", "key": str(number), "value": "x" * 4 * 2**20}
            assert client.post("/v1/local-storage", json=[entry]).status_code == 200
    for command in (["rotate"], ["forget", "--yes"]):
        run_with_memory(250 * 2**20, "keys", *command, *where)


def run_with_memory(size: int, *arguments: str) -> None:
    """Runs the command with a limit on its own memory, without the database file that it maps."""
    ended = subprocess.run(
        [sys.executable, "-m", "gleanery", *arguments],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (size, size)),
        env=environment(),
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0

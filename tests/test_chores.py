"""Long work on a group survives a crash and reaches just as far as it was decided."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import fresh_settings
from process import Running, free_port, gleanery
from service import SECRET_KEY, Client, Service
from test_changes import until
from test_outputs import output

from gleanery import instants, tokens
from gleanery.store import chores, groups
from gleanery.store.database import Transaction
from gleanery.store.engines import database_of
from gleanery.store.organizations import find_grant

OUTPUTS = 12_000


def job(client: Client) -> dict[str, Any] | None:
    group = client.get("/v1/groups/group").json()
    return next((one for one in group["jobs"] if one["job_id"] == "job"), None)


@pytest.mark.parametrize("kind", ["approve", "delete"])
def test_what_a_crash_interrupts_goes_on_after_the_restart(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    where = ["--data", str(settings.data)]
    if settings.database is not None:
        where += ["--database", settings.database]
    port = free_port()
    options = ["--port", str(port), "--log-level", "error", "--sweep-seconds", "0.2"]
    serve: Any = ("serve", *where, *options)
    key, url = {"GLEANERY_SECRET_KEY": SECRET_KEY}, f"http://127.0.0.1:{port}"

    with Running(*serve, **key) as running:
        running.wait_ready(url)
        scopes = "outputs:read,outputs:write,reviews:write"
        made = gleanery("token", "create", "--organization", "a", "--scopes", scopes, *where)
        client = Client(url, made.stdout.strip())
        for start in range(0, OUTPUTS, 6000):
            client.store("group", *(output(n) for n in range(start, start + 6000)))

        def begin() -> None:
            with contextlib.suppress(httpx2.TransportError), Client(url, client.token) as other:
                if kind == "approve":
                    review = {"job_id": "job", "status": "approved"}
                    other.post("/v1/reviews/group", json=review)
                else:
                    other.delete("/v1/groups/group/jobs/job")

        def has_begun() -> bool:
            found = job(client)
            assert found is not None, "it was done before it could be interrupted"
            return bool(found["approved"] if kind == "approve" else found["outputs"] < OUTPUTS)

        thread = threading.Thread(target=begin)
        thread.start()
        until(has_begun)
        running.process.send_signal(signal.SIGKILL)
        thread.join()
        running.process.wait(20)

    with Running(*serve, **key) as running:
        running.wait_ready(url)
        client.store("group", output(OUTPUTS + 1, job_id="later"))

        def has_ended() -> bool:
            found = job(client)
            return (
                found is None if kind == "delete" else bool(found and found["approved"] == OUTPUTS)
            )

        until(has_ended)
        items = client.items("group", limit=1000)
        if kind == "approve":
            assert sum(item["is_approved"] for item in items) == OUTPUTS
            assert len(items) == OUTPUTS + 1
        else:
            assert [item["root_job_id"] for item in items] == ["later"]


def decide(service: Service, token: str, kind: Any) -> None:
    """Notes a chore and leaves it at that, as a process does that dies right after."""

    async def run() -> None:
        database = database_of(service.settings)
        await database.open()
        try:
            grant = await find_grant(database, tokens.digest(token))
            assert grant is not None

            async def work(transaction: Transaction) -> None:
                turn = await groups.enter(transaction, grant.organization_id, "group", instants.now)
                await chores.note(turn, kind, await turn.find_job("job"))

            await database.write(work)
        finally:
            await database.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        ("approve", output(1), {1: True, 2: True}),
        ("approve", output(1, tags={"a": 1}), {1: True, 2: True}),
        ("approve", output(1, data={"number": 11}), {2: True, 11: False}),
        ("delete", output(1), {1: False}),
        ("delete", output(1, data={"number": 11}), {11: False}),
        ("delete", output(3), {3: False}),
    ],
)
def test_what_is_stored_during_a_chore_comes_after_it(
    client: Client, service: Service, kind: str, stored: dict[str, Any], expected: dict[int, bool]
) -> None:
    client.store("group", output(1), output(2))
    assert client.token is not None
    decide(service, client.token, kind)
    client.store("group", stored)
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "pending"})  # ends the chore
    items = client.items("group")
    assert {item["data"]["number"]: item["is_approved"] for item in items} == expected
    group = client.get("/v1/groups/group").json()
    assert group["outputs"] == len(expected)
    assert sum(one["approved"] for one in group["jobs"]) == sum(expected.values())


def test_a_rejection_reaches_what_moves_meanwhile(client: Client, service: Service) -> None:
    client.store("group", output(1), output(2))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    assert client.token is not None
    decide(service, client.token, "withdraw")
    client.store("group", output(1, tags={"a": 1}))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "pending"})
    assert [item["is_approved"] for item in client.items("group")] == [False, False]

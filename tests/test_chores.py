"""Long work on a group survives a crash and reaches just as far as it was decided."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import fresh_settings
from process import Running, free_port, gleanery
from service import SECRET_KEY, Client
from test_changes import until
from test_outputs import output

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

"""Runs with the client: their start and end, what they count, and exceptions inside them."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from gleanery import AsyncClient, Client
from gleanery.client import (
    Conflict,
    Deletion,
    Forbidden,
    Invalid,
    MissingSettings,
    NotFound,
    PushFailed,
    RunRecord,
)
from tests.support.forwarder import Forwarder
from tests.support.service import Service


def _items(*numbers: int) -> list[dict[str, Any]]:
    return [{"url": f"https://shop.example/{n}", "price": n} for n in numbers]


def _only_run(client: Client, **filters: Any) -> RunRecord:
    [run] = client.runs("prices", **filters)
    return run


def _raise_in_run(client: Client, error: BaseException) -> None:
    with client.run("prices", job_id="shop") as run:
        run.push(_items(1))
        raise error


def _complete(client: Client, *numbers: int) -> RunRecord:
    with client.run("prices", job_id="shop") as run:
        run.push(_items(*numbers))
    return run.record


# --- the context --------------------------------------------------------------------------------


def test_leaving_a_run_finishes_it_as_complete(gleanery: Client) -> None:
    with gleanery.run("prices", job_id="shop", labels={"country": "DE"}) as run:
        assert _only_run(gleanery).status == "running"
        assert run.push(_items(1, 2)).created == 2
    record = _only_run(gleanery)
    assert record == run.record == gleanery.get_run("prices", run.run_id)
    assert (record.status, record.message, record.is_implicit) == ("complete", None, False)
    assert (record.group_id, record.job_id, record.labels) == ("prices", "shop", {"country": "DE"})
    assert record.finish_date is not None
    assert record.start_date <= record.finish_date
    assert (record.counts.created, record.counts.outputs) == (2, 2)
    assert (record.comparison, record.removal, record.removable) == ("done", None, 0)


def test_an_empty_run_is_a_run(gleanery: Client) -> None:
    _complete(gleanery, 1, 2)
    record = _complete(gleanery)
    assert (record.counts.outputs, record.counts.missing) == (0, 2)


def test_a_push_of_a_run_has_the_options_of_a_push(gleanery: Client) -> None:
    seen: list[int] = []
    items = [{"page": f"https://shop.example/{n}", "sku": n} for n in range(5)]
    with gleanery.run("prices", job_id="shop") as run:
        report = run.push(
            [*items, {"sku": 6}],
            url_field="page",
            key_field="sku",
            batch_size=2,
            max_batch_bytes=1000,
            on_error="skip",
            on_progress=lambda report: seen.append(report.items),
        )
    assert (report.created, report.skipped, seen) == (5, 1, [2, 4, 6])
    assert (run.record.counts.created, run.record.counts.rejected) == (5, 1)
    assert (run.record.status, run.record.message) == (
        "partial",
        "Invalid items were left out: 1",
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LookupError("the site has changed"), "LookupError: the site has changed"),
        (ValueError(), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (RuntimeError("lone \ud800 and \0"), "RuntimeError: lone ? and ?"),
        (RuntimeError("x" * 3000), f"RuntimeError: {'x' * 1985}…"),
    ],
)
def test_an_exception_finishes_a_run_as_failed(
    gleanery: Client, error: BaseException, message: str
) -> None:
    with pytest.raises(type(error)) as raised:
        _raise_in_run(gleanery, error)
    assert raised.value is error
    record = _only_run(gleanery)
    assert (record.status, record.message, record.counts.created) == ("failed", message, 1)


def test_an_exception_without_a_text_has_its_type(gleanery: Client) -> None:
    class Faulty(Exception):
        def __str__(self) -> str:
            raise ValueError

    with pytest.raises(Faulty):
        _raise_in_run(gleanery, Faulty())
    assert _only_run(gleanery).message == "Faulty"


def test_a_run_that_is_finished_early_stays_as_it_is(gleanery: Client) -> None:
    with gleanery.run("prices", job_id="shop") as run:
        run.push(_items(1))
        record = run.finish("partial", "the last page was blocked")
    assert _only_run(gleanery) == record
    assert (record.status, record.message) == ("partial", "the last page was blocked")


def test_an_exception_after_the_end_of_a_run_does_not_change_it(gleanery: Client) -> None:
    def scrape() -> None:
        with gleanery.run("prices", job_id="shop") as run:
            run.finish(message="y" * 3000)
            raise LookupError

    with pytest.raises(LookupError):
        scrape()
    newest = next(iter(gleanery.runs("prices")))
    assert (newest.status, newest.message) == ("complete", "y" * 1999 + "…")


def test_a_failure_to_finish_does_not_hide_the_exception(
    gleanery: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def scrape() -> None:
        with gleanery.run("prices", job_id="shop") as run:
            gleanery.finish_run("prices", run.run_id, "partial")
            raise LookupError("original")

    with pytest.raises(LookupError, match="original"):
        scrape()
    [warning] = [row for row in caplog.records if row.levelno == logging.WARNING]
    record = _only_run(gleanery)
    assert record.status == "partial"
    assert record.run_id in warning.getMessage()
    assert "partial" in warning.getMessage()


def test_a_failure_to_finish_a_complete_run_is_raised(gleanery: Client) -> None:
    with pytest.raises(Conflict, match="partial"), gleanery.run("prices", job_id="shop") as run:
        gleanery.finish_run("prices", run.run_id, "partial")


def test_a_run_that_cannot_start_is_an_error(gleanery: Client) -> None:
    with pytest.raises(Invalid, match="labels"), gleanery.run("p", job_id="j", labels={"": "x"}):
        pytest.fail("the block must not run")
    run = gleanery.run("prices", job_id="shop")
    with pytest.raises(RuntimeError, match="with statement"):
        _ = run.run_id
    with run, pytest.raises(RuntimeError, match="used once"):
        run.__enter__()


def test_an_item_at_fault_fails_the_run(gleanery: Client) -> None:
    with pytest.raises(PushFailed), gleanery.run("prices", job_id="shop") as run:
        run.push([*_items(1), {"price": 2}])
    record = _only_run(gleanery)
    assert (record.status, record.counts.outputs, record.counts.rejected) == ("failed", 0, 1)
    assert record.message is not None
    assert record.message.startswith("PushFailed: item 1: url: is missing")


def test_ctrl_c_during_a_request_finishes_the_run(service: Service) -> None:
    forwarder = Forwarder(("127.0.0.1", int(service.url.rpartition(":")[2])))
    forwarder.start()

    def interrupt(main: int) -> None:
        forwarder.withholds.wait()
        signal.pthread_kill(main, signal.SIGINT)
        forwarder.thaw()

    def scrape(client: Client) -> None:
        with client.run("prices", job_id="shop") as run:
            forwarder.freeze()
            thread.start()
            run.push(_items(1))

    thread = threading.Thread(target=interrupt, args=(threading.get_ident(),))
    with Client(f"http://127.0.0.1:{forwarder.port}", service.token()) as client:
        with pytest.raises(KeyboardInterrupt):
            scrape(client)
        thread.join()
        record = _only_run(client)
        assert (record.status, record.message) == ("failed", "KeyboardInterrupt")
    forwarder.stop()


# --- retries ------------------------------------------------------------------------------------


class _LosesResponses(httpx2.BaseTransport):
    """Passes requests on to the service, and loses the first response to each of them."""

    def __init__(self) -> None:
        self._inner = httpx2.HTTPTransport(verify=False)
        self._seen: set[tuple[str, bytes]] = set()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(host="127.0.0.1")
        key = (str(request.url), request.read())
        response = self._inner.handle_request(request)
        if key in self._seen:
            return response
        self._seen.add(key)
        response.read()
        raise httpx2.ReadError("connection reset")


@pytest.fixture
def unreliable(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    with httpx2.Client(transport=_LosesResponses()) as http_client:
        yield Client(service.url, service.token(), http_client=http_client)


def test_a_run_counts_once_what_is_sent_twice(unreliable: Client) -> None:
    with unreliable.run("prices", job_id="shop") as run:
        report = run.push(_items(*range(10)), batch_size=4)
    assert (report.created, report.retries) == (10, 3)
    record = _only_run(unreliable)
    assert (record.status, record.counts.created, record.counts.unchanged) == ("complete", 10, 0)
    assert run.record == record


# --- single calls -------------------------------------------------------------------------------


def test_workers_share_a_run(gleanery: Client) -> None:
    run_id = gleanery.start_run("prices", "shop").run_id

    def work(number: int) -> None:
        items = _items(number, number + 1)
        gleanery.push("prices", items, job_id="shop", run_id=run_id)

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(work, range(20))]
    outputs = [{"job_id": "shop", "source_url": "https://a.example/", "data": {}}]
    gleanery.push("prices", outputs, run_id=run_id)
    record = gleanery.finish_run("prices", run_id, "complete", "all of them")
    assert (record.counts.created, record.message) == (22, "all of them")
    assert gleanery.finish_run("prices", run_id, "complete") == record
    with pytest.raises(PushFailed, match="This run has ended: complete"):
        gleanery.push("prices", _items(1), job_id="shop", run_id=run_id)


def test_runs_are_listed_newest_first(gleanery: Client) -> None:
    made = [gleanery.start_run("prices", f"job-{n % 2}") for n in range(5)]
    gleanery.finish_run("prices", made[0].run_id, "failed")
    listed = [run.run_id for run in gleanery.runs("prices", page_size=2)]
    assert listed == [run.run_id for run in reversed(made)]
    assert len(list(gleanery.runs("prices", page_size=2).raw())) == 5
    assert [*gleanery.runs("prices", job_id="job-1")] == [made[3], made[1]]
    assert _only_run(gleanery, status="failed").run_id == made[0].run_id
    pager = gleanery.runs("prices", page_size=2, limit=2)
    assert [*pager] == [made[4], made[3]]
    assert [*gleanery.runs("prices", cursor=pager.cursor)][:2] == [made[2], made[1]]
    with pytest.raises(NotFound):
        list(gleanery.runs("unknown"))
    with pytest.raises(NotFound):
        gleanery.get_run("prices", "unknown")


def test_pushes_without_a_run_belong_to_an_implicit_one(gleanery: Client) -> None:
    gleanery.push("prices", _items(1), job_id="shop")
    record = _only_run(gleanery)
    assert (record.is_implicit, record.status, record.counts.created) == (True, "running", 1)


# --- the run of the process ---------------------------------------------------------------------


@pytest.fixture
def given(gleanery: Client, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that the environment names, as in a program of ``gleanery run exec``."""
    run_id = gleanery.start_run("prices", "shop").run_id
    monkeypatch.setenv("GLEANERY_RUN_ID", run_id)
    monkeypatch.setenv("GLEANERY_GROUP", "prices")
    monkeypatch.setenv("GLEANERY_JOB", "shop")
    return run_id


def _created(client: Client, run_id: str) -> int:
    return client.get_run("prices", run_id).counts.created


def _outputs(*jobs: str) -> list[dict[str, Any]]:
    return [
        {"job_id": job, "source_url": f"https://a.example/{n}", "data": {}}
        for n, job in enumerate(jobs)
    ]


def test_a_push_belongs_to_the_run_of_the_process(gleanery: Client, given: str) -> None:
    gleanery.push("prices", _items(1, 2), job_id="shop")
    assert _only_run(gleanery).counts.created == 2
    chosen = gleanery.start_run("prices", "shop").run_id
    gleanery.push("prices", _items(3, 4, 5), job_id="shop", run_id=chosen)
    assert _created(gleanery, chosen) == 3
    gleanery.push("prices", _items(7), job_id="shop", run_id=None)
    assert {one.counts.created for one in gleanery.runs("prices") if one.is_implicit} == {1}
    assert _created(gleanery, given) == 2


def test_the_context_of_a_run_is_the_run_of_the_process(gleanery: Client, given: str) -> None:
    """Two complete runs for one execution would remove outputs too early."""
    for number in (1, 2):
        with gleanery.run("prices", job_id="shop") as run:
            run.push(_items(number))
        assert (run.run_id, run.record.status) == (given, "running")
        assert run.record.counts.created == number
    with gleanery.run("prices", job_id="other") as run:
        run.push(_items(1))
    assert (run.run_id != given, run.record.status) == (True, "complete")
    assert gleanery.finish_run("prices", given, "complete").counts.created == 2


def test_problems_in_a_context_end_the_run_of_the_process(gleanery: Client, given: str) -> None:
    with pytest.raises(LookupError):
        _raise_in_run(gleanery, LookupError("no page"))
    record = gleanery.get_run("prices", given)
    assert (record.status, record.message) == ("failed", "LookupError: no page")
    assert _ends_as_partial(gleanery, given)


def test_skipped_items_end_the_run_of_the_process_as_partial(gleanery: Client, given: str) -> None:
    with gleanery.run("prices", job_id="shop") as run:
        run.push([*_items(1), {"no": "URL"}], on_error="skip")
    assert (run.run_id, run.record.status) == (given, "partial")
    assert _ends_as_partial(gleanery, given)


def _ends_as_partial(client: Client, ended: str) -> bool:
    """The program goes on after its run: what that run has sent must not be missing."""
    with client.run("prices", job_id="shop") as left:
        left.push(_items(2))
    with client.run("prices", job_id="shop") as finished:
        finished.finish()
    message = "The run of gleanery run exec ended before this one"
    found = {(run.record.status, run.record.message) for run in (left, finished)}
    return ended not in (left.run_id, finished.run_id) and found == {("partial", message)}


def test_a_context_can_finish_the_run_of_the_process(gleanery: Client, given: str) -> None:
    with gleanery.run("prices", job_id="shop") as run:
        run.finish("partial", "blocked")
    assert gleanery.get_run("prices", given).message == "blocked"


def test_a_context_that_cannot_see_the_run_of_the_process_starts_one(
    service: Service, given: str
) -> None:
    tokens = (service.token(), service.token("org-writes", frozenset({"outputs:write"})))
    for token in tokens:
        with Client(service.url, token) as client, client.run("prices", job_id="shop") as run:
            run.push(_items(1))
        assert (run.run_id != given, run.record.status) == (True, "complete")


def test_a_push_of_another_group_or_job_does_not_belong_to_the_run(
    gleanery: Client, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    gleanery.push("prices", _items(1), job_id="other")
    gleanery.push("others", _items(1), job_id="shop")
    gleanery.push("others", _outputs("shop"))
    assert _created(gleanery, given) == 0
    [other] = gleanery.runs("prices", job_id="other")
    assert (other.is_implicit, other.counts.created) == (True, 1)
    [other] = gleanery.runs("others")
    assert (other.is_implicit, other.counts.created) == (True, 2)
    assert not caplog.records


def test_of_whole_outputs_those_of_the_job_belong_to_the_run(gleanery: Client, given: str) -> None:
    items = [*_outputs(*("shop", "a", "b") * 5), {"no": "output"}, "no JSON"]
    lines = [json.dumps(item) if isinstance(item, dict) else item for item in items]
    report = gleanery.push("prices", lines, on_error="skip", batch_size=10)
    assert (report.items, report.created, report.skipped) == (17, 15, 2)
    assert sorted(error.index for error in report.errors) == [15, 16]
    by_job = {run.job_id: (run.is_implicit, run.counts.created) for run in gleanery.runs("prices")}
    assert by_job == {"shop": (False, 5), "a": (True, 5), "b": (True, 5)}
    only_others = gleanery.push("prices", _outputs("a", "b"))
    assert (only_others.items, only_others.created, only_others.batches) == (2, 2, 1)


def test_a_push_of_whole_outputs_can_continue_after_a_failure(gleanery: Client, given: str) -> None:
    items = [*_outputs("shop", "a"), {"job_id": "shop"}, *_outputs(*["a"] * 9)]
    with pytest.raises(PushFailed, match="item 4: source_url") as failed:
        gleanery.push("prices", [*_outputs("a", "b"), *items], batch_size=6)
    assert failed.value.report.items == 0  # although the outputs of other jobs are stored
    assert _created(gleanery, given) == 0
    items[2] = _outputs("shop", "shop")[1]
    report = gleanery.push("prices", [*_outputs("a", "b"), *items], batch_size=6)
    assert report.items == 14
    assert _created(gleanery, given) == 2


def test_items_are_stored_if_the_run_of_the_process_has_ended(
    gleanery: Client, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    gleanery.finish_run("prices", given, "partial")
    report = gleanery.push("prices", _items(*range(6)), job_id="shop", batch_size=2)
    assert (report.created, report.items) == (6, 6)
    [warning] = [record.message for record in caplog.records]
    assert warning.startswith(f"Items are stored without the run {given}: ")
    assert "This run has ended: partial" in warning
    ended, implicit = gleanery.get_run("prices", given), next(iter(gleanery.runs("prices")))
    assert (ended.status, ended.counts.created) == ("partial", 0)
    assert (implicit.is_implicit, implicit.counts.created) == (True, 6)
    with pytest.raises(PushFailed, match="This run has ended"):  # the caller has chosen it
        gleanery.push("prices", _items(1), job_id="shop", run_id=given)


@pytest.mark.parametrize("outputs", [_outputs("shop"), _outputs("shop", "a")])
def test_items_are_stored_in_a_service_that_does_not_know_the_run(
    service: Service, given: str, outputs: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The program pushes to another organization, or to another service."""
    with Client(service.url, service.token()) as other:
        assert other.push("prices", outputs).created == len(outputs)
        assert all(run.is_implicit for run in other.runs("prices"))
    assert len(caplog.records) == 1


def test_a_run_alone_in_the_environment_is_used_where_it_fits(
    gleanery: Client, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLEANERY_GROUP")
    monkeypatch.setenv("GLEANERY_JOB", "")
    gleanery.push("prices", _items(1), job_id="shop")
    gleanery.push("prices", _items(2), job_id="other")
    gleanery.push("others", _items(3), job_id="shop")
    gleanery.push("prices", _outputs("shop", "other"))
    assert _created(gleanery, given) == 1
    assert {run.counts.created for run in gleanery.runs("prices", job_id="other")} == {2}


# --- missing outputs ----------------------------------------------------------------------------


def test_missing_outputs_are_found_and_removed(gleanery: Client) -> None:
    group = gleanery.set_group("prices", missing={"after_runs": 2}, run_timeout_minutes=60)
    assert (group.run_timeout_minutes, group.missing) == (60, MissingSettings(after_runs=2))
    _complete(gleanery, 1, 2, 3, 4)
    assert _complete(gleanery, 1, 2, 3).counts.missing == 1
    [missing] = gleanery.outputs("prices", missing=True)
    assert missing.data["price"] == 4
    record = _complete(gleanery, 1, 2, 3)
    assert (record.removal, record.counts.removed) == ("done", 1)
    assert [*gleanery.outputs("prices", missing=True)] == []
    deletions = [one for one in gleanery.changes("prices") if isinstance(one, Deletion)]
    assert [(one.output_id, one.reason) for one in deletions] == [(missing.output_id, "missing")]
    gleanery.delete_output("prices", next(iter(gleanery.outputs("prices"))).output_id)
    deletion = [*gleanery.changes("prices")][-1]
    assert isinstance(deletion, Deletion)
    assert deletion.reason is None


def test_missing_outputs_are_exported(gleanery: Client, tmp_path: Any) -> None:
    _complete(gleanery, 1, 2, 3)
    _complete(gleanery, 1)
    report = gleanery.export("prices", tmp_path / "missing.jsonl", missing=True)
    assert report.rows == 2
    with pytest.raises(Invalid, match="missing"):
        list(gleanery.outputs("prices", missing=True, view="approved"))


@pytest.mark.parametrize(
    ("decision", "removal", "left"), [("remove", "done", 1), ("keep", "kept", 3)]
)
def test_a_held_removal_is_decided(
    gleanery: Client, decision: Any, removal: str, left: int
) -> None:
    gleanery.set_group("prices", missing=MissingSettings(after_runs=1, max_share=0.5))
    _complete(gleanery, 1, 2, 3)
    held = _complete(gleanery, 1)
    assert (held.removal, held.removable) == ("held", 2)
    decided = gleanery.decide_removal("prices", held.run_id, decision)
    assert decided.removal == removal
    assert len([*gleanery.outputs("prices")]) == left
    assert gleanery.decide_removal("prices", held.run_id, decision) == decided


def test_a_removal_is_decided_with_the_scope_of_reviews(gleanery: Client, service: Service) -> None:
    token = service.token(scopes=frozenset({"outputs:read", "outputs:write"}))
    with Client(service.url, token) as writer:
        record = _complete(writer, 1)
        with pytest.raises(Forbidden, match="reviews:write"):
            writer.decide_removal("prices", record.run_id, "keep")


# --- the asynchronous client --------------------------------------------------------------------


def test_the_asynchronous_client_has_runs(service: Service) -> None:
    async def use() -> None:
        async with AsyncClient(service.url, service.token()) as client:
            async with client.run("prices", job_id="shop") as run:
                await run.push(_items(1, 2))
            assert [one async for one in client.runs("prices")] == [run.record]
            assert (run.record.status, run.record.counts.created) == ("complete", 2)
            with pytest.raises(LookupError):
                async with client.run("prices", job_id="shop") as run:
                    raise LookupError("no page")
            assert await client.get_run("prices", run.run_id) == run.record
            assert (run.record.status, run.record.message) == ("failed", "LookupError: no page")

    asyncio.run(use())


def test_the_asynchronous_client_pushes_into_the_run_of_the_process(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def push() -> None:
        async with AsyncClient(service.url, service.token()) as client:
            run_id = (await client.start_run("prices", "shop")).run_id
            monkeypatch.setenv("GLEANERY_RUN_ID", run_id)
            monkeypatch.setenv("GLEANERY_JOB", "shop")
            await client.push("prices", _outputs("shop", "a"))
            assert (await client.finish_run("prices", run_id, "complete")).counts.created == 1
            report = await client.push("prices", _outputs("shop"))
            assert (report.unchanged, report.items) == (1, 1)

    asyncio.run(push())


def test_a_run_of_a_cancelled_task_has_failed(service: Service) -> None:
    async def use() -> None:
        async with AsyncClient(service.url, service.token()) as client:
            is_inside = asyncio.Event()

            async def scrape() -> None:
                async with client.run("prices", job_id="shop"):
                    is_inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(scrape())
            await is_inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            [record] = [one async for one in client.runs("prices")]
            assert (record.status, record.message) == ("failed", "CancelledError")

    asyncio.run(use())

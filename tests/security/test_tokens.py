"""Tokens and organizations: authentication, scopes and expiry, on both engines."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gleanery.service.api.operation import Operation
from gleanery.service.application import OPERATIONS
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from tests.support.process import (
    PROC,
    Running,
    database_options,
    gleanery_in_process,
    run_successfully,
    served,
)
from tests.support.service import SECRET_KEY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

GUARDED = [operation for operation in OPERATIONS if operation.scopes]
OPEN = [operation for operation in OPERATIONS if not operation.scopes]


def where(service: Service) -> list[str]:
    """The options that name the service's database."""
    if service.settings.database is None:
        return ["--data", str(service.settings.data)]
    return ["--database", service.settings.database]


def call(client: Client, operation: Operation, method: str | None = None) -> int:
    path = operation.path.replace("{group_id}", "group")
    body = b"[]" if operation.method == "POST" else None
    headers = {"Content-Type": "application/json"}
    asked = method or operation.method
    return client.request(asked, path, content=body, headers=headers).status_code


# --- the token itself ---------------------------------------------------------------------------


def test_a_token_has_a_fixed_format_and_a_checksum() -> None:
    made = {tokens.mint() for _ in range(200)}
    assert len(made) == 200
    assert all(re.fullmatch(r"glean_[0-9A-Za-z]{49}", token) for token in made)
    assert all(tokens.is_well_formed(token) for token in made)


@given(st.integers(6, 54), st.sampled_from("0123456789ABCXYZabcxyz"))
def test_one_wrong_character_is_detected_without_the_database(place: int, wrong: str) -> None:
    token = tokens.mint()
    if token[place] != wrong:
        assert not tokens.is_well_formed(token[:place] + wrong + token[place + 1 :])


SIGNED = ("get_blob", "get_signed_export")  # their signed link is the permission


# --- scopes -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_scopes(service: Service) -> Iterator[dict[frozenset[str], Client]]:
    """A client for each scope alone, and one for all others than each."""
    with ExitStack() as open_clients:
        yield {
            scopes: open_clients.enter_context(service.client(scopes=scopes))
            for scope in tokens.SCOPES
            for scopes in (frozenset({scope}), frozenset(tokens.SCOPES) - {scope})
        }


@pytest.mark.thorough
@pytest.mark.parametrize("operation", GUARDED, ids=lambda operation: operation.name)
def test_each_operation_needs_its_own_scopes_and_no_other(
    service: Service, with_scopes: dict[frozenset[str], Client], operation: Operation
) -> None:
    methods = {operation.method, "HEAD" if operation.method == "GET" else operation.method}
    for method in methods:
        for scopes, client in with_scopes.items():
            status = call(client, operation, method)
            if scopes.issuperset(operation.scopes):
                assert status in (200, 404, 422), scopes
            else:
                assert status == 403, scopes
        with service.stranger() as nobody:
            assert call(nobody, operation, method) == 401


@pytest.mark.parametrize("operation", OPEN, ids=lambda operation: operation.name)
def test_operations_without_a_scope_need_no_token(service: Service, operation: Operation) -> None:
    expected = 422 if operation.name in SIGNED else operation.status  # the signature is missing
    with service.stranger() as nobody:
        assert call(nobody, operation) == expected


def test_every_v1_operation_has_scopes_that_exist() -> None:
    for operation in OPERATIONS:
        is_guarded = operation.path.startswith("/v1/") and operation.name not in SIGNED
        assert bool(operation.scopes) == is_guarded
        assert tokens.SCOPES.keys() >= set(operation.scopes)


# --- organizations ------------------------------------------------------------------------------


def test_two_organizations_see_nothing_of_each_other(service: Service) -> None:
    with service.client() as one, service.client() as two:
        cookie = {"domain": "a.com", "name": "n", "value": "mine"}
        entry = {"domain": "a.com", "key": "k", "value": "mine"}
        output = {"job_id": "j", "source_url": "u", "data": {"of": "one"}}
        one.post("/v1/cookies", json=[cookie])
        one.post("/v1/local-storage", json=[entry])
        one.store("group", output)
        one.post("/v1/reviews/group", json={"job_id": "j", "status": "approved"})
        assert two.get("/v1/cookies").json() == []
        assert two.get("/v1/local-storage").json() == []
        for path in ("/v1/outputs/group", "/v1/reviews/group"):
            theirs, nothing = two.get(path), two.get(path.replace("group", "nothing"))
            assert (theirs.status_code, theirs.content) == (404, nothing.content)
        review = {"job_id": "j", "status": "rejected"}
        assert two.post("/v1/reviews/group", json=review).status_code == 404
        assert two.store("group", output | {"data": {"of": "two"}})["created"] == 1
        assert two.post("/v1/cookies", json=[cookie | {"value": "x"}]).json()["created"] == 1
        assert one.items("group")[0]["data"] == {"of": "one"}
        assert one.items("group")[0]["is_approved"] is True
        assert one.get("/v1/cookies").json()[0]["value"] == "mine"
        assert two.get("/v1/reviews/group").json() == []


def test_two_tokens_of_one_organization_see_the_same(service: Service) -> None:
    with service.client(organization="shared") as one, service.client(organization="shared") as two:
        one.store("group", {"job_id": "j", "source_url": "u", "data": {}})
        assert len(two.items("group")) == 1


# --- expiry and revocation----------------------------------------------------------------------


def test_an_expired_token_is_rejected(timed_service: Service, clock: Clock) -> None:
    with timed_service.client(expires=clock() + 60 * timestamps.SECOND) as client:
        assert client.get("/v1/cookies").status_code == 200
        clock.move(seconds=61)
        assert client.get("/v1/cookies").status_code == 401


_organizations = itertools.count(1)


@pytest.mark.thorough
def test_a_token_is_created_used_listed_and_revoked(service: Service) -> None:
    name = f"Command & Line {os.getpid()}-{next(_organizations)}"
    made = gleanery_in_process("token", "create", "--organization", name, *where(service))
    assert made.returncode == 0, made.stderr
    token = made.stdout.removesuffix("\n")
    assert tokens.is_well_formed(token)
    with service.client(token) as client:
        assert client.get("/v1/cookies").status_code == 200
        assert client.post("/v1/outputs/group", json=[]).status_code == 403

        listed = gleanery_in_process("token", "list", *where(service))
        [line] = [line for line in listed.stdout.splitlines() if name in line]
        assert "session:read,session:write" in line.replace(", ", ",") or "session:read" in line
        assert "valid" in line
        assert token not in listed.stdout

        number = line.split()[0]
        assert gleanery_in_process("token", "revoke", number, *where(service)).returncode == 0
        wait_until(lambda: client.get("/v1/cookies").status_code != 200)
        assert client.get("/v1/cookies").status_code == 401
    listed = gleanery_in_process("token", "list", *where(service))
    [line] = [line for line in listed.stdout.splitlines() if name in line]
    assert "revoked" in line


def test_a_token_has_a_name_and_a_last_use(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = replace(fresh_settings(engine, request, tmp_path), sweep_seconds=0.05)
    options = database_options(settings)
    named = ("token", "create", "--organization", "a", "--name", "the [bold] crawler")
    service = Service(settings)

    def row() -> str:
        [line] = run_successfully("token", "list", *options).splitlines()[1:]
        return line

    token = run_successfully(*named, *options).strip()
    assert "the [bold] crawler" in row()
    assert row().split()[-2:] == ["never", "valid"]  # last use and state
    with service.client(token) as client:
        assert client.get("/v1/cookies").status_code == 200
        wait_until(lambda: row().split()[-2] != "never")
        assert row().split()[-2].endswith("Z")
    service.stop()


def test_the_last_use_is_stored_when_the_service_stops(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> None:
    settings = replace(fresh_settings(engine, request, tmp_path), sweep_seconds=3600.0)
    token, listed = "", list[str]()
    for seconds in (0, 10, 60):  # the second use is too soon to be stored
        clock.move(seconds=seconds)
        service = Service(settings, clock)
        token = token or service.token("a")
        with service.client(token) as client:
            assert client.get("/v1/cookies").status_code == 200
        service.stop()
        [line] = run_successfully("token", "list", *database_options(settings)).splitlines()[1:]
        listed.append(line.split()[-2])
    assert listed[0].endswith("Z")
    assert listed[0] == listed[1] < listed[2]


def test_a_new_organization_is_announced_and_the_token_stands_alone(
    service: Service,
) -> None:
    name = f"Announced {os.getpid()}-{next(_organizations)}"
    create = ("token", "create", "--organization", name, *where(service))
    first, second = gleanery_in_process(*create), gleanery_in_process(*create)
    assert f"Created the organization {name}" in first.stderr
    assert second.stderr == ""
    assert all(tokens.is_well_formed(made.stdout.removesuffix("\n")) for made in (first, second))


def test_a_new_organization_that_differs_only_in_case_is_pointed_out(service: Service) -> None:
    name = f"Ärzte {os.getpid()}-{next(_organizations)}"
    create = ("token", "create", *where(service), "--organization")
    run_successfully(*create, name)
    similar = gleanery_in_process(*create, name.upper())
    assert similar.returncode == 0
    assert f"There is also the organization {name}:" in similar.stderr
    assert gleanery_in_process(*create, name.upper()).stderr == ""


@pytest.mark.parametrize("name", [" Company", "Company ", "\u00a0Company", "\u3000Company", " "])
@pytest.mark.parametrize("option", ["--organization", "--name"])
def test_a_name_with_outer_spaces_is_refused(tmp_path: Path, option: str, name: str) -> None:
    names = {"--organization": "Company", "--name": "client"} | {option: name}
    options = [part for pair in names.items() for part in pair]
    refused = gleanery_in_process("token", "create", *options, "--data", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert f"{option} must be a name" in refused.stderr
    assert "without spaces at its start or end" in refused.stderr
    assert not (tmp_path / "data").exists()


def worker_of(answer: httpx2.Response) -> str:
    """Returns the prefix of the request id, which identifies the worker process."""
    return answer.headers["x-request-id"][:12]


def clients_of_each_worker(running: Running, url: str, token: str) -> dict[str, Client]:
    """One connection to each: while one worker is held up, the other takes it."""
    clients = {}
    for child in running.workers():
        client = Client(url, token, limits=httpx2.Limits(keepalive_expiry=600))
        os.kill(child, signal.SIGSTOP)
        try:
            clients[worker_of(client.get("/v1/cookies"))] = client
        finally:
            os.kill(child, signal.SIGCONT)
    return clients


@pytest.mark.thorough
@PROC
def test_a_revocation_applies_to_every_worker(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings, seconds = fresh_settings(engine, request, tmp_path), 0.5
    options = ("--workers", "2", "--token-cache-seconds", str(seconds))
    with served(settings, *options) as (running, url, token), ExitStack() as at_the_end:
        at_the_end.callback(running.stop)  # a killed supervisor would leave its workers behind
        clients = clients_of_each_worker(running, url, token)
        assert len(clients) == 2
        assert [c.get("/v1/cookies").status_code for c in clients.values()] == [200, 200]
        run_successfully("token", "revoke", "1", *database_options(settings))
        time.sleep(seconds)  # no worker may trust its cache for longer
        for worker, client in clients.items():
            at_the_end.callback(client.close)
            answer = client.get("/v1/cookies")
            assert (answer.status_code, worker_of(answer)) == (401, worker)


def test_a_token_has_the_scopes_of_the_six_operations_by_default() -> None:
    assert (
        frozenset({"session:read", "session:write", "reviews:read", "outputs:read"})
        == tokens.DEFAULT_SCOPES
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["create"], "--organization"),
        (["create", "--organization", "a", "--scopes", "all"], "--scopes must be"),
        (["create", "--organization", "a", "--scopes", ","], "--scopes must be"),
        (["create", "--organization", " "], "--organization must be"),
        (["create", "--organization", "a\x1b[2J"], "--organization must be"),
        (["create", "--organization", "a", "--name", "a\nb"], "--name must be"),
        (["create", "--organization", "a", "--expires-in", "soon"], "--expires-in must be"),
        (["create", "--organization", "a", "--expires-in", "9999999d"], "100 years"),
        (["create", "--organization", "a", "--expires-in", "9" * 30 + "d"], "--expires-in must be"),
        (["revoke", "4711"], "no token 4711"),
        (["revoke", "99999999999999999999"], "ID must be"),
    ],
)
def test_a_wrong_command_is_one_clear_sentence(
    service: Service, arguments: list[str], sentence: str
) -> None:
    ended = gleanery_in_process("token", *arguments, *where(service))
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


def test_names_are_printed_as_they_are(service: Service) -> None:
    gleanery_in_process("token", "create", "--organization", "[/foo] [bold]x", *where(service))
    assert "[/foo] [bold]x" in gleanery_in_process("token", "list", *where(service)).stdout


def test_only_token_create_creates_a_database(tmp_path: Path) -> None:
    """A wrong folder must not look like a service without tokens."""
    data = ["--data", str(tmp_path / "new")]
    for command in (["list"], ["revoke", "1"]):
        ended = gleanery_in_process("token", *command, *data)
        assert ended.returncode == 2
        assert f"There is no database in {tmp_path / 'new'}" in ended.stderr
    assert not (tmp_path / "new").exists()
    made = gleanery_in_process("token", "create", "--organization", "a", *data)
    assert tokens.is_well_formed(made.stdout.strip())
    assert f"Created a new database in {tmp_path / 'new'}" in made.stderr
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "gleanery.sqlite").stat().st_mode & 0o777 == 0o600


def test_options_are_environment_variables_too(service: Service) -> None:
    name, value = {
        True: ("GLEANERY_DATA", str(service.settings.data)),
        False: ("GLEANERY_DATABASE", str(service.settings.database)),
    }[service.settings.database is None]
    variables = {name: value, "GLEANERY_ORGANIZATION": "from the environment"}
    made = gleanery_in_process("token", "create", GLEANERY_SECRET_KEY=SECRET_KEY, **variables)
    with service.client(made.stdout.strip()) as client:
        assert client.get("/v1/cookies").status_code == 200

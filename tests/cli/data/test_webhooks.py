"""``gleanery webhooks``, against a real receiver."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.cli.data import webhook_deliveries
from gleanery.client.webhooks import verify
from tests.cli.data.conftest import CommandLine
from tests.support.faulty_server import CLOSE, faulty_server, respond
from tests.support.process import free_port
from tests.support.receiver import FAIL, GONE, OK, Answer, Receiver, receiver
from tests.support.service import Service
from tests.support.settings import fresh_settings
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until

URL = "https://receiver.example/hook"
COMMANDS = {
    "show": ("ID",),
    "set": ("ID", "--event", "test"),
    "delete": ("ID", "--yes"),
    "test": ("ID",),
    "rotate": ("ID",),
    "enable": ("ID",),
    "deliveries": ("ID",),
    "redeliver": ("ID", "msg_1"),
}


@pytest.fixture(scope="module")
def sending(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that may send events to this machine."""
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp(engine))
    service = Service(replace(settings, webhook_allow=("127.0.0.1",)))
    yield service
    service.stop()


@pytest.fixture
def gleanery(sending: Service, tmp_path: Path) -> CommandLine:
    return CommandLine(sending.url, sending.token(), tmp_path / "config")


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def run(gleanery: CommandLine, *arguments: str) -> str:
    """What a command prints that succeeds."""
    done = gleanery("webhooks", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def create(gleanery: CommandLine, url: str = URL, *options: str) -> dict[str, Any]:
    arguments = ("create", url, "--event", "run.finished", *options, "--json")
    created: dict[str, Any] = json.loads(run(gleanery, *arguments))
    return created


def listed(gleanery: CommandLine) -> list[dict[str, Any]]:
    return list(json.loads(run(gleanery, "list", "--json")))


def delivered(gleanery: CommandLine, webhook_id: str) -> list[dict[str, Any]]:
    return list(json.loads(run(gleanery, "deliveries", webhook_id, "--json")))


# --- create and change --------------------------------------------------------------------------


def test_a_new_webhook_has_a_secret_that_is_printed_once(gleanery: CommandLine) -> None:
    done = gleanery(
        *("webhooks", "create", URL, "--event", "run.finished", "--event", "review.created"),
        *("--group", "shop-prices", "--description", "for the team", "--format", "slack"),
    )
    assert done.returncode == 0, done.stderr
    printed = re.fullmatch(r"Webhook: (\w+)\nSecret: (whsec_\S+)\n", done.stdout)
    assert printed is not None
    webhook_id, secret = printed.groups()
    assert "A chat or a mailbox does not need the secret. It is not shown again." in done.stderr
    assert f"gleanery webhooks test {webhook_id}" in done.stderr
    [webhook] = listed(gleanery)
    assert webhook["id"] == webhook_id
    assert (webhook["url"], webhook["groups"]) == (URL, ["shop-prices"])
    assert (webhook["description"], webhook["format"]) == ("for the team", "slack")
    assert webhook["events"] == ["run.finished", "review.created"]
    for shown in (run(gleanery, "list"), run(gleanery, "show", webhook_id)):
        assert secret not in shown
        assert "whsec_" not in shown


def test_the_secret_of_json_verifies_events(gleanery: CommandLine, hook: Receiver) -> None:
    created = create(gleanery, hook.url())
    run(gleanery, "test", created["id"])
    [received] = hook.wait_for(1)
    assert verify(received.headers, received.body, created["secret"]).type == "test"


def test_settings_are_changed_one_by_one(gleanery: CommandLine) -> None:
    webhook_id = create(gleanery, URL, "--group", "a", "--group", "b", "--description", "x")["id"]

    def change(*options: str) -> dict[str, Any]:
        changed = json.loads(run(gleanery, "set", webhook_id, *options, "--json"))
        return {name: changed[name] for name in ("url", "events", "groups", "description")}

    before = change("--description", "y")
    assert before == {
        "url": URL,
        "events": ["run.finished"],
        "groups": ["a", "b"],
        "description": "y",
    }
    events = ("--event", "test", "--event", "outputs.changed")
    assert change(*events) == before | {"events": ["test", "outputs.changed"]}
    after = change("--url", f"{URL}2", "--reset", "groups", "--reset", "description")
    assert (after["url"], after["groups"], after["description"]) == (f"{URL}2", None, "")
    shown = run(gleanery, "set", webhook_id, "--group", "c", "--format", "teams")
    assert "Groups: c\nFormat: teams\n" in shown
    assert "Events: test, outputs.changed\n" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Give a setting to change"),
        (("--reset", "url"), "--reset must be groups, description, format or headers"),
        (("--reset", "groups", "--group", "a"), "--reset groups contradicts another option"),
        (("--format", "morse"), "--format must be standard, slack, discord, teams or email"),
        (("--reset", "headers", "--header", "a: b"), "--reset headers contradicts another"),
        (("--header", "X-Api-Key"), "--header needs NAME:VALUE"),
        (("--header", ": b"), "--header needs NAME:VALUE"),
        (("--header", "X: b", "--header", "x: c"), "--header has the name x twice"),
        (("--header-file", "-", "--token-file", "-"), "cannot both be standard input"),
        (("--header-file", "missing.txt"), "missing.txt"),
    ],
)
def test_wrong_changes_are_explained(
    gleanery: CommandLine, options: tuple[str, ...], message: str
) -> None:
    done = gleanery("webhooks", "set", "ID", *options)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://127.1.2.3/", "--event", "test"), "url: use https"),
        ((URL, "--event", "run.ended"), "--event (number 1): "),
        ((URL, "--event", "test", "--group", "\n"), "--group (number 1): "),
        ((URL, "--event", "test", "--description", "x" * 501), "--description: "),
        ((URL, "--event", "test", "--header", "Host: a"), "--header Host: the service sets"),
        ((URL, "--event", "test", "--header", "1: \t\0"), "--header 1: expected a value"),
        ((URL, "--event", "test", "--header", "X-Api-Key: "), "--header needs a value for X-Api"),
        ((URL,), "--event is missing"),
        ((), "URL is missing"),
    ],
)
def test_wrong_settings_are_explained(
    gleanery: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    done = gleanery("webhooks", "create", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert listed(gleanery) == []


def test_headers_are_set_one_by_one(
    gleanery: CommandLine, hook: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headers.txt"
    file.write_text("Authorization: Bearer a:b\n\n X-Api-Key :  secret-1 \n")
    created = create(gleanery, hook.url(), "--header", "X-A: a", "--header-file", str(file))
    webhook_id = created["id"]
    assert created["headers"] == {"X-A": None, "Authorization": None, "X-Api-Key": None}

    def sent() -> dict[str, str]:
        run(gleanery, "test", webhook_id)
        names = ("x-a", "authorization", "x-api-key", "x-new")
        headers = hook.received()[-1].headers
        return {name: headers[name] for name in names if name in headers}

    first = {"x-a": "a", "authorization": "Bearer a:b", "x-api-key": "secret-1"}
    assert sent() == first
    run(gleanery, "set", webhook_id, "--description", "y")
    assert sent() == first
    run(gleanery, "set", webhook_id, "--header", "x-a:", "--header", "X-New: new")
    del first["x-a"]
    assert sent() == first | {"x-new": "new"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x-api-key: b\n")))
    done = gleanery("webhooks", "set", webhook_id, "--header-file", "-")
    assert done.returncode == 0, done.stderr
    assert "Headers: Authorization, X-New, x-api-key\n" in done.stdout
    assert sent() == first | {"x-new": "new", "x-api-key": "b"}
    for shown in (run(gleanery, "show", webhook_id), run(gleanery, "show", webhook_id, "--json")):
        assert "Bearer" not in shown
    moved = gleanery("webhooks", "set", webhook_id, "--url", URL)
    assert moved.returncode == 2
    assert "--header Authorization: a value is kept only while the scheme, host" in moved.stderr
    run(gleanery, "set", webhook_id, "--reset", "headers", "--url", URL)
    assert json.loads(run(gleanery, "show", webhook_id, "--json"))["headers"] == {}


def test_a_wrong_header_is_not_printed(gleanery: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "headers.txt"
    for content in (b"secret-1", b"Host: secret-1", b"X: secret-1\x01", b"X: secret-1\xff"):
        file.write_bytes(content)
        done = gleanery(*("webhooks", "create", URL, "--event", "test", "--header-file", str(file)))
        assert (done.returncode, "secret-1" in done.stdout + done.stderr) == (2, False)


def test_a_secret_is_rotated(gleanery: CommandLine, hook: Receiver) -> None:
    created = create(gleanery, hook.url())
    done = gleanery("webhooks", "rotate", created["id"])
    printed = re.fullmatch(r"Secret: (whsec_\S+)\n", done.stdout)
    assert printed is not None
    assert "Store the secret now" in done.stderr
    assert re.search(r"The old secret signs as well until \d{4}-.*Z\.", done.stderr)
    assert "Old secret until: 2" in run(gleanery, "show", created["id"])
    run(gleanery, "test", created["id"])
    [received] = hook.wait_for(1)
    for secret in (created["secret"], printed[1]):
        assert verify(received.headers, received.body, secret)
    third = json.loads(run(gleanery, "rotate", created["id"], "--json"))["secret"]
    assert len({created["secret"], printed[1], third}) == 3


def test_a_lost_response_is_explained(tmp_path: Path) -> None:
    """Nobody knows then whether there is a webhook, whose secret nobody has seen."""
    for step in (CLOSE, respond(502, b"<html>Bad gateway</html>")):
        with faulty_server(step) as server:
            line = CommandLine(server.url, "token", tmp_path)
            done = line("webhooks", "create", URL, "--event", "test")
            assert done.returncode == 1
            assert "The webhook may have been created: gleanery webhooks list" in done.stderr
            done = line("webhooks", "rotate", "ID")
            assert "The secret may have been rotated: run the command again" in done.stderr
            assert len(server.heads) == 2
    line = CommandLine(f"http://127.0.0.1:{free_port()}", "token", tmp_path)
    done = line("webhooks", "create", URL, "--event", "test")
    assert "may have been" not in done.stderr
    assert "Is the service running there?" in done.stderr


# --- list, show and delete ----------------------------------------------------------------------


def test_webhooks_are_listed_and_shown(gleanery: CommandLine) -> None:
    done = gleanery("webhooks", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "There is no webhook: gleanery webhooks create adds one." in done.stderr
    assert listed(gleanery) == []
    first = create(gleanery, URL, "--group", "a", "--group", "b")
    second = create(gleanery, f"{URL}2", "--description", "\x1b[31mred")
    title, *rows = run(gleanery, "list").splitlines()
    assert title.split()[:2] == ["Webhook", "Status"]
    assert [row.split()[0] for row in rows] == [first["id"], second["id"]]
    assert "a, b" in rows[0]
    assert r"\x1b[31mred" in rows[1]
    shown = run(gleanery, "show", first["id"])
    for line in (f"Webhook: {first['id']}", f"URL: {URL}", "Groups: a, b", "Status: enabled"):
        assert f"{line}\n" in shown
    secretless = {name: value for name, value in first.items() if name != "secret"}
    assert json.loads(run(gleanery, "show", first["id"], "--json")) == secretless


def test_a_webhook_is_deleted(gleanery: CommandLine) -> None:
    webhook_id = create(gleanery)["id"]
    done = gleanery("webhooks", "delete", webhook_id)
    assert done.returncode == 2
    assert "give --yes to delete" in done.stderr
    assert len(listed(gleanery)) == 1
    assert run(gleanery, "delete", webhook_id, "--yes") == "Deleted the webhook.\n"
    assert listed(gleanery) == []


@pytest.mark.thorough
def test_a_terminal_is_asked_before_a_deletion(gleanery: CommandLine) -> None:
    webhook_id = create(gleanery)["id"]
    for answer, count in (("n", 1), ("y", 0)):
        with Terminal("webhooks", "delete", webhook_id, **gleanery.variables) as terminal:
            terminal.wait_for(f"Delete the webhook to {URL}?")
            terminal.write(f"{answer}\n")
            assert terminal.wait() == count, terminal.shown
        assert len(listed(gleanery)) == count


# --- test and deliveries ------------------------------------------------------------------------


def test_a_test_says_that_the_receiver_accepted_the_event(
    gleanery: CommandLine, hook: Receiver
) -> None:
    webhook_id = create(gleanery, hook.url())["id"]
    printed = run(gleanery, "test", webhook_id)
    assert re.fullmatch(r"The receiver accepted the event: status 200 after \d+ ms\.\n", printed)
    done = json.loads(run(gleanery, "test", webhook_id, "--json"))
    assert (done["event"], done["status"]) == ("test", "delivered")
    assert [one.id for one in hook.received()][-1] == done["delivery_id"]


def test_a_test_that_fails_says_why(gleanery: CommandLine, hook: Receiver) -> None:
    webhook_id = create(gleanery, hook.url())["id"]
    hook.answer("/", FAIL._replace(body=b"\x1b[31mbroken"))
    done = gleanery("webhooks", "test", webhook_id)
    assert (done.returncode, done.stdout) == (1, "")
    assert "did not accept the event: the response has the status 500" in done.stderr
    assert 'The response was "' in done.stderr
    assert "broken" in done.stderr
    assert "\x1b" not in done.stderr
    assert f"gleanery webhooks deliveries {webhook_id} shows the next attempts." in done.stderr
    assert "failing" in run(gleanery, "list")
    done = gleanery("webhooks", "test", webhook_id, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["attempts"][0]["status_code"] == 500


def test_a_test_without_a_connection_says_so(gleanery: CommandLine) -> None:
    webhook_id = create(gleanery, f"http://127.0.0.1:{free_port()}/")["id"]
    done = gleanery("webhooks", "test", webhook_id)
    assert done.returncode == 1
    assert "did not accept the event: the connection was refused." in done.stderr


def test_a_test_does_not_wait_without_an_end(
    gleanery: CommandLine, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_deliveries, "WAIT_SECONDS", 1.0)
    released = threading.Event()
    hook.answer("/", Answer(until=released))
    webhook_id = create(gleanery, hook.url())["id"]
    done = gleanery("webhooks", "test", webhook_id)
    released.set()
    assert done.returncode == 1
    assert "There is no result after 1 seconds: other events wait." in done.stderr


def test_deliveries_are_listed(gleanery: CommandLine, hook: Receiver) -> None:
    webhook_id = create(gleanery, hook.url())["id"]
    done = gleanery("webhooks", "deliveries", webhook_id)
    assert done.returncode == 0
    assert "gleanery webhooks test WEBHOOK_ID sends an event." in done.stderr
    run(gleanery, "test", webhook_id)
    hook.answer("/", FAIL)  # until the end: the event that fails goes on waiting
    assert gleanery("webhooks", "test", webhook_id).returncode == 1
    title, newest, accepted = run(gleanery, "deliveries", webhook_id).splitlines()
    assert title.split() == [*webhook_deliveries.DELIVERY_COLUMNS]
    assert re.search(r"test +waiting +\d+ +the response has the status 500", newest)
    assert re.search(r"test +delivered +1 +status 200 after \d+ ms", accepted)
    found = delivered(gleanery, webhook_id)
    assert [one["status"] for one in found] == ["waiting", "delivered"]
    filters = ("--status", "delivered", "--event", "test")
    assert json.loads(run(gleanery, "deliveries", webhook_id, *filters, "--json")) == found[1:]
    [first] = json.loads(run(gleanery, "deliveries", webhook_id, "-n", "1", "--json"))
    assert first["delivery_id"] == found[0]["delivery_id"]
    done = gleanery("webhooks", "deliveries", webhook_id, "--status", "failed")
    assert "There is no such delivery" in done.stderr
    done = gleanery("webhooks", "deliveries", webhook_id, "--event", "run.ended")
    assert (done.returncode, "--event: " in done.stderr) == (2, True)


def test_an_event_is_sent_again(gleanery: CommandLine, hook: Receiver) -> None:
    webhook_id = create(gleanery, hook.url())["id"]
    run(gleanery, "test", webhook_id)
    [delivery] = delivered(gleanery, webhook_id)
    printed = run(gleanery, "redeliver", webhook_id, delivery["delivery_id"])
    assert printed == "The event test is sent again.\n"
    assert [one.id for one in hook.wait_for(2)] == [delivery["delivery_id"]] * 2
    wait_until(lambda: len(delivered(gleanery, webhook_id)[0]["attempts"]) == 2)


def test_a_disabled_webhook_is_enabled(gleanery: CommandLine, hook: Receiver) -> None:
    webhook_id = create(gleanery, hook.url())["id"]
    hook.answer("/", GONE)
    assert gleanery("webhooks", "test", webhook_id).returncode == 1
    wait_until(lambda: listed(gleanery)[0]["status"] == "disabled")
    assert re.search("^Status: disabled: .*410", run(gleanery, "show", webhook_id), re.MULTILINE)
    done = gleanery("webhooks", "test", webhook_id)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gleanery: This webhook is disabled: enable it first\n"
    hook.answer("/", OK)
    assert run(gleanery, "enable", webhook_id) == "The webhook is enabled.\n"
    assert json.loads(run(gleanery, "enable", webhook_id, "--json"))["status"] == "enabled"
    hook.wait_for(2)


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_webhook_is_a_user_error(gleanery: CommandLine, name: str) -> None:
    done = gleanery("webhooks", name, *COMMANDS[name])
    assert done.returncode == 2
    message = "There is no webhook with this id. The command gleanery webhooks list lists them."
    assert done.stderr == f"gleanery: {message}\n"


def test_an_unknown_delivery_is_a_user_error(gleanery: CommandLine) -> None:
    webhook_id = create(gleanery)["id"]
    done = gleanery("webhooks", "redeliver", webhook_id, "msg_1")
    assert done.returncode == 2
    assert "The command gleanery webhooks deliveries lists them." in done.stderr


def test_a_missing_scope_is_named(
    sending: Service, gleanery: CommandLine, hook: Receiver, tmp_path: Path
) -> None:
    organization = tmp_path.name
    lines = {
        scope: CommandLine(
            sending.url, sending.token(organization, frozenset({scope})), tmp_path / "config"
        )
        for scope in ("webhooks:read", "webhooks:write")
    }
    webhook_id = create(lines["webhooks:write"], hook.url())["id"]
    for scope, other, commands in (
        ("webhooks:read", "webhooks:write", ("list", "show", "deliveries", "set", "test")),
        ("webhooks:write", "webhooks:read", ("rotate", "enable", "delete", "redeliver", "test")),
    ):
        for name in commands:
            arguments = [webhook_id if one == "ID" else one for one in COMMANDS.get(name, ())]
            done = lines[other]("webhooks", name, *arguments)
            assert done.returncode == 2
            assert f"This token lacks the scope {scope}: ask the operator" in done.stderr
            assert "gleanery token create --scopes" in done.stderr
    assert hook.received() == []
    assert [webhook["id"] for webhook in listed(lines["webhooks:read"])] == [webhook_id]

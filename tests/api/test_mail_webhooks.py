"""Webhooks of the format email over HTTP, with a real mail server, on both engines."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.resources.webhooks import mailer
from tests.support.certificates import write_certificate
from tests.support.mail_server import MailServer, ReceivedMail, mail_server
from tests.support.outputs import output
from tests.support.receiver import receiver as http_receiver
from tests.support.runs import complete
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until
from tests.support.webhooks import (
    ALLOWED,
    FAR,
    act,
    change,
    create,
    deliveries,
    pass_time,
    show,
    wait_for_attempts,
    wait_until_delivered,
)

SENDER = "gleanery@data.example.com"
PASSWORD = "p4ss-Xq2mB7fRz0aL"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def mail() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture(scope="module")
def module_clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def service(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    mail: MailServer,
    module_clock: Clock,
) -> Iterator[Service]:
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("mail"))
    running = Service(with_mail(settings, mail), module_clock)
    yield running
    running.stop()


@pytest.fixture
def address() -> str:
    """An address that no other test uses."""
    return f"ops{next(_numbers)}@example.com"


def with_mail(settings: Settings, server: MailServer, **changes: Any) -> Settings:
    """Settings with this mail server, without encryption unless the changes say so."""
    defaults = {"smtp_server": server.address, "smtp_sender": SENDER, "smtp_tls": "none"}
    return replace(
        settings, webhook_allow=ALLOWED, shutdown_seconds=1, **(defaults | changes)
    ).check()


@contextmanager
def running_with(folder: Path, server: MailServer, **changes: Any) -> Iterator[Client]:
    """A client of a service of its own, on SQLite."""
    settings = Settings(data=folder, port=0, log_level="warning", slow_request_seconds=0)
    running = Service(with_mail(settings, server, **changes))
    try:
        with running.client() as client:
            yield client
    finally:
        running.stop()


def create_mail(client: Client, *addresses: str, **members: Any) -> dict[str, Any]:
    events = members.pop("events", ("test",))
    return create(client, f"mailto:{','.join(addresses)}", *events, format="email", **members)


def mail_to(server: MailServer, address: str) -> list[ReceivedMail]:
    return [one for one in server.received() if address in one.recipients]


def wait_for_mail(server: MailServer, address: str, count: int = 1) -> list[ReceivedMail]:
    wait_until(lambda: len(mail_to(server, address)) >= count)
    return mail_to(server, address)


def send_test(client: Client, *addresses: str) -> dict[str, Any]:
    """Send a test, and return its delivery after the first attempt."""
    webhook = create_mail(client, *addresses or ("ops@example.com",))
    return wait_for_attempts(client, webhook, 1, act(client, webhook, "test")["delivery_id"])


# --- messages -----------------------------------------------------------------------------------


def test_a_test_is_one_message_to_all_addresses(
    client: Client, mail: MailServer, address: str
) -> None:
    webhook = create_mail(client, address, "lead@example.com")
    assert webhook["url"] == f"mailto:{address},lead@example.com"
    sent = act(client, webhook, "test")
    [received] = wait_for_mail(mail, address)
    message = received.message
    assert received.sender == SENDER
    assert received.recipients == [address, "lead@example.com"]
    assert str(message["From"]) == f"Gleanery <{SENDER}>"
    assert str(message["To"]) == f"{address}, lead@example.com"
    assert message["Subject"] == "[Gleanery] This is a test of a webhook of Gleanery"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"] == f"<{sent['delivery_id']}@data.example.com>"
    assert message["Gleanery-Delivery-Id"] == sent["delivery_id"]
    assert message["Gleanery-Event"] == "test"
    assert message["Date"].datetime.tzinfo is not None
    assert f"/console#/webhooks/{webhook['id']}\n" in received.text
    [delivery] = wait_until_delivered(client, webhook)
    [attempt] = delivery["attempts"]
    assert (attempt["status_code"], attempt["response"]) == (250, "250 accepted")
    assert attempt["error"] is None


def test_events_arrive_once_and_in_order(client: Client, mail: MailServer, address: str) -> None:
    webhook = create_mail(client, address, events=("run.finished", "outputs.changed"))
    for number in range(3):
        complete(client, number)
    wait_for_mail(mail, address, 4)
    wait_until_delivered(client, webhook)
    subjects = [one.subject for one in mail_to(mail, address)]
    assert subjects.count("[Gleanery] The outputs of group have changed") == 1
    assert subjects.count("[Gleanery] Run complete: job in group") == 3
    ids = [str(one.message["Gleanery-Delivery-Id"]) for one in mail_to(mail, address)]
    known = [one["delivery_id"] for one in deliveries(client, webhook, event="run.finished")]
    assert [id_ for id_ in ids if id_ in known] == known


HOSTILE = [
    "a\r\nBcc: victim@example.com\r\n\r\nHello",
    "x\nSubject: other\n.\nQUIT",
    "\u202e\u200b\ufeff\x1b[31m\u2028Bcc: victim@example.com\u0085y",
    "=?utf-8?q?Bcc:_victim=40example.com?=",
    "😀 prix réduits — 価格 " * 20,
    "." * 300,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_texts_of_others_add_no_header_and_no_line(
    client: Client, mail: MailServer, address: str, hostile: str
) -> None:
    webhook = create_mail(client, address, events=("review.created", "webhook.disabled"))
    client.store("group", output(1))
    review = {"job_id": "job", "status": "approved", "comment": hostile}
    reviewed = client.post("/v1/reviews/group", json=review)
    assert reviewed.status_code == 200, reviewed.text
    [received] = wait_for_mail(mail, address)
    message = received.message
    assert received.recipients == [address]
    assert set(message.keys()) == {
        *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version"),
        *("Gleanery-Delivery-Id", "Gleanery-Event", "Content-Type", "Content-Transfer-Encoding"),
    }
    assert str(message["To"]) == address
    assert message["Subject"] == "[Gleanery] Review approved: job in group"
    assert max(map(len, received.content.splitlines())) <= 998
    first, _, rest = received.text.partition("\n\n")
    assert first.startswith("The review of job in group is now: approved.")
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e\u200b]", first)
    assert rest.startswith("Console: http")
    assert wait_until_delivered(client, webhook)[0]["status"] == "delivered"


def test_names_of_others_add_no_header(client: Client, mail: MailServer, address: str) -> None:
    name = "é" * 60 + " =?utf-8?q?x?= <a@b.example>, Bcc: v@example.com"
    create_mail(client, address, events=("run.finished",))
    client.post(f"/v1/outputs/{name}".replace("?", "%3F"), json=[output(1, job_id=name)])
    run = client.post(f"/v1/runs/{name}".replace("?", "%3F"), json={"job_id": name})
    assert run.status_code == 200, run.text
    path = f"/v1/runs/{name}/{run.json()['run_id']}/finish".replace("?", "%3F")
    assert client.post(path, json={"status": "complete"}).status_code == 200
    [received] = wait_for_mail(mail, address)
    assert received.recipients == [address]
    assert received.subject.startswith("[Gleanery] Run complete: é")
    assert len(received.subject) < 200


# --- failures -----------------------------------------------------------------------------------


def test_a_refused_recipient_among_others_is_told(
    client: Client, mail: MailServer, address: str
) -> None:
    mail.refused["gone@example.com"] = "550 5.1.1 no such user"
    try:
        delivery = send_test(client, address, "gone@example.com")
    finally:
        mail.refused.clear()
    assert delivery["status"] == "delivered"
    [attempt] = delivery["attempts"]
    assert attempt["status_code"] == 250
    assert attempt["error"] == (
        "the mail server refused some recipients: gone@example.com (550 5.1.1 no such user)"
    )
    [received] = mail_to(mail, address)
    assert received.recipients == [address]


def test_an_attempt_fails_if_all_recipients_are_refused(
    client: Client, mail: MailServer, module_clock: Clock, address: str
) -> None:
    mail.refused[address] = "550 no such user"
    webhook = create_mail(client, address)
    sent = act(client, webhook, "test")
    delivery = wait_for_attempts(client, webhook, 1)
    mail.refused.clear()
    assert delivery["status"] == "waiting"
    [attempt] = delivery["attempts"]
    assert (attempt["status_code"], attempt["response"]) == (550, "550 no such user")
    assert attempt["error"] == (
        f"the mail server refuses all recipients: {address} (550 no such user)"
    )
    assert show(client, webhook)["failing_since"] is not None
    pass_time(client, module_clock, 10)
    [received] = wait_for_mail(mail, address)
    assert received.message["Message-ID"] == f"<{sent['delivery_id']}@data.example.com>"
    [delivery] = wait_until_delivered(client, webhook)
    assert [one["error"] is None for one in delivery["attempts"]] == [False, True]
    assert show(client, webhook)["failing_since"] is None


def test_a_refused_message_is_sent_again_with_the_same_id(
    client: Client, mail: MailServer, module_clock: Clock, address: str
) -> None:
    mail.reply = "554 5.7.1\x1b spam"
    webhook = create_mail(client, address)
    act(client, webhook, "test")
    delivery = wait_for_attempts(client, webhook, 1)
    mail.reply = "250 accepted"
    [attempt] = delivery["attempts"]
    assert attempt["status_code"] == 554
    assert attempt["error"].startswith("the mail server refuses the message: 554 5.7.1")
    assert "\x1b" not in attempt["error"]
    pass_time(client, module_clock, 10)
    assert len(wait_for_mail(mail, address)) == 1


def test_a_server_that_was_away_gets_everything_in_order(
    client: Client, mail: MailServer, module_clock: Clock, address: str
) -> None:
    webhook = create_mail(client, address)
    mail.stop()
    try:
        sent = [act(client, webhook, "test")["delivery_id"] for _ in range(3)]
        first = wait_for_attempts(client, webhook, 1, sent[0])
        assert first["attempts"][0]["error"].startswith(
            "the mail server of this service cannot be reached: its operator can see more"
        )
        assert first["attempts"][0]["status_code"] is None
    finally:
        mail.start()
    pass_time(client, module_clock, 10)
    received = wait_for_mail(mail, address, 3)
    assert [str(one.message["Gleanery-Delivery-Id"]) for one in received] == sent


def test_an_event_can_be_sent_again(client: Client, mail: MailServer, address: str) -> None:
    webhook = create_mail(client, address)
    sent = act(client, webhook, "test")["delivery_id"]
    wait_until_delivered(client, webhook)
    act(client, webhook, f"deliveries/{sent}/redeliver")
    first, second = wait_for_mail(mail, address, 2)
    assert first.message["Message-ID"] == second.message["Message-ID"]


def test_a_slow_server_ends_the_attempt_and_delays_no_other_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailer, "TIMEOUT_SECONDS", 1.0)
    with mail_server() as server, running_with(tmp_path, server) as client, http_receiver() as http:
        server.slow = threading.Event()
        try:
            slow, other = create_mail(client, "ops@example.com"), create(client, http.url("/x"))
            act(client, slow, "test")
            wait_until(lambda: server.begun == 1)
            act(client, other, "test")
            http.wait_for(1, "/x")
            delivery = wait_for_attempts(client, slow, 1)
            [attempt] = delivery["attempts"]
            assert attempt["error"].startswith("no complete answer of the mail server within")
            assert delivery["status"] == "waiting"
        finally:
            server.slow.set()


# --- connections --------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that the service trusts."""
    files = write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    return files


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_the_connection_is_encrypted(
    tls: str, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with (
        mail_server(certificate, is_tls=tls == "tls") as server,
        running_with(tmp_path / "data", server, smtp_tls=tls) as client,
    ):
        assert send_test(client)["status"] == "delivered"
        [received] = server.received()
        assert received.is_encrypted


@pytest.mark.parametrize("tls", ["starttls", "tls"])
@pytest.mark.parametrize("problem", ["untrusted", "name"])
def test_a_wrong_certificate_is_refused(
    tls: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_certificate(tmp_path)
    changes: dict[str, Any] = {"smtp_tls": tls}
    with mail_server(files, is_tls=tls == "tls") as server:
        if problem == "name":  # the certificate is only for 127.0.0.1
            monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
            changes["smtp_server"] = f"localhost:{server.port}"
        with running_with(tmp_path / "data", server, **changes) as client:
            [attempt] = send_test(client)["attempts"]
        assert attempt["error"] == (
            "the mail server of this service has no valid certificate: its operator can see more "
            "in the log"
        )
        assert server.begun == 0


def test_nothing_is_sent_without_the_encryption_of_the_settings(tmp_path: Path) -> None:
    with mail_server() as server:
        for tls in ("starttls", "tls"):
            with running_with(tmp_path / tls, server, smtp_tls=tls) as client:
                delivery = send_test(client)
            assert delivery["status"] == "waiting"
            assert delivery["attempts"][0]["error"].startswith("the mail server of this service")
        assert server.begun == 0


@pytest.mark.parametrize("is_right", [True, False])
def test_the_service_logs_in(
    is_right: bool,
    tmp_path: Path,
    certificate: tuple[Path, Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    login = {"smtp_username": "me", "smtp_password": PASSWORD if is_right else f"{PASSWORD}x"}
    with (
        mail_server(certificate, login=("me", PASSWORD)) as server,
        running_with(tmp_path / "data", server, smtp_tls="starttls", **login) as client,
    ):
        delivery = send_test(client)
        if is_right:
            assert [one.login for one in server.received()] == ["me"]
        else:
            [attempt] = delivery["attempts"]
            assert "refuses the login" in attempt["error"]
            assert server.begun == 0
        assert PASSWORD not in str(delivery)
    assert PASSWORD not in "".join(capfd.readouterr())


# --- settings -----------------------------------------------------------------------------------


def test_without_a_mail_server_the_format_is_refused(tmp_path: Path) -> None:
    running = Service(Settings(data=tmp_path, port=0, log_level="warning"))
    try:
        with running.client() as client:
            body = {"url": "mailto:ops@example.com", "events": ["test"], "format": "email"}
            answer = client.post("/v1/webhooks", json=body)
    finally:
        running.stop()
    assert answer.status_code == 422
    [problem] = answer.json()["detail"]
    assert problem["loc"] == ["body", "format"]
    assert "--smtp-server" in problem["msg"]


def test_a_webhook_waits_while_the_mail_server_is_not_set(
    tmp_path: Path, module_clock: Clock
) -> None:
    with mail_server() as server:
        plain = Settings(data=tmp_path, port=0, log_level="warning")
        first = Service(with_mail(plain, server))
        token = first.token()
        with first.client(token) as client:
            webhook = create_mail(client, "ops@example.com")
        first.stop()
        second = Service(plain)
        with second.client(token) as client:
            act(client, webhook, "test")
            [attempt] = wait_for_attempts(client, webhook, 1)["attempts"]
            assert "its operator can set --smtp-server" in attempt["error"]
            assert show(client, webhook)["format"] == "email"
        second.stop()
        third = Service(with_mail(plain, server), module_clock)
        with third.client(token) as client:
            pass_time(client, module_clock, 60)
            server.wait_for(1)
        third.stop()


ADDRESSES = ",".join(f"a{number}@example.com" for number in range(20))


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("mailto:Ops+alerts@Example.COM", "mailto:Ops+alerts@example.com"),
        ("MAILTO:a@b.example,a@b.example", "mailto:a@b.example"),
        ("mailto:a@münchen.example", "mailto:a@xn--mnchen-3ya.example"),
        (f"mailto:{ADDRESSES}", f"mailto:{ADDRESSES}"),
    ],
)
def test_addresses_are_normalised(client: Client, url: str, normal: str) -> None:
    assert create(client, url, format="email")["url"] == normal


@pytest.mark.parametrize(
    "url",
    [
        "mailto:",
        "mailto:ops",
        "mailto:ops@",
        "mailto:@example.com",
        "mailto:ops@example",
        "mailto:ops@localhost",
        "mailto:ops@127.0.0.1",
        "mailto:ops@[127.0.0.1]",
        "mailto:a@b@example.com",
        "mailto:a..b@example.com",
        "mailto:.a@example.com",
        "mailto:ops@example.com,",
        "mailto:ops@example.com;lead@example.com",
        "mailto:ops@example.com, lead@example.com",
        "mailto:ops@example.com?subject=x",
        "mailto:ops@example.com?bcc=v@example.com",
        "mailto:ops@example.com#x",
        "mailto:ops%40example.com",
        "mailto:ops@example.com%0d%0aBcc:v@example.com",
        "mailto:ops@example.com\nBcc: v@example.com",
        "mailto:ops@example.com\r\n",
        "mailto:Ops <ops@example.com>",
        'mailto:"a b"@example.com',
        "mailto:ops@ex_ample.com",
        "mailto:ops@-example.com",
        "mailto:öps@example.com",
        f"mailto:{'a' * 65}@example.com",
        f"mailto:{ADDRESSES},b@example.com",
        FAR,
    ],
)
def test_other_urls_are_refused(client: Client, url: str) -> None:
    body = {"url": url, "events": ["test"], "format": "email"}
    answer = client.post("/v1/webhooks", json=body)
    assert answer.status_code == 422, answer.text
    [problem] = answer.json()["detail"]
    assert problem["loc"] == ["body", "url"]
    assert "mailto:" in problem["msg"]


@pytest.mark.parametrize("format_", ["standard", "slack"])
def test_addresses_need_the_format_email(client: Client, format_: str) -> None:
    body = {"url": "mailto:ops@example.com", "events": ["test"], "format": format_}
    answer = client.post("/v1/webhooks", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["msg"] == "a URL with mailto: needs the format email"


def test_an_email_has_no_headers_of_requests(client: Client, address: str) -> None:
    body = {"url": f"mailto:{address}", "events": ["test"], "format": "email"}
    answer = client.post("/v1/webhooks", json=body | {"headers": {"X-Key": "abc"}})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "headers"]
    webhook = create_mail(client, address)
    assert change(client, webhook, description="on call")["description"] == "on call"


def test_a_webhook_can_become_an_email(
    client: Client, mail: MailServer, module_clock: Clock, address: str
) -> None:
    """What waited is sent to the addresses, and the headers are gone."""
    with http_receiver() as receiver:
        receiver.stop()
        webhook = create(client, receiver.url("/"), headers={"X-Key": "abcdefgh"})
        sent = act(client, webhook, "test")["delivery_id"]
        wait_for_attempts(client, webhook, 1)
    changed = change(client, webhook, url=f"mailto:{address}", format="email", headers=None)
    assert changed["headers"] == {}
    [received] = wait_for_mail(mail, address)
    assert received.message["Gleanery-Delivery-Id"] == sent

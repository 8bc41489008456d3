"""Targets of webhooks: hostile ones are refused, and nothing connects to them.

A hook of Python's audit events sees each connection that this process tries to open.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.webhooks.deliveries import Answer as Sent
from gleanery.service.resources.webhooks.endpoints import Target
from gleanery.service.resources.webhooks.sender import Sender
from gleanery.service.resources.webhooks.targets import Targets
from tests.support import receiver as receiving
from tests.support.certificates import write_certificate
from tests.support.process import gleanery_in_process
from tests.support.receiver import Receiver, redirect
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.webhooks import act, create, wait_for_attempts

_connected: list[Any] = []
_resolved: list[Any] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        _connected.append(arguments[1])
    elif event == "socket.getaddrinfo":
        _resolved.append(arguments[0])


sys.addaudithook(_note)


@pytest.fixture(scope="module")
def listener() -> Iterator[Receiver]:
    """A receiver inside the network, which nothing may reach."""
    made = Receiver()
    yield made
    made.stop()


def send(
    targets: Targets, *urls: str, certificate: Path | None = None
) -> tuple[list[Sent], list[Any]]:
    """Send an event to each URL. Return what came of it, and the addresses of connections."""

    async def run() -> list[Sent]:
        sender = Sender(targets, timestamps.now)
        try:
            return [
                await sender.send(Target(url, "standard", [b"key"]), "msg_1", b"{}") for url in urls
            ]
        finally:
            sender.close()

    _connected.clear()
    _resolved.clear()
    answers = asyncio.run(run())
    return answers, [*_connected]


def resolver(answers: Sequence[Sequence[str]]) -> Callable[[str, int], Any]:
    """A resolver that returns these addresses, one list after the other."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


# --- the table ----------------------------------------------------------------------------------

LITERALS = [
    # private, loopback, link-local, shared, documentation, multicast, reserved
    *("10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "127.0.0.1", "127.255.255.254"),
    *("0.0.0.0", "0.1.2.3", "169.254.1.1", "100.64.0.1", "100.127.255.254", "192.0.2.1"),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255"),
    *("240.0.0.1", "255.255.255.255", "192.88.99.1"),
    # metadata of clouds
    *("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "[fd00:ec2::254]"),
    # IPv6, and IPv4 inside it
    *("[::]", "[::1]", "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:a00:1]"),
    *("[::ffff:0:127.0.0.1]", "[fe80::1]", "[fec0::1]", "[fc00::1]", "[fd12::1]", "[ff02::1]"),
    *("[ff0e::1]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2002:c0a8:101::1]"),
    *("[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2001::1]"),
    *("[2001:db8::1]", "[3fff::1]", "[100::1]", "[0:0:0:0:0:0:0:1]", "[::FFFF:127.0.0.1]"),
    # other spellings of addresses
    *("2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "0x7f.0.0.1", "127.1", "127.0.1"),
    *("0", "0x0", "00", "127.0.0.1.", "127.000.000.001", "0300.0250.1.1", "3232235777"),
    *("2852039166", "0xA9FEA9FE", "169.254.43518", "127.0.0.1。", "１２７.0.0.1", "①②⑦.0.0.1"),
    *("127。0。0。1", "127．0．0．1", "0Ⅹ7f000001"[:1] + "x7f000001"),
    # names of this host
    *("localhost", "LOCALHOST", "localhost.", "localhost。", "a.localhost", "a.b.localhost."),
    *("localhost.localdomain", "ip6-localhost", "ip6-loopback", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "ｌｏｃａｌｈｏｓｔ"),
]
URLS = [
    # not a URL of this kind
    *("http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/"),
    *("//example.com/", "example.com", "https:example.com", "https://", "https:///path", ""),
    # user info, fragments, ports
    *("https://user@example.com/", "https://user:pass@example.com/", "https://@example.com/"),
    *("https://example.com@127.0.0.1/", "https://127.0.0.1@example.com/", "https://:@example.com/"),
    *("https://example.com\\@127.0.0.1/", "https://example.com/#fragment"),
    *("https://example.com:0/", "https://example.com:65536/", "https://example.com:-1/"),
    *("https://example.com:port/", "https://example.com:99999999999/"),
    # zones, and hosts that are not valid
    *("https://[fe80::1%25eth0]/", "https://[::1%25lo]/", "https://[::1/", "https://[v1.a]/"),
    *("https://[v1.a:b]/", "https://[127.0.0.1]/", "https://a..b/", "https://.example.com/"),
    *(f"https://{'a' * 64}.example/", f"https://{'a.' * 127}example/", "https://./", "https://../"),
    *("https://a_b\\.example/", "https://a<b>.example/", "https://a*.example/", "https://-/"),
    *("https://a%2eexample/", "https://127.0.0.1%00.example.com/", "https://a|b.example/"),
    # spaces and control characters
    *("https://exam ple.com/", "https://example.com/a b", " https://example.com/"),
    *(
        "https://example.com/\r\nHost: 127.0.0.1",
        "https://exam\tple.com/",
        "https://a\x00.example/",
    ),
    *("https://example.com/\u202e", "https://exa\u00admple.com/", "https://\u200d/"),
]


def test_the_table_has_many_hostile_targets() -> None:
    assert len(set(LITERALS)) + len(set(URLS)) >= 100


@pytest.mark.parametrize("host", LITERALS)
def test_an_internal_address_is_refused(host: str) -> None:
    targets = Targets(())
    for url in (f"https://{host}/", f"https://{host}:8443/a?b", f"http://{host}/"):
        with pytest.raises(ValueError, match=r"public|https"):
            targets.check_url(url)


def test_an_internal_address_in_a_stored_url_is_refused_before_a_connection(
    listener: Receiver,
) -> None:
    hosts = [host for host in LITERALS if host.isascii()]  # a stored URL is in ASCII
    answers, connections = send(Targets(()), *(f"https://{h}:{listener.port}/" for h in hosts))
    for host, answer in zip(hosts, answers, strict=True):
        assert answer.status_code is None
        assert answer.error is not None, host
    assert connections == []
    assert listener.connections == 0


@pytest.mark.parametrize("url", URLS)
def test_what_is_not_a_proper_url_is_refused(url: str) -> None:
    for allow in ((), ("10.0.0.0/8",)):  # with a network, http may be allowed later
        if not url.startswith("http://") or not allow:
            with pytest.raises(ValueError, match=r"\w \w"):
                Targets(allow).check_url(url)


INSIDE = [
    *([host] for host in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "::1")),
    *([host] for host in ("::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%1")),
    *([host] for host in ("0.0.0.0", "::", "224.0.0.1", "ff02::1", "fd00::1", "192.168.0.1")),
    ["93.184.216.34", "127.0.0.1"],
    ["127.0.0.1", "93.184.216.34"],
    ["2606:4700::1111", "::1"],
    [],
]


@pytest.mark.parametrize(
    "host", ["rebind.example", "metadata.google.internal", "www.shop.example."]
)
def test_a_name_that_leads_inside_is_refused(host: str, listener: Receiver) -> None:
    targets = Targets((), resolver(INSIDE))
    url = targets.check_url(f"https://{host}:{listener.port}/")
    answers, connections = send(targets, *[url] * len(INSIDE))
    for addresses, answer in zip(INSIDE, answers, strict=True):
        assert (answer.error or "").startswith("refused: "), addresses
    assert connections == []
    assert listener.connections == 0


def test_a_name_that_this_host_resolves_to_loopback_is_refused(
    monkeypatch: pytest.MonkeyPatch, listener: Receiver
) -> None:
    def to_loopback(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", to_loopback)
    [answer], connections = send(Targets(()), f"https://inside.example:{listener.port}/")
    assert (answer.error or "").startswith("refused: ")
    assert connections == []


def test_a_host_that_cannot_be_resolved_is_a_failed_attempt() -> None:
    hosts = (
        "a..b",
        f"{'a' * 64}.example",
        "a%2eb",
        "receiver.invalid",
        "1.2.3.4.5",
        "08.8.8.8",
    )
    answers, connections = send(Targets(()), *(f"https://{host}/" for host in hosts))
    assert all(answer.error for answer in answers)
    assert connections == []


# --- names that change ----------------------------------------------------------------------------


@contextmanager
def on_address(address: str) -> Iterator[tuple[socket.socket, int]]:
    with socket.create_server((address, 0)) as opened:
        yield opened, opened.getsockname()[1]


def test_the_connection_goes_to_the_address_that_was_checked(listener: Receiver) -> None:
    answers = [["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]]
    targets = Targets(("127.0.0.2",), resolver(answers))
    port = listener.port
    [first, second], connections = send(targets, *[f"http://changing.example:{port}/"] * 2)
    assert first.error == "the connection was refused"  # nothing listens on 127.0.0.2
    assert connections == [("127.0.0.2", port)]
    assert (second.error or "").startswith("refused: ")
    assert _resolved == []  # only our resolver was asked
    assert listener.connections == 0


def test_a_second_address_is_tried_only_if_all_are_allowed(listener: Receiver) -> None:
    targets = Targets(("127.0.0.0/8",), resolver([["127.0.0.3", "127.0.0.1"]]))
    inside = Receiver()
    [answer], connections = send(targets, inside.url("/x", "two.example"))
    inside.stop()
    assert (answer.status_code, answer.error) == (200, None)
    assert connections == [("127.0.0.3", inside.port), ("127.0.0.1", inside.port)]
    assert inside.received("/x")[0].headers["host"] == f"two.example:{inside.port}"


def test_a_redirect_to_an_internal_address_is_not_followed(listener: Receiver) -> None:
    with receiving.receiver() as outside:
        outside.answer("/", redirect(listener.url("/latest/meta-data")))
        targets = Targets(("outside.example",), resolver([["127.0.0.1"]]))
        [answer], connections = send(targets, outside.url("/", "outside.example"))
    assert answer.status_code == 302
    assert "redirect" in (answer.error or "")
    assert len(connections) == 1
    assert listener.connections == 0


# --- what is allowed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "url", "addresses", "is_sent"),
    [
        ("127.0.0.1", "http://127.0.0.1:{}/", [], True),
        ("127.0.0.1", "http://2130706433:{}/", [], True),
        ("127.0.0.2", "http://127.0.0.1:{}/", [], False),
        ("127.0.0.0/8", "http://127.0.0.1:{}/", [], True),
        ("10.0.0.0/8", "http://127.0.0.1:{}/", [], False),
        ("receiver.internal", "http://receiver.internal:{}/", ["127.0.0.1"], True),
        ("receiver.internal", "http://RECEIVER.internal.:{}/", ["127.0.0.1"], True),
        ("Receiver.Internal", "http://receiver.internal:{}/", ["127.0.0.1"], True),
        ("receiver.internal", "http://other.internal:{}/", ["127.0.0.1"], False),
        ("receiver.internal", "http://a.receiver.internal:{}/", ["127.0.0.1"], False),
        ("receiver.internal", "http://127.0.0.1:{}/", [], False),
        ("127.0.0.0/8", "http://name.example:{}/", ["127.0.0.1"], True),
        ("127.0.0.0/8", "http://name.example:{}/", ["127.0.0.1", "10.0.0.1"], False),
        ("127.0.0.0/8", "http://name.example:{}/", ["93.184.216.34"], False),
        ("localhost", "http://localhost:{}/", ["127.0.0.1"], True),
        ("127.0.0.1", "http://localhost:{}/", ["127.0.0.1"], True),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]:{}/", [], False),
        ("::1/128", "http://127.0.0.1:{}/", [], False),
    ],
)
def test_what_the_operator_allows(
    allow: str, url: str, addresses: list[str], is_sent: bool
) -> None:
    async def literal(host: str, port: int) -> Sequence[str]:
        return addresses or ["::ffff:127.0.0.1" if "::" in host else "127.0.0.1"]

    targets = Targets((allow,), literal)
    with receiving.receiver() as inside:
        try:
            checked = targets.check_url(url.format(inside.port))
        except ValueError:
            assert not is_sent
            return
        [answer], connections = send(targets, checked)
        assert (answer.status_code == 200) == is_sent, answer
        assert bool(connections) == is_sent
        assert (inside.connections == 1) == is_sent


def test_a_certificate_is_verified_also_where_the_target_is_allowed(tmp_path: Path) -> None:
    with receiving.receiver() as inside:
        inside.use_tls(*write_certificate(tmp_path))
        [answer], _ = send(Targets(("127.0.0.1",)), inside.url("/"))
        assert answer.status_code is None
        assert (answer.error or "").startswith("the certificate is not valid")
        assert inside.received("/") == []


@pytest.mark.parametrize("value", ["10.1.2.3/8", "a b", "http://host/", "*.example", "", "host:80"])
def test_a_value_that_allows_nothing_is_refused_at_the_start(value: str, tmp_path: Path) -> None:
    where = ("--data", str(tmp_path), "--port", "0")
    refused = gleanery_in_process("serve", *where, "--webhook-allow", value)
    assert refused.returncode == 2
    assert "--webhook-allow" in refused.stderr


def test_the_normal_form_of_a_url_is_kept() -> None:
    targets = Targets(())
    for given, kept in {
        "HTTPS://Example.COM": "https://example.com/",
        "https://example.com:443/a?b=c": "https://example.com/a?b=c",
        "https://example.com.:8443": "https://example.com:8443/",
        "https://bücher.example/": "https://xn--bcher-kva.example/",
        "https://8.8.8.8/": "https://8.8.8.8/",
        "https://[2606:4700:0::1111]/": "https://[2606:4700::1111]/",
        "https://example.com/%C3%A9?q=%20": "https://example.com/%C3%A9?q=%20",
        "https://a_b.example/": "https://a_b.example/",
    }.items():
        assert targets.check_url(given) == kept
        assert targets.check_url(kept) == kept


# --- through the service --------------------------------------------------------------------------


@pytest.fixture
def strict(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """A client of a service that allows nothing, as it is by default."""
    settings = replace(fresh_settings("sqlite", request, tmp_path), shutdown_seconds=1)
    service = Service(settings)
    with service.client() as made:
        yield made
    service.stop()


def test_a_client_cannot_make_the_service_reach_inside(
    strict: Client, listener: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in LITERALS:
        body = {"url": f"https://{host}:{listener.port}/", "events": ["test"]}
        refused = strict.post("/v1/webhooks", json=body)
        assert refused.status_code == 422, host
        [detail] = refused.json()["detail"]
        assert (detail["loc"], detail["type"]) == (["body", "url"], "webhook_url")
    assert strict.get("/v1/webhooks").json()["webhooks"] == []
    original = socket.getaddrinfo

    def resolve(host: Any, port: Any, *options: Any, **named: Any) -> Any:
        return original("127.0.0.1" if host == "inside.example" else host, port, *options, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    webhook = create(strict, f"https://inside.example:{listener.port}/")
    act(strict, webhook, "test")
    [attempt] = wait_for_attempts(strict, webhook, 1)["attempts"]
    assert attempt["error"].startswith("refused: ")
    assert "127.0.0.1" not in str(attempt)
    assert listener.connections == 0

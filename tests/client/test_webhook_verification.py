"""Verification of webhooks, compared with the library ``standardwebhooks``."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from email.message import Message
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from gleanery.client import ClientError, WebhookEvent
from gleanery.client.webhooks import InvalidWebhook, verify
from tests.support.process import environment

EVENT = {"type": "test", "timestamp": "2026-11-18T20:00:00.123456Z", "data": {"webhook_id": "w"}}
BODY = json.dumps(EVENT).encode()
ID = "msg_1"
KEYS = st.binary(min_size=1, max_size=70)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.from_regex(r"[!-~]{1,40}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def new_secret(key: bytes = b"0123456789abcdef0123456789abcdef") -> str:
    return f"whsec_{base64.b64encode(key).decode()}"


SECRET = new_secret()


def sign(body: bytes, *secrets: str, id_: str = ID, age: float = 0) -> dict[str, str]:
    """Headers as another implementation signs them."""
    timestamp = int(time.time() - age)
    date = datetime.fromtimestamp(timestamp, UTC)
    text = body.decode()
    signatures = [Webhook(secret).sign(id_, date, text) for secret in secrets or (SECRET,)]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def accepts(headers: dict[str, str], body: bytes | str, secret: str) -> bool:
    try:
        verify(headers, body, secret)
    except InvalidWebhook:
        return False
    return True


def library_accepts(headers: dict[str, str], body: bytes | str, secret: str) -> bool:
    try:
        Webhook(secret).verify(body, headers)
    except (WebhookVerificationError, ValueError):
        return False
    return True


# --- what is accepted ---------------------------------------------------------------------------


@given(IDS, st.dictionaries(TEXTS, VALUES, max_size=4), TEXTS, st.lists(KEYS, min_size=1))
def test_what_another_implementation_has_signed_is_accepted(
    id_: str, data: dict[str, Any], kind: str, keys: list[bytes]
) -> None:
    event = {"type": kind, "timestamp": "2026-11-18T20:00:00Z", "data": data}
    body = json.dumps(event, ensure_ascii=False).encode()
    secrets = [new_secret(key) for key in keys]
    headers = sign(body, *secrets, id_=id_)
    expected = WebhookEvent(id_, kind, datetime(2026, 11, 18, 20, tzinfo=UTC), data)
    for secret in secrets:
        assert verify(headers, body, secret) == verify(headers, body.decode(), secret) == expected
        assert library_accepts(headers, body, secret)


CHANGES = st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "body"])


@given(CHANGES, st.integers(0, 200), st.sampled_from('aZ09 ,.=+/_-v"{}'))
@example("webhook-signature", 0, "v")
def test_what_was_changed_is_rejected(part: str, place: int, character: str) -> None:
    headers, body = sign(BODY), BODY
    before = BODY.decode() if part == "body" else headers[part]
    place %= len(before)
    after = before[:place] + character + before[place + 1 :]
    if part == "body":
        body = after.encode()
    else:
        headers[part] = after
    assert accepts(headers, body, SECRET) == (before == after)
    if before != after and part != "webhook-signature":  # the library also reads odd base64
        assert not library_accepts(headers, body, SECRET)


@given(KEYS, KEYS)
def test_another_secret_is_rejected(key: bytes, other: bytes) -> None:
    headers = sign(BODY, new_secret(key))
    same = key.ljust(64, b"\0") == other.ljust(64, b"\0")  # HMAC fills up a short key
    assert accepts(headers, BODY, new_secret(other)) == (key == other or same)
    assert library_accepts(headers, BODY, new_secret(other)) == (key == other or same)


@given(
    st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "Webhook-Id"]),
        st.text(max_size=30) | st.sampled_from(["v1,", "v1", "v1,a v1,b", "9" * 5000, "-1", "1e9"]),
    ),
    st.text() | st.binary(),
)
def test_arbitrary_requests_are_rejected(headers: dict[str, str], body: str | bytes) -> None:
    with pytest.raises(InvalidWebhook):
        verify(headers, body, SECRET)


# --- secrets ------------------------------------------------------------------------------------


def test_one_of_several_secrets_matches() -> None:
    old, new, other = new_secret(b"old"), new_secret(b"new"), new_secret(b"other")
    rotated = sign(BODY, new, old)
    for secrets in ([old], [new], [other, old], (secret for secret in (new, other))):
        assert verify(rotated, BODY, secrets).id == ID
    assert verify(sign(BODY, old), BODY, f"{old}\n").type == "test"  # as a file has it
    with pytest.raises(InvalidWebhook, match="No signature"):
        verify(rotated, BODY, [other])


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "whsec_%%%", "secret-value", "v1,abc", [], [""], None, [None], b"whsec_YQ=="],
)
def test_a_wrong_secret_is_an_error_of_the_program(secret: Any) -> None:
    """A receiver that answered such an error with 401 would look like one that is attacked."""
    with pytest.raises(ValueError, match="starts with whsec_") as raised:
        verify(sign(BODY), BODY, secret)
    assert not isinstance(raised.value, ClientError)
    assert "secret-value" not in str(raised.value)


# --- headers and bodies -------------------------------------------------------------------------


class Pairs:
    """Headers of a framework, which are no dictionary."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self._pairs = pairs

    def items(self) -> Iterable[tuple[str, str]]:
        return iter(self._pairs)


def test_the_names_of_headers_have_any_case() -> None:
    headers = sign(BODY)
    assert accepts({name.title(): value for name, value in headers.items()}, BODY, SECRET)
    assert accepts({name.upper(): value for name, value in headers.items()}, BODY, SECRET)
    message = Message()
    for name, value in [*headers.items(), ("Cookie", "a"), ("Cookie", "b")]:
        message[name] = value
    assert verify(message, BODY, SECRET).id == ID
    assert verify(Pairs(*headers.items()), BODY, SECRET).id == ID


def test_a_header_that_is_there_twice_is_rejected() -> None:
    headers = Pairs(*sign(BODY).items(), ("Webhook-Id", "msg_2"))
    with pytest.raises(InvalidWebhook, match="several headers webhook-id"):
        verify(headers, BODY, SECRET)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(name: str) -> None:
    for changed in ({}, {name: ""}):
        headers = {key: value for key, value in sign(BODY).items() if key != name} | changed
        with pytest.raises(InvalidWebhook, match=f"has no header {name}"):
            verify(headers, BODY, SECRET)


def test_a_signature_of_another_version_is_named() -> None:
    headers = sign(BODY)
    signature = headers["webhook-signature"]
    headers["webhook-signature"] = signature.replace("v1,", "v2,")
    with pytest.raises(InvalidWebhook, match="no signature of the version v1"):
        verify(headers, BODY, SECRET)
    headers["webhook-signature"] = f"v1a,xyz {signature} v1,abc"
    assert verify(headers, BODY, SECRET).id == ID


def test_a_body_is_bytes_or_text() -> None:
    headers = sign(BODY)
    for body in (BODY, bytearray(BODY), memoryview(BODY), BODY.decode()):
        assert verify(headers, body, SECRET).data == {"webhook_id": "w"}
    parsed: Any = EVENT
    with pytest.raises(TypeError, match="before it is parsed"):
        verify(headers, parsed, SECRET)
    with pytest.raises(InvalidWebhook, match="the body is not as it was sent"):
        verify(headers, json.dumps(EVENT, indent=1), SECRET)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xc3\xa9",
        b'{"text": "for a chat"}',
        b'{"type": 1, "timestamp": "2026-11-18T20:00:00Z", "data": {}}',
        b'{"type": "a", "timestamp": 1, "data": {}}',
        b'{"type": "a", "timestamp": "today", "data": {}}',
        b'{"type": "a", "timestamp": "2026-11-18T20:00:00Z", "data": []}',
        b"[" * 100_000,
    ],
)
def test_a_signed_body_that_is_not_an_event_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidWebhook, match="needs a webhook of the format standard"):
        verify(sign(body), body, SECRET)


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [-290, 0, 240])
def test_clocks_may_differ_by_five_minutes(age: float) -> None:
    assert verify(sign(BODY, age=age), BODY, SECRET).type == "test"


def test_an_old_request_is_rejected() -> None:
    headers = sign(BODY, age=400)
    with pytest.raises(InvalidWebhook, match=r"4\d\d seconds old, and 300 are tolerated"):
        verify(headers, BODY, SECRET)
    assert not library_accepts(headers, BODY, SECRET)
    assert verify(headers, BODY, SECRET, tolerance=1000).id == ID
    with pytest.raises(InvalidWebhook, match="seconds old, and 60 are tolerated"):
        verify(sign(BODY, age=100), BODY, SECRET, tolerance=60)


def test_a_request_of_the_future_is_rejected() -> None:
    headers = sign(BODY, age=-400)
    with pytest.raises(InvalidWebhook, match=r"\d+ seconds in the future"):
        verify(headers, BODY, SECRET)
    assert not library_accepts(headers, BODY, SECRET)
    assert verify(headers, BODY, SECRET, tolerance=1000).id == ID


@pytest.mark.parametrize("timestamp", ["now", "1.5", "-1", "1e9", "٣", " 1", "9" * 13])
def test_a_timestamp_is_a_number_of_seconds(timestamp: str) -> None:
    with pytest.raises(InvalidWebhook, match="not a number of seconds"):
        verify(sign(BODY) | {"webhook-timestamp": timestamp}, BODY, SECRET)


# --- the rest -----------------------------------------------------------------------------------


def test_no_error_has_the_secret_or_a_signature() -> None:
    headers = sign(BODY, new_secret(b"other"))
    with pytest.raises(InvalidWebhook) as raised:
        verify(headers, BODY, SECRET)
    assert isinstance(raised.value, ClientError)
    for hidden in (SECRET[6:], headers["webhook-signature"][3:], "webhook_id"):
        assert hidden not in str(raised.value)


def test_verification_needs_only_the_standard_library() -> None:
    program = (
        "import sys; from gleanery.client import webhooks\n"
        "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env=environment(PYTHONPATH=":".join(sys.path)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) <= {"__main__", "gleanery"}

"""Verification of webhooks: whether the service has sent a request, unchanged and just now.

Requests have the headers and signatures of Standard Webhooks 1.0. This module needs only the
standard library, so a receiver starts fast.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from gleanery.client.errors import InvalidWebhook as InvalidWebhook

TOLERANCE_SECONDS = 300.0
_PREFIX = "whsec_"
_VERSION = "v1"
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class Headers(Protocol):
    """Headers of a request, as a dictionary and the objects of web frameworks have them."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return the names and values. The names are compared without their case."""


class WebhookEvent(NamedTuple):
    """Event that a webhook has got."""

    id: str
    """The same in each attempt to deliver the event: leave out events that you have had."""
    type: str
    """Such as ``run.finished``."""
    timestamp: datetime
    """Time of the event, which can be long before that of the request."""
    data: dict[str, Any]


def verify(
    headers: Headers,
    body: bytes | bytearray | memoryview | str,
    secret: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE_SECONDS,
) -> WebhookEvent:
    """Return the event of a request. Raise InvalidWebhook if the service has not sent it.

    ``body`` is the body as it was received: JSON that was parsed and written again has another
    signature. ``secret`` is that of the webhook, or several of which one has to match.
    ``tolerance`` is the number of seconds that the request may be old, and that the clocks may
    differ. A secret that is not one of a webhook raises ValueError.
    """
    keys = _keys(secret)
    content = _to_bytes(body)
    id_, timestamp, signatures = _read_headers(headers)
    _check_time(timestamp, tolerance)
    signed = b"%s.%s.%s" % (_encode(id_), timestamp.encode(), content)
    _check_signature(signed, signatures, keys)
    return _parse(id_, content)


def _keys(secret: str | Iterable[str]) -> list[bytes]:
    """Return the keys of the secrets. An error does not contain a secret."""
    secrets = [secret] if isinstance(secret, str) else list(secret or ())
    keys = [_key(one.strip()) if isinstance(one, str) else b"" for one in secrets]
    if not keys or not all(keys):
        raise ValueError(f"The secret must be that of a webhook, which starts with {_PREFIX}")
    return keys


def _key(secret: str) -> bytes:
    """Return the key of a secret; nothing if it is not one."""
    encoded = secret.removeprefix(_PREFIX)
    if encoded == secret:
        return b""
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        return b""


def _to_bytes(body: bytes | bytearray | memoryview | str) -> bytes:
    if isinstance(body, str):
        return _encode(body)
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise TypeError("The body must be bytes or text, as it was received and before it is parsed")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # invalid text has no valid signature


def _read_headers(headers: Headers) -> tuple[str, str, str]:
    """Return the id, the timestamp and the signatures."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in found and lowered.startswith("webhook-"):
            raise InvalidWebhook(f"The request has several headers {lowered}")
        found[lowered] = value
    return (
        _require(found, "webhook-id"),
        _require(found, "webhook-timestamp"),
        _require(found, "webhook-signature"),
    )


def _require(headers: dict[str, str], name: str) -> str:
    if not headers.get(name):
        raise InvalidWebhook(f"The request has no header {name}: it is not one of a webhook")
    return headers[name]


def _check_time(timestamp: str, tolerance: float) -> None:
    if not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidWebhook("The header webhook-timestamp is not a number of seconds")
    age = time.time() - int(timestamp)
    if age > tolerance:
        raise InvalidWebhook(
            f"The header webhook-timestamp is {age:.0f} seconds old, and {tolerance:.0f} are "
            "tolerated: the request was delayed or recorded, or the clock of this machine is wrong"
        )
    if -age > tolerance:
        raise InvalidWebhook(
            f"The header webhook-timestamp is {-age:.0f} seconds in the future, and "
            f"{tolerance:.0f} are tolerated: the clock of this machine may be wrong"
        )


def _check_signature(signed: bytes, signatures: str, keys: list[bytes]) -> None:
    """Raise InvalidWebhook if no signature is that of one of the keys."""
    parts = [part.partition(",") for part in signatures.split(" ")]
    given = [_encode(signature) for version, _, signature in parts if version == _VERSION]
    if not given:
        raise InvalidWebhook(
            f"The header webhook-signature has no signature of the version {_VERSION}"
        )
    matches = False
    for key in keys:
        expected = base64.b64encode(hmac.digest(key, signed, "sha256"))
        for signature in given:
            matches |= hmac.compare_digest(expected, signature)
    if not matches:
        raise InvalidWebhook(
            "No signature in the header webhook-signature matches: the secret is not that of this "
            "webhook, or the body is not as it was sent"
        )


def _parse(id_: str, content: bytes) -> WebhookEvent:
    try:
        event = json.loads(content)
        kind, data = event["type"], event["data"]
        timestamp = datetime.fromisoformat(event["timestamp"])
    except (ValueError, KeyError, TypeError, RecursionError):
        kind = data = timestamp = None
    if not (isinstance(kind, str) and isinstance(data, dict) and timestamp is not None):
        raise InvalidWebhook(
            "The signature is valid, but the body is not an event: verify needs a webhook of the "
            "format standard"
        )
    return WebhookEvent(id_, kind, timestamp, data)

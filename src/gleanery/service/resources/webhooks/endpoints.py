"""The rows of webhooks, their secrets and headers: creating, changing, reading and deleting them.

A secret, and the value of a header, is encrypted like the value of a cookie, and a key rotation
encrypts it again. So whoever stores or deletes one holds the lock of the organization's session
state; see ``maintenance.key_rotation``.
"""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    WebhookConflict,
    no_webhook,
)
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import DecryptionFailed, Key, Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout, AuditAction
from gleanery.service.resources.events.storing import as_column, channel
from gleanery.service.resources.sessions.records import (
    QUEUE_KEY,
    lock_session_state,
    lock_without_key,
)
from gleanery.service.resources.webhooks.models import WebhookIn, WebhookOut, WebhookWithSecret
from gleanery.service.storage.database import Database, Row, Transaction

MAX_WEBHOOKS = 100
"""The most webhooks that an organization has."""
MAX_SECRETS = 5
"""The most secrets of a webhook: the current one, and old ones that have not expired."""
ROTATION_HOURS = 24
"""Hours for which an old secret signs next to the new one."""
_ROTATION = ROTATION_HOURS * 3600 * timestamps.SECOND
_SECRET_PREFIX, _SECRET_BYTES = "whsec_", 32
_COLUMNS = """
id, webhook_id, url, events, group_ids, description, format, header_names, created_at, updated_at,
disabled_at, disabled_reason, failing_since,
(SELECT max(expires_at) FROM webhook_secrets WHERE organization_id = $1
    AND webhook_secrets.webhook_id = webhooks.webhook_id)
"""
_LIST = f"SELECT {_COLUMNS} FROM webhooks WHERE organization_id = $1 ORDER BY id"
_FIND = f"SELECT {_COLUMNS} FROM webhooks WHERE organization_id = $1 AND webhook_id = $2"
_COUNT = "SELECT count(*) FROM webhooks WHERE organization_id = $1"
_INSERT = """
INSERT INTO webhooks (organization_id, webhook_id, url, events, group_ids, description, format,
    header_names, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
RETURNING id
"""
_START_POSITIONS = """
INSERT INTO webhook_positions (organization_id, webhook_id, group_id, seq)
SELECT organization_id, CAST($2 AS BIGINT), id, last_seq FROM groups
WHERE organization_id = $1 AND last_seq > $3
"""
BEFORE_CREATION = 60 * timestamps.SECOND
"""A change that is this much older than a webhook may be committed after it, so it counts as later.

Of the groups that have changed in this time, the positions are stored with the webhook.
"""
_UPDATE = """
UPDATE webhooks SET url = $3, events = $4, group_ids = $5, description = $6, format = $7,
    header_names = $8, updated_at = $9, failures = 0, failing_since = NULL, failed_at = NULL,
    resume_at = 0
WHERE organization_id = $1 AND webhook_id = $2
RETURNING id
"""
_ENABLE = """
UPDATE webhooks SET disabled_at = NULL, disabled_reason = NULL, failures = 0, failing_since = NULL,
    failed_at = NULL, resume_at = 0, updated_at = $3
WHERE organization_id = $1 AND webhook_id = $2
RETURNING id
"""
_DELETE = "DELETE FROM webhooks WHERE organization_id = $1 AND webhook_id = $2 RETURNING id"
_DELETE_SECRETS = "DELETE FROM webhook_secrets WHERE organization_id = $1 AND webhook_id = $2"
_DELETE_POSITIONS = "DELETE FROM webhook_positions WHERE organization_id = $1 AND webhook_id = $2"
_DELETE_DELIVERIES = """
DELETE FROM webhook_deliveries WHERE organization_id = $1 AND webhook_id = $2 AND id IN (
    SELECT id FROM webhook_deliveries WHERE organization_id = $1 AND webhook_id = $2
    ORDER BY id LIMIT $3)
RETURNING id
"""
_STORE_SECRET = """
INSERT INTO webhook_secrets
    (organization_id, webhook_id, secret_id, identity, encrypted_value, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_DELETE_EXPIRED = """
DELETE FROM webhook_secrets WHERE organization_id = $1 AND webhook_id = $2 AND expires_at <= $3
"""
_EXPIRE = """
UPDATE webhook_secrets SET expires_at = $3
WHERE organization_id = $1 AND webhook_id = $2 AND expires_at IS NULL
"""
_COUNT_SECRETS = """
SELECT count(*) FROM webhook_secrets WHERE organization_id = $1 AND webhook_id = $2
"""
_SECRETS = """
SELECT webhook_id, secret_id, encrypted_value FROM webhook_secrets
WHERE organization_id = $1 AND webhook_id = $2 AND (expires_at IS NULL OR expires_at > $3)
ORDER BY id DESC
"""
_HEADER_NAMES = """
SELECT name FROM webhook_headers WHERE organization_id = $1 AND webhook_id = $2
"""
_STORE_HEADER = """
INSERT INTO webhook_headers (organization_id, webhook_id, name, identity, encrypted_value)
VALUES ($1, $2, $3, $4, $5)
"""
_DELETE_HEADER = """
DELETE FROM webhook_headers WHERE organization_id = $1 AND webhook_id = $2 AND name = $3
"""
_DELETE_HEADERS = "DELETE FROM webhook_headers WHERE organization_id = $1 AND webhook_id = $2"
_URL = "SELECT url FROM webhooks WHERE organization_id = $1 AND webhook_id = $2"
_TARGET = """
SELECT url, format, header_names, name, encrypted_value FROM webhooks
LEFT JOIN webhook_headers ON webhook_headers.organization_id = webhooks.organization_id
    AND webhook_headers.webhook_id = webhooks.webhook_id
WHERE webhooks.organization_id = $1 AND webhooks.webhook_id = $2
"""
_HASTEN = """
UPDATE webhook_deliveries SET next_attempt_at = $3
WHERE organization_id = $1 AND webhook_id = $2 AND id IN (
    SELECT id FROM webhook_deliveries
    WHERE organization_id = $1 AND webhook_id = $2 AND status = 'waiting' AND next_attempt_at > $3
    ORDER BY id LIMIT 2000)
"""
_DELETED_PER_TRANSACTION = 1000
_NO_VALUE = "there is no stored value: give the value"
_OTHER_ORIGIN = (
    "a value is kept only while the scheme, host and port of the URL stay: give the value again"
)


def _hash_secret_identity(organization_id: int, webhook_id: str, secret_id: str) -> bytes:
    return hash_parts("webhook secret", organization_id, webhook_id, secret_id)


def _hash_header_identity(organization_id: int, webhook_id: str, name: str) -> bytes:
    return hash_parts("webhook header", organization_id, webhook_id, name)


@dataclass(frozen=True)
class _Encrypted:
    """A table of encrypted values, as a key rotation needs it."""

    table: str
    identity_columns: tuple[str, ...]
    hash_identity: Callable[..., bytes]


SECRETS = _Encrypted("webhook_secrets", ("webhook_id", "secret_id"), _hash_secret_identity)
HEADERS = _Encrypted("webhook_headers", ("webhook_id", "name"), _hash_header_identity)


class Target(NamedTuple):
    """What the attempts of a webhook need, read together.

    So the headers go only to the URL with which they were stored.
    """

    url: str
    format: str
    keys: Sequence[bytes]
    """The keys that sign, the newest first."""
    headers: Sequence[tuple[str, str]] = ()
    lost_header: str | None = None
    """A header whose value cannot be decrypted."""


class _WebhookRow(NamedTuple):
    id: int
    webhook_id: str
    url: str
    events: str
    group_ids: str | None
    description: str
    format: Any
    header_names: str
    created_at: int
    updated_at: int
    disabled_at: int | None
    disabled_reason: str | None
    failing_since: int | None
    old_secret_expires_at: int | None


# --- reading ------------------------------------------------------------------------------------


async def read_all(database: Database, now: int) -> list[WebhookOut]:
    rows = await database.read(_LIST, database.organization_id)
    return [_to_response(row, now) for row in rows]


async def read_one(database: Database, webhook_id: str, now: int) -> WebhookOut:
    """Read a webhook. Raise NotFound."""
    rows = await database.read(_FIND, database.organization_id, webhook_id)
    if not rows:
        raise no_webhook()
    return _to_response(rows[0], now)


async def find_id(database: Database, webhook_id: str) -> int:
    """Return the number of a webhook. Raise NotFound."""
    rows = await database.read(_FIND, database.organization_id, webhook_id)
    if not rows:
        raise no_webhook()
    return int(rows[0][0])


def _to_response(row: Row, now: int) -> WebhookOut:
    webhook = _WebhookRow(*row)
    expires_at = webhook.old_secret_expires_at
    return WebhookOut(
        id=webhook.webhook_id,
        url=webhook.url,
        events=webhook.events.split(),  # type: ignore[typeddict-item]
        groups=None if webhook.group_ids is None else json.loads(webhook.group_ids),
        description=webhook.description,
        format=webhook.format,
        headers=dict.fromkeys(json.loads(webhook.header_names)),
        status="enabled" if webhook.disabled_at is None else "disabled",
        create_date=timestamps.render_microseconds(webhook.created_at),
        update_date=timestamps.render_microseconds(webhook.updated_at),
        disabled_date=_render(webhook.disabled_at),
        disabled_reason=webhook.disabled_reason,
        failing_since=_render(webhook.failing_since),
        old_secret_expires=_render(expires_at) if expires_at and expires_at > now else None,
    )


def _render(time: int | None) -> str | None:
    return None if time is None else timestamps.render_microseconds(time)


async def read_target(database: Database, vault: Vault, webhook_id: str, now: int) -> Target:
    """Return what an attempt needs. Without a webhook, or a secret, it has no keys."""
    organization_id = database.organization_id
    keys = await _read_keys(database, vault, webhook_id, now)
    rows = await database.read(_TARGET, organization_id, webhook_id)
    if not rows:
        return Target("", "standard", ())
    url, format_, names, *_ = rows[0]
    encrypted = {name: value for *_, name, value in rows}
    headers = []
    for name in json.loads(names):
        identity = _hash_header_identity(organization_id, webhook_id, name.lower())
        try:
            headers.append((name, vault.decrypt(encrypted[name.lower()], identity)))
        except (KeyError, DecryptionFailed):
            return Target(url, format_, keys, lost_header=name)
    return Target(url, format_, keys, headers)


async def _read_keys(
    database: Database, vault: Vault, webhook_id: str, now: int
) -> Sequence[bytes]:
    """Return the keys that sign now, the newest first. Values without a key are left out."""
    found = []
    rows = await database.read(_SECRETS, database.organization_id, webhook_id, now)
    for *identity, encrypted in rows:
        try:
            text = vault.decrypt(
                encrypted, _hash_secret_identity(database.organization_id, *identity)
            )
        except DecryptionFailed:
            continue
        found.append(base64.b64decode(text.removeprefix(_SECRET_PREFIX)))
    return found


# --- changing -----------------------------------------------------------------------------------


async def create(
    database: Database, vault: Vault, webhook: WebhookIn, url: str, now: int, actor: Actor
) -> WebhookWithSecret:
    """Create a webhook with a new secret."""
    webhook_id = uuid.uuid4().hex

    async def work(transaction: Transaction) -> WebhookWithSecret:
        organization_id = transaction.organization_id
        locked = await lock_session_state(transaction, vault, now)
        secret = await _store_secret(transaction, locked.key, webhook_id, now)
        await _set_headers(transaction, locked.key, webhook_id, webhook.headers or {})
        [[count]] = await transaction.fetch(_COUNT, organization_id)
        if count >= MAX_WEBHOOKS:
            msg = f"Your organization has {MAX_WEBHOOKS} webhooks: delete one first"
            raise WebhookConflict(("body",), msg)
        row = (organization_id, webhook_id, *_columns(webhook, url), now)
        [[id_]] = await transaction.fetch(_INSERT, *row)
        await transaction.fetch(_START_POSITIONS, organization_id, id_, now - BEFORE_CREATION)
        await _end(transaction, actor, now, "create_webhook", webhook_id)
        return await _with_secret(transaction, webhook_id, secret, now)

    return await database.write(work, queue_key=QUEUE_KEY)


async def change(
    database: Database,
    vault: Vault,
    webhook_id: str,
    webhook: WebhookIn,
    url: str,
    now: int,
    actor: Actor,
) -> WebhookOut:
    """Replace the settings of a webhook. Raise NotFound."""
    headers = webhook.headers or {}
    has_values = any(value is not None for value in headers.values())

    async def work(transaction: Transaction) -> WebhookOut:
        encrypting = None
        if has_values:
            encrypting = (await lock_session_state(transaction, vault, now)).key
        else:
            await lock_without_key(transaction, now)
        key = (transaction.organization_id, webhook_id)
        before = await transaction.fetch(_URL, *key)
        if not before:
            raise no_webhook()
        is_same_origin = urlsplit(before[0][0])[:2] == urlsplit(url)[:2]
        await _set_headers(transaction, encrypting, webhook_id, headers, is_same_origin)
        [[id_]] = await transaction.fetch(_UPDATE, *key, *_columns(webhook, url), now)
        await hasten(transaction, id_, now)
        await _end(transaction, actor, now, "set_webhook", webhook_id)
        [row] = await transaction.fetch(_FIND, *key)
        return _to_response(row, now)

    return await database.write(work, queue_key=QUEUE_KEY)


def _columns(webhook: WebhookIn, url: str) -> tuple[str, str, str | None, str, str, str]:
    events = as_column([*dict.fromkeys(webhook.events)])
    groups = None if webhook.groups is None else json.dumps([*dict.fromkeys(webhook.groups)])
    names = json.dumps([*(webhook.headers or ())])
    return url, events, groups, webhook.description or "", webhook.format, names


async def _set_headers(
    transaction: Transaction,
    key: Key | None,
    webhook_id: str,
    headers: Mapping[str, str | None],
    is_same_origin: bool = False,
) -> None:
    """Store the values of these headers, and delete the others. None keeps the stored value.

    A value stays only with the scheme, host and port of its URL. Otherwise a client could read it,
    by changing the URL to an address of its own. The caller has locked the session state. Without
    a value, ``key`` is not needed.
    """
    of_webhook = (transaction.organization_id, webhook_id)
    stored = {row[0] for row in await transaction.fetch(_HEADER_NAMES, *of_webhook)}
    kept = {name.lower(): name for name, value in headers.items() if value is None}
    if missing := [written for name, written in kept.items() if name not in stored]:
        raise InvalidRequest(*(_header_error(name, _NO_VALUE) for name in missing))
    if kept and not is_same_origin:
        raise InvalidRequest(*(_header_error(name, _OTHER_ORIGIN) for name in kept.values()))
    await transaction.execute_many(
        _DELETE_HEADER, [(*of_webhook, name) for name in stored - kept.keys()]
    )
    for written, value in headers.items():
        if value is not None:
            assert key is not None
            identity = _hash_header_identity(*of_webhook, written.lower())
            row = (*of_webhook, written.lower(), identity, key.encrypt(value, identity))
            await transaction.fetch(_STORE_HEADER, *row)


async def enable(database: Database, webhook_id: str, now: int, actor: Actor) -> WebhookOut:
    """Enable a webhook that the service has disabled. What waited is sent. Raise NotFound."""

    async def work(transaction: Transaction) -> WebhookOut:
        key = (transaction.organization_id, webhook_id)
        found = await transaction.fetch(_ENABLE, *key, now)
        if not found:
            raise no_webhook()
        await hasten(transaction, found[0][0], now)
        await _end(transaction, actor, now, "enable_webhook", webhook_id)
        [row] = await transaction.fetch(_FIND, *key)
        return _to_response(row, now)

    return await database.write(work)


async def hasten(transaction: Transaction, id_: int, now: int) -> None:
    """Let the next attempts of failed deliveries be now, because the webhook may respond again."""
    await transaction.fetch(_HASTEN, transaction.organization_id, id_, now)


async def rotate(
    database: Database, vault: Vault, webhook_id: str, now: int, actor: Actor
) -> WebhookWithSecret:
    """Give a webhook a new secret. The old one signs as well, for a day. Raise NotFound."""

    async def work(transaction: Transaction) -> WebhookWithSecret:
        key = (transaction.organization_id, webhook_id)
        if not await transaction.fetch(_FIND, *key):
            raise no_webhook()
        locked = await lock_session_state(transaction, vault, now)
        await transaction.fetch(_DELETE_EXPIRED, *key, now)
        await transaction.fetch(_EXPIRE, *key, now + _ROTATION)
        [[count]] = await transaction.fetch(_COUNT_SECRETS, *key)
        if count >= MAX_SECRETS:
            msg = f"This webhook has {MAX_SECRETS} valid secrets: wait until an old one expires"
            raise WebhookConflict(("path", "webhook_id"), msg)
        secret = await _store_secret(transaction, locked.key, webhook_id, now)
        await _end(transaction, actor, now, "rotate_webhook_secret", webhook_id)
        return await _with_secret(transaction, webhook_id, secret, now)

    return await database.write(work, queue_key=QUEUE_KEY)


async def _store_secret(transaction: Transaction, key: Key, webhook_id: str, now: int) -> str:
    """Store a new secret, and return it. The caller has locked the session state."""
    secret = _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    organization_id, secret_id = transaction.organization_id, uuid.uuid4().hex
    identity = _hash_secret_identity(organization_id, webhook_id, secret_id)
    encrypted = key.encrypt(secret, identity)
    row = (organization_id, webhook_id, secret_id, identity, encrypted, now)
    await transaction.fetch(_STORE_SECRET, *row)
    return secret


async def _with_secret(
    transaction: Transaction, webhook_id: str, secret: str, now: int
) -> WebhookWithSecret:
    [row] = await transaction.fetch(_FIND, transaction.organization_id, webhook_id)
    return WebhookWithSecret(**_to_response(row, now), secret=secret)


async def delete(database: Database, webhook_id: str, now: int, actor: Actor) -> None:
    """Delete a webhook with all that is stored for it, its deliveries in steps. Raise NotFound."""

    async def work(transaction: Transaction) -> int:
        await lock_without_key(transaction, now)  # a key rotation may change the same rows
        key = (transaction.organization_id, webhook_id)
        found = await transaction.fetch(_DELETE, *key)
        if not found:
            raise no_webhook()
        await transaction.fetch(_DELETE_SECRETS, *key)
        await transaction.fetch(_DELETE_HEADERS, *key)
        id_ = int(found[0][0])
        await transaction.fetch(_DELETE_POSITIONS, transaction.organization_id, id_)
        await _end(transaction, actor, now, "delete_webhook", webhook_id)
        return id_

    id_ = await database.write(work, queue_key=QUEUE_KEY)
    while await database.write(lambda transaction: _delete_some(transaction, id_)):
        pass


async def _delete_some(transaction: Transaction, id_: int) -> bool:
    key = (transaction.organization_id, id_)
    deleted = await transaction.fetch(_DELETE_DELIVERIES, *key, _DELETED_PER_TRANSACTION)
    return len(deleted) == _DELETED_PER_TRANSACTION


async def _end(
    transaction: Transaction, actor: Actor, now: int, action: AuditAction, webhook_id: str
) -> None:
    """Audit the change, and tell the dispatcher of it."""
    await log.append(transaction, actor, now, action, AuditAbout(webhook_id=webhook_id))
    await transaction.notify(channel(transaction.organization_id))


def _header_error(name: str, reason: str) -> ErrorDetail:
    return ErrorDetail(("body", "headers", name), reason, "webhook_header")


def invalid_url(reason: str) -> InvalidRequest:
    return InvalidRequest(ErrorDetail(("body", "url"), reason, "webhook_url"))


def no_mail_server() -> InvalidRequest:
    msg = (
        "this service sends no e-mail: its operator can set --smtp-server and --smtp-sender, and "
        "then this format works"
    )
    return InvalidRequest(ErrorDetail(("body", "format"), msg, "webhook_format"))


def no_mail_headers() -> InvalidRequest:
    msg = "headers are for requests: leave them out for the format email"
    return InvalidRequest(ErrorDetail(("body", "headers"), msg, "webhook_header"))

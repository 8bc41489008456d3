"""No secrets in the database, in responses or in the log, on both engines."""

from __future__ import annotations

import asyncio
import base64
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.security.vault import (
    DecryptionFailed,
    KeyFile,
    Vault,
    keys_from_text,
)
from gleanery.service.foundation.values import timestamps
from gleanery.service.processes.start import prepare
from gleanery.service.resources.access import organizations
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.engines import open_engine
from tests.support.postgres_server import PostgresServer
from tests.support.process import Running, free_port, gleanery_in_process
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.settings import fresh_settings

VALUE = "s3cret-value-that-nobody-may-find"


@pytest.fixture
def own_service(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    service = Service(fresh_settings(engine, request, tmp_path / "data"))
    yield service
    service.stop()


def stored_bytes(settings: Settings, request: pytest.FixtureRequest) -> bytes:
    """Everything that an attacker with a copy of the database has: its files, or a dump."""
    if settings.database is None:
        kept = [p for p in settings.data.rglob("*") if p.is_file() and p != settings.key_file]
        assert any(path.name.endswith("-wal") and path.stat().st_size for path in kept)
        return b"".join(path.read_bytes() for path in kept)
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.dump(settings.database) + postgres.log()


async def _with(settings: Settings, work: object) -> bytes:
    async with open_engine(settings) as database:
        return await work(database)  # type: ignore[operator, no-any-return]


def store_secrets(client: Client, value: str = VALUE) -> None:
    cookie = {"domain": "a.com", "name": "a-cookie-name", "value": value}
    entry = {"domain": "a.com", "key": "k", "value": value}
    assert client.post("/v1/cookies", json=[cookie]).status_code == 200
    assert client.post("/v1/local-storage", json=[entry]).status_code == 200


def test_a_stolen_database_holds_no_value_and_no_token(
    own_service: Service, request: pytest.FixtureRequest
) -> None:
    with own_service.client() as client, own_service.client() as revoked:
        store_secrets(client)
        store_secrets(client, "another-" + VALUE)  # what is replaced is no less a secret
        assert client.get("/v1/cookies").json()[0]["value"] == "another-" + VALUE
        client.delete("/v1/local-storage", params={"domain": "a.com"})
        asyncio.run(_with(own_service.settings, _revoke_all))
        found = stored_bytes(own_service.settings, request)
        assert b"a-cookie-name" in found  # we did look in the right place
        assert tokens.digest(str(client.token)).hex().encode() in found.hex().encode() + found
        for secret in (VALUE, client.token, revoked.token):
            assert secret is not None
            for part in (secret.encode(), secret.encode()[6:]):
                assert part not in found
                assert part.hex().encode() not in found
                assert base64.b64encode(part) not in found


async def _revoke_all(database: Engine) -> bytes:
    for token in await organizations.list_tokens(database):
        await organizations.revoke_token(database, token.id, timestamps.now())
    return b""


def test_only_the_owner_can_open_the_data_folder(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path / "data")
    Service(settings).stop()
    for folder in (settings.data, settings.data / "blobs"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_value_moved_to_another_record_is_not_decrypted(own_service: Service) -> None:
    with own_service.client() as client:
        store_secrets(client)
        client.post("/v1/cookies", json=[{"domain": "b.com", "name": "b", "value": "other"}])

        async def move(database: Engine) -> bytes:
            async def work(transaction: Transaction) -> None:
                await transaction.fetch(
                    "UPDATE cookies SET encrypted_value = "
                    "(SELECT encrypted_value FROM cookies WHERE domain = 'a.com') "
                    "WHERE domain = 'b.com'"
                )

            await database.for_all_tenants().write(work)
            return b""

        asyncio.run(_with(own_service.settings, move))
        answer = client.get("/v1/cookies")
        assert answer.status_code == 500
        assert answer.json()["detail"][0]["type"] == "internal_error"
        assert VALUE not in answer.text


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["cookies", "local_storage"])
@pytest.mark.parametrize("change", ["domain = 'evil.com', host = 'evil.com'", "organization_id"])
def test_the_value_of_a_manipulated_record_is_not_decrypted(
    own_service: Service, kind: str, change: str
) -> None:
    """An attacker who can write to the database, but has no key, cannot redirect a value."""
    thief = own_service.client(own_service.token("thief"))
    with own_service.client() as client, thief:
        store_secrets(client)
        number = thief.post("/v1/local-storage", json=[{"domain": "t", "key": "", "value": ""}])
        assert number.status_code == 200
        [entry] = thief.get("/v1/local-storage").json()
        thief.delete("/v1/local-storage", params={"domain": "t"})
        what = change if "=" in change else f"{change} = {entry['organization_id']}"

        async def turn(database: Engine) -> bytes:
            async def work(transaction: Transaction) -> None:
                await transaction.fetch(f"UPDATE {kind} SET {what}")

            await database.for_all_tenants().write(work)
            return b""

        asyncio.run(_with(own_service.settings, turn))
        reader = client if "=" in change else thief
        answer = reader.get(f"/v1/{kind.replace('_', '-')}")
        assert answer.status_code == 500
        assert VALUE not in answer.text


def test_a_value_is_decrypted_only_with_its_key_and_for_its_record() -> None:
    one, two = Vault(lambda: [b"1" * 32]), Vault(lambda: [b"2" * 32])
    key = one.key(one.current)
    encrypted = key.encrypt("value", b"record")
    assert one.decrypt(encrypted, b"record") == "value"
    assert key.encrypt("value", b"record") != encrypted
    for vault, text, record in (
        (two, encrypted, b"record"),
        (one, encrypted, b"another"),
        (one, encrypted[:-1] + bytes([encrypted[-1] ^ 1]), b"record"),
        (one, b"", b"record"),
    ):
        with pytest.raises(DecryptionFailed):
            vault.decrypt(text, record)


def test_only_the_owner_may_read_the_key_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    file = KeyFile(path)
    file.create()
    [key] = file.read()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.create()
    assert KeyFile(path).read() == [key]
    assert list(tmp_path.iterdir()) == [path]
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        file.read()


@pytest.mark.parametrize("text", ["", "short", "!" * 44, "A" * 44, SECRET_KEY + " short"])
def test_an_invalid_key_is_one_clear_sentence(text: str) -> None:
    with pytest.raises(SettingsError, match="openssl rand -base64 32"):
        keys_from_text(text)


def test_a_service_with_another_key_does_not_start(own_service: Service) -> None:
    other = "/" * 42 + "8="
    with pytest.raises(SettingsError, match="not the one"):
        asyncio.run(prepare(replace(own_service.settings, secret_key=other)))


def test_a_missing_key_file_is_not_replaced(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    asyncio.run(prepare(settings))
    settings.key_file.unlink()
    with pytest.raises(SettingsError, match="put it back"):
        asyncio.run(prepare(settings))
    assert not settings.key_file.exists()


@pytest.mark.parametrize("text", [b"", b"short", b"\xff\xfe", b"!" * 44])
def test_a_damaged_key_file_is_one_clear_sentence(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="put back the right one"):
        KeyFile(path).read()


@pytest.mark.thorough
def test_the_log_holds_no_value_and_no_token(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path / "data")
    where = ["--data", str(settings.data)]
    if settings.database is not None:
        where += ["--database", settings.database]
    port, key = free_port(), {"GLEANERY_SECRET_KEY": SECRET_KEY}
    for form in ("json", "text"):
        options = ["--port", str(port), "--log-level", "debug", "--log-format", form]
        with Running("serve", *where, *options, **key) as running:
            url = f"http://127.0.0.1:{port}"
            running.wait_ready(url)
            name = f"log {form}"
            token = gleanery_in_process(
                "token", "create", "--organization", name, *where
            ).stdout.strip()
            with Client(url, token) as client:
                store_secrets(client)
                client.get("/v1/cookies")
                client.get(f"/v1/cookies?access_token={token}&domain={VALUE}.com")
                client.post("/v1/cookies", json=[{"value": VALUE}])
                client.post("/v1/cookies", content=VALUE, headers={"Content-Type": "text/plain"})
                client.get("/v1/cookies", headers={"Authorization": f"Bearer x{token}"})
                asyncio.run(_with(replace(settings, secret_key=SECRET_KEY), _break_seals))
                assert client.get("/v1/cookies").status_code == 500
            running.stop()
            log = "".join(running.log + running.out)
        assert "internal error" in log
        assert "DecryptionFailed" in log
        for secret in (VALUE, token, token[6:]):
            assert secret not in log


async def _break_seals(database: Engine) -> bytes:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch("UPDATE cookies SET name = 'x', identity = encrypted_value")

    await database.for_all_tenants().write(work)
    return b""

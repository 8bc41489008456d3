"""The thread that sends items, against a service, without Scrapy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.scrapy_senders import RunningSender
from tests.support.service import Service

pytestmark = pytest.mark.thorough


def line(number: int, **members: Any) -> bytes:
    """An output as the pipeline makes it."""
    url = f"https://shop.example/{number}"
    output = {"job_id": "shop", "source_url": url, "data": {"url": url, "sku": number}, **members}
    return json.dumps(output).encode()


@pytest.mark.parametrize("names", [("sku",), ("sku", "url")])
def test_a_token_that_cannot_read_the_key_fields_stores_nothing(
    service: Service, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """It cannot know which key makes the same outputs: each item could become a second one."""
    organization = uuid4().hex
    client = service.client(organization=organization)
    client.put("/v1/groups/items", json={"key_fields": names})
    client.store("items", json.loads(line(1)))
    token = service.token(organization, frozenset({"outputs:write"}))
    sender = RunningSender(tmp_path, service.url, token, key_fields=names)
    sender.run(line(1, **({"key": "1"} if len(names) == 1 else {})))
    assert sender.counts == {"failures": 1, "spooled": 1}
    assert len(client.items("items")) == 1
    again = RunningSender(tmp_path, service.url, str(client.token), key_fields=names)
    again.run()
    assert (again.counts["sent_from_spool"], again.counts["unchanged"]) == (1, 1)


def test_without_key_fields_a_token_that_can_only_write_is_enough(
    service: Service, tmp_path: Path
) -> None:
    organization = uuid4().hex
    token = service.token(organization, frozenset({"outputs:write"}))
    sender = RunningSender(tmp_path, service.url, token)
    sender.run(line(1))
    assert sender.counts["created"] == 1
    assert len(service.client(organization=organization).items("items")) == 1


def test_the_message_says_which_scope_is_missing(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = service.token(scopes=frozenset({"outputs:write"}))
    RunningSender(tmp_path, service.url, token, key_fields=("sku",)).run(line(1, key="1"))
    assert "the token needs the scope outputs:read" in caplog.text
    assert "remove GLEANERY_KEY_FIELDS" in caplog.text

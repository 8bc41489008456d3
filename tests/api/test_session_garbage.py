"""Session documents that are damaged or unusual, over HTTP, on both engines: never a 500."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gleanery import sessions
from gleanery.sessions import FORMATS, Cookie, SessionState, StorageEntry
from tests.support.service import Client, Service
from tests.support.session_documents import send
from tests.support.session_strategies import damaged_texts

EXAMPLES = int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "15"))
FEW = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
SECRET = "s3cr3t"
URL = "https://shop.example/a"
STATE = SessionState(
    (
        Cookie("a", f"{SECRET}-a", "shop.example", expires=4_000_000_000, same_site="Lax"),
        Cookie("b", f'"{SECRET}"', "shop.example", host_only=False, path="/a", secure=True),
    ),
    (StorageEntry("https://shop.example:8443", "k", f"{SECRET}\n"),),
)
DOCUMENTS = {name: sessions.write(STATE, name, URL).text for name in FORMATS}
UNUSUAL = ("a\tb", "", " a ", ";", '"', "é😀", "\x7f", "x" * 4096, "\u2028", "=", "\\")
numbers = count(1)


@pytest.fixture(scope="module")
def own(service: Service) -> Iterator[Client]:
    """A client for all examples of this file."""
    with service.client() as made:
        yield made


@pytest.mark.thorough
@FEW
@given(st.data())
def test_a_damaged_document_is_stored_or_rejected_without_its_values(
    own: Client, caplog: pytest.LogCaptureFixture, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(tuple(DOCUMENTS)))
    text = data.draw(damaged_texts(DOCUMENTS[name], SECRET) | st.text())
    for format_ in (name, "auto"):
        with caplog.at_level(logging.DEBUG):
            answer = send(own, text.encode("utf-8", "replace"), format=format_, url=URL)
        assert answer.status_code in (200, 422), answer.text
        assert SECRET not in answer.text
        if answer.status_code == 422:
            for fault in answer.json()["detail"]:
                assert {"loc", "msg", "type"} <= fault.keys()
                assert fault["msg"].isprintable()
                assert len(fault["msg"]) < 300
    assert SECRET not in caplog.text


def test_values_are_neither_logged_nor_audited(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in DOCUMENTS.items():
        contents = (text.encode(), text.encode() + b"\xff")
        with caplog.at_level(logging.DEBUG):
            answers = [send(client, content, format=name, url=URL) for content in contents]
        assert [answer.status_code for answer in answers] == [200, 422], name
        assert SECRET not in "".join(answer.text for answer in answers)
    listed = client.get("/v1/audit").text
    assert listed.count("import_session") == len(DOCUMENTS)
    assert SECRET not in listed + caplog.text


@pytest.mark.thorough
def test_what_the_fixed_routes_store_is_exported_in_each_format(own: Client) -> None:
    """They accept values that browsers do not."""
    domain = f"h{next(numbers)}.example"
    for text in UNUSUAL:
        cookies = [{"domain": domain, "name": f"n{text}", "value": text, "path": f"/{text}"}]
        cookies += [{"domain": f".{domain}", "name": f"__Host-{text}", "value": "v"}]
        assert own.post("/v1/cookies", json=cookies).status_code == 200
        entry = {"domain": domain, "key": f"k{text}\r\n", "value": f"{text}\n"}
        assert own.post("/v1/local-storage", json=[entry]).status_code == 200
    own.post("/v1/cookies", json=[{"domain": domain, "name": "", "value": ""}])
    for name in FORMATS:
        query = {"format": name, "url": f"https://{domain}/"}
        answer = own.get("/v1/sessions/export", params=query)
        assert answer.status_code == 200, answer.text
        losses = json.loads(answer.headers["gleanery-losses"])
        assert losses, name
        again = send(own, answer.content, format=name, url=query["url"], profile=name)
        assert again.status_code == 200, again.text


@pytest.mark.thorough
def test_any_accepted_domain_can_be_leased_and_exported(client: Client) -> None:
    """A domain in brackets is accepted by its form, even if it is no address."""
    domain = "[:7ba2e3b:cc:0b]"
    client.post("/v1/cookies", json=[{"domain": domain, "name": "n", "value": "v"}])
    for name in FORMATS:
        lease = {"domain": f".{domain}", "seconds": 60, "format": name}
        answer = client.post("/v1/sessions/leases", json=lease)
        assert answer.status_code == 200, answer.text
        client.delete(f"/v1/sessions/leases/{answer.json()['id']}")
        query = {"format": name, "url": f"https://{domain}/"}
        assert client.get("/v1/sessions/export", params=query).status_code == 200


def test_each_member_of_a_partition_is_checked(client: Client) -> None:
    """The site is taken from one of two members; the other one must be valid, too."""
    partition = {"topLevelSite": "https://shop.example", "sourceOrigin": 0}
    cookie = {"domain": "shop.example", "name": "n", "value": "v", "partitionKey": partition}
    assert client.post("/v1/cookies", json=[cookie]).status_code == 422

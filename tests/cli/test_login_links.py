"""``gleanery token login-link`` prints a link that signs one person in to the console."""

from __future__ import annotations

import re

import pytest

from gleanery.service.foundation.values import timestamps
from tests.support.console_http import credentials, revoke, sign_in
from tests.support.process import database_options, gleanery_in_process, run_successfully
from tests.support.service import Service


def token_id_of(service: Service, token: str) -> int:
    with service.client(token) as client:
        return int(client.get("/v1/audit").json()["entries"][0]["about"]["token_id"])


def test_the_link_alone_is_printed_and_works_once(service: Service) -> None:
    token = service.token()
    options = (*database_options(service.settings), "--base-url", "https://data.example/below/")
    person = "Anna Ümlaut & Co"
    number = str(token_id_of(service, token))
    printed = run_successfully("token", "login-link", number, "--person", person, *options)
    found = re.fullmatch(
        r"https://data\.example/below/console#login=([\w-]{43})&person=([\w%]+)\n", printed
    )
    assert found is not None, printed
    assert found[2] == "Anna%20%C3%9Cmlaut%20%26%20Co"
    with service.stranger() as stranger:
        answer = sign_in(stranger, link=found[1])
        assert answer.json()["session"]["person"] == person
        assert stranger.get("/v1/groups", headers=credentials(answer)).status_code == 200
        assert sign_in(stranger, link=found[1]).status_code == 401
    with service.client(token) as client:
        entries = client.get("/v1/audit").json()["entries"]
    about = {"token_id": int(number), "of_person": person}
    assert ("create_login_link", about) in [(one["action"], one["about"]) for one in entries]


def test_the_link_has_the_address_of_the_service(service: Service) -> None:
    number = str(token_id_of(service, service.token()))
    options = (*database_options(service.settings), "--host", "localhost", "--port", "9000")
    printed = run_successfully("token", "login-link", number, *options)
    assert re.fullmatch(r"http://localhost:9000/console#login=[\w-]{43}\n", printed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("1", "--person", " "), "--person must be a name of 1 to 100 characters"),
        (("1", "--person", "a" * 101), "--person must be a name of 1 to 100 characters"),
        (("1", "--base-url", "data.example"), "--base-url must be an http or https URL"),
        (("1", "--host", "0.0.0.0"), "Give --base-url"),
        ((str(2**62),), f"There is no valid token {2**62}"),
    ],
)
def test_a_mistake_is_one_sentence(
    service: Service, arguments: tuple[str, ...], sentence: str
) -> None:
    options = database_options(service.settings)
    result = gleanery_in_process("token", "login-link", *arguments, *options)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stdout == ""


def test_a_revoked_and_an_expired_token_have_no_links(service: Service) -> None:
    name = f"links {timestamps.now()}"
    reader, revoked = service.token(name), service.token(name)
    service.token(name, expires=timestamps.now() - 1)
    with service.client(reader) as client:
        entries = client.get("/v1/audit").json()["entries"]
    ids = [one["about"]["token_id"] for one in entries]
    with service.stranger() as stranger:
        assert sign_in(stranger, token=revoked).json()["session"]["token_id"] == ids[1]
    revoke(service.settings, ids[1])
    for id_ in ids[1:]:
        options = database_options(service.settings)
        result = gleanery_in_process("token", "login-link", str(id_), *options)
        assert (result.returncode, result.stdout) == (2, "")
        assert f"There is no valid token {id_}" in result.stderr

"""Commands in locales other than UTF-8: names and paths with any character."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import environment, gleanery, serving_process
from tests.support.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.thorough

C = {"LC_ALL": "C", "PYTHONUTF8": "1"}  # what Python does by itself where LC_ALL is C
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0"}  # how Python treats a locale with another encoding
ASCII_TERMINAL = ASCII | {"PYTHONIOENCODING": "ascii"}
LOCALES = [
    pytest.param(C, marks=pytest.mark.extended),
    pytest.param(ASCII, marks=pytest.mark.extended),
    ASCII_TERMINAL,
]


def succeed(*arguments: str, **variables: str) -> str:
    ended = gleanery(*arguments, **variables)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("locale", LOCALES)
def test_an_organization_can_have_any_name_in_any_locale(
    tmp_path: Path, locale: dict[str, str]
) -> None:
    where = ["--data", str(tmp_path / "Zürich")]
    shown = {"Zürich": "Z\\xfcrich", "Genève": "Gen\\xe8ve"} if locale == ASCII_TERMINAL else {}
    succeed("token", "create", "--organization", "Zürich", *where, **locale)
    succeed("token", "create", *where, GLEANERY_ORGANIZATION="Zürich", **locale)
    for command in ("token", "organization"):
        assert shown.get("Zürich", "Zürich") in succeed(command, "list", *where, **locale)
    succeed("organization", "rename", "Zürich", "Genève", *where, **locale)
    listed = succeed("organization", "list", *where)
    assert "Genève" in listed
    assert "Zürich" not in listed
    succeed("organization", "delete", "Genève", "--yes", *where, **locale)
    deleted = succeed("organization", "list", "--deleted", *where, **locale)
    assert shown.get("Genève", "Genève") in deleted


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_service_logs_a_path_in_any_locale(
    tmp_path: Path, locale: dict[str, str], workers: str
) -> None:
    where = ["--data", str(tmp_path / "Zürich")]
    options = ("--log-format", "text", "--log-level", "info", "--workers", workers)
    with serving_process(where, *options, **locale) as (_, running):
        pass
    assert any(f"data={tmp_path}/Zürich" in line for line in running.log)
    assert not any("Traceback" in line for line in running.log)
    assert (tmp_path / "Zürich" / "gleanery.sqlite").exists()


INVALID = b"Z\xfcrich"  # Latin-1


@pytest.mark.parametrize("locale", [ASCII, {"LC_ALL": "C.UTF-8"}])
@pytest.mark.parametrize(
    "command",
    [
        (b"token", b"create", b"--organization", INVALID),
        (b"organization", b"rename", INVALID, b"a"),
        (b"backup", INVALID),
    ],
)
def test_an_argument_that_is_not_utf8_is_rejected(
    tmp_path: Path, command: tuple[bytes, ...], locale: dict[str, str]
) -> None:
    where = (b"--data", os.fsencode(tmp_path))
    assert rejection(*command, *where, **locale).startswith(
        f"gleanery: Argument {command.index(INVALID) + 1} is not valid UTF-8"
    )


def test_a_variable_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    variables = {"GLEANERY_ORGANIZATION": os.fsdecode(INVALID)}
    sentence = rejection(b"token", b"create", b"--data", os.fsencode(tmp_path), **variables)
    assert sentence.startswith("gleanery: GLEANERY_ORGANIZATION is not valid UTF-8")


def rejection(*arguments: bytes, **variables: str) -> str:
    """Runs the command, which must fail, and returns its sentence."""
    ended = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"gleanery", *arguments],
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        env=environment(**variables),
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, b"")
    [sentence] = ended.stderr.decode().splitlines()
    return sentence

"""Wrong uses of a command: one plain sentence that names the option and what is expected."""

from __future__ import annotations

import shlex

import pytest

from tests.support.process import gleanery_in_process


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("serve --port abc", "--port must be a whole number from 0 to 65535"),
        ("serve --sweep-seconds abc", "--sweep-seconds must be a number above 0"),
        ("token revoke abc", "ID must be a whole number"),
        ("token revoke 0", "ID must be from 1 to 9223372036854775807"),
        ("token revoke", "ID is missing: gleanery token revoke --help describes it"),
        ("token revoke 1 2", "There are too many arguments: gleanery token revoke --help shows"),
        ("token create", "--organization is missing: gleanery token create --help describes it"),
        ("serve --port", "--port needs a value"),
        ("serve --behind-proxy=abc", "--behind-proxy takes no value"),
        ("serve --prot 80", "There is no option --prot; did you mean --port?"),
        ("serve --prot=abc", "There is no option --prot; did you mean --port?"),
        ("serve -q", "There is no option -q: gleanery serve --help lists them"),
        ("serv", "There is no command serv; did you mean serve?"),
        ("token creat", "There is no command creat; did you mean create?"),
        ("xyzzy", "There is no command xyzzy: gleanery --help lists them"),
        ("--verison", "There is no option --verison; did you mean --version?"),
    ],
)
def test_a_wrong_use_is_one_sentence(line: str, message: str) -> None:
    ended = gleanery_in_process(*shlex.split(line))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"gleanery: {message}")
    assert ended.stderr.count("\n") == 1
    assert "abc" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(("value", "rule"), [("abc", "a whole number from"), ("99999", "from")])
def test_a_wrong_variable_is_named(value: str, rule: str) -> None:
    ended = gleanery_in_process("serve", GLEANERY_PORT=value)
    assert ended.returncode == 2
    assert ended.stderr == f"gleanery: GLEANERY_PORT must be {rule} 0 to 65535\n"
    other = gleanery_in_process("serve", "--port", "-1", GLEANERY_PORT=value)
    assert other.stderr == "gleanery: --port must be from 0 to 65535\n"


def test_a_required_option_that_is_empty_cannot_be_omitted() -> None:
    ended = gleanery_in_process("token", "create", "--organization", "")
    assert ended.stderr == "gleanery: --organization is empty: give it a value\n"


@pytest.mark.parametrize(("line", "status"), [("", 2), ("token", 2), ("serve --help", 0)])
def test_the_help_is_printed_once(line: str, status: int) -> None:
    ended = gleanery_in_process(*shlex.split(line))
    assert ended.returncode == status
    assert (ended.stdout + ended.stderr).count("Usage:") == 1

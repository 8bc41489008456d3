"""Wrong use of a command: one sentence for each case. It never repeats a value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import click

from gleanery.common import suggestions
from gleanery.common.errors import SettingsError
from gleanery.common.settings import table

_RUN_PROGRAMS = {("sessions", "lease"), ("run", "exec")}
_COMMAND = re.compile(r"No such command (['\"])(.*?)\1")
_TYPES = {"integer": "a whole number", "float": "a number", "boolean": "true or false"}
_PATHS = (
    ("readable", "a path that this user may read"),
    ("is a directory", "a file"),
    ("is a file", "a folder"),
)


def check_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise SettingsError if an argument is empty, or an argument or variable is not UTF-8.

    What follows ``--`` belongs to the program that some commands run.
    """
    if tuple(arguments[:2]) in _RUN_PROGRAMS and "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    for number, argument in enumerate(arguments, 1):
        _check_utf8(f"Argument {number}", argument)
    for name, value in environment.items():
        if name.startswith("GLEANERY_"):
            _check_utf8(name, value)
    _reject_empty(arguments)


def _check_utf8(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python has decoded invalid bytes to surrogates
        raise SettingsError(f"{name} is not valid UTF-8: write it in a UTF-8 terminal") from None


def _reject_empty(arguments: Sequence[str]) -> None:
    """Raise SettingsError for ``--data ""``: it is often a variable of a script that is not set.

    As a path it would be the current folder.
    """
    for before, argument in pairwise(["", *arguments]):
        is_option = before.startswith("--") and "=" not in before
        if not argument:
            name = before if is_option else "An argument"
            raise SettingsError(f"{name} is empty: give it a value")
        if argument.startswith("--") and argument.endswith("=") and argument.count("=") == 1:
            raise SettingsError(f"{argument[:-1]} is empty: give it a value")


def explain(error: click.UsageError) -> str:
    """Return the sentence for a usage error."""
    if isinstance(error, click.BadParameter):
        return _explain_parameter(error)
    if isinstance(error, click.NoSuchOption):
        return _explain_option(error)
    if isinstance(error, click.BadOptionUsage):
        needs = "takes no value" if "not take" in error.message else "needs a value"
        return f"{error.option_name} {needs}"
    unknown = _COMMAND.search(error.message)
    if unknown is not None:
        return _explain_command(error, unknown[2])
    return f"There are too many arguments: {_command(error.ctx)} --help shows those that it takes"


def _explain_command(error: Any, name: str) -> str:
    names = error.ctx.command.list_commands(error.ctx)
    return f"There is no command {name}{_hint(name, names, error.ctx)}"


def _explain_option(error: Any) -> str:
    parameters = error.ctx.command.get_params(error.ctx)
    names = [name for parameter in parameters for name in parameter.opts if name.startswith("-")]
    return f"There is no option {error.option_name}{_hint(error.option_name, names, error.ctx)}"


def _hint(name: str, known: list[str], context: Any) -> str:
    similar = suggestions.closest(name, known)
    if similar is not None:
        return f"; did you mean {similar}?"
    return f": {_command(context)} --help lists them"


def _explain_parameter(error: Any) -> str:
    name = _name(error.param, error.ctx)
    if not error.message:  # it is missing
        return f"{name} is missing: {_command(error.ctx)} --help describes it"
    return f"{name} must be {_expected(error.param.type, error.message)}{_rule(error.param)}"


def _rule(parameter: Any) -> str:
    """Return the condition of a setting that is a number."""
    rules = {
        row.name: row.check.rule
        for row in table()
        if row.check is not None and row.type in (int, float)
    }
    rule = rules.get(parameter.name)
    return "" if rule is None else f" {rule}"


def _name(parameter: Any, context: Any) -> str:
    """Return the variable if the value comes from it; else the option or argument."""
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "ENVIRONMENT":
        return str(parameter.envvar)
    options = [name for name in parameter.opts if name.startswith("--")]
    return str(options[0] if options else parameter.metavar or parameter.name.upper())


def _expected(type_: Any, message: str) -> str:
    if hasattr(type_, "choices"):
        return _listed([str(getattr(choice, "value", choice)) for choice in type_.choices])
    if " is not in the range " in message:
        return _range(type_)
    if type_.name.split()[0] in _TYPES:
        return _TYPES[type_.name.split()[0]]
    found = [expected for words, expected in _PATHS if words in message.lower()]
    return found[0] if found else "valid; --help describes it"


def _range(type_: Any) -> str:
    if type_.min is None or type_.max is None:
        return f"at most {type_.max}" if type_.min is None else f"at least {type_.min}"
    return f"from {type_.min} to {type_.max}"


def _listed(choices: list[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def _command(context: Any) -> str:
    """Return the command as a user writes it, however the program was started."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(["gleanery", *names])

"""Declaration of commands: a function with annotated parameters becomes a command of Click.

A parameter is ``Annotated[type, Option(...)]`` or ``Annotated[type, Argument(...)]``. One without a
default value is required. The types are str, int, float, Path, Literal for a choice, bool for a
flag, and a list for what can be repeated. Each may be ``| None``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import click

from gleanery.cli.terminal import terminal_width, wrap

_LEAST_WIDTH = 30  # cells; a narrower help is not readable
_INDENT = "  "
_Function = TypeVar("_Function", bound=Callable[..., None])


class Option:
    """Option of a command."""

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002
        metavar: str | None = None,
        envvar: str | None = None,
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
        section: str = "Options",
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.envvar = envvar
        self.min = min
        self.max = max
        self.section = section
        """Title above it in the help."""


class Argument(NamedTuple):
    """Argument of a command."""

    metavar: str
    help: str
    min: float | None = None
    max: float | None = None


class _ClickOption(click.Option):
    def __init__(self, names: Sequence[str], section: str, **attributes: Any) -> None:
        super().__init__(names, **attributes)
        self.section = section


class _ClickArgument(click.Argument):
    def __init__(self, name: str, words: str, **attributes: Any) -> None:
        super().__init__([name], **attributes)
        self.words = words


class _Command(click.Command):
    """Command with our help: it has the width of the terminal, and divides no name of an option."""

    def get_help(self, ctx: click.Context) -> str:
        width = max(terminal_width(sys.stdout), _LEAST_WIDTH)
        usage = f"Usage: {' '.join([ctx.command_path, *self.collect_usage_pieces(ctx)])}"
        first, *more = wrap(usage, width - len(_INDENT))
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        parts = [
            "\n".join([first, *(_INDENT + line for line in more)]),
            *("\n".join(wrap(text.replace("\n", " "), width)) for text in paragraphs),
            *(_render(title, rows, width) for title, rows in self.sections(ctx).items()),
        ]
        if self.epilog:  # examples, which a person copies, have one line each
            parts.append(self.epilog.replace("\n", f"\n{_INDENT}"))
        return "\n\n".join(parts)

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the rows of the help by their title: what the user writes, and what it means."""
        found: dict[str, list[tuple[str, str]]] = {}
        parameters = self.get_params(ctx)
        for one in parameters:
            if isinstance(one, _ClickArgument):
                words = f"{one.words} [required]" if one.required else one.words
                found.setdefault("Arguments", []).append((one.make_metavar(ctx), words))
        found["Options"] = []
        for one in parameters:
            if isinstance(one, click.Option):
                title = getattr(one, "section", "Options")  # --help has none
                left, words = one.get_help_record(ctx) or ("", "")
                found.setdefault(title, []).append((left, words.replace("  [", " [")))
        return found


def _render(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    return "\n".join([f"{title}:", *_render_rows(rows, width)])


def _render_rows(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield the lines of two columns. What does not fit into the first one has its own line."""
    column = min(max(len(left) for left, _ in rows), width * 3 // 8)
    margin = _INDENT + " " * column + _INDENT
    for left, right in rows:
        lines = wrap(right, width - len(margin))
        if len(left) > column:
            yield _INDENT + left
        else:
            yield (_INDENT + left.ljust(column) + _INDENT + lines.pop(0)).rstrip()
        yield from (margin + line for line in lines)


class CommandGroup(_Command, click.Group):
    """Group of commands. Without arguments it shows its help."""

    def declare(
        self,
        name: str,
        *,
        help: str | None = None,  # noqa: A002
        epilog: str | None = None,
    ) -> Callable[[_Function], _Function]:
        """Add a function to the commands. Its docstring is the help, unless another is given."""

        def decorate(function: _Function) -> _Function:
            self.add_command(_to_command(name, function, help, epilog))
            return function

        return decorate

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        commands = [(name, _summary(command)) for name, command in self.commands.items()]
        return {**super().sections(ctx), "Commands": commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]


def _summary(command: click.Command) -> str:
    """Return the first paragraph of a help."""
    return inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")


def _to_command(
    name: str, function: Callable[..., None], help_: str | None, epilog: str | None
) -> click.Command:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    lists = {one.name: one.default for one in parameters if _kind(one)[1]}

    def call(**values: Any) -> None:
        for list_, default in lists.items():
            values[list_] = [*values[list_]] or default
        function(**values)

    return _Command(
        name,
        params=[_to_click(one) for one in parameters],
        callback=call,
        help=help_ or inspect.cleandoc(function.__doc__ or ""),
        epilog=epilog,
    )


def _kind(parameter: inspect.Parameter) -> tuple[Any, bool]:
    """Return the type of a parameter, and whether it is a list of that type."""
    kind = get_args(parameter.annotation)[0]
    if NoneType in get_args(kind):
        [kind] = [member for member in get_args(kind) if member is not NoneType]
    if get_origin(kind) is list:
        return get_args(kind)[0], True
    return kind, False


def _to_click(parameter: inspect.Parameter) -> click.Parameter:
    assert get_origin(parameter.annotation) is Annotated, parameter.name
    declared: Option | Argument = get_args(parameter.annotation)[1]
    kind, is_list = _kind(parameter)
    attributes: dict[str, Any] = {"metavar": declared.metavar}
    attributes["required"] = parameter.default is parameter.empty
    if not attributes["required"] and parameter.default not in (None, []):
        attributes["default"] = parameter.default
    if kind is bool:
        attributes["is_flag"] = True
    else:
        attributes["type"] = _type(kind, declared.min, declared.max)
    if isinstance(declared, Argument):
        attributes["nargs"] = -1 if is_list else 1
        return _ClickArgument(parameter.name, declared.help, **attributes)
    return _ClickOption(
        [parameter.name, *declared.names],
        declared.section,
        help=declared.help,
        envvar=declared.envvar,
        multiple=is_list,
        show_default=True,
        show_envvar=True,
        **attributes,
    )


def _type(kind: Any, least: float | None, most: float | None) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if least is not None or most is not None:
        range_: Any = click.IntRange if kind is int else click.FloatRange
        return range_(least, most)
    return click.Path(path_type=Path) if kind is Path else kind

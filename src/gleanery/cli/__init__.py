"""The ``gleanery`` command: its start, its standard streams and its exit."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import click
from click.exceptions import NoArgsIsHelpError

from gleanery.cli.commands import DATA_COMMANDS, INTERRUPTED, LazyCommands, MissingService
from gleanery.cli.usage import check_arguments, explain
from gleanery.common.errors import ExplainedError, SettingsError
from gleanery.common.kubernetes import kubernetes_variables
from gleanery.common.settings import environment_warnings, reject_empty_variables
from gleanery.common.version import __version__

_FAILED = 2  # Python's own status, 1, means that migrations are pending


def _script() -> str:
    from gleanery.cli import completion  # commands do not need it

    return completion.script()


def _install() -> str:
    from gleanery.cli import completion

    return completion.install()


def _printing(name: str, text: Callable[[], str], help_: str) -> click.Option:
    """Declare an option that prints a text instead of running a command."""

    def print_text(context: click.Context, parameter: click.Parameter, is_requested: bool) -> None:
        if is_requested and not context.resilient_parsing:
            click.echo(text().removesuffix("\n"))
            context.exit()

    return click.Option(
        [name], is_flag=True, is_eager=True, expose_value=False, callback=print_text, help=help_
    )


app = LazyCommands(
    "gleanery",
    help="A self-hosted data service for web scraping.\n\n"
    "Start with gleanery demo, or with gleanery login if there is a service. The help of a command "
    "shows its options and their environment variables.",
    params=[
        _printing("--version", lambda: __version__, "Print the version."),
        _printing("--install-completion", _install, "Install completion for the current shell."),
        _printing(
            "--show-completion",
            _script,
            "Show completion for the current shell, to copy it or customize the installation.",
        ),
    ],
)


def main() -> None:
    """Run the command. An error that the user can fix prints one sentence, not a traceback."""
    _use_utf8()
    _replace_closed_streams()
    _escape_unprintable_output()
    _unwind_on_signals()
    try:
        check_arguments(sys.argv[1:], os.environ)
        if "_GLEANERY_COMPLETE" not in os.environ:  # a warning would appear while the user types
            _check_environment()
        sys.exit(_run())
    except (ExplainedError, OSError) as error:
        click.echo(f"gleanery: {_message(error)}", err=True)
        sys.exit(_FAILED)
    except Exception:
        sys.excepthook(*sys.exc_info())  # a traceback, or a line of the log in a service
        sys.exit(_FAILED)


def _use_utf8() -> None:
    """Start the command again in UTF-8 mode, if the locale has another encoding.

    Python decodes arguments and variables before the first line of a program, so only a new start
    changes how. It keeps the process id. Worker processes inherit the variable.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        program = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, program, os.environ | {"PYTHONUTF8": "1"})  # noqa: S606


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed.

    Python sets such a stream to None. The null device also takes its file descriptor, which a
    database file or a socket would get otherwise. Worker processes inherit it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _escape_unprintable_output() -> None:
    """Let characters that the terminal cannot show appear as escape sequences."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _unwind_on_signals() -> None:
    """Let a signal to stop unwind the stack, as Ctrl-C does. Windows has no SIGHUP."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _run() -> int:
    """Run the command and return its exit status."""
    try:
        return app(standalone_mode=False) or 0
    except NoArgsIsHelpError as error:
        click.echo(error.message)
        return 2
    except click.UsageError as error:
        raise SettingsError(explain(error)) from None
    except click.Abort:
        click.echo("gleanery: aborted", err=True)
        return INTERRUPTED if sys.argv[1] in DATA_COMMANDS else 1


def _check_environment() -> None:
    """Warn about variables without effect. Remove those that Click would read as a setting.

    Raises SettingsError if a variable is empty: Click would take it for absent. Commands on data
    do not read the settings of the service.
    """
    is_for_service = not set(sys.argv[1:2]) & DATA_COMMANDS.keys()
    if is_for_service:
        reject_empty_variables(os.environ)
    if environment_warnings(os.environ):  # the options are in modules that take time to import
        options = set(_option_variables(app))
        if is_for_service:
            reject_empty_variables(os.environ, options)
        for warning in environment_warnings(os.environ, options):
            click.echo(f"gleanery: warning: {warning}", err=True)
    for name in kubernetes_variables(os.environ):
        del os.environ[name]


def _option_variables(command: click.Command) -> Iterator[str]:
    """Yield the variables of the options of a command and of its subcommands."""
    yield from (str(parameter.envvar) for parameter in command.params if parameter.envvar)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            with suppress(MissingService):
                _, child, _ = command.resolve_command(context, [name])
                assert child is not None
                yield from _option_variables(child)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return error.explanation if isinstance(error, ExplainedError) else str(error)

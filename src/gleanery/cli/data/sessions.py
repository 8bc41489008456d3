"""``gleanery sessions``: the cookies and the local storage that scrapers use."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from gleanery.cli.data import leased_command, programs
from gleanery.cli.data.command import (
    AsJson,
    CommandFailed,
    UserError,
    data_command,
    epilog,
    join_sentences,
    name_options,
    print_json,
    print_rows,
    show_date,
)
from gleanery.cli.data.connection import TokenFile, Url, open_client
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.cli.terminal import pluralize
from gleanery.client.errors import ClientError, Invalid

if TYPE_CHECKING:
    from gleanery.client import ImportResult, Lease, SessionExport
    from gleanery.client.session_models import ImportCounts, ImportedRecord, SessionSummary
    from gleanery.sessions import WriteResult

app = CommandGroup()
sessions_app = CommandGroup(
    help="List, import, export, delete and lease the logins that scrapers use.",
    epilog=epilog(("gleanery sessions list", "gleanery sessions import state.json")),
)
app.add_command(sessions_app, "sessions")

FORMATS = (
    "playwright, cdp, puppeteer, selenium, extension, scrapy, har, netscape (cookies.txt), curl, "
    "set-cookie or cookie"
)
_COLUMNS = ("Domain", "Profile", "Cookies", "Local storage", "Expired", "Expire soon", "Changed")
_RECORD_COLUMNS = ("Change", "Kind", "Domain", "Path", "Name", "Expires")

Domain = Annotated[
    str,
    Argument(metavar="DOMAIN", help="Host. A leading dot includes its subdomains."),
]
Profile = Annotated[
    str,
    Option("--profile", metavar="NAME", help="Account at the site, if there are several."),
]
Group = Annotated[
    str | None,
    Option("--group", metavar="GROUP", help="Group that the local storage belongs to."),
]
Page = Annotated[
    str | None,
    Option("--url", metavar="URL", help="Only what the page at this URL sees."),
]
Format = Annotated[
    str, Option("--format", metavar="FORMAT", help=f"Format of the file: {FORMATS}.")
]


# --- list ---------------------------------------------------------------------------------------


@data_command(
    sessions_app,
    "list",
    examples=("gleanery sessions list", "gleanery sessions list shop.example --json"),
)
def list_sessions(
    domain: Annotated[str | None, Argument(metavar="[DOMAIN]", help="Only this host.")] = None,
    profile: Annotated[
        str | None, Option("--profile", metavar="NAME", help="Only this account.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the sessions by host and profile, without names and values.

    Expired and expiring records show which logins somebody must renew.
    """
    with open_client(url, token_file) as client:
        found = client.sessions(domain, profile=profile)
    if as_json:
        print_json(found)
    else:
        print_rows(_COLUMNS, map(_row, found), "There is no session.")


def _row(session: SessionSummary) -> tuple[str, ...]:
    counts = (session.cookies, session.local_storage, session.expired, session.expiring)
    return session.domain, session.profile, *map(str, counts), show_date(session.last_change)


# --- import -------------------------------------------------------------------------------------


@data_command(
    sessions_app,
    "import",
    examples=(
        "gleanery sessions import state.json --dry-run",
        "gleanery sessions import cookies.txt --profile buyer-2",
        "pbpaste | gleanery sessions import - --url https://shop.example/",
    ),
)
def import_session(
    file: Annotated[
        str, Argument(metavar="FILE", help="File of a browser or tool; - is standard input.")
    ],
    format_: Annotated[
        str,
        Option(
            "--format",
            metavar="FORMAT",
            help=f"Format of the file. auto recognises it. Others: {FORMATS}.",
        ),
    ] = "auto",
    profile: Profile = "default",
    group: Group = None,
    page: Annotated[
        str | None,
        Option("--url", metavar="URL", help="Page of the cookies, if the file does not name it."),
    ] = None,
    replace: Annotated[
        bool, Option("--replace", help="Delete other records of the hosts in the file.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Store nothing, and show what would be stored.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Store the cookies and the local storage of a file, all or nothing.

    The file is one that a browser, an extension or a tool has written. Values are never shown.
    """
    if file == token_file == "-":
        raise UserError("FILE and --token-file cannot both be standard input")
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    with _invalid_as_user_error(), open_client(url, token_file) as client:
        result = client.import_session(
            content,
            format=format_,
            profile=profile,
            group=group,
            url=page,
            replace=replace,
            dry_run=dry_run,
        )
    _print_losses(result.losses)
    if as_json:
        print_json(result)
    else:
        _print_result(result)


def _print_result(result: ImportResult) -> None:
    if result.dry_run:
        print_rows(_RECORD_COLUMNS, map(_record_row, result.records), "The file has no record.")
    verb = "Would store" if result.dry_run else "Stored"
    click.echo(f"{verb} in the profile {result.profile}, from the format {result.format}:")
    click.echo(f"  cookies: {_counts(result.cookies)}")
    click.echo(f"  local storage: {_counts(result.local_storage)}")


def _record_row(record: ImportedRecord) -> tuple[str, ...]:
    kind = record.kind.replace("_", " ")
    place = record.origin or record.domain
    return record.change, kind, place, record.path, record.name, show_date(record.expires)


def _counts(counts: ImportCounts) -> str:
    return (
        f"{counts.created} created, {counts.updated} updated, {counts.unchanged} unchanged, "
        f"{counts.deleted} deleted"
    )


def _print_losses(losses: Iterable[object]) -> None:
    for loss in losses:
        click.echo(f"gleanery: warning: {loss}", err=True)


@contextmanager
def _invalid_as_user_error() -> Iterator[None]:
    """Let a session that cannot be converted be an error of the user, in the words of options."""
    from gleanery.sessions import InvalidSession

    try:
        yield
    except InvalidSession as error:
        raise UserError(str(error)) from None
    except Invalid as error:
        if any(detail.loc == ("query", "url") for detail in error.detail):
            raise UserError(
                "This format has the cookies of one page: give its URL, such as "
                "--url https://shop.example/"
            ) from None
        raise


# --- export -------------------------------------------------------------------------------------


@data_command(
    sessions_app,
    "export",
    examples=(
        "gleanery sessions export shop.example -o state.json",
        "gleanery sessions export shop.example --format netscape -o cookies.txt",
        "gleanery sessions export shop.example --format cookie --url https://shop.example/cart",
    ),
)
def export_session(
    domain: Domain,
    output: Annotated[
        str, Option("--output", "-o", metavar="FILE", help="New file; - is standard output.")
    ] = "-",
    format_: Format = "playwright",
    page: Page = None,
    profile: Profile = "default",
    group: Group = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace FILE if it exists.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Write a session in the format of a browser or tool, without expired records.

    Only its owner can read the file. It contains a login: delete it after use.
    """
    with _invalid_as_user_error(), open_client(url, token_file) as client:
        session = client.session(domain, profile=profile, group=group, url=page)
        exported = session.export(format_)
    _print_losses(exported.losses)
    if _is_empty(exported, page):
        raise CommandFailed(
            f"There is nothing to export: the profile {profile} has no valid record of {domain} "
            f"for the format {format_}"
        )
    if output == "-" and sys.stdout.isatty():
        click.echo("gleanery: warning: this output contains a login", err=True)
    _write(output, exported.body, overwrite)
    if output != "-":
        click.echo(
            f"Wrote the session of {domain} to {output}. It contains a login: delete it after use.",
            err=True,
        )


def _is_empty(exported: SessionExport, page: str | None) -> bool:
    from gleanery.sessions import InvalidSession, read

    try:
        state = read(exported.content, exported.format, page).state
    except InvalidSession:  # a text without cookies
        return not exported.body.strip()
    return not state.cookies and not state.local_storage


def _write(output: str, content: bytes, overwrite: bool) -> None:
    from gleanery.tables.destinations import open_destination
    from gleanery.tables.export import ExportFailed, InvalidExport

    try:
        destination = open_destination(output, overwrite, is_private=True)
        try:
            destination.write(content)
            destination.publish()
        except BaseException:
            destination.discard()
            raise
    except InvalidExport as error:
        raise UserError(name_options(str(error))) from None
    except ExportFailed as error:
        raise CommandFailed(str(error)) from None


# --- delete -------------------------------------------------------------------------------------


@data_command(
    sessions_app,
    "delete",
    examples=(
        "gleanery sessions delete shop.example",
        "gleanery sessions delete shop.example --profile buyer-2 --yes",
    ),
)
def delete_session(
    domain: Annotated[
        str,
        Argument(metavar="DOMAIN", help="Host. Records of its subdomains stay."),
    ],
    profile: Profile = "default",
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Delete the cookies and the local storage of one host and profile, and end its leases."""
    with open_client(url, token_file) as client:
        found = client.sessions(domain, profile=profile)
        if not found:
            raise UserError(
                "There is no session of this host and profile: gleanery sessions list shows them"
            )
        if not yes:
            _confirm(found[0])
        deleted = client.session(domain, profile=profile).delete()
    click.echo(f"Deleted {pluralize(deleted, 'record')}.")


def _confirm(session: SessionSummary) -> None:
    if not sys.stdin.isatty():
        raise UserError("There is no terminal to ask for confirmation: give --yes to delete")
    cookies = pluralize(session.cookies, "cookie")
    entries = pluralize(session.local_storage, "local-storage record")
    question = f"Delete {cookies} and {entries} of {session.domain}, profile {session.profile}?"
    if not click.confirm(question, err=True):
        raise CommandFailed("nothing is deleted")


# --- lease --------------------------------------------------------------------------------------


@data_command(
    sessions_app,
    "lease",
    examples=(
        "gleanery sessions lease shop.example -- python scraper.py {}",
        "gleanery sessions lease shop.example --store --format netscape -- "
        "curl -b {} -c {} https://shop.example/account",
        "gleanery sessions lease .shop.example --profile buyer-2 --wait 600 -- ./scrape.sh",
    ),
)
def lease_session(
    domain: Domain,
    command: Annotated[
        list[str],
        Argument(metavar="-- COMMAND...", help="Program to run, and its arguments."),
    ],
    seconds: Annotated[
        int,
        Option(
            "--seconds",
            metavar="N",
            min=1,
            max=3600,
            help="Length of the lease. It is renewed while the command runs.",
        ),
    ] = 300,
    wait: Annotated[
        float,
        Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="Longest wait while another holder has the session.",
        ),
    ] = 0,
    store: Annotated[
        bool, Option("--store", help="Store the file, if the command has changed it.")
    ] = False,
    format_: Format = "playwright",
    page: Annotated[
        str | None,
        Option("--url", metavar="URL", help="Page of the formats cookie, set-cookie and curl."),
    ] = None,
    profile: Profile = "default",
    holder: Annotated[
        str | None,
        Option("--holder", metavar="TEXT", help="Name that people see as the holder."),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Run a command with exclusive use of a session, and exit with the status of the command.

    The session is written to a file that only you can read. It is deleted at the end. The path of
    the file replaces {} in the arguments. GLEANERY_SESSION_FILE contains it.

    Signals are passed on to the command. If the lease is lost, the command is stopped.
    """
    programs.require_program(command)
    _require_format(format_)
    with _invalid_as_user_error(), open_client(url, token_file, is_long=True) as client:
        lease = client.session(domain, profile=profile).lease(seconds, holder=holder, wait=wait)
        with _notes_in_message(), lease:
            status = _run_leased(lease, command, seconds, format_, page, store)
    raise click.exceptions.Exit(status)


def _require_format(format_: str) -> None:
    from gleanery import sessions

    if format_ not in sessions.FORMATS:
        raise UserError(f"--format must be {FORMATS}")


@contextmanager
def _notes_in_message() -> Iterator[None]:
    """Show the notes of an error as well: they say what may have happened at the service."""
    try:
        yield
    except ClientError as error:
        notes = getattr(error, "__notes__", [])
        if not notes:
            raise
        raise CommandFailed(join_sentences(str(error), *notes)) from None


def _run_leased(
    lease: Lease, command: list[str], seconds: int, format_: str, page: str | None, store: bool
) -> int:
    """Run the command with the session in a file. Store the file if it has changed."""
    written = _in_format(lease, format_, page)
    _print_losses([*lease.losses, *written.losses])
    if not lease.state.cookies and not lease.state.local_storage:
        click.echo(
            f"gleanery: warning: there is no session of {lease.domain} in this profile, so the "
            "command is not logged in. gleanery sessions list shows the sessions",
            err=True,
        )
    with leased_command.session_file(_file_name(format_), written.text) as file:
        before = file.read_bytes()
        status = leased_command.run(command, file, lease, seconds)
        if store and file.read_bytes() != before:
            _print_losses(lease.store(file, format=format_).losses)
    return status


def _in_format(lease: Lease, format_: str, page: str | None) -> WriteResult:
    from gleanery import sessions
    from gleanery.client.session_models import page_of

    return sessions.write(lease.state, format_, page or page_of(lease.domain))


def _file_name(format_: str) -> str:
    from gleanery import sessions

    return sessions.FORMATS[format_].file_name

"""The ``gleanery`` command: serve, demo, migrate, backups, the tokens and the keys."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from gleanery import __version__, backup, demo, instants, rotate, tokens
from gleanery.errors import GleaneryError, SettingsError
from gleanery.progress import Begin, Tell
from gleanery.serve import serve
from gleanery.settings import Settings
from gleanery.store import organizations, restored
from gleanery.store.database import Engine
from gleanery.store.engines import database_of

T = TypeVar("T")

app = typer.Typer(
    name="gleanery",
    help="A self-hosted data service for web scraping.\n\n"
    "Every option is also an environment variable, GLEANERY_…, as shown beside it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
token_app = typer.Typer(
    help="Make, list and revoke the tokens that clients use.", no_args_is_help=True
)
app.add_typer(token_app, name="token")
keys_app = typer.Typer(
    help="List, change and give up the keys that cookie and local-storage values are sealed with.",
    no_args_is_help=True,
)
app.add_typer(keys_app, name="keys")

_DEFAULT = Settings()
_LIFETIME = re.compile(r"([1-9][0-9]{0,11})([smhd])")
_LONGEST_LIFE = 100 * 365 * 86400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _option(name: str, words: str) -> Any:
    return typer.Option(
        f"--{name}", envvar=f"GLEANERY_{name.upper().replace('-', '_')}", help=words
    )


Data = Annotated[Path, _option("data", "Folder of the embedded database and its secret key.")]
DatabaseUrl = Annotated[
    str | None, _option("database", "postgresql://… to use PostgreSQL instead of the embedded one.")
]
Blobs = Annotated[
    str | None,
    _option("blobs", "Folder, or s3://bucket/prefix, for files; a folder under --data else."),
]
Host = Annotated[str, _option("host", "Address to listen on.")]
Port = Annotated[int, _option("port", "Port to listen on; 0 takes a free one.")]


@app.callback()
def gleanery(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True)
    ] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("serve")
def serve_command(
    data: Data = _DEFAULT.data,
    database: DatabaseUrl = None,
    host: Host = _DEFAULT.host,
    port: Port = _DEFAULT.port,
    workers: Annotated[int, _option("workers", "Processes that serve.")] = _DEFAULT.workers,
    base_url: Annotated[
        str | None, _option("base-url", "Address under which clients reach the service.")
    ] = None,
    behind_proxy: Annotated[
        bool, _option("behind-proxy", "TLS ends in front: plain HTTP is allowed on any address.")
    ] = False,
    tls_cert: Annotated[Path | None, _option("tls-cert", "Certificate chain, PEM.")] = None,
    tls_key: Annotated[
        Path | None, _option("tls-key", "The certificate's private key, PEM.")
    ] = None,
    max_records: Annotated[
        int, _option("max-records", "Records that one array may hold.")
    ] = _DEFAULT.max_records,
    max_body_bytes: Annotated[
        int, _option("max-body-bytes", "Bytes that one body may hold.")
    ] = _DEFAULT.max_body_bytes,
    blobs: Blobs = None,
    max_file_bytes: Annotated[
        int, _option("max-file-bytes", "Bytes that one file may hold.")
    ] = _DEFAULT.max_file_bytes,
    blob_url_seconds: Annotated[
        int, _option("blob-url-seconds", "How long a link to a file works without a token.")
    ] = _DEFAULT.blob_url_seconds,
    unnamed_file_days: Annotated[
        int, _option("unnamed-file-days", "How long a file is kept that no output names.")
    ] = _DEFAULT.unnamed_file_days,
    token_cache_seconds: Annotated[
        float, _option("token-cache-seconds", "How long a revoked token may still be believed.")
    ] = _DEFAULT.token_cache_seconds,
    pool_size: Annotated[
        int, _option("pool-size", "PostgreSQL connections per worker, at most.")
    ] = _DEFAULT.pool_size,
    idle_seconds: Annotated[
        int, _option("idle-seconds", "How long a connection without a request is kept open.")
    ] = _DEFAULT.idle_seconds,
    stall_seconds: Annotated[
        int,
        _option("stall-seconds", "How long a client may be slow to send or to read."),
    ] = _DEFAULT.stall_seconds,
    longest_wait: Annotated[
        int, _option("longest-wait", "Seconds that a long poll may take, whatever it asks for.")
    ] = _DEFAULT.longest_wait,
    max_connections: Annotated[
        int, _option("max-connections", "Connections of clients per worker, at most.")
    ] = _DEFAULT.max_connections,
    max_requests: Annotated[
        int, _option("max-requests", "Requests under way at once per worker; more get 503.")
    ] = _DEFAULT.max_requests,
    max_transfers: Annotated[
        int, _option("max-transfers", "Files on their way in or out at once per worker.")
    ] = _DEFAULT.max_transfers,
    rate_limit: Annotated[
        str | None,
        _option("rate-limit", "How often each token may ask, such as 600/minute; more get 429."),
    ] = None,
    rate_limit_storage: Annotated[
        str | None,
        _option("rate-limit-storage", "redis://… where all workers and nodes count together."),
    ] = None,
    tombstone_days: Annotated[
        int, _option("tombstone-days", "How long the change feed remembers deletions.")
    ] = _DEFAULT.tombstone_days,
    audit_days: Annotated[
        int, _option("audit-days", "How long an entry of the audit log is kept.")
    ] = _DEFAULT.audit_days,
    sweep_seconds: Annotated[
        float, _option("sweep-seconds", "How often old outputs and deletions are looked for.")
    ] = _DEFAULT.sweep_seconds,
    shutdown_seconds: Annotated[
        int, _option("shutdown-seconds", "How long a stop waits for requests in flight.")
    ] = _DEFAULT.shutdown_seconds,
    log_level: Annotated[
        str, _option("log-level", "debug, info, warning or error.")
    ] = _DEFAULT.log_level,
    log_format: Annotated[
        str, _option("log-format", "auto (text on a terminal, else JSON), text or json.")
    ] = _DEFAULT.log_format,
) -> None:
    """Run the service: on SQLite under --data, or on --database.

    Plain HTTP is served on loopback only, unless --behind-proxy says that TLS ends in front.
    With --database, GLEANERY_SECRET_KEY must hold the key for cookie and local-storage values.
    """
    serve(
        Settings(
            data=data,
            database=database,
            host=host,
            port=port,
            workers=workers,
            base_url=base_url,
            behind_proxy=behind_proxy,
            tls_cert=tls_cert,
            tls_key=tls_key,
            secret_key=_secret_key(),
            max_records=max_records,
            max_body_bytes=max_body_bytes,
            blobs=blobs,
            max_file_bytes=max_file_bytes,
            blob_url_seconds=blob_url_seconds,
            unnamed_file_days=unnamed_file_days,
            token_cache_seconds=token_cache_seconds,
            pool_size=pool_size,
            idle_seconds=idle_seconds,
            stall_seconds=stall_seconds,
            longest_wait=longest_wait,
            max_connections=max_connections,
            max_requests=max_requests,
            max_transfers=max_transfers,
            rate_limit=rate_limit,
            rate_limit_storage=rate_limit_storage,
            tombstone_days=tombstone_days,
            audit_days=audit_days,
            sweep_seconds=sweep_seconds,
            shutdown_seconds=shutdown_seconds,
            log_level=log_level,
            log_format=log_format,
        ).check()
    )


@app.command("demo")
def demo_command(
    data: Annotated[
        Path | None, _option("data", "Keep the sample here; without it nothing is kept.")
    ] = None,
    port: Port = _DEFAULT.port,
) -> None:
    """Run the service over a generated sample organization and print lines to try."""
    demo.run(data, port)


@app.command("migrate")
def migrate_command(data: Data = _DEFAULT.data, database: DatabaseUrl = None) -> None:
    """Bring the database's schema to this program's form; serve does so by itself."""
    _with_database(data, database, Engine.schema_number, create=True)
    typer.echo("The schema is up to date.")


@app.command("backup")
def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup to make.")],
    with_key: Annotated[
        bool, _option("with-key", "Put the secret key in, too; then keep the backup secret.")
    ] = False,
    data: Data = _DEFAULT.data,
    blobs: Blobs = None,
    database: DatabaseUrl = None,
) -> None:
    """Copy the embedded database and its files into one FILE, while the service runs."""
    if database is not None:
        raise SettingsError(
            "gleanery backup copies the embedded database. For PostgreSQL use pg_dump, or what "
            "you back it up with; docs/operations.md says what else to do"
        )
    settings = Settings(data=data, blobs=blobs, secret_key=_secret_key()).check()
    _must_exist(settings)
    with _bars() as begin:
        made = backup.make(settings, file, with_key, begin)
    files = "no files: the bucket keeps them" if made.files is None else f"{made.files} files"
    typer.echo(f"{file} holds the database and {files}.")
    if not with_key:
        typer.echo(
            f"The secret key {made.key} is not in it: without that, cookie and local-storage "
            "values can't be read again. Keep a copy of it elsewhere."
        )
    _tell_of_lost(made.lost)


@app.command("restore")
def restore_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    data: Data = _DEFAULT.data,
    blobs: Blobs = None,
    database: DatabaseUrl = None,
) -> None:
    """Put a backup in place, in a folder without a database. Clients are sent everything again."""
    if database is not None:
        raise SettingsError(
            "gleanery restore is for the embedded database. For PostgreSQL use pg_restore, and "
            "then gleanery restored"
        )
    settings = Settings(data=data, blobs=blobs, secret_key=_secret_key()).check()
    with _bars() as begin:
        done = backup.restore(settings, file, begin)
    files = "no files" if done.files is None else f"{done.files} files"
    typer.echo(f"{data} holds the database with {done.outputs} outputs, and {files}.")
    if not done.has_key:
        typer.echo(
            f"Put the secret key {done.key} into {settings.key_file}; if it is lost, gleanery keys "
            "forget removes the values that only it could open."
        )
    _tell_of_lost(done.lost)


def _tell_of_lost(keys: list[str]) -> None:
    if keys:
        typer.echo(f"The bytes of these files were lost or damaged before: {' '.join(keys)}")


@app.command("restored")
def restored_command(data: Data = _DEFAULT.data, database: DatabaseUrl = None) -> None:
    """Tell a database that something else has restored it; gleanery restore does so by itself.

    Run it before the service is started: then no client takes new changes for ones it has seen.
    """
    with _bars() as begin:
        sent = _with_database(
            data, database, lambda db: restored.begin_anew(db, instants.now, begin)
        )
    typer.echo(f"{sent} outputs will be sent again.")


@contextmanager
def _bars() -> Iterator[Begin]:
    """Progress on standard error, if a person is looking."""
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:

        def begin(words: str, total: int) -> Tell:
            return partial(bars.advance, bars.add_task(words, total=total))

        yield begin


@token_app.command("create")
def create_token(
    organization: Annotated[str, _option("organization", "Name; made if it is new.")],
    scopes: Annotated[
        str, _option("scopes", f"Comma-separated, of: {', '.join(tokens.SCOPES)}.")
    ] = ",".join(scope for scope in tokens.SCOPES if scope in tokens.DEFAULT_SCOPES),
    expires_in: Annotated[
        str | None, _option("expires-in", "Lifetime, such as 12h or 90d; without it, no end.")
    ] = None,
    data: Data = _DEFAULT.data,
    database: DatabaseUrl = None,
) -> None:
    """Print a new token, alone on standard output. It is shown this once and stored nowhere."""
    now = instants.now()
    chosen, expires = _scopes(scopes), _expiry(expires_in, now)
    if not organization.strip() or len(organization) > 200 or "\0" in organization:
        raise SettingsError("--organization must be a name of 1 to 200 characters")

    async def work(database: Engine) -> str:
        return await organizations.create_token(database, organization, chosen, now, expires)

    typer.echo(_with_database(data, database, work, create=True))


@token_app.command("list")
def list_tokens(data: Data = _DEFAULT.data, database: DatabaseUrl = None) -> None:
    """List all tokens: their numbers and what they allow, never the tokens themselves."""
    table = Table("ID", "Organization", "Scopes", "Created", "Expires", "State", box=None)
    now = instants.now()
    for token in _with_database(data, database, organizations.list_tokens):
        expired = token.expires is not None and token.expires <= now
        table.add_row(
            str(token.id),
            Text(token.organization),
            ",".join(token.scopes),
            instants.render_moment(token.created),
            instants.render_moment(token.expires) if token.expires is not None else "never",
            "revoked" if token.revoked else "expired" if expired else "valid",
        )
    _print(table)


@token_app.command("revoke")
def revoke_token(
    token_id: Annotated[
        int, typer.Argument(metavar="ID", help="As token list shows it.", min=1, max=2**63 - 1)
    ],
    data: Data = _DEFAULT.data,
    database: DatabaseUrl = None,
) -> None:
    """Make a token worthless, on every node within seconds."""
    now = instants.now()
    _with_database(data, database, lambda db: organizations.revoke_token(db, token_id, now))
    typer.echo(f"Token {token_id} is revoked.")


@keys_app.command("list")
def list_keys(data: Data = _DEFAULT.data, database: DatabaseUrl = None) -> None:
    """List the keys by their fingerprints, with how many values each has sealed."""
    table = Table("Key", "Values", "State", box=None)
    for key in _with_keys(data, database, rotate.list_keys):
        states = ["missing", "at hand"][key.is_at_hand] + (", seals" if key.seals else "")
        table.add_row(key.fingerprint, str(key.values), states)
    _print(table)


@keys_app.command("rotate")
def rotate_keys(data: Data = _DEFAULT.data, database: DatabaseUrl = None) -> None:
    """Seal every value with a new key, while the service runs; the old one is then not needed.

    The embedded database's secret.key is changed by this. Where GLEANERY_SECRET_KEY holds the
    key, put a new one in front of it on every node first, and take the old one away afterwards.
    """
    with _bars() as begin:
        done = _with_keys(data, database, partial(rotate.rotate, begin=begin))
    typer.echo(f"{done.values} values are sealed anew; all that opens is under the key {done.key}.")
    if done.broken:
        typer.echo(
            f"{done.broken} values open with no key at hand and are as they were: gleanery keys "
            "list shows which keys are missing, gleanery keys forget removes the values"
        )
    if not done.is_file:
        typer.echo("Take the old key out of GLEANERY_SECRET_KEY, on one node after the other.")


@keys_app.command("forget")
def forget_keys(
    yes: Annotated[bool, _option("yes", "Don't ask.")] = False,
    data: Data = _DEFAULT.data,
    database: DatabaseUrl = None,
) -> None:
    """Give up keys that are lost: remove the values that no key at hand opens."""
    count = _with_keys(data, database, rotate.count_lost)
    typer.echo(f"{count} cookie and local-storage values open with no key at hand.", err=True)
    if not yes:
        typer.confirm("Remove them and go on with the key at hand, or a new one?", abort=True)
    forgotten = _with_keys(data, database, rotate.forget_lost)
    typer.echo(f"{forgotten} values are removed; everything that is left opens.")


def _with_keys(
    data: Path,
    url: str | None,
    work: Callable[[Settings, Engine], Coroutine[Any, Any, T]],
) -> T:
    settings = _where(data, url).check()
    return _with_database(data, url, lambda database: work(settings, database))


def _print(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _secret_key() -> str | None:
    """A variable and no flag: a flag would show it to everyone who lists processes."""
    return os.environ.get("GLEANERY_SECRET_KEY") or None


def _where(data: Path, database: str | None) -> Settings:
    return Settings(data=data, database=database, secret_key=_secret_key())


def _with_database(
    data: Path,
    url: str | None,
    work: Callable[[Engine], Coroutine[Any, Any, T]],
    create: bool = False,
) -> T:
    """Runs the work on the database that the options name. None of it needs the secret key."""
    settings = _where(data, url)
    is_new = url is None and not settings.sqlite_file.exists()
    if is_new and not create:
        _must_exist(settings)

    async def run() -> T:
        database = database_of(settings)
        await database.open()
        try:
            await database.migrate()
            return await work(database)
        finally:
            await database.close()

    result = asyncio.run(run())
    if is_new:
        typer.echo(f"Made a new database in {settings.data.absolute()}", err=True)
    return result


def _must_exist(settings: Settings) -> None:
    if not settings.sqlite_file.exists():
        raise SettingsError(
            f"There is no database in {settings.data.absolute()}: give --data (or GLEANERY_DATA), "
            "the folder that serve uses"
        )


def _scopes(text: str) -> frozenset[str]:
    chosen = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(chosen - tokens.SCOPES.keys())
    if unknown or not chosen:
        raise SettingsError(
            f"--scopes must be one or more of {', '.join(tokens.SCOPES)}"
            + (f"; not {', '.join(unknown)}" if unknown else "")
        )
    return chosen


def _expiry(text: str | None, now: int) -> int | None:
    if text is None:
        return None
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise SettingsError("--expires-in must be a number and s, m, h or d, such as 12h or 90d")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > _LONGEST_LIFE:
        raise SettingsError("--expires-in may be 100 years at most; leave it out for no end")
    return now + seconds * instants.SECOND


def main() -> None:
    """The command; what the user must mend is one sentence, not a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave in order, as on Ctrl-C
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        app()
    except (SettingsError, GleaneryError, OSError) as error:
        typer.echo(f"gleanery: {error}", err=True)
        sys.exit(2)

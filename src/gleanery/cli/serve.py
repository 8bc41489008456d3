"""``gleanery serve`` and ``migrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gleanery.cli.database import with_database
from gleanery.cli.options import (
    DEFAULT,
    Blobs,
    Data,
    DatabaseUrl,
    Host,
    Port,
    option,
    secret_key,
)
from gleanery.serve import serve
from gleanery.settings import Settings
from gleanery.storage.database import Engine

app = typer.Typer()


@app.command("serve")
def serve_command(
    data: Data = DEFAULT.data,
    database: DatabaseUrl = None,
    host: Host = DEFAULT.host,
    port: Port = DEFAULT.port,
    workers: Annotated[int, option("workers", "Processes that serve.")] = DEFAULT.workers,
    base_url: Annotated[
        str | None, option("base-url", "Address under which clients reach the service.")
    ] = None,
    behind_proxy: Annotated[
        bool, option("behind-proxy", "TLS ends in front: plain HTTP is allowed on any address.")
    ] = False,
    tls_cert: Annotated[Path | None, option("tls-cert", "Certificate chain, PEM.")] = None,
    tls_key: Annotated[
        Path | None, option("tls-key", "The certificate's private key, PEM.")
    ] = None,
    max_records: Annotated[
        int, option("max-records", "Records that one array may hold.")
    ] = DEFAULT.max_records,
    max_body_bytes: Annotated[
        int, option("max-body-bytes", "Bytes that one body may hold.")
    ] = DEFAULT.max_body_bytes,
    blobs: Blobs = None,
    max_file_bytes: Annotated[
        int, option("max-file-bytes", "Bytes that one file may hold.")
    ] = DEFAULT.max_file_bytes,
    blob_url_seconds: Annotated[
        int, option("blob-url-seconds", "How long a link to a file works without a token.")
    ] = DEFAULT.blob_url_seconds,
    unnamed_file_days: Annotated[
        int, option("unnamed-file-days", "How long a file is kept that no output names.")
    ] = DEFAULT.unnamed_file_days,
    token_cache_seconds: Annotated[
        float, option("token-cache-seconds", "How long a revoked token may still be believed.")
    ] = DEFAULT.token_cache_seconds,
    pool_size: Annotated[
        int, option("pool-size", "PostgreSQL connections per worker, at most.")
    ] = DEFAULT.pool_size,
    idle_seconds: Annotated[
        int, option("idle-seconds", "How long a connection without a request is kept open.")
    ] = DEFAULT.idle_seconds,
    stall_seconds: Annotated[
        int,
        option("stall-seconds", "How long a client may be slow to send or to read."),
    ] = DEFAULT.stall_seconds,
    longest_wait: Annotated[
        int, option("longest-wait", "Seconds that a long poll may take, whatever it asks for.")
    ] = DEFAULT.longest_wait,
    max_connections: Annotated[
        int, option("max-connections", "Connections of clients per worker, at most.")
    ] = DEFAULT.max_connections,
    max_requests: Annotated[
        int, option("max-requests", "Requests under way at once per worker; more get 503.")
    ] = DEFAULT.max_requests,
    max_transfers: Annotated[
        int, option("max-transfers", "Files on their way in or out at once per worker.")
    ] = DEFAULT.max_transfers,
    rate_limit: Annotated[
        str | None,
        option("rate-limit", "How often each token may ask, such as 600/minute; more get 429."),
    ] = None,
    rate_limit_storage: Annotated[
        str | None,
        option("rate-limit-storage", "redis://… where all workers and nodes count together."),
    ] = None,
    tombstone_days: Annotated[
        int, option("tombstone-days", "How long the change feed remembers deletions.")
    ] = DEFAULT.tombstone_days,
    audit_days: Annotated[
        int, option("audit-days", "How long an entry of the audit log is kept.")
    ] = DEFAULT.audit_days,
    sweep_seconds: Annotated[
        float, option("sweep-seconds", "How often old outputs and deletions are looked for.")
    ] = DEFAULT.sweep_seconds,
    shutdown_seconds: Annotated[
        int, option("shutdown-seconds", "How long a stop waits for requests in flight.")
    ] = DEFAULT.shutdown_seconds,
    log_level: Annotated[
        str, option("log-level", "debug, info, warning or error.")
    ] = DEFAULT.log_level,
    log_format: Annotated[
        str, option("log-format", "auto (text on a terminal, else JSON), text or json.")
    ] = DEFAULT.log_format,
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
            secret_key=secret_key(),
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


@app.command("migrate")
def migrate_command(data: Data = DEFAULT.data, database: DatabaseUrl = None) -> None:
    """Bring the database's schema to this program's form; serve does so by itself."""
    with_database(data, database, Engine.schema_number, create=True)
    typer.echo("The schema is up to date.")

"""PgBouncer in transaction mode on loopback, in front of a PostgreSQL server."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from faults import programs
from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import TIMEOUT, accepts_connections, free_port, wait_until

_CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 8
max_client_conn = 500
max_prepared_statements = 200
server_login_retry = 1
log_connections = 0
log_disconnections = 0
"""


class PgBouncer:
    """A pooler that can be killed and started again."""

    def __init__(self, program: str, folder: Path, log: Path, server: PostgresServer) -> None:
        self._program, self._folder, self._log = program, folder, log
        self._server = server
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/gleanery"

    def create(self) -> None:
        """Write the configuration, and start."""
        self._folder.mkdir(mode=0o755)
        (self._folder / "users").write_text('"postgres" ""\n')
        self._write_configuration()
        self.start()

    def move_to(self, server: PostgresServer) -> None:
        """Use another server from now on. The connections of clients stay open."""
        assert self._process is not None
        self._server = server
        self._write_configuration()
        self._process.send_signal(signal.SIGHUP)

    def start(self) -> None:
        """Start the pooler and wait until it accepts connections."""
        command = [self._program, str(self._folder / "pgbouncer.ini")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._server.user, cwd="/"
            )
        wait_until(self._accepts_connections)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT)
            self._process = None

    def _write_configuration(self) -> None:
        (self._folder / "pgbouncer.ini").write_text(
            _CONFIGURATION.format(
                server_port=self._server.port, port=self._port, folder=self._folder
            )
        )

    def _accepts_connections(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"PgBouncer exited: {self._log.read_text()[-2000:]}")
        return accepts_connections(self._port)


def start_pgbouncer(environment: Environment, server: PostgresServer) -> PgBouncer:
    program = programs.pgbouncer()
    if program is None:
        raise programs.MissingProgram(programs.NEEDS_PGBOUNCER)
    folder, log = environment.new_path("pgbouncer"), environment.new_path("log")
    pooler = PgBouncer(program, folder, log, server)
    environment.at_end(pooler.kill)
    pooler.create()
    return pooler

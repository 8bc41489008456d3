"""A small disk that can be filled, freed, and cut off from its power."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

_GOING_DOWN = 0x8004587D  # FS_IOC_SHUTDOWN
_WITHOUT_FLUSHING = 2  # what the journal has not written is lost, as when the power fails
_CAP_SYS_ADMIN = 21
_MEBIBYTE = 1024 * 1024


class Disk(Protocol):
    kind: str

    def fill(self) -> None:
        """From now on nothing more can be written."""

    def free(self) -> None:
        """Now it can again."""


def can_mount() -> bool:
    about = Path("/proc/self/status")
    if not about.exists() or shutil.which("mkfs.ext4") is None:
        return False
    status = about.read_text()
    rights = int(status.split("CapEff:")[1].split()[0], 16)
    return bool(rights >> _CAP_SYS_ADMIN & 1) and Path("/dev/loop-control").exists()


class SmallDisk:
    """An ext4 file system in a file; only root can mount it."""

    kind = "an ext4 file system of its own in a loopback image"

    def __init__(self, folder: Path, mebibytes: int) -> None:
        self.folder = folder
        self._image = folder.with_suffix(".img")
        self._ballast = folder / "ballast"
        with self._image.open("wb") as image:
            image.truncate(mebibytes * _MEBIBYTE)
        _run("mkfs.ext4", "-q", "-m", "0", "-O", "^resize_inode", str(self._image))

    def mount(self) -> None:
        self.folder.mkdir(exist_ok=True)
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def unmount(self) -> None:
        if os.path.ismount(self.folder):
            _run("umount", str(self.folder))

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (_MEBIBYTE, 4096, 1):
                with suppress(OSError):
                    while ballast.write(b"x" * size):
                        pass

    def free(self) -> None:
        self._ballast.unlink()

    def cut_power(self) -> None:
        """Everything that was not forced to the disk is gone; it must be mounted again."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _GOING_DOWN, struct.pack("I", _WITHOUT_FLUSHING))
        finally:
            os.close(descriptor)


class LimitedProcess:
    """Where nothing can be mounted: a process whose files may grow no further."""

    kind = "a limit on the size of files (RLIMIT_FSIZE), because only root can mount a small disk"

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder, self._pid = folder, pid

    def fill(self) -> None:
        largest = max(file.stat().st_size for file in self._folder.glob("*.sqlite*"))
        self._limit(largest)

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextmanager
def small_disk(folder: Path, mebibytes: int = 48) -> Iterator[SmallDisk]:
    disk = SmallDisk(folder, mebibytes)
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

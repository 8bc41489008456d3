"""Small disks that a test can fill, free and disconnect from their power."""

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

_FS_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2  # discards what the journal has not written, like a power failure
_CAP_SYS_ADMIN = 21
_MEBIBYTE = 1024 * 1024


class Disk(Protocol):
    kind: str

    def fill(self) -> None:
        """Make all further writes fail."""

    def free(self) -> None:
        """Make writes succeed again."""


def can_mount() -> bool:
    status_file = Path("/proc/self/status")
    if not status_file.exists() or shutil.which("mkfs.ext4") is None:
        return False
    capabilities = int(status_file.read_text().split("CapEff:")[1].split()[0], 16)
    return bool(capabilities >> _CAP_SYS_ADMIN & 1) and Path("/dev/loop-control").exists()


class SmallDisk:
    """An ext4 file system in an image file. Only root can mount it."""

    kind = "an ext4 file system in a loopback image"

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
        """Discard all data that was not flushed to the disk. The disk must be mounted again."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)


class FileSizeLimit:
    """Substitute for a full disk without root: the files of a process cannot grow."""

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
def mounted_disk(folder: Path, mebibytes: int = 48) -> Iterator[SmallDisk]:
    disk = SmallDisk(folder, mebibytes)
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

"""`SmallDisk`: a directory on a disk that can be filled: a small tmpfs, or, without the right to mount one, a limit.

The limit is the process's own: its files cannot grow (EFBIG), its standard error among them.
"""

from __future__ import annotations

import ctypes
import resource
import subprocess
from pathlib import Path

from benchmarks.faults.launcher import Process

_NEW_MOUNTS = 0x20000  # CLONE_NEWNS


def may_mount() -> bool:
    """Give this process, and those that it starts from now on, mounts of their own, which end with it; say whether
    that was possible. Call it before there are other threads."""
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) != 0:
        return False
    return subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True).returncode == 0


class SmallDisk:
    """A disk of a few megabytes; a context manager.

    Args:
        path: a directory to make, on which it is.
        megabytes: how large.
    """

    def __init__(self, path: Path, megabytes: int = 24) -> None:
        self.path = path
        self.is_real = False
        self._megabytes = megabytes
        self._filler = path / "filler"

    def __enter__(self) -> SmallDisk:
        self.path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.path)]
        self.is_real = subprocess.run(mount, capture_output=True).returncode == 0
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_real:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self, process: Process) -> None:
        """Leave no room, to the last byte."""
        if not self.is_real:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        fill_up(self._filler)

    def free(self, process: Process) -> None:
        """Make room again."""
        if self.is_real:
            self._filler.unlink()
        else:
            limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limit)


def fill_up(filler: Path) -> None:
    """Write into a file until its disk has no room, to the last byte."""
    with open(filler, "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue

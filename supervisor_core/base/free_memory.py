"""`free_memory`: how much memory this process may still take: the machine's, and that of its control groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def free_memory(proc: Path = PROC, groups: Path = GROUPS) -> int | None:
    """Return the free bytes, pages of files counted as free; None where nothing says it.

    Args:
        proc: where Linux has its processes.
        groups: where it has its control groups, of version 1 or 2.
    """
    found = []
    with suppress(OSError, KeyError, ValueError):
        found.append(_numbers(proc / "meminfo")["MemAvailable:"] * 1024)
    with suppress(OSError):
        for line in (proc / "self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                found += _left(groups / controllers, path, is_first=bool(controllers))
    return max(0, min(found)) if found else None


def _left(root: Path, path: str, *, is_first: bool) -> Iterator[int]:
    """Yield what is left in a group and in those around it."""
    limit, usage = ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_first else ("memory.max", "memory.current")
    inside = PurePosixPath(path.lstrip("/"))
    for group in (inside, *inside.parents):
        with suppress(OSError, ValueError):  # no limit is "max", and the outermost group has no file
            most, used = (int((root / group / name).read_text()) for name in (limit, usage))
            files = _numbers(root / group / "memory.stat")
            yield most - used + files.get("active_file", 0) + files.get("inactive_file", 0)


def _numbers(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text("utf-8").splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}

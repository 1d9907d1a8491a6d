"""`Logdir`: which directories TensorBoard shows, and how it names the runs below them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://.*")


@dataclass(frozen=True)
class Logdir:
    """A directory with runs below it."""

    path: str
    group: str | None = None
    """What stands before the names of its runs; None for nothing."""

    def run_name(self, relative: str) -> str:
        """Return the name that TensorBoard shows, of a run named relative to this directory."""
        return os.path.join(self.group, relative) if self.group else relative


def logdirs_of(logdir: str | None, logdir_spec: str | None) -> tuple[Logdir, ...]:
    """Return what ``--logdir``, or else ``--logdir_spec``, names; TensorBoard reads them in the same way.

    Example:
        >>> [logdir.run_name("train") for logdir in logdirs_of(None, "mine:/runs/a,/runs/b")]
        ['mine/train', 'train']
    """
    if logdir:
        return (Logdir(os.path.expanduser(logdir)),)
    groups: dict[str, str | None] = {}
    for item in (logdir_spec or "").split(","):
        group, path = _parts(item)
        groups[path if _URI.match(path) else os.path.realpath(os.path.expanduser(path))] = group
    return tuple(Logdir(path, group) for path, group in groups.items()) if logdir_spec else ()


def _parts(item: str) -> tuple[str | None, str]:
    """Return group and path of ``group:path`` or ``path``; a path may hold colons if it begins with a slash."""
    if _URI.match(item) or ":" not in item or item.startswith("/") or os.path.splitdrive(item)[0]:
        return None, item
    group, _, path = item.partition(":")
    return group, path

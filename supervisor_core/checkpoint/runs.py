"""`find_runs`: the directories below a logdir in which checkpoints are, whatever program wrote them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from supervisor_core.checkpoint.filesystem import Filesystem
from supervisor_core.checkpoint.names import last_part, without_shards
from supervisor_core.checkpoint.set_aside import NOTE
from supervisor_core.checkpoint.state import read_state

_NUMBER = re.compile(r"-\d{1,19}$")
_STAGING = re.compile(r".+_temp_(?:[0-9A-Za-z]+_)?[0-9a-f]{32}")
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")


@dataclass(frozen=True)
class RunDirectory:
    """A directory with checkpoints."""

    path: str
    basenames: tuple[str, ...]
    """What its checkpoints' names begin with; first the one that a restart would look for."""


def find_runs(
    filesystem: Filesystem, top: str, *, latest_filename: str = "checkpoint", on_error: Callable[[OSError], None]
) -> Iterator[RunDirectory]:
    """Yield the directories from ``top`` down that have a state file, or a checkpoint's data.

    The variables of an exported SavedModel are no run's checkpoints and are left out, and so are checkpoints that were
    set aside, or are being written.

    Args:
        filesystem: that of ``top``.
        top: where to begin.
        latest_filename: the state file's name.
        on_error: called for each directory that cannot be searched.
    """
    exports = set()
    for directory, files in filesystem.walk(top, on_error):
        if "saved_model.pb" in files or "saved_model.pbtxt" in files:
            exports.add(os.path.join(directory, "variables"))
        if directory in exports or NOTE in files or _STAGING.fullmatch(last_part(directory)):
            continue
        chosen = []
        if latest_filename in files:
            state = read_state(os.path.join(directory, latest_filename), filesystem=filesystem).state
            chosen = [_basename(last_part(state.model_checkpoint_path))] if state else []
        found = _basenames(files)
        if latest_filename in files or found:
            names = dict.fromkeys([*chosen, *(["model.ckpt"] if "model.ckpt" in found else []), *found])
            yield RunDirectory(directory, tuple(names) or ("model.ckpt",))


def _basenames(files: list[str]) -> list[str]:
    return sorted({_basename(match.group(1)) for name in files if (match := _DATA.fullmatch(name))})


def _basename(name: str) -> str:
    return _NUMBER.sub("", without_shards(name))

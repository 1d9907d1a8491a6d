"""`find_stores`: the checkpoints of both kinds in and below a directory, whatever program wrote them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from supervisor_core.checkpoint import manifest
from supervisor_core.checkpoint.contents import FORMATS
from supervisor_core.checkpoint.ledger import STATE_NAME
from supervisor_core.checkpoint.names import basename_of, last_part
from supervisor_core.checkpoint.sealed_store import SealedStore
from supervisor_core.checkpoint.set_aside import NOTE
from supervisor_core.checkpoint.state_file import read_state
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import local_path

_STAGING = re.compile(r".+_temp_(?:[0-9A-Za-z]+_)?[0-9a-f]{32}")
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")


def find_stores(
    filesystem: Filesystem, top: str, *, on_error: Callable[[OSError], None]
) -> Iterator[CheckpointStore | SealedStore]:
    """Yield the stores of checkpoints from ``top`` down, TensorFlow's and sealed ones.

    Of several savers in one directory the one that a restart would look for comes first. The variables of an exported
    SavedModel are not a run's checkpoints and are left out, and so are checkpoints that were set aside, or are being
    written.

    Args:
        filesystem: that of ``top``.
        on_error: called for each directory that cannot be searched.
    """
    exports, sealed = set(), set()
    for directory, files in filesystem.walk(top, on_error):
        if "saved_model.pb" in files or "saved_model.pbtxt" in files:
            exports.add(os.path.join(directory, "variables"))
        if directory in exports or NOTE in files or _STAGING.fullmatch(last_part(directory)):
            continue
        parent = os.path.dirname(directory)
        if manifest.NAME in files and parent not in sealed and local_path(parent) is not None:
            sealed.add(parent)
            yield SealedStore(parent, prefix_of(parent))
        chosen = []
        if STATE_NAME in files:
            state = read_state(os.path.join(directory, STATE_NAME), filesystem=filesystem).state
            chosen = [basename_of(state.model_checkpoint_path)] if state else []
        found = sorted({basename_of(match.group(1)) for name in files if (match := _DATA.fullmatch(name))})
        if STATE_NAME in files or found:
            names = dict.fromkeys([*chosen, *(["model.ckpt"] if "model.ckpt" in found else []), *found])
            for basename in tuple(names) or ("model.ckpt",):
                yield CheckpointStore(directory, basename, filesystem=filesystem)


def prefix_of(directory: str) -> str:
    """Return what the names of a directory's sealed checkpoints begin with: ours if there are none."""
    names = os.listdir(directory)
    found = (prefix for prefix in FORMATS if any(re.fullmatch(rf"{prefix}\d{{1,19}}(\.\d+)?", name) for name in names))
    return next(found, next(iter(FORMATS)))

"""Paths in Lightning's checkpoint: `drop_foreign`.

``ModelCheckpoint`` keeps in its state which files it has written, and after a resume it removes them, directories with
all that is in them, when it writes better ones. So who writes the state would say what is removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

_LOG = logging.getLogger("supervisor_core")

_PATHS = ("best_model_path", "last_model_path", "kth_best_model_path")
_BEST = "best_k_models"
_WORST = "kth_best_model_path"


def drop_foreign(checkpoint: Mapping[str, Any], callbacks: Iterable[Any], path: str) -> None:
    """Drop from the states of callbacks the paths of what does not lie in the directory that the callback writes to.

    Args:
        checkpoint: the content of a ``.ckpt``; it is altered.
        callbacks: those of the trainer, set up.
        path: the file, for the log.
    """
    directories: dict[Any, list[Any]] = {}
    for callback in callbacks:
        for key in {callback.state_key, getattr(callback, "_legacy_state_key", callback.state_key)}:
            directories.setdefault(key, []).append(getattr(callback, "dirpath", None))
    dropped = 0
    for key, state in checkpoint["callbacks"].items():
        if isinstance(state, dict):
            dropped += _drop(state, directories.get(key, [None]))
    if dropped:
        _LOG.warning(
            "%s may be another user's: %d paths in it do not lie in the directory that its callback writes to, and "
            "are left out; Lightning would remove what they lead to",
            path,
            dropped,
        )


def _drop(state: dict[Any, Any], directories: list[Any]) -> int:
    """Drop paths from a state; return how many."""
    foreign = [name for name in _PATHS if name in state and not _is_below(state[name], directories)]
    for name in foreign:
        state[name] = ""
    dropped = len(foreign)
    if _BEST in state:
        best = state[_BEST] if isinstance(state[_BEST], dict) else {}
        kept = {path: score for path, score in best.items() if path and _is_below(path, directories)}
        dropped += len(best) - len(kept)
        if dropped and state.get(_WORST) not in kept:  # Lightning looks it up there
            kept, state[_WORST] = {}, ""
        state[_BEST] = kept
    return dropped


def _is_below(path: Any, directories: list[Any]) -> bool:
    """Return whether a path is none, or a local one of something in all of some directories."""
    if path == "":
        return True
    if type(path) is not str or not os.path.isabs(path) or "::" in path or "://" in path:  # which fsspec takes apart
        return False
    try:
        real = os.path.realpath(path)
        return all(
            isinstance(directory, (str, os.PathLike))
            and os.path.isabs(directory)
            and real.startswith(os.path.join(os.path.realpath(directory), ""))
            for directory in directories
        )
    except (OSError, ValueError):
        return False

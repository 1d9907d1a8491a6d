"""The state file (``checkpoint``): which checkpoints there are, and which one to resume from.

Source: tensorflow's ``python/training/checkpoint_state.proto`` and ``checkpoint_management.py``. A text-format protocol
buffer, one field to a line, UTF-8:

    model_checkpoint_path: "model.ckpt-1200"           the one to resume from
    all_model_checkpoint_paths: "model.ckpt-600"       those not yet deleted, oldest first; the last one
    all_model_checkpoint_paths: "model.ckpt-1200"      is model_checkpoint_path
    all_model_checkpoint_timestamps: 1669581175.25     when each was saved, in the same order
    all_model_checkpoint_timestamps: 1669581775.5      (seconds since the epoch)
    last_preserved_timestamp: 1669577000.0             from when the hours of "keep one every n hours" count
    # supervisor_core: attempt 12, save 57: "model.ckpt-1200"

The last line is a comment, which other programs skip: which save of which session wrote the file, and the path to
resume from, as JSON. Where model_checkpoint_path differs from it, somebody has edited the file, and the comment is
ignored.

Relative paths count from the file's own directory; this module writes relative ones. People edit this file: comments
(``#``), blank lines, single quotes, escapes, lists in brackets, missing fields, and Windows paths with single
backslashes are read.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from supervisor_core.checkpoint.schema import message_class
from supervisor_core.storage.filesystem import Filesystem
from supervisor_core.storage.local import filesystem_for

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = frozenset("abfnrtv\\'\"?01234567xXuU")
_COMMENT = re.compile(r'^# supervisor_core: attempt (\d{1,19}), save (\d{1,19}): (".*")\s*$', re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x1f]")


class SaveId(NamedTuple):
    """A save's number within its run; a later save is greater."""

    attempt: int
    """Its session's number."""
    number: int
    """The save's number in that session, from 1."""


@dataclass(frozen=True, kw_only=True)
class CheckpointState:
    """A state file's content; paths as written in the file."""

    model_checkpoint_path: str
    all_model_checkpoint_paths: tuple[str, ...] = ()
    timestamps: tuple[float, ...] = ()
    """Seconds since the epoch, one for each of ``all_model_checkpoint_paths``; empty where unknown."""
    last_preserved_timestamp: float | None = None
    save_id: SaveId | None = None
    """The save that wrote it; None where another program wrote it, or somebody edited it."""


@dataclass(frozen=True, kw_only=True)
class StateReading:
    """The result of reading a state file. ``problem`` is one sentence, None where there is none."""

    verdict: Literal["good", "missing", "damaged", "unreadable"]
    """``damaged``: it cannot be parsed; ``unreadable``: the file system refuses it."""
    state: CheckpointState | None = None
    problem: str | None = None


def read_state(path: str | os.PathLike[str], *, filesystem: Filesystem | None = None) -> StateReading:
    """Read a state file; never raises for its content or absence.

    Args:
        path: the file, ``<logdir>/checkpoint``.
        filesystem: reads it. Default: by the path's scheme.

    Example:
        >>> read_state("/nonexistent/checkpoint").verdict
        'missing'
    """
    filesystem, name = filesystem_for(path) if filesystem is None else (filesystem, os.fspath(path))
    file = os.path.basename(name)
    try:
        data = filesystem.read(name)
    except (FileNotFoundError, NotADirectoryError):
        return StateReading(verdict="missing", problem=f"the state file {file!r} is missing")
    except OSError as error:
        text = f"the state file {file!r} cannot be read: {error.strerror or error}"
        return StateReading(verdict="unreadable", problem=text)
    try:
        state, note = _parse(data)
    except ValueError as error:
        return StateReading(verdict="damaged", problem=f"the state file {file!r} cannot be understood: {error}")
    return StateReading(verdict="good", state=state, problem=note and f"the state file {file!r}: {note}")


def write_state(path: str | os.PathLike[str], state: CheckpointState, *, filesystem: Filesystem | None = None) -> None:
    """Replace a state file atomically and durably; paths are written as given.

    Args:
        path: the file, ``<logdir>/checkpoint``.
        state: its new content.
        filesystem: writes it. Default: by the path's scheme.

    Raises:
        OSError: if it cannot be written; the old file stays.
    """
    filesystem, name = filesystem_for(path) if filesystem is None else (filesystem, os.fspath(path))
    filesystem.replace(name, format_state(state))


def format_state(state: CheckpointState) -> bytes:
    """Return the bytes of the state file."""
    from google.protobuf import text_format

    message = message_class("CheckpointState")(
        model_checkpoint_path=state.model_checkpoint_path,
        all_model_checkpoint_paths=state.all_model_checkpoint_paths,
        all_model_checkpoint_timestamps=state.timestamps,
        last_preserved_timestamp=state.last_preserved_timestamp or 0.0,
    )
    text = text_format.MessageToString(message, as_utf8=True)
    if state.save_id is not None:
        attempt, number = state.save_id
        text += f"# supervisor_core: attempt {attempt}, save {number}: {json.dumps(state.model_checkpoint_path)}\n"
    return text.encode()


def make_relative(paths: Sequence[str], directory: str) -> tuple[str, ...]:
    """Return the paths relative to ``directory`` where they lie below it, and absolute where they do not.

    Example:
        >>> make_relative(["/logs/run/model.ckpt-5", "/other/model.ckpt-9"], "/logs/run")
        ('model.ckpt-5', '/other/model.ckpt-9')
    """
    result = []
    for path in paths:
        if "://" in path:
            root = directory.rstrip("/") + "/"
            result.append(path[len(root) :] if path.startswith(root) else path)
            continue
        relative = os.path.relpath(path, directory)
        outside = relative == os.pardir or relative.startswith(os.pardir + os.sep)
        result.append(os.path.abspath(path) if outside else relative)
    return tuple(result)


def _parse(data: bytes) -> tuple[CheckpointState, str | None]:
    if not data.strip():
        raise ValueError(f"it is empty ({len(data)} bytes)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not text, at byte {error.start}") from error
    if "\0" in text:
        raise ValueError(f"it is not text, at byte {data.index(0)}")
    message = _parse_paths(text)
    if not message.model_checkpoint_path:
        raise ValueError("it names no model_checkpoint_path")
    stamps = tuple(message.all_model_checkpoint_timestamps)
    note = None
    if len(stamps) != len(message.all_model_checkpoint_paths) or not all(map(math.isfinite, stamps)):
        if stamps:
            note = f"its {len(stamps)} timestamps do not match its {len(message.all_model_checkpoint_paths)} paths"
        stamps = ()
    preserved = message.last_preserved_timestamp
    state = CheckpointState(
        model_checkpoint_path=message.model_checkpoint_path,
        all_model_checkpoint_paths=tuple(message.all_model_checkpoint_paths),
        timestamps=stamps,
        last_preserved_timestamp=preserved if preserved and math.isfinite(preserved) else None,
        save_id=_save_id(text, message.model_checkpoint_path),
    )
    return state, note


def _save_id(text: str, path: str) -> SaveId | None:
    """Return the comment's save, if the comment exists and has the path that the file names."""
    found = _COMMENT.findall(text)
    if not found:
        return None
    attempt, number, quoted = found[-1]
    try:
        return SaveId(int(attempt), int(number)) if json.loads(quoted) == path else None
    except ValueError:
        return None


def _parse_paths(text: str) -> Any:
    """Parse, taking backslashes literally where they make no sense as escapes: ``"C:\\runs\\model.ckpt-5"``."""
    literal = text.replace("\\", "\\\\")
    if not _ESCAPES.issuperset(_ESCAPED.findall(text)):
        return _parse_text(literal)
    try:
        message = _parse_text(text)
    except ValueError:
        if "\\" not in text:
            raise
        return _parse_text(literal)
    is_own = _save_id(text, message.model_checkpoint_path) is not None  # written here, with correct escapes
    paths = (message.model_checkpoint_path, *message.all_model_checkpoint_paths)
    return _parse_text(literal) if not is_own and any(map(_CONTROL.search, paths)) else message


_PARSER_PHRASES = ("String missing ending quote", "Expected string", "Expected identifier")


def _parse_text(text: str) -> Any:
    from google.protobuf import text_format

    message = message_class("CheckpointState")()
    try:
        # Merge, as tensorflow does: of a repeated field the last one counts.
        text_format.Merge(text, message, allow_unknown_field=True)
    except text_format.ParseError as error:  # whose text has words of the file, which may be another's
        position = f" at line {error.GetLine()}, column {error.GetColumn()}" if error.GetLine() else ""
        what = next((phrase for phrase in _PARSER_PHRASES if phrase in str(error)), "It is no state file")
        raise ValueError(f"{what}{position}") from error
    except ValueError as error:
        raise ValueError("it is no state file") from error
    except RecursionError as error:
        raise ValueError("its braces are nested too deep") from error
    return message

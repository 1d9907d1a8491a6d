"""The manifest of a sealed checkpoint: a directory of any format, with what is needed to trust it.

``<checkpoint>/supervisor-manifest.json`` is written last, when every other file is durable, so a directory with a valid
manifest is a whole checkpoint. Byte by byte: one JSON object, ASCII, without line breaks, then a newline (0x0a):

    "v"             1
    "format"        who can read the files: ``state-tree``, or a framework's name, as ``orbax``
    "step"          the step whose state it is
    "session", "attempt", "number"
                    the session that saved it, its number among the run's sessions, and the number of the save in it
    "saved_at"      wall time, seconds since the epoch
    "last_preserved_at"
                    `retention.Retention.last_preserved_at`; null where unknown
    "preserved"     names of older checkpoints beside it that retention keeps for good
    "files"         of each file [path relative to the directory, size in bytes, CRC-32C], sorted by path
    "counters"      name -> integer: step, epoch, batch ...
    "captured"      names of the states in it
    "not_captured"  sentences: what an exact resume needs and the checkpoint does not have
    "compared"      name -> texts of a value that is not restored, but compared: now, and one step later by its rule
    "data_position" a digest of the position in the training data; null where it is not captured
    "facts"         name -> text: what has to be the same for an exact resume, as the number of workers
    "doubt"         null; or [why the checkpoint is in doubt, [tags of the losses that were not finite]]: see `doubt`
    "versions"      package -> version
    "seal"          CRC-32C of the same JSON object without this field

A reader ignores fields that it does not know; the seal covers them.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from supervisor_core.base import checksum
from supervisor_core.base.errors import DamagedCheckpointError, SaveFailedError, UnreadableCheckpointError
from supervisor_core.base.json_records import Attempt, Count, Integer, Moment, Text, can_follow, parse_object, record_of
from supervisor_core.base.systems import user_id
from supervisor_core.checkpoint.retention import Doubt
from supervisor_core.storage.filesystem import Check, Filesystem, unguarded
from supervisor_core.storage.opening import MAX_READ_BYTES, is_wrong_kind, open_below, read_whole

NAME = "supervisor-manifest.json"
"""The manifest's name in the checkpoint's directory."""

VERSION = 1
MAX_FILES = 100_000
MAX_LEVELS = 64
"""Directories below a checkpoint's own, one in another."""
CHUNK_BYTES = 1 << 18
"""Bytes to read at a time: they stay in the processor's cache until their checksum is computed."""

SPARSE_BYTES = 256 << 20
SPARSE_RATIO = 64
"""A file of another user may have `SPARSE_BYTES`, and this many for each byte that it takes on the disk: holes cost
whoever makes them nothing, and whoever reads them time and memory. File systems that compress stay far below."""


class SealedFile(NamedTuple):
    """One file of a sealed checkpoint."""

    path: str
    """Relative to the checkpoint's directory."""
    bytes: Count
    crc32c: Annotated[int, Meta(ge=0, lt=1 << 32)]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a manifest; see the module's docstring."""

    format: Text
    step: Attempt
    session: Text = ""
    attempt: Attempt = 0
    number: Attempt = 0
    saved_at: Moment = 0.0
    last_preserved_at: Moment | None = None
    preserved: tuple[Text, ...] = ()
    files: Annotated[tuple[SealedFile, ...], Meta(max_length=MAX_FILES)] = ()
    counters: Mapping[Text, Integer] = field(default_factory=dict)
    captured: tuple[Text, ...] = ()
    not_captured: tuple[Text, ...] = ()
    compared: Mapping[Text, tuple[Text, ...]] = field(default_factory=dict)
    data_position: Text | None = None
    facts: Mapping[Text, Text] = field(default_factory=dict)
    doubt: Doubt | None = None
    versions: Mapping[Text, Text] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among a run's checkpoints: a later session's is newer, whatever the step."""
        return self.attempt, self.number, self.step

    @property
    def limits(self) -> tuple[str, ...]:
        """What keeps a resume from it from being exact, or may: sentences."""
        return (*self.not_captured, *limits_of(self.compared))

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return sum(file.bytes for file in self.files)


COMPARED = (
    "The value of {} has changed since the session began, and no checkpoint has it: unless the program sets it again "
    "by the number of the epoch or step, keep it in a buffer, or in a dict or an object that is in state."
)
MOST_NAMES = 8
"""Of values, in one sentence."""


def limits_of(compared: Iterable[str]) -> tuple[str, ...]:
    """Return what is said of values that a checkpoint does not restore, by their names: sentences."""
    names = sorted({name.lstrip("^") for name in compared})[:MOST_NAMES]
    return (COMPARED.format(", ".join(names)),) if names else ()


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest, sealed."""
    content = {"v": VERSION, **asdict(manifest)}
    content["seal"] = checksum.value(_canonical(content))
    return _canonical(content) + b"\n"


def decode(data: bytes) -> Manifest:
    """Return the manifest in a file's bytes.

    Raises:
        ValueError: if they hold no valid manifest; says why.
    """
    raw = parse_object(data, VERSION)
    try:
        is_sealed = raw.pop("seal", None) == checksum.value(_canonical(raw))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not is_sealed:
        raise ValueError("its seal does not match its content")
    manifest = record_of(Manifest, raw)
    if "files" not in raw or len({file.path for file in manifest.files}) < len(manifest.files):
        raise ValueError("it lists no files, or a file twice")
    for file in manifest.files:
        _require_inside(file.path)
    if not can_follow(manifest.attempt):
        raise ValueError(f"its attempt, {manifest.attempt:,}, leaves no number for a session after it")
    return manifest


def read_manifest(directory: str) -> Manifest:
    """Read the manifest of a checkpoint on a local file system.

    Raises:
        DamagedCheckpointError: if it is missing, invalid or no regular file, or the directory is a link.
        UnreadableCheckpointError: if the file system refuses to read it.
    """
    path = os.path.join(directory, NAME)
    try:
        with open(open_below(directory, NAME), "rb") as file:
            return decode(read_whole(file, path))
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"{directory}: {NAME} is missing, so the checkpoint is not complete") from error
    except OSError as error:
        raise refusal(path, error) from error
    except ValueError as error:
        raise DamagedCheckpointError(f"{path}: {error}") from error


def refusal(path: str, error: OSError) -> DamagedCheckpointError:
    """Return the error for a file that cannot be read: it is damaged if it is no file, else it may be whole."""
    kind = DamagedCheckpointError if is_wrong_kind(error) else UnreadableCheckpointError
    return kind(f"{path}: {error.strerror or error}")


def seal(
    directory: str,
    manifest: Manifest,
    filesystem: Filesystem,
    check: Check = unguarded,
    written: tuple[SealedFile, ...] = (),
) -> Manifest:
    """Seal a directory: sync and read its files, then write the manifest with their sizes and checksums.

    Symbolic links in it are left out.

    Args:
        directory: the checkpoint's; its files must be complete.
        manifest: everything but the files.
        filesystem: syncs the files and writes the manifest.
        check: called immediately before the manifest takes effect.
        written: files whose checksums were computed from what was in memory, before it was written: they are not read.

    Returns:
        The manifest as written.

    Raises:
        OSError: if a file cannot be read or synced, or the manifest not written.
        SaveFailedError: if the manifest is beyond its bounds.
    """
    found = _names_below(directory)
    by_directory: dict[str, list[str]] = {directory: []}
    for name in found:
        path = os.path.join(directory, name)
        by_directory.setdefault(os.path.dirname(path), []).append(path)
    for parent in sorted(by_directory, key=len, reverse=True):
        filesystem.sync(by_directory[parent], parent)
    known = {file.path: file for file in written}
    files = tuple(known.get(name) or _sealed(directory, name) for name in found)
    sealed = replace(manifest, files=files)
    data = encode(sealed)
    try:
        if len(data) > MAX_READ_BYTES:
            raise ValueError(
                f"it has {len(data):,} bytes, of {len(files):,} files; at most {MAX_READ_BYTES:,} are read"
            )
        decode(data)
    except ValueError as error:
        raise SaveFailedError(f"The checkpoint cannot be sealed, its manifest could not be read: {error}.") from error
    filesystem.replace(os.path.join(directory, NAME), data, check)
    return sealed


class Holes:
    """Looks at files before they are read: those of other users may not be nearly all holes, together."""

    def __init__(self) -> None:
        self._bytes = self._present = 0
        self._seen: set[tuple[int, int]] = set()

    def problem(self, status: os.stat_result) -> str | None:
        """Return a clause if this file is the one too many; None where it may be read."""
        if status.st_uid in (0, user_id()):
            return None
        identity = (status.st_dev, status.st_ino)
        self._bytes += status.st_size
        if identity not in self._seen:  # what has several names is read as often
            self._seen.add(identity)
            self._present += 512 * status.st_blocks
        if self._bytes <= SPARSE_BYTES + SPARSE_RATIO * self._present:
            return None
        if len(self._seen) == 1 and self._bytes == status.st_size:
            return f"it is another user's, and of its {self._bytes:,} bytes only {self._present:,} are on disk"
        return f"with it another user's files have {self._bytes:,} bytes, of which only {self._present:,} are on disk"


def _sealed(directory: str, name: str, holes: Holes | None = None) -> SealedFile:
    with open(open_below(directory, name), "rb", buffering=0) as file:
        if holes is not None and (problem := holes.problem(os.fstat(file.fileno()))) is not None:
            raise OSError(errno.EINVAL, problem, os.path.join(directory, name))
        size, crc = 0, 0
        while data := file.read(CHUNK_BYTES):
            size, crc = size + len(data), checksum.extend(crc, data)
    return SealedFile(name, size, crc)


def list_files(directory: str, *names: str) -> tuple[SealedFile, ...]:
    """Return the files of a directory as a manifest lists them; symbolic links are left out.

    Args:
        directory: the checkpoint's; another user may have made it.
        names: the files. Default: all.

    Raises:
        OSError: if one cannot be read, or is no regular file; or if they are nearly all holes.
    """
    holes = Holes()
    return tuple(_sealed(directory, name, holes) for name in names or _names_below(directory))


def _names_below(directory: str) -> list[str]:
    """Return the files below a directory but the manifest, by their paths in it. Links are left out: they may lead to
    another's.

    Raises:
        OSError: if a directory cannot be listed, or they are nested deeper than `MAX_LEVELS`.
    """
    found = []
    for folder, _, names in os.walk(directory, onerror=_raise):
        inside = os.path.relpath(folder, directory)
        if inside.count(os.sep) >= MAX_LEVELS:
            raise OSError(errno.ELOOP, f"its directories are nested deeper than {MAX_LEVELS}", folder)
        paths = (os.path.join(inside, name) for name in names)
        found += [
            os.path.normpath(path).replace(os.sep, "/")
            for path in paths
            if not os.path.islink(os.path.join(directory, path))
        ]
    return sorted(name for name in found if name != NAME)


def _raise(error: OSError) -> None:
    raise error


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode("ascii")


def _is_name(path: str) -> bool:
    """Return whether the operating system can have a file of that name."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _require_inside(path: str) -> None:
    is_inside = path == os.path.normpath(path) and not os.path.isabs(path) and _is_name(path)
    if not is_inside or path in (".", NAME) or path.split("/")[0] == "..":
        raise ValueError(f"{path!r:.200} is no path in the checkpoint")

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
    "data_position" a digest of the position in the training data; null where it is not captured
    "facts"         name -> text: what has to be the same for an exact resume, as the number of workers
    "doubt"         null; or [why the checkpoint is in doubt, [tags of the losses that were not finite]]: see `doubt`
    "versions"      package -> version
    "seal"          CRC-32C of the same JSON object without this field

A reader ignores fields that it does not know; the seal covers them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from supervisor_core import checksum
from supervisor_core.checkpoint.bundle import VerifiedCheckpoint
from supervisor_core.checkpoint.doubt import Doubt
from supervisor_core.errors import DamagedCheckpointError, UnreadableCheckpointError
from supervisor_core.storage.local import Check, Filesystem, unguarded

NAME = "supervisor-manifest.json"
"""The manifest's name in the checkpoint's directory."""

VERSION = 1
MAX_FILES = 100_000
_CHUNK_BYTES = 4 << 20


class SealedFile(NamedTuple):
    """One file of a sealed checkpoint."""

    path: str
    """Relative to the checkpoint's directory."""
    bytes: int
    crc32c: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of a manifest; see the module's docstring."""

    format: str
    step: int
    session: str = ""
    attempt: int = 0
    number: int = 0
    saved_at: float = 0.0
    last_preserved_at: float | None = None
    preserved: tuple[str, ...] = ()
    files: tuple[SealedFile, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    captured: tuple[str, ...] = ()
    not_captured: tuple[str, ...] = ()
    data_position: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    doubt: Doubt | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among a run's checkpoints: a later session's is newer, whatever the step."""
        return self.attempt, self.number, self.step

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return sum(file.bytes for file in self.files)


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
    try:
        raw = json.loads(data.decode("ascii"))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    seal = raw.pop("seal", None)
    try:
        is_sealed = seal == checksum.value(_canonical(raw))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not is_sealed:
        raise ValueError("its seal does not match its content")
    try:
        values = {item.name: raw[item.name] for item in fields(Manifest) if item.name in raw}
        files = tuple(SealedFile(_inside(path), int(size), int(crc)) for path, size, crc in values.pop("files"))
        if len(files) > MAX_FILES:
            raise ValueError(f"it lists more than {MAX_FILES:,} files")
        for name in ("captured", "not_captured", "preserved"):
            values[name] = tuple(map(str, values.get(name, ())))
        values["counters"] = {str(name): int(value) for name, value in values.get("counters", {}).items()}
        for name in ("facts", "versions"):
            values[name] = {str(key): str(value) for key, value in values.get(name, {}).items()}
        values["doubt"] = Doubt.from_json(values.get("doubt"))
        values["saved_at"] = float(values.get("saved_at", 0.0))
        preserved_at = values.get("last_preserved_at")
        values["last_preserved_at"] = None if preserved_at is None else float(preserved_at)
        for name in ("step", "attempt", "number"):
            values[name] = int(values.get(name, 0))
        return Manifest(**values, files=files)
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"a field is missing or of another kind: {error}") from error


def read_manifest(directory: str, filesystem: Filesystem) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        DamagedCheckpointError: if it is missing or invalid.
        UnreadableCheckpointError: if the file system refuses to read it.
    """
    path = os.path.join(directory, NAME)
    try:
        return decode(filesystem.read(path))
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"{directory}: {NAME} is missing, so the checkpoint is not complete") from error
    except OSError as error:
        raise UnreadableCheckpointError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DamagedCheckpointError(f"{path}: {error}") from error


def seal(directory: str, manifest: Manifest, filesystem: Filesystem, check: Check = unguarded) -> Manifest:
    """Seal a directory: sync and read all of its files, then write the manifest with their sizes and checksums.

    Args:
        directory: the checkpoint's; its files must be complete.
        manifest: everything but the files.
        filesystem: reads and writes.
        check: called immediately before the manifest takes effect.

    Returns:
        The manifest as written.

    Raises:
        OSError: if a file cannot be read or synced, or the manifest not written.
    """
    found = sorted(name for name in _names_below(directory, filesystem) if name != NAME)
    by_directory: dict[str, list[str]] = {directory: []}
    for name in found:
        path = os.path.join(directory, name)
        by_directory.setdefault(os.path.dirname(path), []).append(path)
    for parent in sorted(by_directory, key=len, reverse=True):
        filesystem.sync(by_directory[parent], parent)
    files = tuple(_sealed(directory, name, filesystem) for name in found)
    sealed = replace(manifest, files=files)
    filesystem.replace(os.path.join(directory, NAME), encode(sealed), check)
    return sealed


def verify(
    directory: str, filesystem: Filesystem, *, read_data: bool = True, manifest: Manifest | None = None
) -> VerifiedCheckpoint:
    """Check a sealed checkpoint: its manifest, and that each file has the size and the checksum in it.

    Args:
        directory: the checkpoint's.
        filesystem: reads.
        read_data: False compares sizes only.
        manifest: its manifest, where it was read already.

    Raises:
        DamagedCheckpointError: names the first file that differs, and how.
        UnreadableCheckpointError: if the file system refuses to read one; it may be whole.
    """
    manifest = manifest or read_manifest(directory, filesystem)
    for file in manifest.files:
        path = os.path.join(directory, file.path)
        try:
            with filesystem.open(path) as reader:
                if reader.size != file.bytes:
                    raise DamagedCheckpointError(f"{path}: it has {reader.size:,} bytes, expected {file.bytes:,}")
                if read_data and (crc := _crc_of(reader, file.bytes)) != file.crc32c:
                    raise DamagedCheckpointError(
                        f"{path}: its checksum is {crc:08x}, expected {file.crc32c:08x}: the content has changed"
                    )
        except FileNotFoundError as error:
            raise DamagedCheckpointError(f"{path}: it is missing") from error
        except OSError as error:
            raise UnreadableCheckpointError(f"{path}: {error.strerror or error}") from error
    return VerifiedCheckpoint(bytes=manifest.bytes, tensors=None, step=manifest.step)


def _sealed(directory: str, name: str, filesystem: Filesystem) -> SealedFile:
    with filesystem.open(os.path.join(directory, name)) as reader:
        return SealedFile(name, reader.size, _crc_of(reader, reader.size))


def _crc_of(reader: Any, size: int) -> int:
    crc, offset = 0, 0
    while offset < size:
        data = reader.read_at(offset, min(_CHUNK_BYTES, size - offset))
        if not data:
            break
        crc = checksum.extend(crc, data)
        offset += len(data)
    return crc


def _names_below(directory: str, filesystem: Filesystem) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for parent, names in filesystem.walk(directory, fail):
        for name in names:
            yield os.path.relpath(os.path.join(parent, name), directory)


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode("ascii")


def _is_name(path: str) -> bool:
    """Return whether the operating system can have a file of that name."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _inside(path: Any) -> str:
    if not isinstance(path, str) or not path or os.path.isabs(path) or ".." in path.split("/") or not _is_name(path):
        raise ValueError(f"{path!r} is no path in the checkpoint")
    return path

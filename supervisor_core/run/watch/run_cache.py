"""`RunCache`: the runs of one logdir that have ended, on disk, so that the next process does not read their files.

One directory for each logdir and version of this code, in a directory of this user's (mode 0700); in it one file a run:
a `KeptRun` as MessagePack in zlib's format, which has a checksum. A run is believed only while its events files are the
same: the next reader goes on from the kept positions, and reads the whole run again if one has changed. Any number of
processes may read and write one cache: a file is replaced as a whole.

Nothing in here raises: a cache that cannot be used costs a line in the log, and its runs are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import zlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from supervisor_core.events.reader import ReaderPosition
from supervisor_core.process.runtime_directory import check_own, read_regular
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.storage.local import local_path

_LOG = logging.getLogger("supervisor_core")

MOST_BYTES = 16 << 20
"""Of one run; a longer one is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run that has ended, as it was shown."""

    positions: Mapping[str, ReaderPosition]
    """Name of each events file -> where its reader was."""
    last: WatchedRun
    stamp: int | None
    """Of its directory then."""
    looked_at: float
    """When, as wall time."""


class RunCache:
    """Keeps the ended runs of one logdir. Used by one thread at a time.

    Args:
        directory: where the cache is; created if it is missing, mode 0700.
        logdir: as its runs' files are spelt.
        kept_ticks: see `RunFold`.
        all_saves: likewise.

    Example:
        >>> import tempfile
        >>> RunCache(tempfile.mkdtemp(), "/runs", 1).kept("mnist") is None
        True
    """

    def __init__(self, directory: str, logdir: str, kept_ticks: int | None, *, all_saves: bool = True) -> None:
        local = local_path(logdir)
        spelt = logdir.rstrip("/") if local is None else f"{logdir.rstrip('/')}\0{os.path.abspath(local)}"
        name = f"{_digest(spelt)}-{'all' if kept_ticks is None else kept_ticks}{'' if all_saves else '.present'}-"
        self._directory: str | None = None
        self._warned: set[str] = set()
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)
            check_own(directory, "give another directory", is_secret=True)
            own = f"{name}{code_version():08x}"
            for other in os.listdir(directory):
                if other.startswith(name) and other != own:
                    shutil.rmtree(os.path.join(directory, other), ignore_errors=True)
            path = os.path.join(directory, own)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            check_own(path, "delete it", is_secret=True)
            self._directory = path
        except OSError as error:
            self._warn(f"The cache is not used: {error}.")

    def kept(self, run: str) -> KeptRun | None:
        """Return what is kept of a run; None if that is nothing, or nothing that can be used."""
        data = None if self._directory is None else read_regular(self._path(run), MOST_BYTES + 1)
        if data is None:
            return None
        try:
            return _opened(data)
        except (zlib.error, msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
            self._warn(f"The cache {self._directory} has a damaged file: {error}. The run is read again.")
            _LOG.debug("The damaged file is that of run %s", run)
            return None

    def keep(self, runs: Iterable[tuple[str, KeptRun]]) -> None:
        """Write runs by name."""
        for run, kept in runs:
            if self._directory is None:
                return
            path = self._path(run)
            try:
                data = _closed(kept)
                with open(f"{path}.{os.getpid()}", "wb") as file:
                    file.write(data)
                os.replace(file.name, path)
            except (msgspec.MsgspecError, TypeError, ValueError) as error:  # a text in it is not Unicode, say
                _LOG.debug("Run %s is not kept in the cache: %s", run, error)
            except OSError as error:
                self._warn(f"The cache {self._directory} is not written: {error}. Nothing else depends on it.")
                with contextlib.suppress(OSError):
                    os.unlink(f"{path}.{os.getpid()}")

    def prune(self, runs: Iterable[str]) -> None:
        """Delete all runs but these."""
        known = {_digest(run) for run in runs}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._directory) if self._directory is not None else ():
                if name not in known:
                    os.unlink(os.path.join(str(self._directory), name))

    def _path(self, run: str) -> str:
        return os.path.join(str(self._directory), _digest(run))

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _LOG.warning("%s", text)


def _digest(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=16).hexdigest()


@cache
def code_version() -> int:
    """Return what runs of this code are known by: 32 bits of a digest of the sources that make them."""
    digest = hashlib.blake2b(platform.python_version().encode(), digest_size=4)
    package = Path(__file__).parents[2]
    for source in sorted([*package.glob("run/**/*.py"), *package.glob("events/*.py")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return int.from_bytes(digest.digest(), "big")


def _closed(kept: KeptRun) -> bytes:
    data = zlib.compress(msgspec.msgpack.encode(kept, enc_hook=_plain), 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it takes {len(data):,} bytes")
    return data


def _opened(data: bytes) -> KeptRun:
    inflate = zlib.decompressobj()
    whole = inflate.decompress(data, 8 * MOST_BYTES)
    if not inflate.eof:
        raise ValueError("it is cut, or too long")
    return _decoder().decode(whole)


@cache
def _decoder() -> msgspec.msgpack.Decoder[KeptRun]:
    return msgspec.msgpack.Decoder(KeptRun, dec_hook=_made)


def _plain(item: Any) -> Any:
    """Return what `_made` makes an object of."""
    if isinstance(item, array):
        return item.typecode, item.tolist()
    if isinstance(item, Mapping):
        return dict(item)
    if hasattr(item, "item"):  # a number of numpy's
        return item.item()
    raise TypeError(f"it holds a {type(item).__qualname__}")


def _made(kind: type, item: Any) -> Any:
    if kind is array:
        return array(*item)
    raise ValueError(f"it holds a {kind.__qualname__}")

"""`SealedFiles`: the files of one sealed checkpoint, as its manifest lists them.

A checkpoint is untrusted input: whoever can write into a logdir can put a directory there, with a manifest that matches
it. So a file is opened only if the manifest lists it, through no symbolic link, if it is a regular one, and if it has
the size in the manifest. What is decoded is what was compared with the manifest's checksum, not what another open of
the same name finds.
"""

from __future__ import annotations

import os
from contextlib import suppress

from supervisor_core.base import checksum
from supervisor_core.base.errors import DamagedCheckpointError
from supervisor_core.base.systems import read_at
from supervisor_core.checkpoint.blocks import IN_THREAD, BlockWriter
from supervisor_core.checkpoint.bundle import Progress, VerifiedCheckpoint
from supervisor_core.checkpoint.manifest import CHUNK_BYTES, Holes, Manifest, SealedFile, list_files, refusal
from supervisor_core.checkpoint.table import Meter
from supervisor_core.storage.opening import open_below

_MOST_AT_ONCE = 1 << 30
"""Bytes of one system call: Linux reads no more than 2 GiB."""


class SealedFiles:
    """See the module's docstring.

    Args:
        directory: the checkpoint's.
        on_progress: called with (bytes compared, bytes in all) while data is compared with it.
        blocks: what has written it, and may read it back.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        on_progress: Progress | None = None,
        blocks: BlockWriter = IN_THREAD,
    ) -> None:
        self.directory = directory
        self._blocks = blocks
        self.manifest = manifest
        self._meter = Meter(on_progress, manifest.bytes)
        self._listed = {file.path: file for file in manifest.files}
        self._checked: set[str] = set()

    @classmethod
    def of(cls, directory: str, *names: str) -> SealedFiles:
        """Return the files of a directory that is not sealed, as they are.

        Args:
            directory: the checkpoint's.
            names: the files. Default: all.

        Raises:
            OSError: if one cannot be read, or is no regular file.
        """
        return cls(directory, Manifest(format="", step=0, files=list_files(directory, *names)))

    def __contains__(self, name: str) -> bool:
        return name in self._listed

    def path(self, name: str) -> str:
        """Return the path of a file, or folder, for messages."""
        return os.path.join(self.directory, name)

    def size(self, name: str) -> int:
        """Return the size of a listed file in bytes."""
        return self._listed[name].bytes

    def below(self, folder: str) -> list[str]:
        """Return the listed files below a folder.

        Raises:
            DamagedCheckpointError: if there are none, or there is anything else in it. A framework that reads the
                folder as a whole would read that, too.
        """
        listed = [name for name in self._listed if name.startswith(f"{folder}/")]
        if not listed:
            raise DamagedCheckpointError(f"{self.path(folder)}: the manifest lists nothing in it")
        folders: set[str] = set()
        for name in {os.path.dirname(name) for name in listed}:
            while name not in folders and name.startswith(folder):
                folders.add(name)
                name = os.path.dirname(name)
        for parent in sorted(folders):
            try:
                there = os.listdir(self.path(parent))
            except OSError as error:
                raise refusal(self.path(parent), error) from error
            for name in sorted(f"{parent}/{item}" for item in there):
                if name not in self._listed and (name not in folders or os.path.islink(self.path(name))):
                    raise DamagedCheckpointError(f"{self.path(name)}: it is not in the manifest")
        return listed

    def open(self, name: str) -> OpenFile:
        """Open a file.

        Raises:
            DamagedCheckpointError: if the manifest does not list it, or it is missing, no regular file, or of another
                size.
            UnreadableCheckpointError: if the file system refuses it; it may be whole.
        """
        listed = self._listed.get(name)
        path = self.path(name)
        if listed is None:
            raise DamagedCheckpointError(f"{path}: it is not in the manifest")
        try:
            return OpenFile(open_below(self.directory, name), path, listed, self._checked, self._meter)
        except FileNotFoundError as error:
            raise DamagedCheckpointError(f"{path}: it is missing") from error
        except OSError as error:
            raise refusal(path, error) from error

    def read(self, name: str, most: int) -> bytearray:
        """Return the whole content of a file, compared with its checksum.

        Args:
            most: the most bytes that it may have.

        Raises:
            DamagedCheckpointError, UnreadableCheckpointError: see `open`; and if it is longer, or was altered.
        """
        with self.open(name) as file:
            if file.size > most:
                raise DamagedCheckpointError(f"{file.path}: it has {file.size:,} bytes, at most {most:,} are read")
            content = bytearray(file.size)
            file.read_next(memoryview(content))
            file.finish()
        return content

    def verify(self, *, read_data: bool = True) -> VerifiedCheckpoint:
        """Compare every file that was not read yet with the manifest.

        Args:
            read_data: False compares sizes only.

        Raises:
            DamagedCheckpointError: names the first file that differs, and how.
            UnreadableCheckpointError: if the file system refuses to read one; it may be whole.
        """
        for name in self._listed:
            if name not in self._checked:
                with self.open(name) as file:
                    if read_data:
                        file.check(self._blocks)
        return VerifiedCheckpoint(self.manifest.bytes, None, self.manifest.step, self.manifest)


class OpenFile:
    """One file of a sealed checkpoint, open; read in order once (`read_next`, `finish`), or anywhere (`read_at`).

    Args:
        descriptor: the open file; closed with this.
        listed: what the manifest says of it.
        checked: takes its name when its content was compared.
        meter: counts the bytes that were.

    Raises:
        DamagedCheckpointError: if it has another size than listed, or is another user's and nearly all holes.
    """

    def __init__(self, descriptor: int, path: str, listed: SealedFile, checked: set[str], meter: Meter) -> None:
        self._descriptor = descriptor
        self.path = path
        self.size = listed.bytes
        self._listed = listed
        self._checked = checked
        self._meter = meter
        self._crc = self._position = 0
        status = os.fstat(descriptor)
        is_whole = status.st_size == listed.bytes
        size = f"it has {status.st_size:,} bytes, expected {listed.bytes:,}"
        problem = Holes().problem(status) if is_whole else size
        if problem is not None:
            self.close()
            raise DamagedCheckpointError(f"{path}: {problem}")

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def is_at_its_path(self) -> bool:
        """Return whether its path leads to this file now: what was found out about the one holds for the other."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.lstat(self.path))
        except OSError:
            return False

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes from a place; fewer only where the file ends."""
        end = min(offset + length, self.size)
        parts = []
        try:
            while 0 <= offset < end and (part := read_at(self._descriptor, min(end - offset, _MOST_AT_ONCE), offset)):
                parts.append(part)
                offset += len(part)
        except OSError as error:
            raise refusal(self.path, error) from error
        return b"".join(parts)  # a single part is not copied

    def read_next(self, into: memoryview) -> None:
        """Read the next bytes, and count them into the checksum.

        Raises:
            DamagedCheckpointError: if the file ends before that.
        """
        done = 0
        while done < len(into):
            data = self._next(len(into) - done)
            into[done : done + len(data)] = data
            done += len(data)

    def finish(self) -> None:
        """Read what is left, and compare all with the manifest.

        Raises:
            DamagedCheckpointError: if the content is another one. Says nothing of it: it may be another's file.
        """
        while (left := self.size - self._position) > 0:
            self._next(left)
        if self._crc != self._listed.crc32c:
            raise DamagedCheckpointError(
                f"{self.path}: its checksum is not the one in the manifest: the content has changed"
            )
        self._checked.add(self._listed.path)

    def _next(self, most: int) -> bytes:
        data = self.read_at(self._position, min(CHUNK_BYTES, most))
        if not data:
            raise DamagedCheckpointError(f"{self.path}: it ends before its {self.size:,} bytes")
        self._crc = checksum.extend(self._crc, data)
        self._position += len(data)
        self._meter.add(len(data))
        return data

    def check(self, blocks: BlockWriter = IN_THREAD) -> None:
        """Compare the whole content with the manifest; see `finish`."""
        if blocks.checksums(self._descriptor, [(0, self.size)]) == [self._listed.crc32c]:
            self._checked.add(self._listed.path)
            return
        self._crc = self._position = 0
        self.finish()

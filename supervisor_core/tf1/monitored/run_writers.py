"""`RunWriters`: the events files of a monitored session, one for each directory, whoever writes to it."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from supervisor_core.events.file_writer import FileWriter
from supervisor_core.tf1 import private_symbols as private


class RunWriters:
    """Opens a writer for a directory when it is first asked for, and closes all of them.

    While one is open, programs and TensorFlow's own hooks that ask ``tf.compat.v1.summary.FileWriterCache`` for the
    same directory get it too, so that there is one events file rather than several.
    """

    def __init__(self) -> None:
        self._writers: dict[str, FileWriter] = {}
        self._displaced: dict[str, Any] = {}

    def get(self, directory: str) -> FileWriter:
        """Return the writer of a directory.

        Raises:
            EventsWriteError: if its file cannot be created.
        """
        key = _key(directory)
        if key not in self._writers:
            self._writers[key] = FileWriter(directory)
        self._lend(directory, self._writers[key])
        return self._writers[key]

    def find(self, directory: str) -> FileWriter | None:
        """Return the writer of a directory, if it is open."""
        writer = self._writers.get(_key(directory))
        if writer is not None:
            self._lend(directory, writer)
        return writer

    def close(self) -> None:
        """Close what is open, and give the cache back what it had."""
        for directory, earlier in self._displaced.items():
            cache = _cache()
            if earlier is not None:
                cache[directory] = earlier
            else:
                cache.pop(directory, None)
        self._displaced.clear()
        for writer in self._writers.values():
            writer.close()

    def _lend(self, directory: str, writer: FileWriter) -> None:
        if directory not in self._displaced:
            cache = _cache()
            self._displaced[directory] = cache.get(directory)
            cache[directory] = writer


def _key(directory: str) -> str:
    return os.path.abspath(directory) if "://" not in directory else directory


def _cache() -> dict[str, Any]:
    """TensorFlow's cache of writers by directory; one that goes nowhere for a TensorFlow that has none like it."""
    found = private.WRITER_CACHE.get(tf.compat.v1.summary.FileWriterCache)
    return found if isinstance(found, dict) else {}

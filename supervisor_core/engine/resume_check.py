"""`ResumeCheck`: compares what a resumed session logs with what the sessions before it logged for the same steps.

It reads the logdir's events files in a thread of its own, and costs the training's thread nothing. Files are read
because they hold what a killed process has logged, up to a fraction of a second before its end, whoever wrote it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from supervisor_core.engine.deadline import Deadline
from supervisor_core.engine.progress import Progress
from supervisor_core.engine.recorder import TelemetryRecorder, TelemetrySink
from supervisor_core.events.chunk import Points
from supervisor_core.events.directory import Directory
from supervisor_core.events.reader import EventsFileReader
from supervisor_core.events.resume_record import ResumeRecord
from supervisor_core.run.fold.recomputed import Recomputed, states_of
from supervisor_core.storage.local import join, local_path, source_of

_LOG = logging.getLogger("supervisor_core")

LOOK_SECS, REMOTE_LOOK_SECS = 1.0, 60.0
"""Seconds between two looks at the session's own file: local, and in an object store, where each look costs money."""
EXTRA_LOOKS = 3
"""Looks after the last step to compare, for values that are logged late."""
MAX_FILES = 8
"""Newest events files that are read of what was there before."""
MAX_FILE_BYTES = 4 << 30
PIECE_BYTES = 8 << 20
FINISH_SECS = 2.0
"""How long the session's end waits for the last look, at most."""


class ResumeCheck:
    """The check of one session. Made before the session writes events: what is in the logdir then came before it.

    Args:
        logdir: the run's directory.
        session: the session's id.
        progress: the session's.
        on_result: called in the check's thread with what was found; what it is called with last counts.
    """

    def __init__(
        self,
        logdir: str,
        session: str,
        progress: Progress,
        on_result: Callable[[ResumeRecord], object],
    ) -> None:
        self._logdir, self._session = logdir, session
        self._progress, self._on_result = progress, on_result
        self._directory = Directory(logdir)
        self._source = source_of(logdir)
        self._sizes: dict[str, int] = {}
        self._readers: dict[str, EventsFileReader] = {}
        self._is_ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._found: ResumeRecord | None = None
        self._list_sizes()

    def _list_sizes(self) -> None:
        self._directory.refresh()
        for name in self._directory.events[-MAX_FILES:]:
            self._sizes[name] = self._size(name)

    def _size(self, name: str) -> int:
        with suppress(OSError, ValueError):
            return self._source.stat(join(self._directory.path, name)).st_size
        return 0

    def start(self, restored_step: int) -> None:
        """Begin to compare, with the step of the restored checkpoint."""
        if not any(self._sizes.values()):
            return
        self._thread = threading.Thread(
            target=self._work, args=(restored_step,), name="supervisor-resume-check", daemon=True
        )
        with suppress(RuntimeError):  # no more threads
            self._thread.start()

    def finish(self, recorder: TelemetrySink, deadline: Deadline) -> None:
        """Have what was logged written, look at it once more, and end."""
        if self._thread is None or not self._thread.is_alive():
            return
        if isinstance(recorder, TelemetryRecorder):
            recorder.flush(deadline)
        self._is_ending.set()
        self._thread.join(deadline.remaining(FINISH_SECS))

    def _work(self, restored_step: int) -> None:
        try:
            self._check(Recomputed(self._session, restored_step))
        except Exception:  # telemetry must not end a training
            _LOG.warning("What is recomputed after this resume is not compared.", exc_info=True)

    def _check(self, recomputed: Recomputed) -> None:
        late: list[Mapping[str, Points]] = []
        for name, size in self._sizes.items():
            if size > MAX_FILE_BYTES:
                continue
            for scalars in self._read(name):
                recomputed.before(name, _cut(scalars, None, size))
                late.append(_cut(scalars, size, None))
        last_step = recomputed.begin()
        if last_step is None:
            return
        for scalars in late:
            recomputed.now(scalars)
        late.clear()
        secs = REMOTE_LOOK_SECS if local_path(self._logdir) is None else LOOK_SECS
        looks = 0
        while looks < EXTRA_LOOKS and not recomputed.is_over:
            is_last = self._is_ending.wait(secs)
            self._look(recomputed)
            self._say(recomputed.result(), is_last=False)
            if is_last:
                break
            looks += (self._progress.snapshot().global_step or 0) > last_step + 1
        self._say(recomputed.result(), is_last=True)

    def _look(self, recomputed: Recomputed) -> None:
        self._directory.refresh()
        for name in self._directory.events[-MAX_FILES:]:
            for scalars in self._read(name):
                recomputed.now(scalars)

    def _read(self, name: str) -> Iterator[Mapping[str, Points]]:
        """Yield the new scalars and states of a file."""
        reader = self._readers.get(name)
        if reader is None:
            reader = EventsFileReader(join(self._directory.path, name), filesystem=self._source)
            self._readers[name] = reader
        is_reading = True
        while is_reading:
            chunk = reader.read(PIECE_BYTES)
            if chunk is not None:
                yield {**chunk.scalars, **states_of(chunk.marks)}
            is_reading = reader.has_more and chunk is not None

    def _say(self, found: ResumeRecord | None, *, is_last: bool) -> None:
        """Hand on what was found: a difference at once, else when there is twice as much as before, and at the end."""
        if found is None:
            return
        known = self._found
        if known is None or found.compared >= 2 * known.compared or (found != known and (is_last or found.tag)):
            self._found = found
            self._on_result(found)
        if not is_last:
            return
        if found.is_equal:
            _LOG.info("Observed exact: %s.", found.text)
        else:
            _LOG.warning("The resume is not exact: %s.", found.text)


def _cut(scalars: Mapping[str, Points], start: int | None, end: int | None) -> Mapping[str, Points]:
    """Return the points whose records are in a part of the file: offsets from ``start`` on, and below ``end``."""
    cut = {}
    for tag, points in scalars.items():
        chosen = slice(
            0 if start is None else int(points.offsets.searchsorted(start)),
            None if end is None else int(points.offsets.searchsorted(end)),
        )
        cut[tag] = points.taken(chosen)
    return cut

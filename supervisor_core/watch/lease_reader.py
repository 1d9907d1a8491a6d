"""`LeaseReader`: reads a run's lease, for a run whose events have ceased."""

from __future__ import annotations

from collections.abc import Callable

from supervisor_core.checkpoint.lease_file import LeaseRecord, decode
from supervisor_core.checkpoint.logdir_lock import LEASE_NAME
from supervisor_core.run.lease_report import FRESH_SECS, LeaseReport
from supervisor_core.storage.local import Filesystem, filesystem_for

MAX_WAIT_SECS = 3600.0
"""A lease that is not renewed is read after `FRESH_SECS`, then after twice as long each time, up to this."""

_READINGS = 2
"""A reading that falls into a renewal may hold half of it."""


class LeaseReader:
    """Reads one run's lease, ever more rarely while it is not renewed.

    Args:
        directory: the run's.
        filesystem_of: returns the file system of a path, and the path by the name to be used with it.
    """

    def __init__(self, directory: str, filesystem_of: Callable[[str], tuple[Filesystem, str]] = filesystem_for) -> None:
        self._path = f"{directory.rstrip('/')}/{LEASE_NAME}"
        self._filesystem_of = filesystem_of
        self._due = self._wait_secs = 0.0

    def read(self, now: float) -> LeaseReport | None:
        """Return what the lease says; None where it says nothing new.

        Args:
            now: the present wall time.
        """
        if now < self._due:
            return None
        report = self._report()
        if report is not None and now - report.renewed_at <= FRESH_SECS:
            self._due = self._wait_secs = 0.0
        else:
            self._wait_secs = min(MAX_WAIT_SECS, max(FRESH_SECS, 2 * self._wait_secs))
            self._due = now + self._wait_secs
        return report

    def _record(self) -> LeaseRecord | None:
        for _ in range(_READINGS):
            try:
                filesystem, name = self._filesystem_of(self._path)
                return decode(filesystem.read(name))
            except (OSError, ImportError):
                return None
            except ValueError:
                continue
        return None

    def _report(self) -> LeaseReport | None:
        record = self._record()
        if record is None or record.ended is not None:
            return None
        return LeaseReport(
            session=record.session,
            renewed_at=record.renewed_at,
            step=record.last_step,
            phase=record.phase,
            progress_at=record.progress_at,
            progress_timeout_secs=record.progress_timeout_secs,
            save_failures=record.save_failures,
            save_failures_in_a_row=record.save_failures_in_a_row,
            events_error=record.events_error,
        )

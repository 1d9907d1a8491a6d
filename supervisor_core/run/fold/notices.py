"""`NoticeFold`: what a program has said of its run with ``notify``, of one session; `notices_of`: of a run."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor_core.events.record_fields import replaced
from supervisor_core.events.telemetry import NoticeRecord
from supervisor_core.run.fold.bounds import Allowance
from supervisor_core.run.model.words import named


class NoticeFold:
    """The newest notices of one session: each once, as its last record has it.

    Args:
        allowance: the bounds shared with the run's other sessions.
    """

    __slots__ = ("_allowance", "_by_key", "dropped")

    def __init__(self, allowance: Allowance) -> None:
        self._by_key: dict[tuple[object, ...], NoticeRecord] | None = None
        """The one that was said last comes last."""
        self._allowance = allowance
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._by_key or ())

    @property
    def items(self) -> tuple[NoticeRecord, ...]:
        """Those that are kept, the one that was recorded last comes last."""
        return tuple((self._by_key or {}).values())

    def add(self, at: float, record: NoticeRecord) -> None:
        """Add a record.

        Args:
            at: its wall time, for one that does not say when it was said.
            record: the record.
        """
        said = at if record.at is None else record.at
        record = replaced(record, at=said, since=said if record.since is None else record.since)
        key = notice_key(record)
        known, pool = self._by_key or {}, self._allowance.pool("notices")
        is_new = known.pop(key, None) is None
        known[key], self._by_key = record, known
        if is_new:
            pool.added(self, len(record.text))
        else:
            pool.touch(self)

    def absorb(self, later: NoticeFold) -> None:
        """Add what a later file of the session holds."""
        for record in later.items:
            self.add(0.0, record)
        self.dropped += later.dropped

    def drop(self, count: int) -> int:
        """See `Share.drop`."""
        known = self._by_key or {}
        gone = [known.pop(key) for key in list(known)[:count]]
        self.dropped += len(gone)
        return sum(len(record.text) for record in gone)


def notices_of(notices: Iterable[NoticeRecord]) -> tuple[NoticeRecord, ...]:
    """Return the notices of a run, by the time at which they were said last: each once, though two chiefs have recorded
    what a worker said."""
    by_key: dict[tuple[object, ...], NoticeRecord] = {}
    for record in notices:
        known = by_key.get(key := notice_key(record))
        if known is None or known.count <= record.count:
            by_key[key] = record
    return tuple(sorted(by_key.values(), key=lambda record: record.at or 0.0))


def notice_text(notice: NoticeRecord) -> str:
    """Return what was said, and by which process if not by the session's own.

    Example:
        >>> notice_text(NoticeRecord(session="a", text="the disk is slow", worker="rank:3"))
        'rank 3: the disk is slow'
    """
    return notice.text if notice.worker is None else f"{named([notice.worker])}: {notice.text}"


def notice_key(record: NoticeRecord) -> tuple[object, ...]:
    """Return what the records of one notice have in common."""
    return record.worker, record.severity, record.text, record.since

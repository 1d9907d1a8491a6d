"""`LeaseRecord`: the content of a lease file, and its bytes.

``<logdir>/.supervisor.lease``, byte by byte:

    0 .. n        one JSON object, ASCII, without line breaks; the fields of `LeaseRecord`, and "v": 1
    n+1 ..        spaces (0x20) up to the byte before the last
    last          a newline (0x0a); the length is a multiple of 1,024, nearly always 1,024 itself

One write replaces all of it in place, so that the lock stays on the file. To a reader that finds anything else the
history is unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from supervisor_core.clock import Clock, boot_secs

BLOCK_BYTES = 1024
LARGEST = 1 << 63
LARGEST_ATTEMPT = 10**15
"""Bound of a session's number: telemetry's readers, and programs that count in floats (2**53), accept no larger one."""
LATEST = 2.5e11
"""Seconds since the epoch, in the year 9892: later times cannot be formatted."""
ERROR_LETTERS = 120
"""Limit of a stored error: the file must not grow where the disk is full."""
VERSION = 1

COSTS = ("trained_secs", "timed_saves", "save_secs", "blocked_secs")
"""The fields with the run's cost of steps and saves."""


@dataclass(frozen=True, kw_only=True)
class LeaseRecord:
    """The session that holds, or last held, a logdir. Times are wall-clock seconds since the epoch."""

    session: str
    attempt: int
    """1 for the run's first session, one more for each later one."""
    host: str
    boot: str | None
    """The kernel's boot id: the same for all containers of one machine, another after a reboot. None where the system
    has none."""
    pid: int
    started_at: float
    first_started_at: float
    """When the run's first session started."""
    renewed_at: float
    started_boot_secs: float | None = None
    """When it was taken, by the clock that counts from the machine's start (see ``boot``) and is never set."""
    renewed_boot_secs: float | None = None
    """When it was renewed, by that clock."""
    renewals: int = 0
    last_step: int | None = None
    ended: str | None = None
    """Why the session ended (``completed``, ``signal``, ``error`` ...); None while it runs, and if it was killed."""
    ended_at: float | None = None
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How the earlier sessions ended: reason -> count; ``lost`` for those without a stop record."""
    steps_lost: int = 0
    """Steps that this and the earlier sessions recomputed after restarts."""
    trained_secs: float | None = None
    """Time that this and the earlier sessions spent on steps. None, like the next three, where it is not known of one
    of them."""
    timed_saves: float | None = None
    """Number of their good saves."""
    save_secs: float | None = None
    """Duration of those saves."""
    blocked_secs: float | None = None
    """Time for which those saves blocked training."""
    predecessor: str | None = None
    """The earlier session that was cut off and whose model may be alive in a cluster; None once this one is ready. In
    the file: ``heir_of``."""
    phase: str | None = None
    progress_at: float | None = None
    """Last progress, as stall detection counts it."""
    progress_timeout_secs: float | None = None
    """The stall budget of the phase; None where it cannot stall."""
    save_failures: int = 0
    """Failed saves of this session."""
    save_failures_in_a_row: int = 0
    """Failed saves since the last good one."""
    events_error: str | None = None
    """Why events cannot be written at present; at most `ERROR_LETTERS` characters. None while they can."""
    gives_way: bool = False
    """The session writes no checkpoints, and gives way to one that does."""

    def renewed(self, clock: Clock, *, last_step: int | None = None, **changes: Any) -> LeaseRecord:
        """Return the record as of now, with ``last_step`` where known, and other changes."""
        step = self.last_step if last_step is None else last_step
        now = boot_secs(clock)
        return replace(self, renewed_at=clock.wall(), renewed_boot_secs=now, last_step=step, **changes)

    @property
    def elapsed_secs(self) -> float | None:
        """Age of the session at its last renewal; None where unknown."""
        if self.started_boot_secs is None or self.renewed_boot_secs is None:
            return None
        return max(0.0, self.renewed_boot_secs - self.started_boot_secs)

    @property
    def outcome(self) -> str:
        """How a session ended that is known not to run."""
        return "lost" if self.ended is None else self.ended

    @property
    def holder(self) -> str:
        """The last holder, for messages."""
        ended = "" if self.ended is None else f", which has ended ({self.ended})"
        return f"process {self.pid} on {self.host} (session {self.session}){ended}"


def encode(record: LeaseRecord) -> bytes:
    """Return the lease file's bytes."""
    content = {"v": VERSION, **asdict(record)}
    content["heir_of"] = content.pop("predecessor")
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    length = math.ceil((len(text) + 1) / BLOCK_BYTES) * BLOCK_BYTES
    return text.ljust(length - 1) + b"\n"


def decode(data: bytes) -> LeaseRecord | None:
    """Return the record in a lease file's bytes; None for an empty file.

    Raises:
        ValueError: if they hold no valid record; says why.
    """
    if not data.strip():
        return None
    try:
        raw = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise ValueError(f"it is not of version {VERSION}")
    raw["predecessor"] = raw.pop("heir_of", None)
    known = {item.name for item in fields(LeaseRecord)}
    try:
        record = LeaseRecord(**{name: value for name, value in raw.items() if name in known})
    except TypeError as error:
        raise ValueError(f"a field is missing: {error}") from error
    for name, value in asdict(record).items():
        if not _is_plausible(name, value):
            raise ValueError(f"{name} is {value!r:.80}")
    return record


_TEXT, _COUNT, _TIME = (str,), (int,), (int, float)
_TYPES: dict[str, tuple[type, ...]] = {
    "session": _TEXT,
    "host": _TEXT,
    "boot": (str, type(None)),
    "ended": (str, type(None)),
    "predecessor": (str, type(None)),
    "phase": (str, type(None)),
    "progress_at": (int, float, type(None)),
    "progress_timeout_secs": (int, float, type(None)),
    "save_failures": _COUNT,
    "save_failures_in_a_row": _COUNT,
    "events_error": (str, type(None)),
    "gives_way": (bool,),
    "attempt": _COUNT,
    "pid": _COUNT,
    "renewals": _COUNT,
    "steps_lost": _COUNT,
    "last_step": (int, type(None)),
    "started_at": _TIME,
    "first_started_at": _TIME,
    "renewed_at": _TIME,
    "ended_at": (int, float, type(None)),
    "started_boot_secs": (int, float, type(None)),
    "renewed_boot_secs": (int, float, type(None)),
    "restarts": (dict,),
    **dict.fromkeys(COSTS, (int, float, type(None))),
}


def _is_plausible(name: str, value: Any) -> bool:
    if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and bool not in _TYPES[name]):
        return False
    if isinstance(value, dict):
        return all(type(count) is int and abs(count) < LARGEST for count in value.values())
    if isinstance(value, (int, float)):
        if name == "attempt":
            return 0 <= value < LARGEST_ATTEMPT
        return abs(value) < (LATEST if float in _TYPES[name] else LARGEST)  # False for NaN
    return True

"""Numbers, durations and other programs' texts, as they stand in a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from supervisor_core.base.log import printable
from supervisor_core.events.telemetry import Pace

UNKNOWN = "-"
UNKNOWN_WHY = "why is not known"
DAY_SECS = 86400.0
SHOWN_CHARACTERS = 200
"""How much of an error's text is shown."""

SHOWN_RANKS = 8
"""How many processes a sentence names one by one."""
_MAX_NAME = 80
_NUMBERED = re.compile(r"([A-Za-z_]+):([0-9]{1,9})")

_DAY, _HOUR, _MINUTE, _SECOND = (DAY_SECS, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")
_UNITS = ((_DAY, _HOUR), (_HOUR, _MINUTE), (_MINUTE, _SECOND))
_MOST_DAYS = 1e7
"""Above it a duration is a number of days with an exponent: some writers store nonsense as wall time."""


def duration(secs: float | None) -> str:
    """Return a duration in its two largest units, ``"2 d 3 h"``, ``"4 min 10 s"``, ``"0.25 s"``; "-" if there is none.

    From a hundred days on, days are all there is. None, NaN and infinity are no duration.
    """
    if secs is None or not math.isfinite(secs):
        return UNKNOWN
    if secs < 0:
        return f"-{duration(-secs)}"
    if secs < 59.95:
        return f"{secs:.2g} s" if 0 < secs < 10 else f"{secs:.0f} s"
    if secs >= _MOST_DAYS * DAY_SECS:
        return f"{secs / DAY_SECS:.1e} d"
    if secs >= 100 * DAY_SECS:
        return f"{secs / DAY_SECS:,.0f} d"
    for (large, unit), (small, smaller) in _UNITS:
        whole, rest = divmod(round(secs / small), round(large / small))
        if whole:
            return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"
    return f"{secs:.0f} s"


def count(number: int | None) -> str:
    """Return a number with its thousands apart; "-" for None."""
    return UNKNOWN if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts.

    Example:
        >>> counted(1, "step"), counted(1200, "step"), counted(2, "launch")
        ('1 step', '1,200 steps', '2 launches')
    """
    ending = "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count(number)} {noun}{'' if number == 1 else ending}"


def listed(texts: Sequence[str]) -> str:
    """Return texts as an enumeration.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    return " and ".join((*([", ".join(texts[:-1])] if len(texts) > 1 else []), *texts[-1:]))


def rate(per_sec: float | None) -> str:
    """Return steps per second in three digits; "-" for None."""
    if per_sec is None or not math.isfinite(per_sec):
        return UNKNOWN
    return f"{per_sec:,.3g}" if per_sec < 1000 else f"{per_sec:,.0f}"


def share(ratio: float | None) -> str:
    """Return a ratio as a percentage; "-" for None."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"


def pace_text(pace: Pace | None) -> str:
    """Return how long a process of several takes for a step, and the share in which it does not wait for the others.

    Example:
        >>> pace_text(Pace(step_secs=0.2, own_secs=0.05))
        '0.2 s, 25%'
    """
    return UNKNOWN if pace is None else f"{duration(pace.step_secs)}, {pace.own_secs / (pace.step_secs or 1.0):.0%}"


def devices_text(world_size: int | None, device_count: int | None, device_kind: str | None) -> str:
    """Return the processes and devices of a session; empty where it is one process and its devices are unknown.

    Example:
        >>> devices_text(32, 32, "NVIDIA H100"), devices_text(None, 8, None), devices_text(1, None, "cpu")
        ('32 processes on 32 x NVIDIA H100', '8 x device', '')
    """
    processes = f"{count(world_size)} processes" if (world_size or 1) > 1 else ""
    devices = f"{count(device_count)} x {device_kind or 'device'}" if device_count else ""
    return " on ".join(filter(None, (processes, devices)))


_PAUSES: Mapping[str | None, str] = {
    "stopped": "{process} was stopped (SIGSTOP, a frozen container or virtual machine)",
    "machine_suspended": "{machine} was suspended",
    "interpreter_blocked": "native code held Python's interpreter lock: no Python code of {process} could run",
}
_ANY_PAUSE = "{process} was stopped by a signal, or {machine} was frozen or suspended"


def pause_text(cause: str | None, process: str = "it", machine: str = "its machine") -> str:
    """Return why a process did not run, as half a sentence.

    Args:
        cause: see `supervisor_core.engine.progress`; None where unknown.
        process: what the process is called.
        machine: what its machine is called.
    """
    return _PAUSES.get(cause, _ANY_PAUSE).format(process=process, machine=machine)


def next_sentence(text: str | None) -> str:
    """Return a text without a full stop as a sentence that follows another one; empty for None.

    Example:
        >>> next_sentence("rank 2 hangs")
        ' Rank 2 hangs.'
    """
    return "" if text is None else f" {text[:1].upper()}{text[1:]}."


_FOR_PROGRAMS = re.compile(r"\[Errno \d+\] |/[^/']*\.saving-[\da-f-]+[^\s']*")


def in_a_line(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """Return a text in one line, of at most so many characters and the mark of a cut."""
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[:most]} ..."


def sentence(text: str) -> str:
    """Return a text in one line, cut, with a full stop at its end; without what in an error is for programs: its
    number, and the name of a checkpoint under way, which differs each time.

    Example:
        >>> sentence("No space\\nleft"), sentence("Why?")
        ('No space left.', 'Why?')
        >>> sentence("OSError: [Errno 13] Permission denied: '/r/checkpoints/ckpt-2.saving-f6-89/tree.json'")
        "OSError: Permission denied: '/r/checkpoints'."
    """
    line = in_a_line(_FOR_PROGRAMS.sub("", text))
    return line if line.endswith((".", "!", "?")) else f"{line}."


def shown_name(text: str) -> str:
    """Return the name of a process or an operation as text. Anybody who writes to the logdir may have given it."""
    return printable(text)[:_MAX_NAME]


def named(names: Sequence[str]) -> str:
    """Return names of processes for people, whatever they are.

    Example:
        >>> named(["rank:1"]), named(["rank:0", "rank:1", "rank:2", "rank:5"]), named(["chief", "worker:1"])
        ('rank 1', 'ranks 0 to 2 and 5', 'chief and worker 1')
    """
    numbers: dict[str, list[int]] = {}
    parts: list[str] = []
    for name in map(shown_name, names):
        found = _NUMBERED.fullmatch(name)
        if found is None:
            parts.append(name)
        else:
            numbers.setdefault(found[1], []).append(int(found[2]))
    for kind, found_numbers in numbers.items():
        ranges = list(_ranges(sorted(found_numbers)))
        texts = [str(first) if first == last else f"{first} to {last}" for first, last in ranges]
        if len(texts) > SHOWN_RANKS:
            left = sum(last - first + 1 for first, last in ranges[SHOWN_RANKS:])
            texts = [*texts[:SHOWN_RANKS], f"{left:,} more"]
        parts.append(f"{kind}{'s' if len(found_numbers) > 1 else ''} {listed(texts)}")
    left = len(parts) - SHOWN_RANKS
    return listed([*parts[:SHOWN_RANKS], *([f"{left:,} more"] if left > 0 else [])])


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last number of each row of at least three successive numbers, and each other number."""
    index = 0
    while index < len(numbers):
        end = index
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - index >= 2:
            yield numbers[index], numbers[end]
        else:
            yield from ((number, number) for number in numbers[index : end + 1])
        index = end + 1

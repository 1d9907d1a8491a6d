"""`RunPacking`: keeps in a tenth of the memory, or less, the runs that only new events change.

A run that has ended is some hundred Python objects, 12 kB; thousands of them are most of what a reader of a large
logdir holds. At rest it is a `RestingRun`: a `Run` whose parts are bytes and are made again when one of them is asked
for. The bytes are a `fold_state` among `AlikeTexts`: runs of one logdir are much alike. What a look asks of every run
is there without that.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, cast

from supervisor_core.run.fold_state import StateError, packed, unpacked
from supervisor_core.run.model import Run

MOST_PACKED_BYTES = 256 << 10
"""Of a run as bytes. One that is longer stays as it is: making it again takes too long for an answer."""
_DICTIONARY_BYTES = 32 << 10
"""What zlib can refer to."""
_OPEN = 16
"""Runs whose parts are held, those that were asked for last: an answer asks for many parts of one run."""
_READY = (
    "name",
    "state",
    "hparams",
    "labels",
    "first_step",
    "max_step",
    "scalar_tags",
    "last_event_at",
    "clock_skew_secs",
    "dropped",
    "own_name",
    "session_ids",
)
_NONE: Mapping[str, Any] = {}


class AlikeTexts:
    """Compresses texts that are much alike, by zlib with the first of them as its dictionary. `packed` is used by one
    thread at a time, `unpacked` by any.

    Example:
        >>> texts = AlikeTexts()
        >>> data = [texts.packed(b'{"run": "mnist-%d", "state": "completed"}' % number) for number in range(3)]
        >>> texts.unpacked(data[2])
        b'{"run": "mnist-2", "state": "completed"}'
    """

    def __init__(self) -> None:
        self._dictionary: bytes | None = None

    def packed(self, text: bytes) -> bytes:
        """Return a text compressed."""
        if self._dictionary is None:
            self._dictionary = text[:_DICTIONARY_BYTES]
        deflate = zlib.compressobj(zdict=self._dictionary)
        return deflate.compress(text) + deflate.flush()

    def unpacked(self, data: bytes) -> bytes:
        """Return the text that `packed` has compressed."""
        return zlib.decompressobj(zdict=self._dictionary or b"").decompress(data)


class RunPacking:
    """Packs the runs of one logdir. `at_rest` is used by one thread at a time, the runs by any.

    Example:
        >>> from supervisor_core.run.fold import RunFold
        >>> run = RunFold("mnist").run(now=1.7e9)
        >>> resting = RunPacking().at_rest(run)
        >>> type(resting).__name__, resting == run
        ('RestingRun', True)
    """

    def __init__(self) -> None:
        self._texts = AlikeTexts()
        self.opened = lru_cache(_OPEN)(self._opened)
        """Returns the run of some bytes."""
        self.same_tags: dict[frozenset[str], frozenset[str]] = {}
        """The tags of files, which many runs have in common."""

    def at_rest(self, run: Run) -> Run:
        """Return an equal run that takes less memory; the same one where it is too long, or at rest already."""
        if isinstance(run, RestingRun):
            return run
        try:
            data = packed(run)
        except StateError:  # a part of it that no state can hold
            return run
        if len(data) > MOST_PACKED_BYTES:
            return run
        return RestingRun.of(run, self._texts.packed(data), self)

    def _opened(self, data: bytes) -> Run:
        return cast("Run", unpacked(self._texts.unpacked(data)))


class RestingRun(Run):
    """A run of `RunPacking`. `dataclasses.replace` makes a plain `Run` of it, `changed` one at rest."""

    __slots__ = ("_data", "_packing", "own_name", "session_ids")

    _data: bytes
    _packing: RunPacking

    def __new__(cls, **values: Any) -> Run:  # type: ignore[misc]
        """Return a plain run: whoever gives values replaces some."""
        return Run(**values)

    @staticmethod
    def of(run: Run, data: bytes, packing: RunPacking) -> RestingRun:
        """Return a run at rest."""
        made: RestingRun = object.__new__(RestingRun)
        ready = {name: getattr(run, name) for name in _READY}
        for name, value in (*ready.items(), ("_data", data), ("_packing", packing)):
            object.__setattr__(made, name, _NONE if value == _NONE else value)
        return made

    @property
    def whole(self) -> Run:
        """The run as it was."""
        return self._packing.opened(self._data)

    def packed(self, run: Run) -> Run:
        """Return another run as this one is packed."""
        return self._packing.at_rest(run)

    def __eq__(self, other: object) -> bool:
        return self.whole == (other.whole if isinstance(other, RestingRun) else other)

    __hash__ = Run.__hash__

    def __repr__(self) -> str:
        return repr(self.whole)


def changed(run: Run, **changes: Any) -> Run:
    """Return what `dataclasses.replace` does, at rest where the run is."""
    made = replace(run, **changes)
    return run.packed(made) if isinstance(run, RestingRun) else made


def _part(name: str) -> Any:
    return property(lambda run: getattr(run.whole, name))


for _field in fields(Run):
    if _field.name not in _READY:
        setattr(RestingRun, _field.name, _part(_field.name))

"""`NewestLosses`: of which losses among a writer's scalars the newest value is not finite. Read by other threads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

LOSS = re.compile(r"((?<![a-z])loss(es)?|Loss(es)?|LOSS(ES)?)(?![a-z])")
"""Matches the word ``loss`` in a tag: ``loss_1``, ``train/total_loss``, ``Losses/actor``, ``trainLoss``."""

MAX_LOSSES = 1000
"""Of how many losses the newest value is known; others are not noted."""


class NewestLosses:
    """Filled in by the thread that encodes the events."""

    def __init__(self) -> None:
        self._finite: dict[str, bool] = {}

    @property
    def not_finite(self) -> tuple[str, ...]:
        """Tags of the losses whose newest value is NaN or infinite, as far as they are encoded."""
        return tuple(sorted(tag for tag, finite in tuple(self._finite.items()) if not finite))

    def note(self, tag: str, value: float) -> None:
        """Note the newest value of a loss: a tag that `LOSS` finds."""
        if tag in self._finite or len(self._finite) < MAX_LOSSES:
            self._finite[tag] = math.isfinite(value)

    def note_event(self, event: bytes) -> None:
        """Note the losses in a serialized ``Event``. One that cannot be decoded has none."""
        if b"oss" not in event and b"OSS" not in event:
            return
        from supervisor_core.events.payload import decode
        from supervisor_core.wire import DamagedError

        try:
            scalars = decode(event, 0, len(event)).scalars
        except (DamagedError, IndexError):
            return
        for scalar in scalars:
            if LOSS.search(scalar.tag):
                self.note(scalar.tag, scalar.value)

    def take_up(self, tags: Iterable[str]) -> None:
        """Go on from a moment at which the newest values of these losses were not finite."""
        for tag in tags:
            self.note(tag, math.nan)

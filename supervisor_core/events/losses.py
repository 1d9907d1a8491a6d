"""`NewestLosses`: of which losses among a writer's scalars the newest value is not finite. Read by other threads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache

LOSS = re.compile(r"((?<![a-z])loss(es)?|Loss(es)?|LOSS(ES)?)(?![a-z])")
"""Matches the word ``loss`` in a tag: ``loss_1``, ``train/total_loss``, ``Losses/actor``, ``trainLoss``."""

ACCURACY = re.compile(r"((?<![a-z])acc(uracy)?|Acc(uracy)?|ACC(URACY)?)(?![a-z])")
"""Matches the word ``accuracy`` in a tag, also in short: ``val_acc``, ``epoch_accuracy``, ``Accuracy/test``."""

MAX_LOSSES = 1000
"""Of how many losses the newest value is known; others are not noted."""


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_USUAL = frozenset(
    (
        "acc",
        "accuracy",
        "avg",
        "batch",
        "epoch",
        "global",
        "learning",
        "loss",
        "losses",
        "mean",
        "metrics",
        "running",
        "step",
        "total",
        "train",
        "training",
    )
)
_HELD_OUT = frozenset(("val", "valid", "validation", "test", "eval", "dev"))


def qualifier(tag: str) -> str:
    """Return what says of a loss or an accuracy that it is not that of the training as a whole; empty for that one.

    Example:
        >>> [qualifier(tag) for tag in ("train/loss", "epoch_loss", "train/value_loss", "Accuracy/test")]
        ['', '', 'value', 'test']
    """
    words = [word.lower() for word in _WORD.findall(tag)]
    return " ".join(word for word in dict.fromkeys(words) if word not in _USUAL)


@lru_cache(maxsize=4096)
def prominence(tag: str) -> tuple[bool, int, int, str]:
    """Return the sort key of tags of one kind: the training's own comes first, one of held-out data last.

    Example:
        >>> sorted(["val_loss", "train/policy_loss", "train_loss"], key=prominence)
        ['train_loss', 'train/policy_loss', 'val_loss']
    """
    words = qualifier(tag).split()
    return not _HELD_OUT.isdisjoint(words), len(words), len(tag), tag


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
        from supervisor_core.base.wire import DamagedError
        from supervisor_core.events.payload import decode

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

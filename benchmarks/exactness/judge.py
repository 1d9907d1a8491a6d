"""What a trial showed: the batches that the model was trained on in the end, beside those of an uninterrupted run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

EXACT = "exact"
REPEATED = "samples repeated"
SKIPPED = "samples skipped"
BOTH = "samples repeated and skipped"
ORDER = "another order"
BITS = "other bits"
NOT_RESUMED = "did not resume"
WAYS = (EXACT, REPEATED, SKIPPED, BOTH, ORDER, BITS, NOT_RESUMED)
"""In which a resumed training can differ, the first that applies."""
FAILED = "failed"
"""There was no trial: the training did not run without an interruption either."""


@dataclass
class Said:
    """What the sessions of a run said, one after the other."""

    batches: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By count, each batch's samples and the bits of its loss; those that a restore took back are left out."""
    end: str | None = None
    """The digest of the weights; None where no session came to its end."""
    verdicts: list[list[str] | None] = field(default_factory=list)
    """Of each resume: the reasons why it was not exact; None where nothing was restored."""
    resumed_at: list[int] = field(default_factory=list)
    """How many batches the model had been trained on when each session began."""
    errors: list[str] = field(default_factory=list)

    def add(self, lines: Sequence[Sequence[str]]) -> None:
        """Add what one session said."""
        begun, is_resume = False, bool(self.resumed_at)
        for word, *values in lines:
            if word == "verdict" and is_resume:  # the first session has nothing to resume
                self.verdicts.append(json.loads(" ".join(values)))
            elif word in ("batch", "end"):
                count = int(values[0])
                if not begun:
                    begun = True
                    self.resumed_at.append(count - (word == "batch"))
                    self.batches = {key: value for key, value in self.batches.items() if key <= self.resumed_at[-1]}
                if word == "batch":
                    self.batches[count] = (values[1], values[2])
                else:
                    self.end = values[1]

    @property
    def reasons(self) -> list[str]:
        """Every reason that was named."""
        return [reason for verdict in self.verdicts for reason in verdict or ()]


@dataclass(frozen=True)
class Outcome:
    """The result of one trial of one system."""

    way: str
    """One of `WAYS`."""
    reasons: tuple[str, ...] = ()
    """What the system named."""
    detail: str = ""
    """The first difference, for a report."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing differs."""
        return self.way == EXACT

    @property
    def is_named(self) -> bool:
        """Whether the system said that it was not exact."""
        return bool(self.reasons)

    @property
    def is_wrong(self) -> bool:
        """Whether it was called exact, and was not."""
        return not self.is_exact and not self.is_named


def judge(truth: Said, said: Said) -> Outcome:
    """Compare a run that was interrupted with one that was not."""
    reasons = tuple(dict.fromkeys(said.reasons))
    if said.end is None:
        return Outcome(NOT_RESUMED, reasons, "; ".join(said.errors) or "it did not come to its end")
    if 0 in said.resumed_at[1:]:
        return Outcome(NOT_RESUMED, reasons, "it began at the start again")
    if None in said.verdicts:
        return Outcome(NOT_RESUMED, reasons, "it restored nothing")
    different = _first_difference(truth, said)
    seen, wanted = _samples(said), _samples(truth)
    more, fewer = seen - wanted, wanted - seen
    if more or fewer:
        return Outcome(BOTH if more and fewer else REPEATED if more else SKIPPED, reasons, different)
    ids, true_ids = ([batch[0] for _, batch in sorted(each.batches.items())] for each in (said, truth))
    if ids != true_ids:
        return Outcome(ORDER, reasons, different)
    if said.batches != truth.batches or said.end != truth.end:
        return Outcome(BITS, reasons, different)
    return Outcome(EXACT, reasons)


def _samples(said: Said) -> Counter[str]:
    """Return how often the model was trained on each sample."""
    return Counter(number for ids, _ in said.batches.values() for number in ids.split(","))


def _first_difference(truth: Said, said: Said) -> str:
    where = f"resumed at {said.resumed_at[1:]}"
    for count in sorted(truth.batches.keys() | said.batches.keys()):
        one, other = truth.batches.get(count), said.batches.get(count)
        if one != other:
            return f"{where}; batch {count}: {other}, uninterrupted {one}"
    return f"{where}; the weights at the end differ" if truth.end != said.end else where

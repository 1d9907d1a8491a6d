"""`ResumeRecord` and `DigestRecord`: the telemetry records of what recomputed steps show of a resume; for
`events.telemetry`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from supervisor_core.events.record_fields import Name, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRecord:
    """Digests of the trained state after a step: what a resume is compared with."""

    kind: ClassVar[str] = "digest"

    session: Name
    step: Whole | None = None
    states: Mapping[Name, Name] = field(default_factory=dict)
    """By the name of each object with floating-point arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRecord:
    """What the steps show that a session recomputed after a kill: scalars that were logged before it and again after
    it, compared bit by bit. Of the records of one session the last one counts."""

    kind: ClassVar[str] = "resume"

    session: Name
    """The session that resumed."""
    what: Literal["losses", "values", "states"] = "values"
    """What `compared` and `equal` count: the losses; all scalars where no loss was compared; states where no scalar
    was, each that of one object after one step."""
    compared: Whole = 0
    equal: Whole = 0
    tag: Name | None = None
    """The first scalar that differs, or ``state of model``; None where none does."""
    step: Whole | None = None
    """Its step."""
    before: Name | None = None
    """The value logged before the restart, as text: it may be NaN or infinite."""
    now: Name | None = None
    """The value logged since."""

    @property
    def is_equal(self) -> bool | None:
        """Whether no recomputed value differs; None where none was compared."""
        return False if self.tag is not None else True if self.compared else None

    @property
    def text(self) -> str:
        """What was found, as a part of a sentence.

        Example:
            >>> ResumeRecord(session="a", what="losses", compared=3, equal=3).text
            '3 of 3 recomputed losses equal'
            >>> ResumeRecord(session="a", tag="loss", step=15, before="0.412", now="0.415").text
            'loss at step 15 differs (0.412 before, 0.415 now)'
        """
        if self.tag is None:
            return f"{self.equal:,} of {self.compared:,} recomputed {self.what} equal"
        return f"{self.tag} at step {self.step} differs ({self.before} before, {self.now} now)"


AboutResume = DigestRecord | ResumeRecord

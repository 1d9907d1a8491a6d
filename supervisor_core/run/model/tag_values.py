"""What is known of the scalars of each tag of a run: its last value, and its values that are not finite."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Ints = array[int]
    Floats = array[float]
else:  # not subscripted: `run_cache` reads the types
    Ints = Floats = array


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """Values of one tag that are NaN or infinite."""

    tag: str
    values: int
    """Their number."""
    first_step: int
    """The lowest step with one."""
    last_step: int
    """The highest."""

    def merged(self, other: NonFinite) -> NonFinite:
        """Return the sum of two of the same tag."""
        return NonFinite(
            tag=self.tag,
            values=self.values + other.values,
            first_step=min(self.first_step, other.first_step),
            last_step=max(self.last_step, other.last_step),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LastValue:
    """The newest value of one tag."""

    tag: str
    value: float
    step: int


@dataclass(frozen=True, slots=True)
class TagValues:
    """The last value of each tag of a run; 24 bytes a tag.

    Example:
        >>> values = TagValues(("acc", "loss"), array("q", [5, 6]), array("d", [0.5, 0.25]))
        >>> values.of("loss"), values.of("no such tag")
        (LastValue(tag='loss', value=0.25, step=6), None)
    """

    tags: tuple[str, ...] = ()
    """Those of which it is known, sorted."""
    steps: Ints = field(default_factory=lambda: array("q"))
    values: Floats = field(default_factory=lambda: array("d"))

    def of(self, tag: str) -> LastValue | None:
        """Return that of one tag; None where it is not known."""
        place = bisect_left(self.tags, tag)
        if place == len(self.tags) or self.tags[place] != tag:
            return None
        return LastValue(tag=tag, value=self.values[place], step=self.steps[place])

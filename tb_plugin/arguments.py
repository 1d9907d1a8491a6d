"""`Arguments`: the query of a request, read and checked. What cannot be read is refused with what was expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tb_plugin.answers import Refused

if TYPE_CHECKING:
    from werkzeug.datastructures import Headers, MultiDict

_SHOWN = 80
"""Characters of what came that an error repeats."""


class Arguments:
    """The arguments of one request. Those that a route does not know are passed over.

    Args:
        values: name -> value; of several with one name the first counts.
        headers: those of the request.
    """

    def __init__(self, values: MultiDict[str, str], headers: Headers) -> None:
        self._values = values
        self._headers = headers

    def header(self, name: str) -> str:
        """Return a header of the request; empty where it has none."""
        return self._headers.get(name, "")

    def text(self, name: str) -> str:
        """Return an argument that must be there."""
        value = self._values.get(name)
        if not value:
            raise Refused(400, f"The argument {name!r} is missing.")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of some words, the first of them where nothing is given."""
        value = self._values.get(name) or choices[0]
        if value not in choices:
            raise _bad(name, value, f"one of {', '.join(choices)}")
        return value

    def integer(self, name: str, low: int, high: int | None) -> int | None:
        """Return a whole number within bounds; None where nothing is given."""
        value = self._values.get(name)
        if not value:
            return None
        bounds = f"a whole number from {low:,}" + ("" if high is None else f" to {high:,}")
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise _bad(name, value, bounds)
        number = int(value)
        if number < low or (high is not None and number > high):
            raise _bad(name, value, bounds)
        return number

    def number(self, name: str, low: float, high: float) -> float:
        """Return a number within bounds, the lower one where nothing is given."""
        number = self._number(name, low)
        if not low <= number <= high:
            raise _bad(name, self._values[name], f"a number from {low:g} to {high:g}")
        return number

    def window(self) -> tuple[float, float]:
        """Return ``from`` and ``to``, which reach to infinity where they are not given."""
        low, high = self._number("from", -math.inf), self._number("to", math.inf)
        if low > high:
            raise Refused(400, f"The argument 'from' ({low:g}) lies above 'to' ({high:g}); expected it below.")
        return low, high

    def _number(self, name: str, default: float) -> float:
        value = self._values.get(name)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _bad(name, value, "a number")
        return number


def _bad(name: str, value: str, expected: str) -> Refused:
    shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
    return Refused(400, f"The argument {name!r} is {shown!r}; expected {expected}.")

"""Labels of a session: whose it is and where it runs. What their names and values may be, for who gives them and for
who reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_LABELS, MAX_NAME_CHARS, MAX_VALUE_CHARS = 16, 64, 128
"""Of one session: their number, characters of a name and of a value."""

VARIABLE = "SUPERVISOR_LABELS"
"""Environment variable: labels, as ``team=vision,project=digits``."""

_OF_RUN_INFO = "run host pid facade session_id logdir task copy_of world_size device_kind device_count"
RESERVED = frozenset((*_OF_RUN_INFO.split(), "job", "instance", "le", "quantile"))
"""Names that say something else in the metrics."""


def problem_of(name: Any, value: Any) -> str | None:
    """Return why a label cannot be used, for after the label itself; None if it can.

    Example:
        >>> problem_of("team", "vision"), problem_of("my-team", "vision")
        (None, "expected a name of letters, digits and '_' that begins with no digit, of 64 characters at most")
    """
    is_name = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not is_name or len(name) > MAX_NAME_CHARS or name.startswith("__"):
        return (
            f"expected a name of letters, digits and '_' that begins with no digit, of {MAX_NAME_CHARS} characters "
            "at most"
        )
    if name in RESERVED:
        return f"the metrics use this name: choose another one, as 'my_{name}'"
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_VALUE_CHARS:
        return f"expected a value of {MAX_VALUE_CHARS} printable characters at most"
    return None


def usable(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those labels of an events file that can be shown: anyone may have written it."""
    return {name: value for name, value in labels.items() if value and problem_of(name, value) is None}


def parsed(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the labels of ``NAME=VALUE,NAME=VALUE``, and a sentence for each part that cannot be used.

    Example:
        >>> parsed("team=vision, project=digits")
        ({'team': 'vision', 'project': 'digits'}, [])
    """
    found: dict[str, str] = {}
    problems = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        problem = problem_of(name, value) if sign else "expected NAME=VALUE"
        if problem is None and len(found) == MAX_LABELS:
            problem = f"there are {MAX_LABELS} labels already, the most"
        if problem is None:
            found[name] = value
        else:
            problems.append(f"{part[:200]!r}: {problem}.")
    return found, problems

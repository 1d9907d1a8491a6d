"""`find_run`: which run is meant by a name, a metric's label or a path; `runs_near`: which ones may have been meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from supervisor_core.run.model.words import counted

_MOST_NAMES = 5_000
"""Among how many names close ones are looked for: it takes time for each."""


class RunPlace(NamedTuple):
    """By what a run is known beside its name."""

    directory: str
    own_name: str | None
    """The label under which its own process serves its metrics; None where it is not known."""


def find_run(wanted: str, runs: Mapping[str, RunPlace]) -> str | None:
    """Return the name of the one run that is meant; None where there is none, or several could be.

    The first of these that fits one run: its name; the label of its metrics; its directory; the end of its name or of
    its directory, from a ``/`` on. Last, a name that ends with the run's own: an exporter's label of several logdirs,
    ``logs/digits``, or a path on another machine.

    Args:
        wanted: what came.
        runs: name -> by what else it is known.

    Example:
        >>> runs = {"a/digits": RunPlace("/logs/a/digits", "digits-a"), "b": RunPlace("/logs/b", None)}
        >>> [find_run(wanted, runs) for wanted in ("digits-a", "/logs/b", "digits", "logs/b", "c")]
        ['a/digits', 'b', 'a/digits', 'b', None]
    """
    if wanted in runs:
        return wanted
    name = wanted.rstrip("/")
    if not name:
        return None
    end = f"/{name}"
    fits: tuple[Callable[[str, RunPlace], bool], ...] = (
        lambda run, place: place.own_name == name,
        lambda run, place: place.directory.rstrip("/") == name,
        lambda run, place: f"/{run}".endswith(end) or f"/{place.directory.rstrip('/')}".endswith(end),
    )
    for fit in fits:
        found = [run for run, place in runs.items() if fit(run, place)]
        if found:
            return found[0] if len(found) == 1 else None
    longest = sorted((run for run in runs if name.endswith(f"/{run}")), key=len)
    return longest[-1] if longest else None


def runs_near(wanted: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names that are most like one: those that contain it, then those that are spelled like it.

    Args:
        wanted: what came.
        names: those that there are.
        count: how many at most.
    """
    known = list(names)
    last = wanted.rstrip("/").rpartition("/")[2].lower()
    holding = [name for name in known if last and last in name.lower()]
    close = get_close_matches(wanted, known[:_MOST_NAMES], count) if len(holding) < count else []
    return list(dict.fromkeys([*holding, *close]))[:count]


def known_as(wanted: str, names: Iterable[str]) -> str:
    """Return what to say after *there is no such run*: which ones may have been meant, and how many there are; else
    the first of them.

    Example:
        >>> known_as("digit", ["digits", "letters"]), known_as("x", ["digits"])
        ("did you mean 'digits'? It has 2 runs.", "it has 1 run: 'digits'.")
    """
    known = list(names)
    number = counted(len(known), "run")
    if near := runs_near(wanted, known):
        return f"did you mean {' or '.join(map(repr, near))}? It has {number}."
    return f"it has {number}: {', '.join(map(repr, known[:10]))}{', ...' if len(known) > 10 else ''}."

"""The tables of docs/exact_resume.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.exactness.judge import WAYS, Outcome
from benchmarks.exactness.matrix import OURS, Interrupted

PAGE = Path(__file__).parents[2] / "docs" / "exact_resume.md"
MARK = "<!-- measured: everything below this line is written by `make exactness ARGS=--write` -->\n"


@dataclass(frozen=True)
class Result:
    """One trial of one system."""

    framework: str
    seed: int
    number: int
    """Of the drawn training."""
    system: str
    options: dict[str, Any]
    interrupted: Interrupted | None
    outcome: Outcome

    @classmethod
    def of(cls, values: dict[str, Any]) -> Result:
        """Return what was written down."""
        given, found = values["interrupted"], values["outcome"]
        return cls(
            **{
                **values,
                "interrupted": given and Interrupted(tuple(given["at"]), given["how"], given["save_every"]),
                "outcome": Outcome(found["way"], tuple(found["reasons"]), found["detail"]),
            }
        )


VERDICTS: dict[str, Callable[[Outcome], bool]] = {
    "exact, called exact": lambda outcome: outcome.is_exact and not outcome.is_named,
    "not exact, a reason named": lambda outcome: not outcome.is_exact and outcome.is_named,
    "a reason named, the bits are the same": lambda outcome: outcome.is_exact and outcome.is_named,
    "**called exact, was not**": lambda outcome: outcome.is_wrong,
}
"""What a verdict can be beside the truth."""


def _counts(results: list[Result]) -> str:
    numbers = [sum(test(result.outcome) for result in results) for test in VERDICTS.values()]
    return " | ".join(map(str, (len(results), *numbers)))


def _table(head: str, groups: Iterable[tuple[str, list[Result]]]) -> str:
    columns = "|---" * (head.count("|") + 1) + "|"
    lines = [f"| {head} | trials | {' | '.join(VERDICTS)} |", columns + "---:|" * (len(VERDICTS) + 1)]
    lines += [f"| {name} | {_counts(found)} |" for name, found in groups if found]
    return "\n".join(lines) + "\n"


KINDS = {
    "buffer": "a buffer with persistent=False",
    "frozen": "requires_grad",
    "modes": "a layer's training mode",
    "dropout": "a dropout's rate: set once; by the epoch",
    "mosaic": "a dataset's flag: set once; by the epoch",
    "transform": "a dataset's transform: set once; by the epoch",
    "smoothing": "label smoothing: set once; by the epoch",
    "loss": "the criterion: set once; by the epoch",
    "patience": "best loss and patience: in variables; in state",
    "rate": "a rate in a variable: set once; by the step",
    "mean": "a running mean: decides the rate, in kept_values; for the log",
    "printed": "a best loss and a history that are printed: as they are; in kept_values",
    "log": "counts, sums and means for the log",
    "structure": "a parameter group that is added, with on_restore",
    "stream": "StatefulDataLoader over a shuffled stream",
    "finetuning": "BackboneFinetuning: before the callback; after it",
    "average": "EMAWeightAveraging: before the callback; after it",
    "split": "a data module's split from a seed in its state",
    "unfreezes": "a callback that unfreezes: once; by the epoch",
    "freezes": "a callback that freezes: once; by the epoch",
    "step": 'batches by the number of the step, data="step"',
    "key": "a random key: in a variable; in run.state",
}
"""What a training keeps: half of the trials are made as the program stands, half as the page advises."""


def by_framework(results: list[Result]) -> str:
    """Return the verdicts of ours beside the truth, for each framework."""
    ours = [result for result in results if result.system == OURS]
    names = dict.fromkeys(result.framework for result in ours)
    groups = [(name, [result for result in ours if result.framework == name]) for name in sorted(names)]
    return _table("framework", [*groups, ("**all**", ours)])


def by_kind(results: list[Result]) -> str:
    """Return the same for each kind of what no ``state_dict`` has, and each end of a session."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        options = result.options
        if "kind" in options and result.interrupted is not None:
            end = "SIGTERM" if result.interrupted.how == "SIGTERM" else "SIGKILL"
            groups.setdefault(f"{options['facade']} | {KINDS[options['kind']]} | {end}", []).append(result)
    kinds = [result for found in groups.values() for result in found]
    return _table("facade | what is kept | end", [*sorted(groups.items()), ("**all** | |", kinds)])


def beside(results: list[Result]) -> str:
    """Return how each system's resumes were: ours and the tools beside it, on the same trainings."""
    lines = [f"| framework | system | trials | {' | '.join(WAYS)} | said so |", "|---|---|" + "---:|" * (len(WAYS) + 2)]
    tried = {(result.framework, result.seed, result.number) for result in results if result.system != OURS}
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for result in results:
        if (result.framework, result.seed, result.number) in tried:
            groups.setdefault((result.framework, result.system), []).append(result.outcome)
    for (framework, system), outcomes in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] != OURS)):
        ways = Counter(outcome.way for outcome in outcomes)
        differ = len(outcomes) - ways["exact"]
        said = sum(outcome.is_named and not outcome.is_exact for outcome in outcomes)
        numbers = " | ".join(str(ways[way]) for way in WAYS)
        lines.append(f"| {framework} | {system} | {len(outcomes)} | {numbers} | {said} of {differ} |")
    return "\n".join(lines) + "\n"


def by_reason(results: list[Result]) -> str:
    """Return how often each reason was named, and in how many of these trials something did differ."""
    named: Counter[str] = Counter()
    differed: Counter[str] = Counter()
    for result in results:
        for reason in result.outcome.reasons if result.system == OURS else ():
            named[f"{result.framework} | {reason}"] += 1
            differed[f"{result.framework} | {reason}"] += not result.outcome.is_exact
    lines = ["| framework | reason | named | and something did differ |", "|---|---|---:|---:|"]
    lines += [f"| {name} | {count} | {differed[name]} |" for name, count in sorted(named.items())]
    return "\n".join(lines) + "\n"


def to_text(results: list[Result]) -> str:
    """Return the tables for a terminal."""
    return "\n".join((by_framework(results), by_kind(results), beside(results), by_reason(results)))


SECTIONS = ("By kind", "By framework", "Beside each framework's own tool", "The reasons that were named")


def write_page(results: list[Result], versions: str) -> None:
    """Put the tables into the page, in the place of those that were there; what was not tried stays as it was."""
    head, _, rest = PAGE.read_text().partition(MARK)
    sections = dict(part.split("\n\n", 1) for part in f"\n{rest}".split("\n## ")[1:])
    kinds, drawn = ([item for item in results if ("kind" in item.options) is is_kind] for is_kind in (True, False))
    if kinds:
        sections[SECTIONS[0]] = f"{_when(kinds, versions)}\n\n{by_kind(kinds)}"
    if drawn:
        texts = (f"{_when(drawn, versions)}\n\n{by_framework(drawn)}", beside(drawn), by_reason(drawn))
        sections.update(zip(SECTIONS[1:], texts, strict=True))
    text = "".join(f"\n## {name}\n\n{sections[name].strip()}\n" for name in SECTIONS if name in sections)
    PAGE.write_text(head + MARK + text)


def _when(results: list[Result], versions: str) -> str:
    seeds = ", ".join(map(str, sorted({result.seed for result in results})))
    return f"Measured on {datetime.now(timezone.utc):%Y-%m-%d} with {versions}; seed {seeds}."

"""Two runs of one name are not one run that is started again, however soon the alert comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from monitoring_happenings import TWICE, ends, turns
from monitoring_served import Target, always, exporter, series_of, trainer

from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.run.model.thresholds import Thresholds
from tests.cases import each

END = 40
BEFORE = trainer(session="a", end=12)
"""Killed at 10 s. Prometheus has its last report until the next scrape fails."""
BEFORE_SEEN = {"session": "a", "session_start": always(0), "seen": ends(10)}
AFTER = trainer(session="b", start=13, session_start=always(11))
AFTER_SEEN = {"session": "b", "session_start": always(11)}

ONE_RUN = {
    "the exporter knows of the earlier session for a while": [
        BEFORE,
        exporter(end=30, **BEFORE_SEEN),
        AFTER,
        exporter(start=30, **AFTER_SEEN),
    ],
    "one of two exporters does": [
        BEFORE,
        exporter(end=20, **BEFORE_SEEN),
        exporter(end=30, instance="exporter-2", **BEFORE_SEEN),
        AFTER,
        exporter(start=20, **AFTER_SEEN),
        exporter(start=30, instance="exporter-2", **AFTER_SEEN),
    ],
    "the exporter knows of the next session before Prometheus has scraped it": [
        trainer(session="a", end=25, seen=ends(9)),
        exporter(end=12, **BEFORE_SEEN),
        exporter(start=12, **AFTER_SEEN),
        trainer(session="b", start=25, session_start=always(11)),
    ],
    "the next process has another address, and the earlier one's last report stays": [
        trainer(session="a", seen=ends(9)),
        trainer(session="b", instance="pod-2", start=13, session_start=always(11)),
    ],
}
TWO_RUNS = {
    "two trainers": (
        [trainer(session="a"), trainer(session="b", instance="pod-2", session_start=always(5))],
        range(5, END),
    ),
    "one trainer, and another's run that hangs, which the exporter serves": (
        [
            trainer(session="a", session_start=always(5)),
            exporter(session="b", seen=lambda t: t // 10 * 10, progress=ends(1)),
        ],
        range(10, END),  # from the first heartbeat after the later one began
    ),
    "two exporters of two logdirs": (
        [exporter(session="a"), exporter(session="b", instance="exporter-2")],
        range(END),
    ),
    "until one of them is lost": (
        [trainer(session="a"), exporter(session="b", seen=ends(20), **turns("running", 25, "lost"))],
        range(25),
    ),
}
CASES = {name: (targets, range(0)) for name, targets in ONE_RUN.items()} | TWO_RUNS


def joined(targets: Sequence[Target]) -> dict[str, str]:
    """What Prometheus gets; of targets with the same labels, the one that is there."""
    found: dict[str, list[str]] = {}
    for target in targets:
        for name, text in series_of([target], END, 1).items():
            words = text.split()
            before = found.get(name, words)
            found[name] = [new if old in ("_", "stale") else old for old, new in zip(before, words, strict=True)]
    return {name: " ".join(words) for name, words in found.items()}


@each("targets, firing", CASES.values())
def test_which_sessions_are_two_runs(
    rules_test: Callable[..., str], tmp_path: Path, targets: Sequence[Target], firing: range
) -> None:
    """Trainer and exporters may name different sessions of one run for a while: all but one had ended by then. It fires
    at the seconds of `firing` and at no others, though it is held for no time."""
    groups = rule_groups(Thresholds(interval_secs=1))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    what = re.compile("exporter|followed|session_of_several|session:info")
    needed = [rule for rule in rules if rule.get("alert") == TWICE or what.search(rule.get("record", ""))]
    for rule in needed:
        rule.pop("for", None)
    expr = f'count by (alertname) (ALERTS{{alertname="{TWICE}"}})'
    queries = [(expr, t, {f'{{alertname="{TWICE}"}}': 1} if t in firing else {}) for t in range(END)]
    rules_test(tmp_path, joined(targets), 1, rules={"groups": [{"name": "at once", "rules": needed}]}, queries=queries)

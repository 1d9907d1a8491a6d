"""A fleet's report in sections of sentences and tables: what the terminal and the HTML file show alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from supervisor_core.cli.text import moment
from supervisor_core.run.fleet import FleetReport, Usage
from supervisor_core.run.fleet_report import SUSPECT_FACTOR, SUSPECT_RUNS
from supervisor_core.run.goodput import GIVEN_UP_SECS
from supervisor_core.run.words import UNKNOWN, count, counted, duration, listed, share

CAUSES: Mapping[str, tuple[str, str]] = {
    "productive": ("Productive", "Steps that were kept."),
    "program_startup": ("Starting", "From a session's start until it restores or trains."),
    "checkpoint_restore": ("Restoring", "Reading a checkpoint."),
    "unproductive_checkpoint_save": ("Blocked by saves", "Training waited for a checkpoint."),
    "wasted_progress_from_disruption": ("Recomputed", "Steps after the restored checkpoint, lost with a session."),
    "infrastructure_recovery_from_disruption": ("Downtime", "From the end of a session to the start of the next."),
    "stall": ("Stalled", "No progress for longer than the hang timeout."),
    "silent": ("Silent", "The process did not run: stopped, or its machine frozen."),
    "at_risk": ("At risk", "Steps that are in no checkpoint."),
    "other": ("Other", "Evaluating, stopping, and time with no record."),
}
"""Names and meanings of the buckets, as the tab has them."""

_LEAST_SECS = 1.0
"""Device seconds of a cause that is shown."""

_WHY = {
    "not_scraped": "Prometheus does not scrape it: no alert can say that it died",
    "no_telemetry": "no telemetry: no alert can say that it died",
    "given_up": f"lost or failed, and not started again for {duration(GIVEN_UP_SECS)}: its alert has ended",
}

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, sentences, and a table."""

    title: str
    sentences: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0
    """Rows that the table would have beyond those."""
    texts: frozenset[str] = field(default=frozenset())
    """Headings of columns that are text; all others are numbers."""


def sections(report: FleetReport, most_rows: int) -> list[Section]:
    """Return the sections of a report, in order; those that have nothing to say are left out.

    Args:
        report: the report.
        most_rows: of one table.
    """
    made = [
        _time(report),
        _groups(report, most_rows),
        _failures(report),
        _hosts(report, most_rows),
        _costliest(report, most_rows),
        _checkpoints(report, most_rows),
        _unwatched(report, most_rows),
    ]
    return [section for section in made if section.rows or section.sentences]


def summary(report: FleetReport) -> list[str]:
    """Return what the report is of, and its first figures, in sentences."""
    total = report.total
    if not total.sessions:
        return ["No run ran in this window."]
    known = "; goodput (ETTR) is not known."
    if total.goodput is not None:
        known = (
            f", {hours(total.device_secs)} device hours; goodput (ETTR) {share(total.goodput)}; "
            f"{hours(total.lost_device_secs)} device hours lost."
        )
    said = [f"{counted(total.runs, 'run')}, {counted(total.sessions, 'session')}{known}"]
    if total.unknown_device_secs > 0:
        unknown = f"{'Another ' if total.device_secs else ''}{hours(total.unknown_device_secs)} device hours"
        said.append(
            f"{unknown} are of sessions without telemetry: where they went is not known, and no figure counts them."
        )
    if report.unsized_runs:
        said.append(f"{counted(report.unsized_runs, 'run')} of unknown size: each counts as one device.")
    return said


def window(report: FleetReport) -> str:
    """Return begin and end of the window."""
    return f"{moment(report.since)} to {moment(report.until)}"


def hours(secs: float | None) -> str:
    """Return seconds in hours; in three digits below 100."""
    return _three_digits(None if secs is None else secs / 3600.0)


def _time(report: FleetReport) -> Section:
    secs, total = report.total.secs, report.total.device_secs
    return _section(
        "Where the time went",
        [cause for cause in (*CAUSES, *sorted(secs.keys() - CAUSES)) if secs.get(cause, 0.0) >= _LEAST_SECS],
        {
            "cause": cause_name,
            "share": lambda cause: share(secs[cause] / total),
            "device hours": lambda cause: hours(secs[cause]),
            "what it is": lambda cause: CAUSES[cause][1] if cause in CAUSES else "",
        },
        texts=("cause", "what it is"),
    )


def _groups(report: FleetReport, most_rows: int) -> Section:
    return _section(
        f"By {report.by}",
        report.groups,
        {
            report.by or "": lambda usage: usage.key if usage.key is not None else "not known",
            "runs": lambda usage: count(usage.runs),
            "device hours": lambda usage: hours(usage.device_secs),
            "goodput": lambda usage: share(usage.goodput),
            "hours lost": lambda usage: hours(usage.lost_device_secs),
            "mostly": _mostly,
            "failures": lambda usage: count(usage.failures.failures),
            "MTTF": lambda usage: duration(usage.failures.mttf_secs),
        },
        texts=(report.by or "", "mostly"),
        most_rows=most_rows,
    )


def _failures(report: FleetReport) -> Section:
    every = report.total.failures
    if not every.alive_secs:
        return Section("Failures")
    reasons = listed([f"{number:,} {reason}" for reason, number in every.by_reason.items()])
    rows = [("all", report.total.runs, every)]
    if len(report.sizes) > 1:
        rows += [(_size(size.devices_low, size.devices_high), size.runs, size.failures) for size in report.sizes]
    return _section(
        "Failures",
        rows,
        {
            "devices": lambda row: row[0],
            "runs": lambda row: count(row[1]),
            "failures": lambda row: count(row[2].failures),
            "hours run": lambda row: hours(row[2].alive_secs),
            "MTTF": lambda row: duration(row[2].mttf_secs),
            "per 1,000 device days": lambda row: _three_digits(row[2].per_1000_device_days),
        },
        said=(
            f"{counted(every.failures, 'unplanned end')}{f': {reasons}' if reasons else ''}.",
            "MTTF is the time that runs ran, divided by their failures.",
        ),
        texts=("devices",),
    )


def _hosts(report: FleetReport, most_rows: int) -> Section:
    title = "Hosts that fail more often than others"
    shown = [host for host in report.hosts if host.is_suspect]
    if not report.hosts:
        return Section(title)
    rule = (
        f"a host is suspect if {SUSPECT_RUNS} runs or more failed there, {SUSPECT_FACTOR:g} times as often as runs of "
        "the same size on all hosts"
    )
    if not shown:
        return Section(title, (f"None of {counted(report.hosts_tested, 'host')}: {rule}.",))
    return _section(
        title,
        shown,
        {
            "host": lambda host: host.host,
            "failures": lambda host: count(host.failures),
            "expected": lambda host: _three_digits(host.expected),
            "runs": lambda host: count(host.runs),
            "hours run": lambda host: hours(host.alive_secs),
        },
        said=(f"{len(shown):,} of {counted(report.hosts_tested, 'host')}: {rule}.",),
        texts=("host",),
        most_rows=most_rows,
    )


def _costliest(report: FleetReport, most_rows: int) -> Section:
    return _section(
        "The costliest runs",
        report.costliest,
        {
            "run": lambda cost: cost.run,
            "user": lambda cost: cost.labels.get("user", UNKNOWN),
            "devices": lambda cost: count(cost.devices),
            "device hours": lambda cost: hours(cost.device_secs),
            "hours lost": lambda cost: hours(cost.lost_device_secs),
            "goodput": lambda cost: share(cost.goodput),
            "mostly": lambda cost: cause_name(cost.cause),
            "failures": lambda cost: count(cost.failures),
        },
        texts=("run", "user", "mostly"),
        most_rows=most_rows,
    )


def _checkpoints(report: FleetReport, most_rows: int) -> Section:
    found = report.checkpoints
    if not report.total.device_secs:
        return Section("Checkpoints")
    saving, repeating = found.save_device_secs, found.recomputed_device_secs
    said = [
        f"Training waited {hours(saving)} device hours for saves, and repeated steps for {hours(repeating)}: "
        f"{share((saving + repeating) / report.total.device_secs)} in all."
    ]
    if found.runs:
        said.append(
            f"Both are expected to cost {hours(found.present_device_secs)} device hours at the present intervals of "
            f"{counted(found.runs, 'run')}, and {hours(found.recommended_device_secs)} at the recommended ones."
        )
    return _section(
        "Checkpoints",
        found.worst,
        {
            "run": lambda cost: cost.run,
            "saves every": lambda cost: duration(cost.present_interval_secs),
            "recommended": lambda cost: duration(cost.recommended_interval_secs),
            "a save blocks": lambda cost: duration(cost.save_cost_secs),
            "fails every": lambda cost: duration(cost.mtbf_secs) + (" (its size)" if cost.is_pooled else ""),
            "costs now": lambda cost: share(cost.present_cost_ratio),
            "then": lambda cost: share(cost.recommended_cost_ratio),
            "device hours less": lambda cost: hours(cost.avoidable_device_secs),
        },
        said=said,
        texts=("run",),
        most_rows=most_rows,
    )


def _unwatched(report: FleetReport, most_rows: int) -> Section:
    said = []
    if report.alertmanagers is not None and report.alert_rules is not None:
        said = [
            f"Prometheus evaluates {counted(report.alert_rules, 'alert rule')} of Supervisor, and sends alerts to "
            f"{counted(report.alertmanagers, 'Alertmanager')}."
        ]
        if not (report.alert_rules and report.alertmanagers):
            said.append("So no alert of any run reaches a person.")
    elif report.unwatched:
        said = [
            "These can be seen in the logdir. Ask a Prometheus with --prometheus URL whether alerts reach a person."
        ]
    return _section(
        "Unwatched runs",
        report.unwatched,
        {
            "run": lambda run: run.run,
            "since": lambda run: moment(run.since),
            "why": lambda run: _WHY[run.why],
        },
        said=said,
        texts=("run", "since", "why"),
        most_rows=most_rows,
    )


def _section(
    title: str,
    items: Iterable[Row],
    columns: Mapping[str, Callable[[Row], str]],
    *,
    said: Sequence[str] = (),
    texts: Sequence[str] = (),
    most_rows: int | None = None,
) -> Section:
    found = list(items)
    shown = found[:most_rows]
    cells = {heading: [cell(item) for item in shown] for heading, cell in columns.items()}
    known = {heading: made for heading, made in cells.items() if any(text not in ("", UNKNOWN) for text in made)}
    return Section(
        title,
        tuple(said),
        tuple(known),
        tuple(zip(*known.values(), strict=True)),
        len(found) - len(shown),
        frozenset(texts),
    )


def cause_name(cause: str) -> str:
    """Return the name of a bucket for people."""
    return CAUSES[cause][0] if cause in CAUSES else cause.replace("_", " ")


def _mostly(usage: Usage) -> str:
    lost = {bucket: secs for bucket, secs in usage.secs.items() if bucket != "productive" and secs > 0}
    return cause_name(max(lost, key=lost.__getitem__)) if lost else UNKNOWN


def _size(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _three_digits(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

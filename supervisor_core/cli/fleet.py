"""A fleet's report: `sections` of sentences and tables; `show` prints them, `fleet_page` makes one HTML file of them,
without script and without network."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich.text import Text

from supervisor_core.base.log import policy_digest, printable
from supervisor_core.cli.text import SHOWN_ROWS, UNBOUNDED, Fitted, Output, known, literal, moment
from supervisor_core.run.judge.fleet_report import SUSPECT_FACTOR, SUSPECT_RUNS, FleetReport, Usage
from supervisor_core.run.model.words import UNKNOWN, count, counted, duration, listed, share

CAUSES: Mapping[str, tuple[str, str]] = {
    "productive": ("Productive", "Steps that were kept."),
    "program_startup": ("Starting", "From a session's start until it restores or trains."),
    "checkpoint_restore": ("Restoring", "Reading a checkpoint."),
    "unproductive_checkpoint_save": ("Blocked by saves", "Training waited for a checkpoint."),
    "wasted_progress_from_disruption": (
        "Wasted",
        "Steps lost with a session, or after a loss that was not finite.",
    ),
    "infrastructure_recovery_from_disruption": ("Downtime", "From the end of a session to the start of the next."),
    "stall": ("Stalled", "No progress for longer than the hang timeout."),
    "silent": ("Silent", "The process did not run: stopped, or its machine frozen."),
    "at_risk": ("At risk", "Steps that are in no checkpoint."),
    "other": ("Other", "Evaluating, stopping, and time with no record."),
}
"""Names and meanings of the buckets, as the tab has them."""

_LEAST_SECS = 1.0
"""Device seconds of a cause that is shown."""

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
            "failures": lambda usage: count(usage.failures),
            "MTTF": lambda usage: duration(usage.mttf_secs),
        },
        texts=(report.by or "", "mostly"),
        most_rows=most_rows,
    )


def _failures(report: FleetReport) -> Section:
    total = report.total
    if not total.alive_secs:
        return Section("Failures")
    reasons = listed([f"{number:,} {reason}" for reason, number in total.by_reason.items()])
    mttf, often = duration(total.mttf_secs), _three_digits(total.per_1000_device_days)
    return Section(
        "Failures",
        (
            f"{counted(total.failures, 'unplanned end')}{f': {reasons}' if reasons else ''}.",
            f"MTTF, the time that runs ran divided by their failures: {mttf}; {often} per 1,000 device days.",
        ),
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
            "run": lambda usage: usage.key or "",
            "device hours": lambda usage: hours(usage.device_secs),
            "hours lost": lambda usage: hours(usage.lost_device_secs),
            "goodput": lambda usage: share(usage.goodput),
            "mostly": _mostly,
            "failures": lambda usage: count(usage.failures),
        },
        texts=("run", "mostly"),
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
    cells = known(shown, columns)
    return Section(
        title,
        tuple(said),
        tuple(cells),
        tuple(zip(*cells.values(), strict=True)),
        len(found) - len(shown),
        frozenset(texts),
    )


def cause_name(cause: str) -> str:
    """Return the name of a bucket for people."""
    return CAUSES[cause][0] if cause in CAUSES else cause.replace("_", " ")


def _mostly(usage: Usage) -> str:
    lost = {bucket: secs for bucket, secs in usage.secs.items() if bucket != "productive" and secs > 0}
    return cause_name(max(lost, key=lost.__getitem__)) if lost else UNKNOWN


def _three_digits(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# The terminal.


def show(report: FleetReport, place: str) -> None:
    """Print a report to standard output.

    Args:
        report: the report.
        place: what it is of, as the logdirs are called.
    """
    out = Output(highlight=False)
    if not out.is_terminal:
        out = Output(highlight=False, width=UNBOUNDED)
    out.print(Text(printable(f"{place}: {window(report)}"), style="bold"))
    for sentence in summary(report):
        out.print(Text(sentence))
    for section in sections(report, SHOWN_ROWS):
        _show(out, section)


def _show(out: Output, section: Section) -> None:
    out.print()
    out.print(Text(printable(section.title), style="bold"))
    for sentence in section.sentences:
        out.print(Text(printable(sentence)))
    if section.rows:
        columns = zip(section.headings, zip(*section.rows, strict=True), strict=True)
        cells = {literal(heading): list(map(literal, column)) for heading, column in columns}
        out.print(Fitted(cells, numbers=cells.keys() - section.texts))
    if section.left_out:
        out.print(Text(f"and {section.left_out:,} more: --json has all", style="dim"))


# One HTML file.

MOST_ROWS = 200
"""Of one table: with names of any length the file stays below 10 MB."""
_MOST_CHARACTERS = 300
"""Of one cell."""

_STYLE = """
:root { color-scheme: light dark; --text: #1c2127; --muted: #59626e; --border: #d5d9e0; --panel: #f5f6f8;
  --background: #fff; --accent: #1558b8 }
body { margin: 0 auto; max-width: 72rem; padding: 16px 20px 48px; background: var(--background); color: var(--text);
  font: .875rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums }
h1 { font-size: 1.125rem; margin: 0; overflow-wrap: anywhere }
h2 { font-size: .9375rem; margin: 28px 0 4px }
p, dl { margin: 4px 0; max-width: 60rem }
.muted, footer { color: var(--muted) }
.big { font-size: 1.5rem; font-weight: 600 }
.box { overflow-x: auto; border: 1px solid var(--border); border-radius: 8px; margin-top: 8px }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 4px 12px; border-bottom: 1px solid var(--border); vertical-align: top }
th { background: var(--panel); color: var(--muted); font-weight: 600; white-space: nowrap }
td { overflow-wrap: anywhere }
.number { text-align: right; white-space: nowrap }
tr:last-child td { border-bottom: 0 }
a { color: var(--accent) }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px }
@media screen and (prefers-color-scheme: dark) { :root { --text: #e7e9ec; --muted: #a9b1bc;
  --border: #454b54; --panel: #282b30; --background: #1f2125; --accent: #8ab8ff } }
@media print { @page { margin: 12mm } :root { color-scheme: light } body { padding: 0; font-size: .6875rem;
    print-color-adjust: exact }
  h2 { break-after: avoid } tr { break-inside: avoid } .box { overflow: visible } th, td { padding: 2px 5px } }
"""
_FORMULAS = (
    (
        "Goodput",
        "Productive device hours divided by all of the runs' wall time: the effective training time ratio, ETTR.",
    ),
    ("Device hours", "Wall time of a run times its devices; where their number is unknown, times its processes."),
    ("MTTF", "Time in which runs ran, divided by their failures."),
    ("Failures", "Sessions that were lost or ended by an error. A loop of crashes without a step counts once."),
    ("Expected failures", "Those of all runs of a size, times the host's share of the hours of that size."),
)


def fleet_page(report: FleetReport, place: str) -> bytes:
    """Return the page.

    Args:
        report: the report.
        place: what it is of, as the logdirs are called.
    """
    policy = (
        f"default-src 'none'; style-src '{policy_digest(_STYLE)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    body = "".join(_body(report, place))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{_escaped(f'{place} - Supervisor fleet report')}</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    ).encode()


def _body(report: FleetReport, place: str) -> Iterator[str]:
    yield f"<header>\n<h1>Fleet report: {_escaped(place)}</h1>\n"
    yield f"<p class=muted>{_escaped(window(report))}</p>\n</header>\n<main>\n"
    if report.total.goodput is not None:
        yield f"<p><span class=big>{share(report.total.goodput)}</span> goodput</p>\n"
    yield from (f"<p>{_escaped(sentence)}</p>\n" for sentence in summary(report))
    for number, section in enumerate(sections(report, MOST_ROWS)):
        yield from _html_section(section, f"section-{number}")
    yield "</main>\n<footer>\n<h2>How it is computed</h2>\n<dl>\n"
    yield from (f"<dt>{_escaped(name)}</dt><dd>{_escaped(meaning)}</dd>\n" for name, meaning in _FORMULAS)
    yield "</dl>\n</footer>\n"


def _html_section(section: Section, anchor: str) -> Iterator[str]:
    yield f'<section>\n<h2 id="{anchor}">{_escaped(section.title)}</h2>\n'
    yield from (f"<p>{_escaped(sentence)}</p>\n" for sentence in section.sentences)
    if section.rows:
        yield f'<div class=box tabindex=0 role=region aria-labelledby="{anchor}"><table>\n<thead><tr>'
        sides = ["" if heading in section.texts else " class=number" for heading in section.headings]
        for heading, side in zip(section.headings, sides, strict=True):
            yield f"<th scope=col{side}>{_escaped(heading)}</th>"
        yield "</tr></thead>\n<tbody>\n"
        for row in section.rows:
            cells = (f"<td{side}>{_escaped(cell)}</td>" for cell, side in zip(row, sides, strict=True))
            yield f"<tr>{''.join(cells)}</tr>\n"
        yield "</tbody></table></div>\n"
    if section.left_out:
        yield f"<p class=muted>And {section.left_out:,} more: --json has all.</p>\n"
    yield "</section>\n"


def _escaped(text: str) -> str:
    """Return a text of any origin as text of the page, cut."""
    shown = printable(text)
    return html.escape(shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]} ...")

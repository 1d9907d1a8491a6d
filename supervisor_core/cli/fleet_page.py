"""`fleet_page`: a fleet's report as one HTML file, without script and without network."""

from __future__ import annotations

import html
from collections.abc import Iterator

from supervisor_core.cli.fleet_sections import CAUSES, Section, cause_name, sections, summary, window
from supervisor_core.log import policy_digest, printable
from supervisor_core.run.fleet import FleetReport
from supervisor_core.run.words import share

MOST_ROWS = 200
"""Of one table: with names of any length the file stays below 10 MB."""
_MOST_CHARACTERS = 300
"""Of one cell."""

_COLOURS = {
    "productive": ("#3aa667", "#46b374"),
    "program_startup": ("#8db4e8", "#86aee2"),
    "checkpoint_restore": ("#4a7fcb", "#5d8fda"),
    "unproductive_checkpoint_save": ("#a98ad6", "#ac8fd8"),
    "wasted_progress_from_disruption": ("#dd5a48", "#e5695a"),
    "infrastructure_recovery_from_disruption": ("#8c4a3c", "#b0705f"),
    "stall": ("#e0a32e", "#dca83f"),
    "at_risk": ("#e89a8e", "#f0a79c"),
}
"""By bucket, in the light and in the dark, as in the tab; all others are grey."""
_STYLE = """
:root { color-scheme: light dark; --text: #1c2127; --muted: #59626e; --border: #d5d9e0; --panel: #f5f6f8;
  --background: #fff; --accent: #1558b8; --other: #b4bcc6 }
body { margin: 0 auto; max-width: 72rem; padding: 16px 20px 48px; background: var(--background); color: var(--text);
  font: .875rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums }
h1 { font-size: 1.125rem; margin: 0; overflow-wrap: anywhere }
h2 { font-size: .9375rem; margin: 28px 0 4px }
p, dl { margin: 4px 0; max-width: 60rem }
.muted, footer { color: var(--muted) }
.big { font-size: 1.5rem; font-weight: 600 }
.bar { display: flex; height: 22px; gap: 1px; border-radius: 4px; overflow: hidden; margin: 8px 0 }
.bar span { min-width: 2px; background: var(--other) }
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
  --border: #454b54; --panel: #282b30; --background: #1f2125; --accent: #8ab8ff; --other: #7d8692 } }
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
    ("MTTF", "Time in which runs of a size ran, divided by their failures."),
    ("Failures", "Sessions that were lost or ended by an error. A loop of crashes without a step counts once."),
    ("Expected failures", "Those of all runs of a size, times the host's share of the hours of that size."),
    ("Recommended interval", "The square root of 2 C M: C is what a save blocks, M the mean time between failures."),
)
_SOURCES = (
    ("https://arxiv.org/abs/2410.21680", "arXiv 2410.21680", "Kokolis et al.: ETTR, MTTF by the size of a job"),
    ("https://arxiv.org/abs/2509.16293", "arXiv 2509.16293", "Wan et al.: ETTR over a window"),
)


def fleet_page(report: FleetReport, place: str) -> bytes:
    """Return the page.

    Args:
        report: the report.
        place: what it is of, as the logdirs are called.
    """
    parts = _parts(report)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src '{policy_digest(_STYLE)}' '{policy_digest(parts)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    body = "".join(_body(report, place))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{_text(f'{place} - Supervisor fleet report')}</title>\n"
        f"<style>{_STYLE}</style>\n<style>{parts}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    ).encode()


def _body(report: FleetReport, place: str) -> Iterator[str]:
    yield f"<header>\n<h1>Fleet report: {_text(place)}</h1>\n"
    yield f"<p class=muted>{_text(window(report))}</p>\n</header>\n<main>\n"
    if report.total.goodput is not None:
        yield f"<p><span class=big>{share(report.total.goodput)}</span> goodput</p>\n{_bar(report)}"
    yield from (f"<p>{_text(sentence)}</p>\n" for sentence in summary(report))
    for number, section in enumerate(sections(report, MOST_ROWS)):
        yield from _section(section, f"section-{number}")
    yield "</main>\n<footer>\n<h2>How it is computed</h2>\n<dl>\n"
    yield from (f"<dt>{_text(name)}</dt><dd>{_text(meaning)}</dd>\n" for name, meaning in _FORMULAS)
    yield "</dl>\n<ul>\n"
    yield from (f'<li><a href="{url}">{name}</a> {_text(what)}</li>\n' for url, name, what in _SOURCES)
    yield "</ul>\n</footer>\n"


def _bar(report: FleetReport) -> str:
    """Return the shares of the time as a bar; the table below it says the same."""
    total = report.total.device_secs
    parts = [
        f'<span class="part-{bucket}" title="{_text(cause_name(bucket))}: {share(secs / total)}"></span>'
        for bucket in CAUSES
        if (secs := report.total.secs.get(bucket, 0.0)) > 0
    ]
    return f"<div class=bar aria-hidden=true>{''.join(parts)}</div>\n"


def _section(section: Section, anchor: str) -> Iterator[str]:
    yield f'<section>\n<h2 id="{anchor}">{_text(section.title)}</h2>\n'
    yield from (f"<p>{_text(sentence)}</p>\n" for sentence in section.sentences)
    if section.rows:
        yield f'<div class=box tabindex=0 role=region aria-labelledby="{anchor}"><table>\n<thead><tr>'
        sides = ["" if heading in section.texts else " class=number" for heading in section.headings]
        for heading, side in zip(section.headings, sides, strict=True):
            yield f"<th scope=col{side}>{_text(heading)}</th>"
        yield "</tr></thead>\n<tbody>\n"
        for row in section.rows:
            cells = (f"<td{side}>{_text(cell)}</td>" for cell, side in zip(row, sides, strict=True))
            yield f"<tr>{''.join(cells)}</tr>\n"
        yield "</tbody></table></div>\n"
    if section.left_out:
        yield f"<p class=muted>And {section.left_out:,} more: --json has all.</p>\n"
    yield "</section>\n"


def _parts(report: FleetReport) -> str:
    """Return the style of the bar's parts: the policy allows no style within an element."""
    widths = "".join(
        f".bar .part-{bucket}{{flex:{secs:.6g}}}" for bucket, secs in report.total.secs.items() if bucket in CAUSES
    )
    light = "".join(f".bar .part-{bucket}{{background:{colour}}}" for bucket, (colour, _) in _COLOURS.items())
    dark = "".join(f".bar .part-{bucket}{{background:{colour}}}" for bucket, (_, colour) in _COLOURS.items())
    return f"{widths}{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def _text(text: str) -> str:
    """Return a text of any origin as text of the page, cut."""
    shown = printable(text)
    return html.escape(shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]} ...")

"""A fleet's report on the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from supervisor_core.cli.fleet_sections import Section, sections, summary, window
from supervisor_core.cli.text import SHOWN_ROWS, Output
from supervisor_core.log import printable
from supervisor_core.run.fleet import FleetReport

_UNBOUNDED = 100_000
"""Columns of a pipe: there lines are as long as they need to be."""


def show(report: FleetReport, place: str) -> None:
    """Print a report to standard output.

    Args:
        report: the report.
        place: what it is of, as the logdirs are called.
    """
    out = Output(highlight=False)
    if not out.is_terminal:
        out = Output(highlight=False, width=_UNBOUNDED)
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
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for heading in section.headings:
            is_text = heading in section.texts
            table.add_column(
                Text(printable(heading)), justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
            )
        for row in section.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        out.print(table)
    if section.left_out:
        out.print(Text(f"and {section.left_out:,} more: --json has all", style="dim"))

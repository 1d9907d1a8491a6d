"""`Row`: one measurement beside its peers and its goal; and the two ways of showing rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    area: str
    what: str
    unit: str
    ours: float | None
    peers: dict[str, float]
    goal: str
    met: bool | None
    note: str = ""


def print_table(rows: Iterable[Row]) -> None:
    """Print rows as they come in, with each peer as a multiple of ours."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=True, highlight=False)
    for title, justify in (("area", "left"), ("what", "left"), ("ours", "right"), ("peers (of ours)", "left")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    table.add_column("goal")
    table.add_column("note", style="dim")
    colours = {True: "green", False: "red", None: "default"}
    for row in rows:
        peers = "\n".join(_peers(row))
        goal = f"[{colours[row.met]}]{row.goal}{_verdict(row)}"
        table.add_row(row.area, row.what, _number(row.ours, row.unit), peers, goal, row.note)
    Console().print(table)


def to_markdown(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| what | ours | peers (of ours) | goal | note |", "|---|---:|---|---|---|"]
    for row in rows:
        cells = (
            row.what,
            _number(row.ours, row.unit),
            "<br>".join(_peers(row)),
            row.goal + _verdict(row),
            row.note,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _peers(row: Row) -> Iterator[str]:
    for name, value in row.peers.items():
        ratio = f" (x{value / row.ours:.3g})" if row.ours else ""
        yield f"{name}: {_number(value, row.unit)}{ratio}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.3g} {unit}"


def _verdict(row: Row) -> str:
    return {True: ": met", False: ": missed", None: ""}[row.met]

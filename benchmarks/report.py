"""`Row`: one measurement beside its peers and its goal."""

from __future__ import annotations

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

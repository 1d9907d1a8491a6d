"""Draws the picture of docs/architecture.md from the imports of the packages: python scripts/architecture.py [--check]

A box is a package. An arrow says that one imports another; one that follows from others is left out. The script knows
where each box stands and what it is for; a package that it does not know, or an arrow that points upwards, is an error.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"

WIDTH, HEIGHT = 200, 66
COLUMN, ROW = 236, 104
LEFT, TOP = 24, 92
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


class Box(NamedTuple):
    """Where a package stands, in columns and rows, and what it is for, in two lines."""

    column: float
    row: int
    role: tuple[str, str]


BOXES = {
    "adapters": Box(0, 0, ("Keras, PyTorch, Lightning,", "Transformers, JAX")),
    "tf1": Box(1, 0, ("Supervisor and", "MonitoredTrainingSession")),
    "cli": Box(2, 0, ("the command", "tb-supervisor")),
    "tb_plugin": Box(3, 0, ("the TensorBoard tab:", "routes, scalar store")),
    "training": Box(0, 1, ("supervise(): a training", "of any framework")),
    "restarter": Box(1.2, 2, ("starts a training again", "that died or hangs")),
    "engine": Box(0, 3, ("one session: begin, signals,", "stalls, records, end")),
    "notify": Box(0.9, 4, ("events of runs, and how", "they are sent")),
    "metrics": Box(1.88, 4, ("metric table, servers, the", "exporter, alert rules")),
    "history": Box(2.85, 4, ("tables of runs in files:", "JSON lines, Parquet")),
    "run": Box(2.85, 5, ("the run model: a logdir in,", "states and timeline out")),
    "events": Box(2.85, 6, ("events file: writer, reader,", "telemetry records")),
    "checkpoint": Box(0, 6, ("checkpoints: verify, choose,", "delete, set aside")),
    "process": Box(0, 7, ("one process from outside:", "identity, files in memory")),
    "storage": Box(1.45, 7, ("local files, object stores:", "append, replace, sync, lock")),
}
SMALL = ("base",)
"""What everything imports: it stands in a line of its own, without arrows."""

ADAPTERS = ("keras", "torch", "lightning", "transformers", "jax")
"""Packages that share a box."""

PROGRAMS = {
    "your training": "adapters",
    "with TensorFlow 1's API": "tf1",
    "shell": "cli",
    "TensorBoard, frontend/": "tb_plugin",
}
FILES = ("storage", "logdir: events, checkpoints, liveness")


def main() -> int:
    """Write the picture; with ``--check``, only say whether it is up to date."""
    picture = draw(reduced(imports()))
    if "--check" in sys.argv[1:]:
        if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
            print("docs/images/architecture.svg is out of date; run: python scripts/architecture.py", file=sys.stderr)
            return 1
        return 0
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


def imports() -> dict[str, set[str]]:
    """Return which package imports which, without the single modules.

    Raises:
        SystemExit: if a package has no place in the picture.
    """
    edges: dict[str, set[str]] = {}
    for package in ("supervisor_core", "tb_plugin"):
        for path in sorted((ROOT / package).rglob("*.py")):
            source = part_of(path.relative_to(ROOT).parts)
            if source == "__init__" or source in SMALL:
                continue
            if source not in BOXES:
                sys.exit(f"{path}: no place in the picture; give {source!r} a box in scripts/architecture.py")
            targets = {part_of(name.split(".")) for name in imported(path)}
            edges.setdefault(source, set()).update(targets & set(BOXES) - {source})
    for source, targets in edges.items():
        for target in targets:
            if BOXES[target].row < BOXES[source].row:
                sys.exit(f"{source} imports {target}, which stands above it")
    return edges


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names of this project's that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.startswith(("supervisor_core.", "tb_plugin.")))


def part_of(parts: tuple[str, ...] | list[str]) -> str:
    """Return the package, or single module, that a path or dotted name belongs to."""
    name = "tb_plugin" if parts[0] == "tb_plugin" else parts[1].removesuffix(".py")
    return "adapters" if name in ADAPTERS else name


def reduced(edges: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the arrows that do not follow from others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = list(edges.get(start, ()))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += edges.get(name, ())
        return found

    return sorted(
        (source, target)
        for source, targets in edges.items()
        for target in targets
        if not any(target in reached(other) for other in targets - {target})
    )


def draw(arrows: list[tuple[str, str]]) -> str:
    """Return the picture as SVG."""
    rows = max(box.row for box in BOXES.values()) + 1
    bottom = TOP + rows * ROW
    width, height = LEFT * 2 + round(max(box.column for box in BOXES.values()) * COLUMN) + WIDTH, bottom + 92
    out = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"{FONT} role='img' aria-label='The packages and what they import'>",
        "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
        "<path d='M0 0 L8 4 L0 8 z' fill='#78909c'/></marker></defs>",
        f"<rect width='{width}' height='{height}' rx='8' fill='#ffffff'/>",
    ]
    for source, target in arrows:
        out.append(_curve(*_below(source), *_above(target)))
    for text, name in PROGRAMS.items():
        x, y = _above(name)
        out.append(_text(x, y - 44, text, size=13, fill="#546e7a"))
        out.append(_curve(x, y - 34, x, y))
    name, text = FILES
    x, y = _below(name)
    out.append(_curve(x, y, x, bottom - 2))
    out.append(_plate(x - 1.3 * WIDTH / 2, bottom, "#fff8e1", "#ffb300", 30, width=1.3 * WIDTH))
    out.append(_text(x, bottom + 20, text, size=13, fill="#37474f"))
    for name, box in BOXES.items():
        x, y = LEFT + box.column * COLUMN, TOP + box.row * ROW
        out.append(_plate(x, y, "#e3f2fd", "#1e88e5", HEIGHT))
        out.append(_text(x + WIDTH / 2, y + 21, name, size=14, fill="#0d47a1", weight=600))
        for number, line in enumerate(box.role):
            out.append(_text(x + WIDTH / 2, y + 39 + 16 * number, line, size=12, fill="#37474f"))
    note = f"Modules that many import, without arrows: {', '.join(SMALL)}"
    out.append(_text(LEFT, bottom + 66, note, size=12, fill="#546e7a", anchor="start"))
    return "\n".join([*out, "</svg>", ""])


def _above(name: str) -> tuple[float, float]:
    box = BOXES[name]
    return LEFT + box.column * COLUMN + WIDTH / 2, TOP + box.row * ROW


def _below(name: str) -> tuple[float, float]:
    x, y = _above(name)
    return x, y + HEIGHT


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (y1 + y2) / 2
    path = f"M{x1:g} {y1:g} C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2 - 2:g}"
    return f"<path d='{path}' fill='none' stroke='#78909c' stroke-width='1.5' marker-end='url(#tip)'/>"


def _plate(x: float, y: float, fill: str, line: str, height: int, width: float = WIDTH) -> str:
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height}' rx='6' fill='{fill}' stroke='{line}' "
        "stroke-width='1.5'/>"
    )


def _text(x: float, y: float, text: str, *, size: int, fill: str, weight: int = 400, anchor: str = "middle") -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' font-weight='{weight}' fill='{fill}' text-anchor='{anchor}'>"
        f"{escape(text)}</text>"
    )


if __name__ == "__main__":
    sys.exit(main())

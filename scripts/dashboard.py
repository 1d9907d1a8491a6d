"""Lays out the panels of the Grafana dashboards: python scripts/dashboard.py [--check]

A panel is added to `dashboard.json` or `fleet_dashboard.json`, in `supervisor_core/metrics`, where it is to be read,
with a width and a height (``"gridPos": {"w": 12, "h": 8}``). This gives each panel its place, and a new one its number.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

METRICS = Path(__file__).parents[1] / "supervisor_core" / "metrics"
DASHBOARDS = (METRICS / "dashboard.json", METRICS / "fleet_dashboard.json")
COLUMNS = 24


def laid_out(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the panels with their places: each as high up as it fits below those before it, then as far left; a row
    begins below all of them.

    Args:
        panels: in their order, each with its size.

    Raises:
        ValueError: if a panel is wider than the dashboard, or has no size.
    """
    heights = [0] * COLUMNS
    numbers = {panel["id"] for panel in panels if "id" in panel}
    placed = []
    for panel in panels:
        size = panel.get("gridPos", {})
        width, height = size.get("w", 0), size.get("h", 0)
        if not 0 < width <= COLUMNS or height < 1:
            raise ValueError(
                f"The panel {panel.get('title')!r} has the size {size}; expected w from 1 to 24, h from 1."
            )
        tops = [max(heights[x : x + width]) for x in range(COLUMNS - width + 1)]
        y = max(heights) if panel["type"] == "row" else min(tops)
        x = 0 if panel["type"] == "row" else tops.index(y)
        heights[x : x + width] = [y + height] * width
        number = panel.get("id") or max(numbers, default=0) + 1
        numbers.add(number)
        placed.append({**panel, "id": number, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
    return placed


def main() -> int:
    """Write the dashboards again, or check them."""
    for path in DASHBOARDS:
        present = path.read_text()
        content = json.loads(present)
        content["panels"] = laid_out(content["panels"])
        text = json.dumps(content, indent=2) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif text != present:
            print(f"The panels of {path.name} are not laid out; run: python scripts/dashboard.py", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

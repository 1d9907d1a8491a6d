"""The Grafana dashboard, ``dashboard.json`` beside this file: the fleet, one run and its cluster, the exporter.

It asks for what is served, not for what the rules record, so it works without them. Trainer and exporter serve the same
names: every query takes the maximum by run, or it would show both. To change it, import the file into Grafana, edit it
there, and export it as JSON.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def dashboard() -> dict[str, Any]:
    """Return the dashboard, as Grafana imports it (11 and later).

    Example:
        >>> dashboard()["title"]
        'Supervised training'
    """
    content: dict[str, Any] = json.loads(files(__package__).joinpath("dashboard.json").read_text(encoding="utf-8"))
    return content

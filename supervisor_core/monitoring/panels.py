"""Panels of a Grafana dashboard, as Grafana stores them, but for their ids and places, which the dashboard gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""Whichever Prometheus is chosen at the top of the dashboard."""

Panel = dict[str, Any]

Placeable = tuple[Panel, int, int]
"""A panel, its width in 24ths of the page, and its height in Grafana's units."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query of a panel."""

    expr: str
    legend: str = ""
    instant: bool = False


def time_series(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    stacking: str = "none",
    minimum: float | None = 0,
    bars: bool = False,
) -> Panel:
    """Return lines (or bars) over time.

    Args:
        title: what it shows.
        description: what to read from it.
        queries: what it asks for.
        unit: Grafana's name of the unit.
        stacking: ``none``, ``normal`` or ``percent``.
        minimum: where the axis begins; None lets Grafana choose.
        bars: whether to draw bars.
    """
    custom = {
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 70 if stacking != "none" or bars else 8,
        "lineWidth": 0 if bars else 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": stacking},
    }
    defaults: dict[str, Any] = {"color": {"mode": "palette-classic"}, "custom": custom, "unit": unit}
    if minimum is not None:
        defaults["min"] = minimum
    options = {
        "legend": {"calcs": ["lastNotNull"], "displayMode": "table", "placement": "right", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel("timeseries", title, description, queries, defaults, options)


def state_timeline(title: str, description: str, queries: Sequence[Query], texts: dict[int, tuple[str, str]]) -> Panel:
    """Return rows of states over time.

    Args:
        title: what it shows.
        description: what to read from it.
        queries: what it asks for.
        texts: value -> its text and its colour.
    """
    defaults = {
        "color": {"mode": "fixed", "fixedColor": "text"},
        "custom": {"fillOpacity": 80, "lineWidth": 0},
        "mappings": _mappings(texts),
    }
    options = {
        "alignValue": "left",
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return _panel("state-timeline", title, description, queries, defaults, options)


def stat(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str = "short",
    steps: Sequence[tuple[float, str]] = (),
    decimals: int | None = None,
) -> Panel:
    """Return one number.

    Args:
        title: what it shows.
        description: what to read from it.
        query: what it asks for.
        unit: Grafana's name of the unit.
        steps: from which value on which colour; below the first it is green.
        decimals: how many to show; None lets Grafana choose.
    """
    defaults: dict[str, Any] = {"unit": unit, "color": {"mode": "thresholds"}, "thresholds": _thresholds(steps)}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "showPercentChange": False,
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
        "wideLayout": True,
    }
    return _panel("stat", title, description, [query], defaults, options)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table: one query, one value per row."""

    title: str
    expr: str
    unit: str = "short"
    steps: Sequence[tuple[float, str]] = ()
    texts: tuple[tuple[int, str, str], ...] = ()
    """Value, its text, its colour."""


def table(title: str, description: str, columns: Sequence[Column], *, by: str, link: tuple[str, str] | None) -> Panel:
    """Return a table with a row for each value of a label.

    Args:
        title: what it shows.
        description: what to read from it.
        columns: what it asks for.
        by: the label, which every query has, and is the first column.
        link: the title of a link from a value of the label, and where it leads; Grafana's variables are filled in.
    """
    queries = [Query(expr=column.expr, instant=True) for column in columns]
    overrides = []
    if link is not None:
        title_of_link, url = link
        overrides.append(_override(by, [{"id": "links", "value": [{"title": title_of_link, "url": url}]}]))
    for column in columns:
        properties: list[dict[str, Any]] = [{"id": "unit", "value": column.unit}]
        if column.steps:
            properties.append({"id": "thresholds", "value": _thresholds(column.steps)})
        if column.texts:
            texts = {value: (text, color) for value, text, color in column.texts}
            properties.append({"id": "mappings", "value": _mappings(texts)})
        if column.steps or column.texts:
            properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
        overrides.append(_override(column.title, properties))
    defaults = {"custom": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}}
    options = {
        "cellHeight": "sm",
        "footer": {"countRows": False, "reducer": ["sum"], "show": False},
        "frameIndex": 0,
        "showHeader": True,
    }
    panel = _panel("table", title, description, queries, defaults, options)
    for target in panel["targets"]:
        target["format"] = "table"
    panel["fieldConfig"]["overrides"] = overrides
    names = {
        f"Value #{target['refId']}": column.title for target, column in zip(panel["targets"], columns, strict=True)
    }
    panel["transformations"] = [
        {"id": "joinByField", "options": {"byField": by, "mode": "outer"}},
        {"id": "filterFieldsByName", "options": {"include": {"names": [by, *names]}}},
        {"id": "organize", "options": {"excludeByName": {}, "indexByName": {}, "renameByName": names}},
    ]
    return panel


def row(title: str) -> Panel:
    """Return a heading under which panels stand."""
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Query],
    defaults: dict[str, Any],
    options: dict[str, Any],
) -> Panel:
    targets = []
    for number, query in enumerate(queries):
        target: dict[str, Any] = {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": query.expr}
        target |= {"instant": query.instant, "range": not query.instant}
        target["legendFormat"] = query.legend or "__auto"
        targets.append(target)
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def _thresholds(steps: Sequence[tuple[float, str]]) -> dict[str, Any]:
    first: list[dict[str, Any]] = [{"color": "green", "value": None}]
    return {"mode": "absolute", "steps": first + [{"color": color, "value": value} for value, color in steps]}


def _mappings(texts: dict[int, tuple[str, str]]) -> list[dict[str, Any]]:
    options = {
        str(value): {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(texts.items())
    }
    return [{"type": "value", "options": options}]


def _override(field: str, properties: list[dict[str, Any]]) -> dict[str, Any]:
    return {"matcher": {"id": "byName", "options": field}, "properties": properties}

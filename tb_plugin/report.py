"""`report_page`: the tab's page of one run, as it is at one moment, as one HTML file that needs no server.

The page is the frontend's script with the answers of the routes in it (http_api.md), so it says what the tab says:

    {"run": <name>, "at": <moment>, "left_out": [<sentence>, ...],
     "whole_points": <most points of a curve that is whole>,
     "answers": {"runs": ..., "run": ..., "threads": ..., "workers": ..., "stalls": ..., "checkpoints": ...,
                 "tags": ...},
     "marks": <base64 of checkpoint_marks>, "scalars": {<tag>: <base64 of scalars>, ...}}

Nothing in it is ever markup: JSON without ``<`` cannot end the element that holds it, and the page's policy allows one
script, by its hash, and no request.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor_core.base.errors import SupervisorError
from supervisor_core.base.log import html_text, policy_digest
from supervisor_core.events.index import RunIndex
from supervisor_core.run.judge.run_json import plain
from supervisor_core.run.model.snapshot import WatchedRun
from tb_plugin.backend import ROUTES, Backend
from tb_plugin.http import Arguments
from tb_plugin.index import events_directory, judged, printable_name
from tb_plugin.run_data import RunView, View, overview_line
from tb_plugin.scalar_store import RunScalars
from tb_plugin.scalars import PLAIN_POINTS_PER_PIXEL
from tb_plugin.static_files import BUILT, ENTRY, NOT_BUILT

_LOG = logging.getLogger("supervisor_core")

MOST_BYTES = 10_000_000
"""Size of the file. What is not a curve is bounded by itself, below; curves get the rest."""
PIXELS = (1_024, 512, 256, 128, 64, 32, 16)
"""Columns that a curve is thinned to: the first of these with which all curves fit."""
_MARK_PIXELS = 512
"""As the tab asks: a mark is wider than a pixel."""
_MOST_SAVES = 1_000
"""Rows of the table of checkpoints; the timeline has all saves."""
_POINT_BYTES, _CURVE_BYTES = 43, 500
"""Of a point in base64, and of a curve besides."""
_PUNCTUATION_BYTES = 5
"""Between a tag and the next one: two commas, a colon, the quotes of the curve."""
_REST_BYTES = 1_000
"""Of what the page says of all curves."""

_HANDED_ON = re.compile(r'from "\./(tab-[A-Z0-9]{8}\.js)"')
"""In ``index.js``: the script that a report has in its page."""

Values = dict[str, Any]


class NotBuiltError(SupervisorError):
    """The frontend is not there; the text says what to do."""


@dataclass(frozen=True)
class Report:
    """A page, and what is not in it."""

    page: bytes
    title: str
    """What the run is called: the logdir itself, ``.``, by its directory's name."""
    left_out: tuple[str, ...]
    """Sentences; the page begins with them."""


def report_page(
    name: str, watched: WatchedRun, at: float, logdir: str, frontend: Path = BUILT, *, most_bytes: int | None = None
) -> Report:
    """Return the page of a run.

    Args:
        name: as the page calls it.
        watched: the run.
        at: wall time of the moment at which the run was looked at.
        logdir: what the name is relative to.
        frontend: the directory of the built frontend.
        most_bytes: size of the page, if what is not a curve leaves room. Default: `MOST_BYTES`.

    Raises:
        NotBuiltError: if the frontend is not there.
    """
    script = _tab_script(frontend)
    moment = _Moment(printable_name(name), watched, at, logdir)
    title = os.path.basename(logdir.rstrip("/")) if name == "." else name
    values, left_out = _bounded(moment)
    if moment.problem is not None:
        left_out.append(moment.problem)
    tags, values["answers"]["tags"]["tags"] = values["answers"]["tags"]["tags"], []
    values |= {"left_out": left_out, "marks": _base64(moment.ask("checkpoint_marks", pixels=_MARK_PIXELS))}
    without_curves = _html(title, script, _json(values))
    values["scalars"], pixels = _curves(moment, tags, (most_bytes or MOST_BYTES) - len(without_curves) - _REST_BYTES)
    curves = values["scalars"]
    values["answers"]["tags"]["tags"] = [tag for tag in tags if tag["tag"] in curves]
    if len(curves) < len(tags):
        left_out.append(f"Curves of {len(tags) - len(curves):,} of {len(tags):,} tags are left out.")
    most = PLAIN_POINTS_PER_PIXEL * pixels
    if any(tag["points"] > most for tag in tags):
        left_out.append(f"Curves of more than {most:,} points are thinned to their extremes, and cannot be smoothed.")
    values["whole_points"] = most
    return Report(_html(title, script, _json(values)), title, tuple(left_out))


class _Moment:
    """What the routes answer from: one run, as it was found, and its scalars, read here and now."""

    def __init__(self, name: str, watched: WatchedRun, at: float, logdir: str) -> None:
        self.name = name
        self.at = at
        self.problem: str | None = None
        try:
            said = judged(watched, at)
        except Exception:  # a fault of ours: the page shows the rest, as the tab does
            _LOG.exception("The run %r could not be judged", name)
            said = None
        directory = events_directory(watched) or watched.directory
        shown = RunView(
            name=name,
            directory=directory,
            watched=watched,
            findings=said,
            held=said or (),  # there is no other look, by which to know how long it lasts
            line=overview_line(name, watched, said, said or ()),
            generation=1,
        )
        self._view = View(generation=1, oldest=1, at=at, logdir=logdir, runs={name: shown}, is_whole=True)
        self._scalars = RunScalars(directory)
        try:
            self._scalars.refresh(lambda path: RunIndex(path, path))
        except Exception as error:  # clients of object stores raise what they like; what was read is shown
            self.problem = f"The scalars of {directory} could not be read in full: {error!r:.1000}."
        self._backend = Backend(self, self)

    def view(self, wait_secs: float = 0.0) -> View:
        """Return the one view."""
        return self._view

    def run(self, directory: str, wait_secs: float) -> RunScalars:
        """Return the scalars."""
        return self._scalars

    def close(self) -> None:
        """Do nothing: no thread was started."""

    def ask(self, route: str, **arguments: object) -> bytes:
        """Return what a route answers of the run."""
        given = {"run": self.name, **{name: str(value) for name, value in arguments.items()}}
        return ROUTES[route](self._backend, Arguments(given, {})).body

    def json(self, route: str, **arguments: object) -> Values:
        """Return the same as values."""
        values: Values = json.loads(self.ask(route, **arguments))
        return values


def _bounded(moment: _Moment) -> tuple[Values, list[str]]:
    """Return the page's values without marks and curves, each list within its bound, and sentences on what is not in
    them."""
    left_out: list[str] = []

    known: set[str] | None = None

    def bounded(
        rows: list[Any], what: str, most_bytes: int, since: str | None = None, of: str = "session"
    ) -> list[Any]:
        of_known = [row for row in rows if known is None or row[of] is None or row[of] in known]
        kept = newest(of_known, most_bytes, since)
        if len(kept) < len(rows):
            left_out.append(f"Of {len(rows):,} {what} the newest {len(kept):,} are here.")
        return kept

    run = moment.json("run")
    run["problems"] = bounded(run["problems"], "places that could not be read", 100_000)
    run["sessions"] = bounded(run["sessions"], "sessions", 1_000_000)
    known = {session["id"] for session in run["sessions"]}
    run["restarts"] = bounded(run["restarts"], "restarts", 500_000, of="to_session")
    run["recoveries"] = bounded(run["recoveries"], "restarts within a session", 500_000)
    run["notices"] = bounded(run["notices"], "notices", 250_000)
    run["silences"] = bounded(run["silences"], "silences", 250_000)
    threads, workers, stalls = moment.json("threads"), moment.json("workers"), moment.json("stalls")
    threads["threads"] = bounded(threads["threads"], "service threads", 2_000_000)
    run["threads"] = list(dict.fromkeys(thread["name"] for thread in threads["threads"]))
    workers["workers"] = bounded(workers["workers"], "workers", 1_000_000, "last_seen")
    stalls["stalls"] = bounded(stalls["stalls"], "stalls", 1_000_000, "since")
    saves = moment.json("checkpoints", limit=_MOST_SAVES)
    saves["checkpoints"] = newest(saves["checkpoints"], 500_000, "at")
    if len(saves["checkpoints"]) < saves["total"]:
        count = len(saves["checkpoints"])
        left_out.append(
            f"Of {saves['total']:,} checkpoints the newest {count:,} are in the table; the timeline has all."
        )
        saves["total"] = count
    tags = moment.json("tags")
    tags["tags"] = [tag for tag in tags["tags"] if tag["tag"]]
    answers = {
        "runs": moment.json("runs"),
        "run": run,
        "threads": threads,
        "workers": workers,
        "stalls": stalls,
        "checkpoints": saves,
        "tags": tags,
    }
    return {"run": moment.name, "at": moment.at, "answers": answers}, left_out


def newest(rows: list[Any], most_bytes: int, since: str | None = None) -> list[Any]:
    """Return the newest rows whose JSON fits, in their order.

    Args:
        rows: oldest first, or in any order.
        most_bytes: of their JSON.
        since: the field with each row's moment; None where the rows are in the order of time.
    """
    order = range(len(rows))[::-1]
    by_age = order if since is None else sorted(order, key=lambda index: rows[index][since] or 0.0, reverse=True)
    kept = set()
    for index in by_age:
        most_bytes -= len(_json(rows[index])) + 1
        if most_bytes < 0:
            break
        kept.add(index)
    return [row for index, row in enumerate(rows) if index in kept]


def _curves(moment: _Moment, tags: list[Values], most_bytes: int) -> tuple[dict[str, str], int]:
    """Return each tag's curve, and how many columns it was thinned to. Where even the coarsest do not all fit, the last
    tags have none."""

    def size(pixels: int) -> int:
        points = (min(tag["points"], PLAIN_POINTS_PER_PIXEL * pixels) for tag in tags)
        return sum(_CURVE_BYTES + _POINT_BYTES * count for count in points)

    pixels = next((each for each in PIXELS if size(each) <= most_bytes), PIXELS[-1])
    curves: dict[str, str] = {}
    for tag in tags:
        curve = _base64(moment.ask("scalars", tag=tag["tag"], pixels=pixels))
        most_bytes -= len(curve) + len(_json(tag)) + len(_json(tag["tag"])) + _PUNCTUATION_BYTES
        if most_bytes < 0:
            break
        curves[tag["tag"]] = curve
    return curves, pixels


def _tab_script(directory: Path) -> str:
    """Return the script that ``index.js`` hands on to.

    Raises:
        NotBuiltError: if the frontend has not been built.
    """
    try:
        found = _HANDED_ON.search((directory / ENTRY).read_text("utf-8"))
        if found is None:
            raise NotBuiltError(NOT_BUILT)
        return (directory / found[1]).read_text("utf-8")
    except FileNotFoundError as error:
        raise NotBuiltError(NOT_BUILT) from error


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _json(value: object) -> str:
    """Return JSON in ASCII without ``<``: no text in it can be markup, not even the end of its element."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
</head>
<body>
<noscript>This report is drawn by a script in it: allow JavaScript for this page.</noscript>
<script type="application/json" id="supervisor-report">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _html(title: str, script: str, data: str) -> bytes:
    assert "</script" not in script.lower() and "<!--" not in script, "the script would end its element"
    source = policy_digest(script)
    policy = f"default-src 'none'; script-src '{source}'; img-src data:; base-uri 'none'; form-action 'none'"
    return _PAGE.format(
        policy=policy, title=html_text(f"{title} - Supervisor report"), data=data, script=script
    ).encode()

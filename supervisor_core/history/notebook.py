"""How runs are shown in a notebook: one as its report, several as a table."""

from __future__ import annotations

import html
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from supervisor_core.base.errors import EventsError, SupervisorError
from supervisor_core.base.install import DISTRIBUTION
from supervisor_core.base.log import html_text
from supervisor_core.history.rows import iso_of, stored
from supervisor_core.run.judge.comparison import compared
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.words import UNKNOWN, count, counted, duration, rate, share

_LOG = logging.getLogger("supervisor_core")
MOST_BYTES = 2_000_000
"""Of a report, which a notebook keeps in its file."""
_MOST_ROWS = 200
_HEIGHT = 720
"""Of a report, in pixels: what does not fit is scrolled."""


def report_page() -> Any:
    """Return `tb_plugin.report.report_page`.

    Raises:
        EventsError: if the package of that name is another project's, or what it needs is not installed.
    """
    try:
        package: Any = import_module("tb_plugin")
        if getattr(package, "DISTRIBUTION", None) == DISTRIBUTION:
            return import_module("tb_plugin.report").report_page
        found = f"the one of that name that Python finds is another project's: {package.__file__}"
    except ImportError as error:
        found = str(error)
    raise EventsError(f"A report needs the package tb_plugin of {DISTRIBUTION}; {found}.")


def run_html(name: str, watched: WatchedRun, at: float, logdir: str) -> str:
    """Return the report of a run as an element that nothing of the notebook is changed by; a table where there can be
    no report, and why.

    Args:
        name: as the page calls it.
        watched: the run.
        at: when it was looked at.
        logdir: what the name is relative to.
    """
    try:
        page = report_page()(name, watched, at, logdir, most_bytes=MOST_BYTES).page.decode()
    except SupervisorError as error:
        return f"{_table([(name, watched)], at)}<p>{html_text(str(error))}</p>"
    sandbox = "allow-scripts allow-downloads allow-popups"
    style = f"width: 100%; height: {_HEIGHT}px; border: 0"
    head = f'<iframe title="Report of the run {html_text(name)}" sandbox="{sandbox}" style="{style}"'
    return f'{head} srcdoc="{html.escape(page)}"></iframe>'


def runs_html(logdir: str, runs: Sequence[tuple[str, WatchedRun]], at: float) -> str:
    """Return a table of runs.

    Args:
        logdir: where they are.
        runs: each with its name.
        at: when they were looked at.
    """
    more = f"<p>The first {_MOST_ROWS} are shown.</p>" if len(runs) > _MOST_ROWS else ""
    return f"<p>{counted(len(runs), 'run')} of {html_text(logdir)}</p>{_table(runs[:_MOST_ROWS], at)}{more}"


_COLUMNS = (
    "run",
    "state",
    "step",
    "steps/s",
    "goodput",
    "restarts",
    "lost",
    "started (UTC)",
    "lasted",
    "host",
    "finding",
)


def _table(runs: Sequence[tuple[str, WatchedRun]], at: float) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    rows = "".join(f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in _cells(*run, at))}</tr>" for run in runs)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(name: str, watched: WatchedRun, at: float) -> Sequence[str]:
    """Return a run's cells, in the order of `_COLUMNS`."""
    run = compared(watched.run, name)
    micros = stored(run.started_at, "time")
    said: tuple[Finding, ...] = findings(watched, at)
    return (
        name,
        run.state,
        count(run.step),
        rate(run.steps_per_sec),
        share(run.goodput),
        count(run.restarts),
        duration(run.lost_secs),
        iso_of(micros)[:16].replace("T", " ") if micros else UNKNOWN,
        duration(run.duration_secs),
        run.host or UNKNOWN,
        said[0].sentence if said else "",
    )

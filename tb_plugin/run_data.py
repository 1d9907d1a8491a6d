"""`View`, every run at one moment, and the JSON of one: its line of the overview, its page, its saves, its stalls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from supervisor_core.metrics.labels import labels_of
from supervisor_core.run.fold.advice import proposed_interval
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.findings import Standing, standing
from supervisor_core.run.judge.run_json import as_json, plain, run_json
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import Run
from supervisor_core.run.model.snapshot import LogdirSnapshot, WatchedRun
from supervisor_core.run.model.words import devices_text
from tb_plugin.lanes import is_present, is_sick

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run."""

    name: str
    """As TensorBoard shows it, and as requests name it."""
    directory: str
    """The directory of its events files."""
    watched: WatchedRun
    findings: tuple[Finding, ...] | None
    """What is to be said of it, worst first; None where that could not be found out."""
    held: tuple[Finding, ...] = ()
    """What is held of it, as alerts are (`supervisor_core.run.judge.held`): then it needs somebody."""
    line: bytes
    """Its line of the overview, as JSON."""
    generation: int
    """Generation of the view in which its line changed last."""
    is_settled: bool = False
    """Whether its findings are known to stay as they are, until it changes."""
    _made: dict[Callable[[RunView], Any], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def run(self) -> Run:
        """The model of the run."""
        return self.watched.run

    @property
    def standing(self) -> Standing:
        """What it is to the one who looks after it."""
        return _standing(self.run, self.findings, self.held)

    def of(self, watched: WatchedRun) -> RunView:
        """Return this with another model of the same run."""
        return replace(self, watched=watched, _made={})

    def once(self, make: Callable[[RunView], _T]) -> _T:
        """Return ``make(self)``; called once, and again after the run has changed."""
        if make not in self._made:
            self._made[make] = make(self)
        made: _T = self._made[make]
        return made


@dataclass(frozen=True, kw_only=True)
class View:
    """All runs."""

    generation: int = 0
    """Increases with each view that differs from the one before, also across starts of TensorBoard."""
    oldest: int = 0
    """The first generation that `removed` covers."""
    at: float = 0.0
    """Wall time to which states and ages refer."""
    logdir: str = ""
    runs: Mapping[str, RunView] = field(default_factory=dict)
    removed: tuple[tuple[int, str], ...] = ()
    """Generation and name of each run that has disappeared, oldest first."""
    problems: tuple[str, ...] = ()
    """Problems of the logdirs, as shown."""
    snapshots: tuple[LogdirSnapshot, ...] = ()
    """One for each logdir."""
    secs: float | None = None
    """Duration of the last scan; None before every logdir has been scanned."""
    is_whole: bool = False
    """Whether every logdir has been scanned, or its failure is in `problems`."""
    reading: tuple[int, int] | None = None
    """Number of runs read, and of all runs, during the first scan."""

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """What metrics and alerts call each run."""
        places = {}
        for name, shown in self.runs.items():
            below = shown.run.name
            directory = shown.watched.directory
            places[name] = (directory.removesuffix("" if below == "." else f"/{below}"), below, shown.watched)
        return labels_of(places)


SICK = ("overdue", "failed")
"""States of a service thread in trouble."""

GOODPUT_DIGITS = 4
"""A running run's changes with every second: a line that is sent again must differ in what can be seen."""


def _newest_good(run: Run) -> Checkpoint | None:
    return next((item for item in reversed(run.checkpoints) if item.ok), None)


def _standing(run: Run, said: tuple[Finding, ...] | None, held: tuple[Finding, ...]) -> Standing:
    infos = (item for item in said or () if item.severity == "info")
    return standing(run.state, None if said is None else (*held, *infos))


def overview_line(
    name: str, watched: WatchedRun, said: tuple[Finding, ...] | None, held: tuple[Finding, ...] = ()
) -> bytes:
    """Return a run's line as JSON.

    Args:
        name: of the run.
        watched: the run.
        said: its findings, worst first; None where they are not known.
        held: those of them that are held.
    """
    run = watched.run
    session = run.sessions[-1] if run.sessions else None
    newest = run.checkpoints[-1] if run.checkpoints else None
    good = _newest_good(run)
    newest_threads = [thread for thread in run.threads if session is not None and thread.session == session.id]
    stall = run.stalls[-1] if run.stalls else None
    row = plain(
        {
            "run": name,
            "state": run.state,
            "standing": _standing(run, said, held),
            "finding": as_json(said[0]) if said else None,
            "more_findings": None if said is None else max(0, len(said) - 1),
            "inferred": run.inferred,
            "phase": session.phase if session is not None else None,
            "step": run.step,
            "steps_per_sec": run.steps_per_sec,
            "rates": list(run.rates),
            "started": run.sessions[0].started_at if run.sessions else None,
            "last_event": run.last_event_at,
            "clock_skew_secs": run.clock_skew_secs,
            "checkpoint_at": good.at if good is not None else None,
            "checkpoint_step": good.step if good is not None else None,
            "checkpoint_interval_secs": session.checkpoint_interval_secs if session is not None else None,
            "checkpoints_failing": newest is not None and not newest.ok,
            "restarts": len(run.restarts),
            "recoveries": len(run.recoveries),
            "goodput": None if run.goodput.ratio is None else round(run.goodput.ratio, GOODPUT_DIGITS),
            "at_risk_steps": None if run.at_risk is None else run.at_risk.steps,
            "sick_threads": sum(thread.state in SICK for thread in newest_threads),
            "workers": sum(is_present(run, worker) for worker in run.workers),
            "sick_workers": sum(is_sick(run, worker) for worker in run.workers),
            "labels": dict(run.labels),
            "stalled_since": stall.since if stall is not None and stall.until is None else None,
            "problem": watched.problem,
        }
    )
    return json.dumps(row, allow_nan=False, separators=(",", ":")).encode()


def overview(view: View, since: int | None) -> bytes:
    """Return the lines of all runs, or of those that changed after a generation, if the view goes back that far; as
    JSON."""
    full = since is None or since < view.oldest or since > view.generation
    base = 0 if full or since is None else since
    values = {
        "v": 1,
        "at": view.at,
        "generation": view.generation,
        "full": full,
        "logdir": plain(view.logdir),
        "reading": None if view.reading is None else {"done": view.reading[0], "total": view.reading[1]},
        "problems": plain(list(view.problems)),
        "removed": [] if full else sorted({name for gone, name in view.removed if gone > base} - view.runs.keys()),
    }
    head = json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
    lines = b",".join([run.line for run in view.runs.values() if run.generation > base])
    return b"".join([head[:-1], b',"runs":[', lines, b"]}"])


MOST_SILENCES = 1000
"""How many are sent, the newest."""


def details(view: View, shown: RunView) -> bytes:
    """Return the run as ``run`` answers it, as JSON."""
    label = view.labels.get(shown.name, shown.name)  # where metrics and alerts have another name
    labels = {**({} if label == shown.name else {"run": label}), **shown.run.labels}
    values = {"v": 1, "at": view.at, "generation": shown.generation, "labels": labels}
    head = json.dumps(plain(values), separators=(",", ":"))
    return b"".join([head.encode()[:-1], b",", shown.once(_described)[1:]])


_AS_INSPECT = (
    "state failure inferred files bytes first_step max_step step steps_per_sec steps_lost steps_lost_most "
    "last_event clock_skew_secs sessions restarts recoveries notices goodput at_risk advice dropped records "
    "corrupt_records nonfinite_tags problems"
)
"""What is also in the object of ``inspect --json``, under the same name: the rest is large, or not shown."""


def _described(shown: RunView) -> bytes:
    run, watched = shown.run, shown.watched
    proposed = proposed_interval(run.advice, run.goodput.wall_secs)
    values = {
        "run": shown.name,
        "findings": None if shown.findings is None else as_json(shown.findings),
        **run_json(watched, _AS_INSPECT),
        "problem": watched.problem,
        "place": _place(run),
        "proposed_interval": None if proposed is None else dict(zip(("what", "why"), proposed, strict=True)),
        "launch": as_json(run.launches[-1]) if run.launches else None,
        "checkpoints": {
            "count": len(run.checkpoints),
            "failed": sum(not item.ok for item in run.checkpoints),
            "newest_good": as_json(_newest_good(run)),
            "last_good": as_json(run.last_good),
            "on_disk": sum(item.on_disk is True for item in run.checkpoints),
        },
        "stalls": len(run.stalls) + len(run.service_stalls),
        "silences": as_json(run.silences[-MOST_SILENCES:]),
        "threads": list(dict.fromkeys(thread.name for thread in run.threads)),
        "workers": len(run.workers),
    }
    return json.dumps(plain(values), allow_nan=False, separators=(",", ":")).encode()


def _place(run: Run) -> str | None:
    """Return where the newest session runs, or ran, and on what; None where nothing is known beside its host."""
    if not run.sessions:
        return None
    last = run.sessions[-1]
    known = devices_text(last.world_size, last.device_count, last.device_kind)
    return ", ".join(filter(None, (known, last.host))) if known else None


def checkpoint_page(run: Run, offset: int, limit: int, *, oldest_first: bool) -> dict[str, Any]:
    """Return a page of saves; ``offset`` counts from that end."""
    ordered = run.checkpoints if oldest_first else run.checkpoints[::-1]
    page = [plain(as_json(item)) for item in ordered[offset : offset + limit]]
    return {"v": 1, "total": len(ordered), "offset": offset, "checkpoints": page}


def stall_list(run: Run) -> dict[str, Any]:
    """Return every stall of the run, oldest first, then every one of its services."""
    return {"v": 1, "stalls": [plain(as_json(item)) for item in (*run.stalls, *run.service_stalls)]}

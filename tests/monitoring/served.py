"""What Prometheus gets over time from a trainer and from an exporter, as functions of the time in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor_core.base.options import PHASES

MINUTE, HOUR, DAY = 60, 3600, 86400

Value = Callable[[float], "float | None"]


def always(value: float | None) -> Value:
    """The same at all times."""
    return lambda t: value


def clock(t: float) -> float:
    """The time itself."""
    return t


def until(end: float, before: Value, after: Value) -> Value:
    """One until a moment, the other from then on."""
    return lambda t: before(t) if t < end else after(t)


def saved_every(secs: float) -> Value:
    """When the newest checkpoint was saved, of a run that saves in time."""
    return lambda t: t // secs * secs if t >= secs else None


ONE, ZERO, NOTHING = always(1), always(0), always(None)
USUAL = {"timeout": always(300), "rate": always(10), "interval": always(600), "saved": saved_every(600)}


@dataclass(frozen=True)
class Target:
    """Something that is scraped: what it serves of one run at each moment. None: nothing."""

    run: str = "r"
    job: str = "training"
    instance: str = "pod-1"
    start: float = 0
    end: float = 1e9
    active: Value = ONE
    state: Callable[[float], str] | None = None
    """None: it serves no states, as before there were any."""
    phase: Callable[[float], str] = lambda t: "training"
    progress: Value = clock
    timeout: Value = USUAL["timeout"]
    sessions: Value = ONE
    session_start: Value | None = None
    restarts: Mapping[str, Value] = field(default_factory=dict)
    rate: Value = USUAL["rate"]
    interval: Value = USUAL["interval"]
    recommended: Value = NOTHING
    present: Value | None = None
    """How often it saves, beside `recommended`; None: as `interval`."""
    saved: Value = USUAL["saved"]
    failed_saves: Value = ZERO
    """How many in a row."""
    events_failing: Value = ZERO
    loss_finite: Value = ONE
    session: str | None = None
    """Its id, where the scenario is about that."""
    seen: Value = clock
    """When its session was last seen alive."""
    ended: Value = NOTHING
    """When the run ended."""
    labels: str = ""
    """Further labels of its series, as the scraper adds them, each with a comma before it."""
    thread_up: Value = ONE
    overdue: Value = ZERO
    recoveries: Value = ZERO
    workers: Mapping[str, Callable[[float], str | None]] = field(default_factory=dict)
    """The state of each other process of the cluster; None: the chief does not know of it."""
    notices: Mapping[str, Value] = field(default_factory=dict)
    """When its program said something, by severity."""
    activity: Mapping[str, Value] = field(default_factory=lambda: {"productive": clock, "program_startup": always(30)})
    exporter: Mapping[str, Value] | None = None
    up: Value = NOTHING
    """Whether Prometheus reaches it, where the scenario is about that."""
    pushes: Callable[[float], bool] | None = None
    """Whether a push of it arrives; what was pushed is not ended where no further one arrives. None: it is scraped."""
    logdir: str = "/logs"
    """The exporter's, in which the run is."""
    shard: tuple[int, Value] | None = None
    """Which shard the exporter serves, and of how many."""

    def series(self) -> dict[str, Value]:
        """What Prometheus gets, by name and labels."""
        served: dict[tuple[str, str, str], Value] = {
            ("active", "", ""): self.active,
            ("last_progress_timestamp_seconds", "", ""): self.progress,
            ("session_last_seen_timestamp_seconds", "", ""): self.seen,
            ("run_end_timestamp_seconds", "", ""): self.ended,
            ("progress_timeout_seconds", "", ""): self.timeout,
            ("sessions_total", "", ""): self.sessions,
            ("session_start_timestamp_seconds", "", ""): self.session_start or always(self.start),
            ("recoveries_total", "", ""): self.recoveries,
            ("steps_per_second", "", ""): self.rate,
            ("checkpoint_interval_seconds", "", ""): self.interval,
            ("checkpoint_recommended_interval_seconds", "", ""): self.recommended,
            ("checkpoint_present_interval_seconds", "", ""): self.present or self.interval,
            ("checkpoint_last_success_timestamp_seconds", "", ""): self.saved,
            ("checkpoint_failures_in_a_row", "", ""): self.failed_saves,
            ("events_failing", "", ""): self.events_failing,
            ("loss_finite", "", ""): self.loss_finite,
            ("thread_up", "thread", "checkpoint"): self.thread_up,
            ("thread_overdue_seconds", "thread", "checkpoint"): self.overdue,
        }
        if self.state is not None:
            for state in ("stalled", "lost", "failed", "unreachable"):  # what the rules and panels go by
                served["run_state", "state", state] = lambda t, state=state: 1 if self.state(t) == state else None
            served["run_error_info", "error", "ValueError"] = lambda t: 1 if self.state(t) == "failed" else None
        for phase in PHASES:
            served["phase", "phase", phase] = lambda t, phase=phase: 1 if self.phase(t) == phase else None
        for worker, state in self.workers.items():
            for name, read in OF_A_WORKER.items():
                served[name, "worker", worker] = lambda t, state=state, read=read: read(state(t))
        for severity, value in self.notices.items():
            served["notice_timestamp_seconds", "severity", severity] = value
        for reason, value in self.restarts.items():
            served["restarts_total", "reason", reason] = value
        for activity, value in self.activity.items():
            served["time_seconds_total", "activity", activity] = value
            if self.exporter is not None:
                served["run_time_seconds_total", "activity", activity] = value
        if self.session is not None:
            served["run_info", "session_id", self.session] = ONE
        if self.exporter is not None:
            ours = {"exporter_last_event_timestamp_seconds": clock, "exporter_run_read_success": always(1)}
            ours |= {"exporter_corrupt_records_total": always(0)} | dict(self.exporter)
            served |= {
                (name, *(("logdir", self.logdir) if name == "exporter_run_read_success" else ("", ""))): ours[name]
                for name in ours
                if name not in EXPORTERS_OWN
            }
        named = {
            f'supervisor_{name}{{run="{self.run}",job="{self.job}",instance="{self.instance}"'
            + self.labels
            + (f',{label}="{text}"' if label else "")
            + "}": value
            for (name, label, text), value in served.items()
        }
        if self.exporter is not None:
            for name, value in EXPORTERS_OWN.items():
                labels = f'job="{self.job}",instance="{self.instance}"'
                if name != "exporter_build_info":
                    labels += f',logdir="{self.logdir}"'
                named[f"supervisor_{name}{{{labels}}}"] = self.exporter.get(name, value)
            named[f'process_start_time_seconds{{job="{self.job}",instance="{self.instance}"}}'] = always(self.start)
        if self.shard is not None:
            labels = f'job="{self.job}",instance="{self.instance}",shard="{self.shard[0]}"'
            named[f"supervisor_exporter_shards{{{labels}}}"] = self.shard[1]
        there = {name: self._while_there(value) for name, value in named.items()}
        return there | {f'up{{job="{self.job}",instance="{self.instance}"}}': self.up}

    def _while_there(self, value: Value) -> Value:
        return lambda t: value(t) if self.start <= t < self.end else None


OF_A_WORKER: Mapping[str, Callable[[str | None], float | None]] = {
    "worker_up": lambda state: None if state in (None, "stopped") else float(state not in ("lost", "failed")),
    "worker_waiting": lambda state: None if state is None else float(state == "waiting"),
    "worker_stalled": lambda state: None if state is None else float(state == "stalled"),
}

EXPORTERS_OWN: Mapping[str, Value] = {
    "exporter_build_info": ONE,
    "exporter_last_refresh_timestamp_seconds": clock,
    "exporter_first_look_timestamp_seconds": always(None),
    "exporter_refresh_failures_total": ZERO,
    "exporter_logdir_up": ONE,
    "exporter_runs": ONE,
}


def trainer(**what: Any) -> Target:
    """A training process."""
    return Target(**what)


def pushed(pushes: Callable[[float], bool] = lambda t: True, **what: Any) -> Target:
    """A training process that nobody scrapes, and the moments at which a push of it arrives."""
    return Target(**{"instance": "node-1:17", **what}, pushes=pushes)


def exporter(serves: Mapping[str, Value] | None = None, **what: Any) -> Target:
    """An exporter, what it serves of one run, and what it serves of itself."""
    return Target(**{"job": "exporter", "instance": "exporter-1", **what}, exporter=serves or {})


def series_of(targets: Iterable[Target], end: float, step: int) -> dict[str, str]:
    """What Prometheus gets of targets until a moment, by name and labels, as promtool reads it."""
    return {
        name: values(value, end, step, target.pushes) for target in targets for name, value in target.series().items()
    }


def values(value: Value, end: float, step: int, pushes: Callable[[float], bool] | None = None) -> str:
    """A series as promtool reads it; where it ends it is marked stale, as Prometheus does with what it gets no more,
    and a push with what is over."""
    words: list[str] = []
    there = False
    for t in range(0, int(end) + step, step):
        if pushes is not None and not pushes(t):
            words.append("_")
            continue
        number = value(t)
        words.append(repr(float(number)) if number is not None else "stale" if there else "_")
        there = number is not None
    return " ".join(words)

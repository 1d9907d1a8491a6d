"""`RunCollector`: the metrics table as a prometheus_client collector; `process_samples`: what this process takes.

Nothing is counted here and nothing happens between scrapes: each scrape takes one snapshot of every run and folds it
through the table, so all values of a scrape belong to one moment and training pays nothing for being watched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample as FamilySample

from supervisor_core.base.clock import SYSTEM_CLOCK, Clock
from supervisor_core.base.log import command_line
from supervisor_core.metrics.metric import Metric, RunMetric, Sample
from supervisor_core.metrics.render import label_text
from supervisor_core.metrics.table import METRICS, RUN_METRICS, SCRAPE_SUCCESS
from supervisor_core.process.stacks import MAIN_THREAD, whereabouts
from supervisor_core.run.fold.notices import notice_text
from supervisor_core.run.judge.finding import Finding, Severity, worst_first
from supervisor_core.run.judge.finding_subject import found, rewinding_with
from supervisor_core.run.judge.held import HOLDS, DailyTexts
from supervisor_core.run.judge.part_findings import BEGIN_AGAIN, ONE_TASK, stop_and_rewind
from supervisor_core.run.judge.wordings import say
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import counted, next_sentence, sentence
from supervisor_core.run.status import RunStatus
from supervisor_core.storage.local import absolute

_UNKNOWN = "the training's log has the reason"


class OwnFindings:
    """Keeps since when each finding of a run has been there. Used by whatever thread scrapes.

    Args:
        limits: from when on something is a finding, and for how long it must last.
    """

    def __init__(self, limits: Thresholds | None = None) -> None:
        self._limits = limits or Thresholds()
        self._since: dict[tuple[str, str, Severity], float] = {}
        self._texts = DailyTexts()

    def held(self, status: RunStatus, now: float) -> tuple[Finding, ...]:
        """Return what is held of a run, the worst first; nothing once its session has ended.

        Args:
            status: the run as its own process knows it.
            now: the current wall time.
        """
        items = list(_findings(status, status.session, now, self._limits)) if status.active and status.session else []
        before, held = self._since, []
        since = {(status.run, each.kind, each.severity): now for each in items}
        since = {key: before.get(key, at) for key, at in since.items()}
        self._since = {key: at for key, at in before.items() if key[0] != status.run} | since
        for each in items:
            hold = HOLDS.get(each.kind)
            secs = 0.0 if hold is None else float(getattr(self._limits, hold))
            if now - since[status.run, each.kind, each.severity] >= secs:
                held.append(self._texts.of(each, now))
        return worst_first(held)


def _findings(status: RunStatus, session: Session, now: float, limits: Thresholds) -> Iterator[Finding]:
    logdir, stall = status.info.get("logdir", "."), status.stall
    inspect = command_line("tb-supervisor", "inspect", "--run=.", "--", logdir)
    if status.stalled:
        text = say("stalled") + ("" if session.phase is None else f" in the phase {session.phase}")
        if stall is not None and stall.verdict is None and (stall.thread or stall.location):
            text += f": {whereabouts(stall.thread or MAIN_THREAD, stall.location, stall.activity)}"
        verdict = next_sentence(None if stall is None else stall.verdict)
        stacks = command_line("tb-supervisor", "stacks", "--", logdir)
        yield found("stalled", f"{text}.{verdict}", since=session.last_progress_at, command=stacks)
    if session.save_failures_in_a_row >= limits.save_failures:
        why = sentence(session.save_error or _UNKNOWN)
        yield found("saves_failing", say("saves_failing", why=why), command=command_line("df", "-h", "--", logdir))
    if status.events_failing:
        text = say("events_failing", why=sentence(session.events_error or _UNKNOWN))
        yield found("events_failing", text, command=command_line("df", "-h", "--", logdir))
    if status.loss_finite is False:
        good, text = status.checkpoint.last_good, say("loss_not_finite", since="")
        if good is not None and good.path is not None:
            rewinding = rewinding_with(command_line("tb-supervisor", "rewind", "--", absolute(good.path)))
            yield found("loss_not_finite", text, action=stop_and_rewind(good, rewinding))
        elif status.checkpoint.last_success is None:
            yield found("loss_not_finite", text, action=f"Stop the training. {BEGIN_AGAIN}")
        else:  # the records of earlier sessions say which checkpoint is good
            yield found("loss_not_finite", text, command=inspect)
    for severity, each in {each.severity: each for each in status.notices}.items():
        if now - (each.at or 0.0) < limits.notice_secs:
            yield Finding(
                kind="notice",
                severity=severity,
                since=each.since,
                text=sentence(notice_text(each)),
                action=inspect,
                is_command=True,
            )
    if session.phase in ("stopping", "stopped"):
        return
    down = [each.name for each in status.threads if each.state == "failed" or each.overdue_secs > limits.overdue_secs]
    if down:
        text = say("thread_down", threads=counted(len(down), "service thread"), which=", ".join(down))
        yield found("thread_down", text, command=inspect)
    lost = [each.name for each in status.workers if each.state in ("lost", "failed")]
    if lost and not status.events_failing:  # where the chief cannot write, the others cannot write their heartbeats
        number = f"{len(lost):,} of {counted(len(status.workers), 'worker')} {'is' if len(lost) == 1 else 'are'}"
        yield found("worker_lost", say("worker_lost", number=number, which="; ".join(lost)), action=ONE_TASK)


_LOG = logging.getLogger("supervisor_core")


class RunCollector:
    """Collects the metrics of a source's runs for each scrape of a registry.

    Args:
        source: returns the present status of each run. Called once per scrape, from the thread that scrapes and
            possibly from several at once. Run names identify runs: of two with the same name one is served.
        clock: measures ages; the statuses' times must come from its wall clock.

    A source that raises fails no scrape: that scrape holds ``supervisor_scrape_success 0`` and what could be read, and
    the cause is logged, once until it has changed.

    Example:
        >>> from prometheus_client import CollectorRegistry
        >>> registry = CollectorRegistry()  # or the default one, prometheus_client.REGISTRY, if that is served already
        >>> registry.register(RunCollector(lambda: []))
        >>> registry.get_sample_value("supervisor_scrape_success")
        1.0
    """

    def __init__(self, source: Callable[[], Iterable[RunStatus]], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._source = source
        self._clock = clock
        self._problems: frozenset[str] = frozenset()
        self._own = OwnFindings()

    def describe(self) -> list[Family]:
        """Return every metric without samples, so that a registry can refuse names which clash; calls no source."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield every metric that has samples, from one snapshot. Raises nothing."""
        problems: dict[str, BaseException | None] = {}
        now = self._clock.wall()
        runs = [replace(run, findings=self._own.held(run, now)) for run in self._snapshot(problems)]
        for metric in RUN_METRICS:
            family = _family(metric)
            for run in runs:
                try:
                    family.samples.extend(_samples(metric, run, now))
                except Exception as error:  # one unreadable value must not cost the others
                    problems[f"{metric.name} of run {run.run!r} could not be read: {error!r}"] = error
            if family.samples:
                yield family
        self._log(problems)
        family = _family(SCRAPE_SUCCESS)
        family.samples.append(FamilySample(SCRAPE_SUCCESS.name, {}, float(not problems)))
        yield family

    def _snapshot(self, problems: dict[str, BaseException | None]) -> list[RunStatus]:
        runs: dict[str, RunStatus] = {}
        try:
            for run in self._source():
                if runs.setdefault(run.run, run) is not run:
                    problems[f"two runs are called {run.run!r}, one is served; set Options.run_name"] = None
        except Exception as error:  # whatever the source knows already is served
            problems[f"the state of the runs could not be read: {error!r}"] = error
        return list(runs.values())

    def _log(self, problems: dict[str, BaseException | None]) -> None:
        known, self._problems = self._problems, frozenset(problems)
        for text, error in problems.items():
            if text not in known:
                _LOG.error("Metrics: %s", text, exc_info=error)
        if known and not problems:
            _LOG.info("Metrics: everything can be read again")


def _family(metric: Metric) -> Family:
    name = metric.name
    if metric.type in ("counter", "info"):
        name = name.removesuffix("_total" if metric.type == "counter" else "_info")
    return Family(name, metric.help, metric.type, metric.unit)


def _samples(metric: RunMetric, run: RunStatus, now: float) -> list[FamilySample]:
    return [
        FamilySample(metric.name + suffix, {name: label_text(label) for name, label in labels.items()}, float(value))
        for labels, value, suffix in metric.read(run, now)
    ]


PROCESS = ProcessCollector(registry=CollectorRegistry())
"""What every Prometheus client serves of its process."""


def process_samples() -> Iterator[tuple[Metric, list[Sample]]]:
    """Yield this process's CPU time, memory and file descriptors; nothing where the system does not report them."""
    for family in PROCESS.collect():
        counts = family.type == "counter"
        metric = Metric(
            name=f"{family.name}_total" if counts else family.name,
            help=family.documentation,
            labels=(),
        )
        yield metric, [Sample({}, sample.value) for sample in family.samples if not sample.name.endswith("_created")]

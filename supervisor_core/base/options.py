"""`Options`: everything that the original's constructor arguments do not cover, in one validated value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from supervisor_core.base.address import parse_address
from supervisor_core.base.errors import OptionsError
from supervisor_core.base.session_labels import MAX_LABELS, problem_of

CACHE_VARIABLE = "SUPERVISOR_CACHE"
"""Environment variable: the directory in which what reads logdirs keeps what it has read (docs/exporter.md)."""

PHASES = ("starting", "restoring", "compiling", "training", "checkpointing", "evaluating", "stopping", "stopped")
"""What a session can be doing; exactly one at a time."""

HangAction = Literal["observe", "stop", "abort", "kill"]
"""What a session does about its own hang."""

SAVE_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP")
"""Which signals may ask for a checkpoint."""

HANG_TIMEOUT_SECS: Mapping[str, float] = {
    "starting": 1800.0,
    "restoring": 1800.0,
    "compiling": 1800.0,
    "training": 300.0,
    "checkpointing": 1800.0,
    "evaluating": 3600.0,
    "stopping": 600.0,
}
"""The hang timeout of each phase until one is learned, in seconds, where none is given."""

STOP_TIMEOUT_SECS = 25.0
"""How long a stop may take, in seconds, where neither `Options.stop_timeout_secs` nor ``tb-supervisor run`` says."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a supervised run behaves beyond the original's arguments. Frozen; validated once, here.

    Example:
        >>> Options(metrics_address="127.0.0.1:9464", save_on_stop=False).save_on_stop
        False

    Raises:
        OptionsError: if a value cannot be used; the text says which option, what came and what was expected.
    """

    run_name: str | None = None
    """The ``run`` label of the metrics. Default: the logdir's path below the environment's ``SUPERVISOR_LOGDIR``; where
    it is not below that, the last two parts of its absolute path, as ``exp1/train``."""

    labels: Mapping[str, str] | None = None
    """Whose the run is, as ``{"team": "vision"}``, in its records, metrics and alerts: 16 labels at most, names as
    Prometheus allows them, values of 128 characters at most. They come before those of the environment's
    ``SUPERVISOR_LABELS`` (``team=vision,project=digits``) and those that a session finds: ``user``, ``job_id``,
    ``array_index``, ``partition``, ``node_list``, ``namespace``, ``pod``. An empty value leaves a label out."""

    metrics_address: str | None = None
    """``"host:port"`` or ``":port"`` (127.0.0.1) to serve Prometheus metrics on; port 0 picks a free one. Default: the
    environment's ``SUPERVISOR_METRICS_ADDRESS``; without either, nothing is served."""

    metrics_linger_secs: float = 30.0
    """At a planned stop, wait at most this many seconds for two more scrapes, so that Prometheus sees the stop.
    There is no wait if nothing scraped before. 0 never waits."""

    worker_name: str | None = None
    """What this process is called among the cluster's, as ``worker:1``. Default: the task in the environment's
    ``TF_CONFIG``, or that of the graph's devices, or host and process."""

    write_telemetry: bool = True
    """Write this project's own records into the events file; where the program has no summary writer and there is a
    logdir, into one of their own. False: the events file holds what the original's would."""

    heartbeat_secs: float = 10.0
    """Seconds between heartbeats of the liveness file, at most 10. 0 also records none in events without a change."""

    save_on_stop: bool = True
    """Write a final checkpoint at a clean end, and on SIGTERM or SIGINT."""

    save_on_error: bool = False
    """Write a final checkpoint when training ends with an exception, too. It may be of the step that went wrong."""

    handle_signals: bool = True
    """Turn SIGTERM and SIGINT into an orderly stop while a managed session is open, or a parameter server serves (main
    thread only)."""

    stop_timeout_secs: float | None = None
    """Seconds after a signal within which everything is saved and the process has ended as the signal would have it,
    whatever hangs. Default: that of ``tb-supervisor run``, else 25. It is never longer than that of ``tb-supervisor
    run``, which kills. Keep it below what the scheduler grants (Kubernetes: 30)."""

    save_signal: str | None = None
    """``"SIGUSR1"``, ``"SIGUSR2"`` or ``"SIGHUP"``: a checkpoint is saved when this signal comes, and training goes on.
    Default: none; these signals do what they did before."""

    verify_checkpoints: bool = True
    """Read each checkpoint back, checksums and all, before it counts."""

    verify_resume: int = 0
    """Have each resume recompute at least this many steps, so that what they log is compared with what was logged
    before. After a clean stop none would be: then an older checkpoint is restored, at least this number of steps before
    the last one reached. 0: the newest is. Not with TensorFlow's facades and Transformers."""

    unusable_checkpoints: Literal["stop", "start_over"] = "stop"
    """What to do where there are checkpoints and all are damaged. ``"stop"``: an error that lists them.
    ``"start_over"``: start at step 0, and set them aside; those that only cannot be read stay an error."""

    unwritable_checkpoints: Literal["stop", "continue"] = "stop"
    """What to do where the checkpoints' directory cannot be written when a session starts: another user's, or a
    read-only file system. ``"stop"``: an error before the first step. ``"continue"``: train without checkpoints. A full
    disk is no error: it may have room at the first save."""

    trust_pickled: bool = False
    """Unpickle what is in checkpoints of PyTorch, Lightning and Transformers, whoever wrote it: that may run code.
    False: what may run code is read only if root or this user owns it, and no other user may write it."""

    snapshot: Literal["copy", "shards"] = "copy"
    """What a save writes, with `supervise` and PyTorch's loop. ``"copy"``: a copy of the state in host memory, in the
    background. ``"shards"``: the state itself, for who has no memory for a copy: training waits until the checkpoint is
    durable, and what is on a device is copied 256 MB at a time. A signal in an evaluation then saves nothing."""

    snapshot_wait_secs: float = 10.0
    """Seconds to wait for the steps under way to end before a snapshot is taken regardless; the record of such a
    checkpoint says ``"consistent": false``. Where recent steps took longer, twice the longest of them is waited for,
    20 times this option at most: steady steps of 30 s are consistent, but for a checkpoint that is due before the first
    has ended."""

    max_save_failures: int | None = None
    """How many saves in a row may fail by disk or network errors (disk full, I/O error, `UnavailableError`) before
    it stops the run with `SaveFailedError`. Default: no bound; training goes on and the failures are seen."""

    retry_initial_secs: float = 1.0
    """Seconds until the first retry after such a fault; doubled each time, with jitter."""

    retry_max_secs: float = 60.0
    """The longest wait between two retries, in seconds."""

    service_errors: Literal["stop", "continue"] = "stop"
    """``"stop"``: an exception in a service stops the run, as the original promises. ``"continue"``: the service is
    marked failed, everywhere, and training goes on."""

    summary_feed_dict: Mapping[Any, Any] | None = None
    """Feeds for the summary service's runs of the summary op, for graphs that need placeholders fed."""

    watched_loss: Any = None
    """A tensor (or its name) that must be finite for a checkpoint to be taken. Default: nothing is watched."""

    kept_values: Mapping[str, bool] | None = None
    """Which values that no checkpoint has decide how the training goes on, by name, with all that they hold: ``{"mean":
    True, "best": False}``. True: always compared after a resume. False: never named, as what is only printed. Default:
    see docs/exact_resume.md."""

    on_restore: Callable[[Mapping[str, Any]], object] | None = None
    """Called before a checkpoint is restored, with the saved states by name, as ``saved["model"]``: to make the changes
    of structure that the program makes while it trains, as ``add_param_group()``. With Lightning it gets Lightning's
    checkpoint, as ``saved["optimizer_states"]``. On each rank. Not with TensorFlow's facades and Transformers.

    Example:
        def unfreeze(saved=None):
            groups = [None] if saved is None else saved["optimizer"]["param_groups"][1:]
            if groups and len(optimizer.param_groups) == 1:
                optimizer.add_param_group({"params": backbone.parameters()})

        for epoch in supervised(loader, logdir, ..., options=Options(on_restore=unfreeze)).epochs():
            if epoch == 5:
                unfreeze()
    """

    on_event: Callable[[dict[str, Any]], object] | None = None
    """Called with each event of the run, as of ``tb-supervisor watch --on-event`` (docs/event.schema.json): findings
    that begin or are over, its restart, its end. In a thread, one call at a time; the last ones before the session has
    ended, for 5 s at most. Only in the chief, and not in forked children. An error of it is logged, and ends
    nothing."""

    max_recoveries: int | None = 20
    """How many times in a row, with no run in between, a `MonitoredSession` makes a new TensorFlow session after an
    `AbortedError` or `UnavailableError`, before it raises the error. None: no limit, as the original."""

    exclusive_logdir: bool = True
    """Refuse to be the second live chief of a logdir."""

    finished_wait_secs: float = 60.0
    """How long a worker that finds its run finished waits for a chief that continues it, in seconds, before it ends
    too. A worker that was part of the run does not wait; a parameter server always does."""

    lease_timeout_secs: float = 60.0
    """A chief on another host without a heartbeat for this many seconds counts as dead."""

    hang_timeout_secs: float | Mapping[str, float] | None = None
    """Seconds without progress after which the session hangs. A number: in training; the other phases have that or
    their default, whichever is longer. A mapping: by phase. Default, also for phases left out: that of ``tb-supervisor
    run``, else learned, from `HANG_TIMEOUT_SECS`."""

    hang_action: HangAction = "observe"
    """What the session does about a hang that has lasted for the given hang timeout or the default one, and 10 s at
    least. ``"observe"``: count it. ``"stop"``: request a stop, with a `StalledError`. ``"abort"``: save a checkpoint if
    no step is under way, write the stop record, end the process by SIGABRT. ``"kill"``: end it by SIGKILL."""

    dump_blocked_stacks: bool = True
    """Have a timer of the kernel write the main thread's stack while native code holds Python's interpreter lock.
    False: no timer and no signal handler; py-spy still reads the stacks from outside."""

    def __post_init__(self) -> None:
        if self.save_signal is not None and self.save_signal not in SAVE_SIGNALS:
            raise OptionsError(
                f"Options.save_signal is {self.save_signal!r}; expected None or one of {', '.join(SAVE_SIGNALS)}."
            )
        for name, kind in _kinds().items():
            _check(name, kind, getattr(self, name))
        if self.retry_max_secs < self.retry_initial_secs:
            raise OptionsError(
                f"Options.retry_max_secs is {self.retry_max_secs}, below retry_initial_secs "
                f"({self.retry_initial_secs}); give it at least that."
            )
        if self.on_restore is not None and not callable(self.on_restore):
            raise OptionsError(
                f"Options.on_restore is {self.on_restore!r}; expected None or a function of the saved states."
            )
        if self.kept_values is not None:
            _check_kept_values(self.kept_values)
        if self.on_event is not None and not callable(self.on_event):
            raise OptionsError(f"Options.on_event is {self.on_event!r}; expected None or a function of one event.")
        if self.metrics_address is not None:
            parse_address(self.metrics_address, "Options.metrics_address")
        if self.labels is not None:
            _check_labels(self.labels)
        if isinstance(self.hang_timeout_secs, Mapping):
            for phase, secs in self.hang_timeout_secs.items():
                if phase not in HANG_TIMEOUT_SECS:
                    raise OptionsError(
                        f"Options.hang_timeout_secs names the phase {phase!r}; expected one of "
                        f"{', '.join(HANG_TIMEOUT_SECS)}."
                    )
                _check(f"hang_timeout_secs[{phase!r}]", float, secs)
        elif self.hang_timeout_secs is not None and not _is_secs(self.hang_timeout_secs):
            raise OptionsError(
                f"Options.hang_timeout_secs is {self.hang_timeout_secs!r}; expected None, a number of seconds above 0, "
                "or a mapping of phases to such numbers."
            )


def _check_kept_values(values: Any) -> None:
    if not isinstance(values, Mapping) or any((type(name), type(kept)) != (str, bool) for name, kept in values.items()):
        raise OptionsError(f"Options.kept_values is {values!r}; expected None or a mapping, as {{'mean': True}}.")


def _check_labels(labels: Any) -> None:
    if not isinstance(labels, Mapping):
        raise OptionsError(f"Options.labels is {labels!r}; expected None or a mapping, as {{'team': 'vision'}}.")
    if len(labels) > MAX_LABELS:
        names = ", ".join(map(str, labels))[:200]
        raise OptionsError(f"Options.labels has {len(labels)} labels ({names}); expected {MAX_LABELS} at most.")
    for name, value in labels.items():
        if (problem := problem_of(name, value)) is not None:
            raise OptionsError(f"Options.labels has {str(name)[:200]!r}: {str(value)[:200]!r}; {problem}.")


def _is_secs(value: Any, *, may_be_zero: bool = False) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return is_number and (value > 0 or (value == 0 and may_be_zero))


_FROM_ZERO = ("heartbeat_secs", "metrics_linger_secs", "stop_timeout_secs", "snapshot_wait_secs", "finished_wait_secs")


@cache
def _kinds() -> Mapping[str, Any]:
    """Return the type of each option, as it is declared."""
    return get_type_hints(Options)


def _check(name: str, kind: Any, value: Any) -> None:
    """Raise an error for a value that an option of a type cannot have; types that are not named here have any."""
    choices = get_args(kind)
    if kind is bool:
        is_usable, expected = isinstance(value, bool), "True or False"
    elif kind is int:
        is_usable = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        expected = "a whole number from 0"
    elif kind is float or choices == (float, NoneType):
        may_be_none, may_be_zero = kind is not float, name in _FROM_ZERO
        is_usable = (value is None and may_be_none) or _is_secs(value, may_be_zero=may_be_zero)
        number = f"a number of seconds {'from' if may_be_zero else 'above'} 0"
        expected = f"None or {number}" if may_be_none else number
    elif get_origin(kind) is Literal:
        is_usable, names = value in choices, [repr(choice) for choice in choices]
        expected = " or ".join(names) if len(names) == 2 else f"one of {', '.join(names)}"
    elif choices == (int, NoneType):
        is_usable = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
        expected = "None or a whole number from 0"
    elif choices == (str, NoneType):
        is_usable = value is None or (isinstance(value, str) and bool(value))
        expected = "None or a string that is not empty"
    else:
        return
    if not is_usable:
        raise OptionsError(f"Options.{name} is {value!r}; expected {expected}.")


def refuse_resume_options(options: Options, facade: str) -> None:
    """Refuse `Options.verify_resume` and `Options.on_restore` for a facade that restores in a way of its own.

    Raises:
        OptionsError: if it is given.
    """
    if options.verify_resume:
        raise OptionsError(
            f"Options.verify_resume is {options.verify_resume}; {facade} cannot recompute steps before its newest "
            "checkpoint: leave it 0. What is recomputed after a kill is compared without it."
        )
    if options.on_restore is not None:
        raise OptionsError(
            f"Options.on_restore is given; {facade} restores in a way of its own: leave it None, and change the model "
            "before its checkpoint is restored."
        )


OPTION_NAMES = tuple(item.name for item in fields(Options))
"""Every option's name, for the documentation's check."""

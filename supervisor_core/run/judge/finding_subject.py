"""`Subject`: a run that is judged, and what several findings say of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor_core.base.log import command_line
from supervisor_core.checkpoint.names import last_part
from supervisor_core.run.judge.finding import KINDS, Finding
from supervisor_core.run.judge.wordings import say
from supervisor_core.run.model.checkpoints import Checkpoint, newest_there
from supervisor_core.run.model.program_launch import final_launch
from supervisor_core.run.model.run import LIVE, Run, Session
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.model.words import counted, duration
from supervisor_core.storage.local import absolute

MOST_CHARACTERS = 1_000
"""How much of a text is said: names of hosts, phases and signals in it are whatever a writer wrote."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What every rule looks at."""

    watched: WatchedRun
    now: float
    """The present wall time."""
    thresholds: Thresholds

    @property
    def run(self) -> Run:
        """The run."""
        return self.watched.run

    @property
    def last(self) -> Session | None:
        """Its newest session; None without one."""
        return self.run.sessions[-1] if self.run.sessions else None

    @property
    def is_alive(self) -> bool:
        """Whether a session is known to be alive."""
        return self.run.state in LIVE

    def is_old(self, since: float | None) -> bool:
        """Return whether something happened so long ago that it counts as known or given up."""
        return since is not None and self.now - since > self.thresholds.forget_secs

    def command(self, *words: str) -> str:
        """Return a command of tb-supervisor on the run's directory. It works in any directory."""
        return command_line("tb-supervisor", *words, "--", absolute(self.watched.directory))

    def unsuspend(self) -> str:
        """Return the command that lets a suspended process go on, on its machine."""
        return command_line("kill", "-CONT", f"{self.watched.suspended_pid}")

    def inspect(self) -> str:
        """Return the command that shows the run."""
        return self.command("inspect", "--run=.")

    def disk_space(self) -> str:
        """Return the command that shows how full the disk of the run's directory is."""
        return command_line("df", "-h", "--", absolute(self.watched.directory))

    def listing(self) -> str:
        """Return the command that shows whose the run's directory is, and what is in it."""
        return command_line("ls", "-la", "--", absolute(self.watched.directory))

    def newest_checkpoint(self) -> Checkpoint | None:
        """Return the newest successful save whose files are not known to be gone; None without one."""
        return newest_there(self.run.checkpoints)

    def unsaved(self) -> str | None:
        """Return which steps are in no checkpoint, in one sentence; None where none are, or it is unknown."""
        run, last = self.run, self.last
        if run.at_risk is not None:
            which = "" if run.at_risk.saved_step is None else f" since step {run.at_risk.saved_step:,}"
            return f"{_are(run.at_risk.steps)} in no checkpoint{which}: {duration(run.at_risk.secs)} of training."
        saved = self.newest_checkpoint()
        if last is None or last.inferred or not self.is_alive:
            return None
        if saved is None and not run.checkpoints and last.checkpoint_interval_secs and last.restored_step is None:
            return f"{_are(run.step)} in no checkpoint." if run.step and len(run.sessions) == 1 else None
        if saved is None or saved.step is None or run.step is None or run.step <= saved.step:
            return None
        until = last.last_progress_at
        long = (
            ""
            if saved.at is None or until is None or until <= saved.at
            else f": {duration(until - saved.at)} of training"
        )
        return f"{_are(run.step - saved.step)} in no checkpoint since step {saved.step:,}{long}."

    def rewind(self, good: Checkpoint) -> str | None:
        """Return the command that lets the next start resume from an earlier checkpoint; None if that is outside of the
        run's directory: a record names whatever its writer wrote, as another run's checkpoint.

        Its path is as its session named it; below the run's directory where it was below the session's.
        """
        path, directory = good.moved_to or good.path or "", self.watched.directory
        logdir = next((each.logdir for each in self.run.sessions if each.id == good.session), None)
        if logdir and path.startswith(f"{logdir}/"):
            path = f"{directory}{path.removeprefix(logdir)}"
        elif not (path.startswith("/") or "://" in path):
            path = f"{directory}/{last_part(path)}"
        path, directory = absolute(path), absolute(directory).rstrip("/")
        is_inside = path.startswith(f"{directory}/") and ".." not in path.removeprefix(directory).split("/")
        return command_line("tb-supervisor", "rewind", "--", path) if is_inside else None

    def rewinding(self, good: Checkpoint) -> str:
        """Return what lets the next start resume from an earlier checkpoint, as a clause."""
        return rewinding_with(self.rewind(good))

    def has_later(self, good: Checkpoint) -> bool:
        """Return whether a start would resume from a checkpoint that was saved after this one."""
        after = itertools.takewhile(lambda saved: saved is not good, reversed(self.run.checkpoints))
        return any(saved.ok and saved.is_there is not False for saved in after)

    def resume(self, rewound: Checkpoint | None = None) -> str:
        """Return what to do about a training that has ended: to start it again, and where it then continues.

        Args:
            rewound: where `rewind` lets it continue; None without that.
        """
        is_given_up = self.run.state == "failed" and final_launch(self.run.launches) is not None
        # Without --reset a restarter that has given the run up counts on, and soon gives it up again.
        how = "start the training again" + (" by the same tb-supervisor command with --reset" if is_given_up else "")
        saved = rewound or self.newest_checkpoint()
        return how if saved is None or saved.step is None else f"{how}; it resumes at step {saved.step:,}"


def rewinding_with(command: str | None) -> str:
    """Return a `Subject.rewind` as a clause."""
    return f"rewind it ({command})" if command else "rewind it to a checkpoint outside of the run's directory"


def found(
    kind: str,
    words: Mapping[str, object] | str,
    *,
    since: float | None = None,
    cost: str | None = None,
    action: str | None = None,
    command: str | None = None,
    is_old: bool = False,
    of: Subject | Session | None = None,
    **evidence: object,
) -> Finding:
    """Return a finding with the severity of its kind. A text that is too long is cut.

    Args:
        kind: its kind, or ``KIND/CASE`` of `WORDINGS`.
        words: what the wording has in braces; or the whole text.
        since: when it began.
        cost: see `Finding.cost`.
        action: a sentence.
        command: instead of an action.
        is_old: whether it is only an info by now.
        of: the session that it is about, for the evidence; of a subject the newest one, and the run's step.
        evidence: more of it; what is None is left out.
    """
    text = words if isinstance(words, str) else say(kind, **words)
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} ..."
    session = of.last if isinstance(of, Subject) else of
    where = {} if session is None else {"host": session.host, "pid": session.pid, "session": session.id}
    if isinstance(of, Subject):
        evidence = {"step": of.run.step, **evidence}
    kind = kind.partition("/")[0]
    return Finding(
        kind=kind,
        severity="info" if is_old else KINDS[kind].severity,
        since=since,
        text=text if text.endswith((".", "?", "!")) else f"{text}.",
        cost=cost,
        action=action if command is None else command,
        is_command=command is not None,
        evidence={name: value for name, value in {**where, **evidence}.items() if isinstance(value, (str, int, float))},
    )


def process(session: Session) -> str:
    """Return which process a session's is, as far as that is known.

    Example:
        >>> process(Session(session="a", pid=4711, host="node-3", ended_at=None, outcome="running", inferred=False))
        'Process 4711 on node-3'
    """
    who = "The process" if session.pid is None else f"Process {session.pid}"
    return who if session.host is None else f"{who} on {session.host}"


def _are(steps: int) -> str:
    return f"{counted(steps, 'step')} {'is' if steps == 1 else 'are'}"

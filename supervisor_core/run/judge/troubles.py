"""What keeps a session from recording its work, and what of it was true when its process died."""

from __future__ import annotations

import re
from typing import NamedTuple

from supervisor_core.base.log import command_line
from supervisor_core.run.judge.finding_subject import Subject
from supervisor_core.run.judge.wordings import say
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import Session
from supervisor_core.run.model.words import UNKNOWN_WHY as UNKNOWN_WHY
from supervisor_core.run.model.words import duration, sentence
from supervisor_core.storage.directory import RENAMED
from supervisor_core.storage.local import absolute

_OF_DIRECTORY = re.compile(r"Permission denied|not permitted|Not a directory|Is a directory|File exists")


class AtDeath(NamedTuple):
    """What was true of a run when its process died."""

    text: str
    """Sentences that follow others; empty where nothing was."""
    first: str
    """What to do before it is started again, as the begin of a sentence; empty where there is nothing."""
    resume: str
    """What to do then; see `Subject.resume`."""
    error: str | None


def failed_saves(about: Subject, last: Session) -> list[Checkpoint]:
    """Return the recorded saves of a session that have failed since its last good one, the newest first."""
    failed = []
    for saved in reversed(about.run.checkpoints):
        if saved.ok or saved.session != last.id:
            break
        failed.append(saved)
    return failed


def why_not_saved(last: Session, failed: list[Checkpoint]) -> str:
    """Return why the saves of a session fail."""
    return last.save_error or (failed[0].error if failed else None) or UNKNOWN_WHY


def move_back(about: Subject, last: Session, error: str | None) -> str | None:
    """Return the command that moves a logdir back that was renamed while the session ran; None if it was not."""
    if error is None or RENAMED not in error or "://" in about.watched.directory:
        return None
    if last.logdir is None or not last.logdir.startswith("/"):  # the record may be anybody's
        return None
    if is_back(about, last, error):
        return None
    return command_line("mv", "-T", "--", absolute(about.watched.directory), last.logdir)


def is_back(about: Subject, last: Session, error: str | None) -> bool:
    """Return whether all that kept files from being written was the directory's name, which it has again."""
    return error is not None and RENAMED in error and absolute(about.watched.directory) == last.logdir


def command_for(about: Subject, last: Session, error: str | None) -> str:
    """Return what shows why nothing can be written, or repairs it: by the error the name of the directory, its owner
    and rights, or else its disk."""
    back = move_back(about, last, error)
    if back is not None:
        return back
    return about.listing() if error is not None and _OF_DIRECTORY.search(error) else about.disk_space()


def at_death(about: Subject, last: Session) -> AtDeath:
    """Return what was true of a run when its process died: its directory was renamed, no checkpoint could be saved, no
    event written, the loss was not finite."""
    texts, first, error, rewound = [], "", None, None
    failed = failed_saves(about, last)
    in_a_row = max(last.save_failures_in_a_row, len(failed))
    if in_a_row >= about.thresholds.save_failures:
        error = why_not_saved(last, failed)
        since, until = failed[-1].at if failed else None, last.ended_at
        long = "" if since is None or until is None or until <= since else f" for {duration(until - since)}"
        texts.append(say("lost/unsaved", long=long, count=f"{in_a_row:,}", why=sentence(error)))
    elif last.events_error is not None:
        error = last.events_error
        texts.append(say("lost/unwritten", why=sentence(error)))
    if error is not None and not is_back(about, last, error):
        back = move_back(about, last, error) or move_back(about, last, last.events_error)
        what = "move the directory back" if back else "repair what keeps files from being written"
        first = f"{what} ({back or command_for(about, last, error)})"
    if about.run.loss_finite is False:
        since_step, good = about.run.loss_nonfinite_since, about.run.last_good
        texts.append(say("lost/nan", since="" if since_step is None else f" since step {since_step:,}"))
        if good is not None and about.has_later(good):
            rewound, command = good, about.rewinding(good)
            first = f"{first}, {command}" if first else command
    return AtDeath("".join(f" {text}" for text in texts), first, about.resume(rewound), error)

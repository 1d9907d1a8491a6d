"""`choose`: which checkpoint to resume from, and which were skipped, as a function of the existing ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supervisor_core.checkpoint import bundle
from supervisor_core.checkpoint.listing import Candidate
from supervisor_core.checkpoint.names import last_part, step_in_name
from supervisor_core.errors import DamagedCheckpointError, NoUsableCheckpointError, UnreadableCheckpointError

Verify = Callable[[str], bundle.VerifiedCheckpoint]
"""Checks one checkpoint by its path; raises `DamagedCheckpointError`."""


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was not chosen."""

    path: str
    reason: str
    is_damaged: bool = True
    """False where the file system refuses a file that may be whole; such a checkpoint is left in place."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The checkpoint to resume from, and those that were skipped."""

    chosen: Candidate | None
    """None where there is no checkpoint: a new run."""
    verified: bundle.VerifiedCheckpoint | None
    skipped: tuple[Skipped, ...] = ()
    """Newest first."""
    state_problem: str | None = None
    """The state file's problem, in one sentence; None where there is none."""


def choose(
    candidates: Sequence[Candidate],
    remains: Sequence[Skipped],
    logdir: str,
    problem: str | None,
    *,
    verify: Verify,
    start_over: bool,
) -> Recovery:
    """Walk from the first candidate to one that verifies; see `CheckpointStore.newest_usable`.

    Args:
        candidates: in the order in which to try them.
        remains: prefixes with data files and no index.
        logdir: for the error's text.
        problem: the state file's problem.
        verify: checks one.
        start_over: where all are damaged, choose none instead of raising.

    Raises:
        NoUsableCheckpointError: if there are checkpoints, and none verifies; lists each with its damage.
    """
    skipped: list[Skipped] = []
    for index, candidate in enumerate(candidates):
        verified = _try(verify, candidate.path, skipped)
        if verified is None:
            continue
        chosen = candidate
        better = _with_honest_name(candidate, verified, candidates[index + 1 :], verify)
        if better is not None:
            chosen, verified, passed_over = better
            skipped += passed_over
        skipped += [item for item in remains if (step_in_name(item.path) or -1) > _step(chosen, verified)]
        return Recovery(chosen=chosen, verified=verified, skipped=tuple(skipped), state_problem=problem)
    skipped += remains
    if skipped and not (start_over and all(item.is_damaged for item in skipped)):
        raise NoUsableCheckpointError(_none_usable(logdir, skipped, problem))
    return Recovery(chosen=None, verified=None, skipped=tuple(skipped), state_problem=problem)


def _try(verify: Verify, path: str, skipped: list[Skipped]) -> bundle.VerifiedCheckpoint | None:
    try:
        return verify(path)
    except DamagedCheckpointError as error:
        skipped.append(Skipped(path, str(error), not isinstance(error, UnreadableCheckpointError)))
        return None


def _with_honest_name(
    candidate: Candidate, verified: bundle.VerifiedCheckpoint, others: Sequence[Candidate], verify: Verify
) -> tuple[Candidate, bundle.VerifiedCheckpoint, list[Skipped]] | None:
    """Return a better candidate where this one's files are those of another step, and the skipped ones.

    A save reads the step for the name first, so a checkpoint holds that step or a later one. The better one must hold
    the step of its own name, or of this name; where names count something else, none does.
    """
    if verified.step is None or candidate.step is None or verified.step >= candidate.step:
        return None
    reason = f"{last_part(candidate.path)}: it holds step {verified.step}, not the step in its name"
    skipped = [Skipped(candidate.path, reason)]
    for other in others:
        found = _try(verify, other.path, skipped)
        if found is None or found.step is None or found.step < verified.step:
            continue
        if found.step in (other.step, candidate.step):
            return other, found, skipped
    return None


def _step(candidate: Candidate, verified: bundle.VerifiedCheckpoint) -> int:
    step = candidate.step if verified.step is None else verified.step
    return -1 if step is None else step


def _none_usable(logdir: str, skipped: Sequence[Skipped], problem: str | None) -> str:
    listed = "\n".join(f"  {item.path}: {item.reason}" for item in skipped)
    note = f"\n  ({problem})" if problem else ""
    return (
        f"None of the {len(skipped)} checkpoints of {logdir} can be read:\n{listed}{note}\n"
        "Bring one of them back (its .index file and its .data files belong together). To start at step 0, move them "
        'away, or use Options(unusable_checkpoints="start_over"), which sets damaged ones aside.'
    )

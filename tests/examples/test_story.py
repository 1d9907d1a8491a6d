from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from examples.demo.story import Story, checks, in_mid_epoch
from examples.demo.summary import show_verdict
from supervisor_core.events.telemetry import SessionRecord, StopRecord
from tests.cases import each

Spoil = Callable[[Story], object]


def verdict(story: Story) -> tuple[int, str]:
    """Return the exit status and what is printed with it."""
    text = StringIO()
    status = show_verdict(Console(file=text, width=120), story, checks(story))
    return status, text.getvalue()


def setting(number: int, **values: object) -> Spoil:
    """Spoil what was seen of a session."""

    def spoil(story: Story) -> None:
        for name, value in values.items():
            setattr(story.session(number), name, value)

    return spoil


def other_record(number: int, kind: type, **values: Any) -> Spoil:
    """Spoil what a session's own record says."""

    def spoil(story: Story) -> None:
        session = story.session(number)
        session.records = tuple(
            replace(record, **values) if isinstance(record, kind) else record for record in session.records
        )

    return spoil


def without_record(number: int, kind: type) -> Spoil:
    """Take a session's record away."""

    def spoil(story: Story) -> None:
        session = story.session(number)
        session.records = tuple(record for record in session.records if not isinstance(record, kind))

    return spoil


def inspecting(**values: Any) -> Spoil:
    """Change what the command prints."""

    def spoil(story: Story) -> None:
        assert story.inspected is not None
        story.inspected = replace(story.inspected, **values)

    return spoil


def hanging(**values: Any) -> Spoil:
    """Change what was seen of the training that hangs."""

    def spoil(story: Story) -> None:
        assert story.hang is not None
        story.hang = replace(story.hang, **values)

    return spoil


SPOILT = [
    ("starts at step 0", setting(1, start_step=5)),
    ("starts at step 0", setting(1, ready=False)),
    ("2 checkpoints", setting(1, checkpoints=[600])),
    ("SIGKILL", setting(1, exit_status=1)),
    ("SIGKILL", setting(1, last_step=600)),
    ("SIGKILL", setting(1, last_step=695)),
    ("SIGKILL", setting(1, end_step=640)),
    ("resumes from the last good", setting(1, newest_checkpoint=700)),
    ("resumes from the last good", setting(1, newest_checkpoint=None)),
    ("resumes from the last good", setting(1, checkpoints=[300, 601])),
    ("resumes from the last good", setting(2, start_step=0)),
    ("resumes from the last good", other_record(2, SessionRecord, restored_step=300)),
    ("recomputes the lost steps", setting(2, last_step=640)),
    ("SIGTERM", setting(2, exit_status=0)),
    ("SIGTERM", setting(2, exit_status=143)),
    ("SIGTERM", without_record(2, StopRecord)),
    ("SIGTERM", other_record(2, StopRecord, reason="error")),
    ("no step is lost", setting(2, end_step=1101)),
    ("no step is lost", setting(2, newest_checkpoint=900)),
    ("no step is lost", other_record(2, StopRecord, final_checkpoint_step=None)),
    ("no step is lost", setting(3, start_step=900)),
    ("no step is lost", other_record(3, SessionRecord, restored_step=900)),
    ("trains to the end", setting(3, exit_status=1)),
    ("trains to the end", setting(3, end_step=2499)),
    ("trains to the end", setting(3, newest_checkpoint=1500)),
    ("has learned", setting(3, test_accuracy=0.5)),
    ("has learned", setting(3, test_accuracy=None)),
    ("one events file", lambda story: setattr(story, "events_files", 4)),
    ("one events file", other_record(2, SessionRecord, attempt=1)),
    ("one events file", without_record(1, SessionRecord)),
    ("tb-supervisor inspect", lambda story: setattr(story, "inspected", None)),
    ("tb-supervisor inspect", inspecting(state="running")),
    ("tb-supervisor inspect", inspecting(outcomes=("lost", "completed"))),
    ("tb-supervisor inspect", inspecting(resumed_at=(600, 900))),
    ("tb-supervisor inspect", inspecting(checkpoints=6)),
    ("tb-supervisor inspect", inspecting(again=((0, 22), (0, 0)))),
    ("tb-supervisor inspect", inspecting(again=((38, None), (0, 0)))),
    ("tb-supervisor inspect", inspecting(again=((38, 60), (4, 4)))),
    ("tb-supervisor inspect", inspecting(again=((38, 60), (0, 9)))),
    ("tb-supervisor inspect", inspecting(again=((38, 60),))),
    ("interpreter is blocked", lambda story: setattr(story, "hang", None)),
    ("interpreter is blocked", hanging(exit_status=93)),
    ("interpreter is blocked", hanging(causes=("signal", "completed"))),
    ("interpreter is blocked", hanging(texts=("restarted by tb-supervisor: hung", "completed"))),
    ("interpreter is blocked", hanging(hung_at=399)),
    ("interpreter is blocked", hanging(resumed_at=None)),
    ("interpreter is blocked", hanging(last_step=400)),
]


def exact(story: Story) -> Story:
    """The same of a training whose resumes have verdicts, and of which no other one hung."""
    story.must_be_exact, story.hang = True, None
    story.session(1).losses = {580: 0.5, 610: 0.25, 630: 0.125}
    story.session(2).losses = {610: 0.25, 630: 0.125, 660: 0.0625}
    story.session(2).start_step = story.session(1).newest_checkpoint = 601
    for number, values in ((2, {"restored_step": 601}), (3, {})):
        other_record(number, SessionRecord, resume_exact=True, **values)(story)
    assert story.inspected is not None
    story.inspected = replace(story.inspected, resumed_at=(601, 1100))
    return story


INEXACT: list[Spoil] = [
    lambda story: story.session(2).losses.update({630: 0.126}),
    lambda story: story.session(2).losses.clear(),
    lambda story: setattr(story, "steps_per_epoch", 601),
    other_record(2, SessionRecord, resume_exact=False, resume_reasons=("Another number of workers: 2, 4 now.",)),
    other_record(3, SessionRecord, resume_exact=None),
    without_record(3, SessionRecord),
]


def test_an_exact_story_in_which_all_was_seen_ends_with_0(story: Story) -> None:
    """It is killed anywhere, and nothing hangs; the check says what was compared."""
    assert verdict(exact(story)) == (0, "\nAll checks passed.\n")
    (check,) = [check for check in checks(story) if "exactly" in check.promise]
    assert check.detail == "resumed in epoch 6.01; 2 of 2 recomputed losses are the same; verdicts: exact, exact"


@pytest.mark.parametrize("spoil", INEXACT)
def test_a_resume_that_was_not_exact_is_named(story: Story, spoil: Spoil) -> None:
    """A loss that differs, none to compare, a resume between two epochs, another verdict or none."""
    spoil(exact(story))
    status, text = verdict(story)
    assert status == 1
    assert "it resumes in the middle of an epoch, exactly" in text
    assert ("not exact, exact (Another number of workers: 2, 4 now.)" in text) is (spoil is INEXACT[3])


def test_a_story_in_which_all_was_seen_ends_with_0(story: Story) -> None:
    """Exit status 0 when each promise was seen to be kept, and the demo says so."""
    assert verdict(story) == (0, "\nAll checks passed.\n")


@pytest.mark.parametrize(("promise", "spoil"), SPOILT)
def test_what_was_not_seen_is_named(story: Story, promise: str, spoil: Spoil) -> None:
    """One thing that was not seen makes exit status 1, and the list names the promise."""
    spoil(story)
    status, text = verdict(story)
    assert status == 1
    assert promise in text.split("Failed checks:")[1]


def test_every_promise_is_guarded() -> None:
    """There is no promise that nothing seen could break."""
    promises = [check.promise for check in checks(Story(steps=1))]
    assert [promise for promise in promises if not any(words in promise for words, _ in SPOILT)] == []


def test_a_story_that_never_began_kept_no_promise() -> None:
    """Nothing seen proves nothing."""
    assert not any(check.seen for check in checks(Story(steps=10)))


def test_a_story_broken_off_is_no_success(story: Story) -> None:
    """Broken off at the last moment is exit status 1, with the reason."""
    story.broken_off = "the disk has gone"
    status, text = verdict(story)
    assert status == 1
    assert "Stopped early: the disk has gone" in text


def test_rewind_counts_from_where_the_session_before_had_got(story: Story) -> None:
    """Killed at 640 and resumed at 600 is 40 steps again; stopped and resumed at 1100 is none."""
    assert (story.rewind(2), story.rewind(3)) == (40, 0)
    assert Story(steps=1).rewind(2) is None


@each("step, inside", [(0, False), (19, False), (20, True), (60, True), (61, False), (730, True)])
def test_the_middle_of_an_epoch_keeps_away_from_its_ends(step: int, inside: bool) -> None:
    """A signal takes effect some steps late, so only a stretch well inside counts."""
    assert in_mid_epoch(step, 100) is inside

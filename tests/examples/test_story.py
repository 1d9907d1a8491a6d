from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from examples.demo.story import Story, checks
from examples.demo.summary import show_verdict
from supervisor_core.events.telemetry import SessionRecord, StopRecord

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


SPOILT = [
    ("starts at step 0", setting(1, start_step=5)),
    ("2 checkpoints", setting(1, checkpoints=[600])),
    ("SIGKILL", setting(1, exit_status=1)),
    ("resumes from the last good", setting(1, newest_checkpoint=700)),
    ("recomputes the lost steps", setting(2, last_step=640)),
    ("SIGTERM", other_record(2, StopRecord, reason="error")),
    ("no step is lost", setting(2, end_step=1101)),
    ("trains to the end", setting(3, end_step=2499)),
    ("has learned", setting(3, test_accuracy=None)),
    ("one events file", other_record(2, SessionRecord, attempt=1)),
    ("tb-supervisor inspect", lambda story: setattr(story, "inspected", None)),
    ("interpreter is blocked", lambda story: setattr(story, "hang", None)),
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

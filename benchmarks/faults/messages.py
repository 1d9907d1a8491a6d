"""Messages about real trainings, without a Prometheus: all troubles at the same time, all waits real, all defaults.

Each trouble happens once to a training under ``tb-supervisor run --notify``, and once to one that a single
``tb-supervisor watch --notify`` sees beside all others. A receiver on this machine takes what they send.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.faults.message_stage import Case, Stage, Way
from benchmarks.faults.message_stories import STORIES, Story
from benchmarks.faults.trial import Fault, Outcome, Trial

_LOCK = threading.Lock()
_stages: dict[Path, Stage] = {}


def _stage(parent: Path) -> Stage:
    """Return what all trials share, of this directory; started by the first one that comes."""
    with _LOCK:
        if parent not in _stages:
            _stages[parent] = Stage(parent / "messages", [case for story in STORIES for case in _cases(story)])
            _stages[parent].start()
        return _stages[parent]


def _number(story: Story) -> int:
    return story.copies * len(story.scripts)


def _cases(story: Story) -> list[tuple[Story, Way]]:
    ways: tuple[Way, ...] = ("watch", "run")
    return [(story, way) for way in ways if way in story.scripts]


def _told(trial: Trial, trials: int, story: Story) -> Iterator[Outcome]:
    """Wait until the stage is over, and judge what was sent of a story."""
    stage = _stage(trial.directory.parent)
    stage.wait()
    cases: list[Case] = [case for case in stage.cases if case.story is story]
    for case in cases[:trials]:
        yield stage.judged(case)


FAULTS = tuple(
    Fault(
        name=story.text,
        survived=story.survived,
        long=_number(story),
        short=0,
        batch=_number(story),
        needs="apprise",
        starts_with=("unshare", "--mount") if story.disk_megabytes else (),
        run=partial(_told, story=story),
    )
    for story in STORIES
)

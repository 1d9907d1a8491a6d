"""What the workers say of themselves, as the judgement takes it: how long nobody may make progress, who is silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor_core.events.place import Place, WorkerStatus
from supervisor_core.run.judge.cluster import SILENT_SECS, name_of_chief, place_text, ranks_of, shared_timeout
from tests.cases import each

NOW = 1000.0
PLACE = Place(digest="a", location="/home/me/train.py:25 train", waits_in="backward")
LATE = WorkerStatus(
    name="rank:1", state="running", phase="training", step=7, last_seen_at=NOW - 1, progress_age_secs=7.0,
    hang_timeout_secs=6.0, place=PLACE,
)  # fmt: skip


def test_nobody_makes_progress() -> None:
    """The shortest hang timeout of those that train counts, the chief's among them."""
    other = replace(LATE, name="rank:2", hang_timeout_secs=500.0)
    assert shared_timeout([LATE, other], NOW, own_secs=300.0) == 6.0
    assert shared_timeout([LATE, other], NOW, own_secs=5.0) == 5.0
    assert shared_timeout([other], NOW, own_secs=None) is None  # within its own
    assert shared_timeout([], NOW, own_secs=6.0) == 6.0


@each(
    "change, is_explained",
    [
        ({"progress_age_secs": 0.1, "place": None}, True),  # it makes progress
        ({"progress_age_secs": 5.5, "place": PLACE, "last_seen_at": NOW}, True),
        ({"progress_age_secs": 5.5, "place": PLACE, "last_seen_at": NOW - 1}, False),  # and a second more by now
        ({"phase": "evaluating", "hang_timeout_secs": 3600.0}, True),
        ({"phase": "evaluating", "hang_timeout_secs": 6.5}, False),  # for too long
        ({"held": True, "hang_timeout_secs": 300.0}, True),  # it waits for a save
        ({"phase": "restoring", "hang_timeout_secs": 1800.0, "state": "waiting"}, True),
        ({"progress_age_secs": None, "hang_timeout_secs": None, "place": None}, True),  # an older version says nothing
        ({"phase": "serving", "progress_age_secs": None, "place": None}, False),  # nobody waits for a parameter server
        ({"state": "stopped", "progress_age_secs": 0.1, "place": None}, False),
        ({"state": "lost", "progress_age_secs": 0.1, "place": None}, False),
        ({"progress_age_secs": 0.1, "place": None, "last_seen_at": NOW - SILENT_SECS - 1}, False),
        ({"state": "failed", "progress_age_secs": 0.1, "place": None}, False),
    ],
)
def test_one_worker_may_keep_the_others_waiting(change: dict[str, Any], is_explained: bool) -> None:
    """It makes progress, or does something else for which it still has time."""
    found = shared_timeout([LATE, replace(LATE, name="rank:2", **change)], NOW, own_secs=6.0)
    assert (found is None) == is_explained


def test_who_is_judged() -> None:
    """Those that take part; one that is gone is silent, wherever it was."""
    lost = replace(LATE, name="rank:2", state="lost", last_seen_at=NOW - 40)
    server = replace(LATE, name="ps:0", phase="serving")
    ranks = ranks_of([LATE, lost, server], NOW, least_secs=6.0)
    assert ranks is not None
    assert [(rank.name, rank.place, rank.unresponsive, rank.silent_secs) for rank in ranks] == [
        ("rank:1", PLACE, None, None),
        ("rank:2", None, "silent", 40.0),
    ]


def test_one_that_goes_on_waits_for_nobody() -> None:
    """A worker of a cluster that is not synchronous."""
    assert ranks_of([LATE, replace(LATE, place=None, progress_age_secs=0.1)], NOW, least_secs=None) is None


def test_what_is_said_of_one() -> None:
    """Where it is, while it makes no progress."""
    assert place_text(LATE) == "no progress for 7 s, at train.py:25 in train (backward)"
    assert place_text(replace(LATE, place=None)) is None
    assert (name_of_chief([LATE.name]), name_of_chief(["worker:1"])) == ("rank:0", "chief")

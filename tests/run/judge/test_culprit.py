"""Which process keeps the others waiting: `verdict_of`, and what makes two stacks one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from supervisor_core.events.telemetry import Pace, Place, WorkerStatus
from supervisor_core.process.stacks import KEPT_FRAMES, MAX_FRAME, digest, kept, waits_in
from supervisor_core.run.judge.culprit import (
    SILENT_SECS,
    Paced,
    Rank,
    RankGroup,
    name_of_chief,
    place_text,
    ranks_of,
    shared_timeout,
    straggler,
    verdict_of,
)
from supervisor_core.run.model.words import named
from tests.cases import each

PACKAGES = "/usr/lib/python3.11/site-packages"
TRAIN = "/home/me/train.py:25 train"
USER = ("/home/me/train.py:25 train", "/home/me/train.py:14 stuck_in_user_code")
BACKWARD = (
    TRAIN,
    f"{PACKAGES}/torch/_tensor.py:625 backward",
    f"{PACKAGES}/torch/autograd/graph.py:8 _engine_run_backward",
)
BARRIER = (
    "/home/me/train.py:30 train",
    f"{PACKAGES}/torch/distributed/c10d_logger.py:81 wrapper",
    f"{PACKAGES}/torch/distributed/distributed_c10d.py:4700 barrier",
)
LOADER = ("/home/me/train.py:20 train", f"{PACKAGES}/torch/utils/data/dataloader.py:1275 _try_get_data")


def place(stack: tuple[str, ...]) -> Place:
    """Return what a process with this stack publishes."""
    own = [line for line in stack if PACKAGES not in line][-1]
    return Place(digest=digest(stack), location=own, waits_in=waits_in(stack), frames=kept(stack))


def ranks(*stacks: tuple[str, ...]) -> list[Rank]:
    """Return ranks with these stacks, at one step."""
    return [
        Rank(name=f"rank:{number}", place=place(stack), phase="training", step=7) for number, stack in enumerate(stacks)
    ]


def changed(found: list[Rank], index: int, **how: Any) -> list[Rank]:
    """Return the ranks, one of them with changes."""
    return [replace(rank, **how) if number == index else rank for number, rank in enumerate(found)]


def text_of(found: list[Rank]) -> str:
    """Return the verdict's text."""
    verdict = verdict_of(found)
    assert verdict is not None
    return verdict.text


def test_the_rank_that_did_not_come_is_named() -> None:
    """Two wait in backward for one in user code."""
    verdict = verdict_of(ranks(BACKWARD, BACKWARD, USER))
    assert verdict is not None
    assert [group.ranks for group in verdict.culprits] == [("rank:2",)]
    assert [(group.ranks, group.waits_in) for group in verdict.others] == [(("rank:0", "rank:1"), "backward")]
    assert verdict.text == (
        "rank 2 hangs at train.py:14 in stuck_in_user_code; ranks 0 and 1 wait for it at train.py:25 (backward)"
    )


SILENT = Rank(name="rank:2", unresponsive="silent", silent_secs=40.0)


@each(
    "found, text",
    [
        (ranks(USER, BACKWARD), "rank 0 hangs at train.py:14"),  # one that waits is not the cause
        (
            ranks(BARRIER, LOADER),
            "rank 1 hangs at train.py:20 in train; rank 0 waits for it at train.py:30 (barrier)",
        ),
        (  # a tie
            ranks(BARRIER, BACKWARD),
            "undecided: two groups: rank 0 at train.py:30 (barrier), rank 1 at train.py:25 (backward)",
        ),
        # the collective itself does not end
        (ranks(BACKWARD, BACKWARD, BACKWARD), "undecided: ranks 0 to 2 are all at train.py:25 (backward)"),
        (ranks(BACKWARD, BARRIER, BACKWARD), "rank 1 hangs at train.py:30 (barrier); ranks 0 and 2"),
        (  # one of three waits in the same collective, a step behind
            changed(ranks(BACKWARD, BACKWARD, BACKWARD), 1, step=6),
            "rank 1 hangs at train.py:25 (backward) at step 6; "
            "ranks 0 and 2 wait for it at train.py:25 (backward) at step 7",
        ),
        (  # two of three are behind: the third one has perhaps left out a collective
            changed(ranks(BARRIER, BARRIER, BACKWARD), 2, step=8),
            "undecided: two groups: ranks 0 and 1 at train.py:30 (barrier) at step 7",
        ),
        (changed(ranks(BACKWARD, BACKWARD, USER), 2, step=8), "undecided"),  # it has done what the others wait in
        (ranks(BACKWARD, USER, LOADER), "undecided: three groups: "),  # one of them may wait in what is not known
        (ranks(BACKWARD, USER, USER), "undecided: two groups: ranks 1 and 2 at train.py:14"),
        (
            changed(ranks(LOADER, LOADER, USER), 2, phase="evaluating"),
            "rank 2 hangs at train.py:14 in stuck_in_user_code in the phase evaluating; "
            "ranks 0 and 1 are at train.py:20 in train in the phase training",
        ),
        (
            [*ranks(BACKWARD, BACKWARD), SILENT],
            "rank 2 has written nothing for more than 30 s; ranks 0 and 1 wait for it at train.py:25 (backward)",
        ),
        ([*ranks(BACKWARD, USER), SILENT], "undecided: three groups: "),  # of one that hangs besides, nobody knows
        (
            [*ranks(BACKWARD), *(Rank(name=f"rank:{number}", unresponsive="failed") for number in (1, 2))],
            "ranks 1 and 2 have failed; rank 0 waits for them at train.py:25 (backward)",
        ),
        (
            [Rank(name="rank:0", unresponsive="blocked", silent_secs=40.0), ranks(BACKWARD, BACKWARD)[1]],
            "rank 0 has run no Python for more than 30 s: native code holds the interpreter lock; "
            "rank 1 waits for it at train.py:25 (backward)",
        ),
        (  # the one whose place is not known may be the cause, or a waiter
            [*ranks(BACKWARD, BACKWARD), Rank(name="rank:2", phase="training", step=7)],
            "undecided: two groups: ranks 0 and 1 at train.py:25 (backward), rank 2 at an unknown place",
        ),
        (  # within its own hang timeout
            changed(ranks(BACKWARD, USER), 1, phase="evaluating", is_late=False),
            "rank 1 is at train.py:14 in stuck_in_user_code in the phase evaluating; ",
        ),
    ],
)
def test_who_keeps_the_others_waiting(found: list[Rank], text: str) -> None:
    """Who is gone, in no collective, behind, in another phase or place; where that may be wrong, nobody is named."""
    assert text_of(found).startswith(text)


def test_what_others_wrote_stays_in_its_line() -> None:
    """Names and operations are from files of others; a time is said in few steps."""
    waits = replace(place(BACKWARD), waits_in="back\nward\x1b[31m")
    text = text_of([Rank(name="gpu\n17", place=waits), Rank(name="x" * 1000, unresponsive="silent", silent_secs=700.0)])
    assert text.isprintable() and len(text) < 300
    assert "has written nothing for more than 10 min" in text


def test_an_unknown_place_is_undecided() -> None:
    """The one whose place is not known may be the cause, or a waiter."""
    found = [*ranks(BACKWARD, BACKWARD), Rank(name="rank:2", phase="training", step=7)]
    assert text_of(found) == (
        "undecided: two groups: ranks 0 and 1 at train.py:25 (backward), rank 2 at an unknown place"
    )


def test_one_that_may_still_take_its_time_does_not_hang() -> None:
    """It is within its own hang timeout: it is there, that is all."""
    found = ranks(BACKWARD, USER)
    found[1] = replace(found[1], phase="evaluating", is_late=False)
    assert text_of(found).startswith("rank 1 is at train.py:14 in stuck_in_user_code in the phase evaluating; ")


def test_nothing_to_judge() -> None:
    """One process; or no place of any."""
    assert verdict_of(ranks(USER)) is None
    assert verdict_of([Rank(name="rank:0"), Rank(name="rank:1")]) is None


@each(
    "stack, operation",
    [
        (BACKWARD, "backward"),
        (BARRIER, "barrier"),
        (USER, None),
        (LOADER, None),
        (
            (TRAIN, f"{PACKAGES}/torch/nn/parallel/distributed.py:9 DistributedDataParallel._sync_buffers"),
            "sync_buffers",
        ),
        ((*BACKWARD, "/home/me/model.py:9 backward"), None),  # a function of the program's own within backward
        ((TRAIN, f"{PACKAGES}/torch/nn/parallel/distributed.py:9 forward", f"{PACKAGES}/model.py:3 forward"), None),
        ((TRAIN, f"{PACKAGES}/torch/distributed/checkpoint/filesystem.py:9 write"), None),
        ((*BARRIER, "/usr/lib/python3.11/contextlib.py:144 __exit__"), "barrier"),
        ((TRAIN, f"{PACKAGES}/jax/_src/array.py:630 _value"), "device"),
        ((TRAIN, f"{PACKAGES}/torch/distributed/distributed_c10d.py"), None),
        ((), None),
    ],
)
def test_collectives_are_known_by_the_innermost_frame(stack: tuple[str, ...], operation: str | None) -> None:
    """What runs within a library's call for a collective is no wait."""
    assert waits_in(stack) == operation


def test_a_library_that_waits_in_a_loop_is_at_one_place() -> None:
    """Its line changes; a line of the program's own is another place."""
    assert digest(BACKWARD) == digest((*BACKWARD[:-1], BACKWARD[-1].replace(":8 ", ":9 ")))
    assert digest(BACKWARD) != digest(("/home/me/train.py:26 train", *BACKWARD[1:]))
    assert digest(BACKWARD) != digest(BACKWARD[:-1])


def test_what_is_published_is_bounded_and_has_the_programs_line() -> None:
    """A deep stack in a library; a long path."""
    deep = (TRAIN, *(f"{PACKAGES}/torch/nn.py:{line} call" for line in range(100)))
    assert len(kept(deep)) == KEPT_FRAMES
    assert kept(deep)[0] == TRAIN
    assert kept(("/" + "x" * 1000 + ":1 f",))[0].endswith(":1 f")
    assert len(kept(("/" + "x" * 1000 + ":1 f",))[0]) == MAX_FRAME


def test_names_of_many() -> None:
    """A thousand ranks are a short text."""
    assert named([f"rank:{number}" for number in range(1000)]) == "ranks 0 to 999"
    assert named([f"rank:{number}" for number in range(0, 1000, 2)]).endswith("12, 14 and 492 more")
    assert named(["chief", "worker:1", "worker:0"]) == "chief and workers 0 and 1"


def test_a_thousand_places_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chief does this once a second while it hangs."""

    def compare(one: RankGroup, other: object) -> bool:
        raise AssertionError("two groups were compared")

    monkeypatch.setattr(RankGroup, "__eq__", compare)
    gone = [Rank(name=f"rank:{number}", step=number, unresponsive="silent", silent_secs=99.0) for number in range(1000)]
    assert text_of(gone).endswith("; and 996 more")


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


def paced(*paces: tuple[float, float]) -> list[Paced]:
    """Ranks with their seconds for a step, and those of their own."""
    return [
        Paced(name=f"rank:{rank}", host=f"host-{rank}", pace=Pace(step_secs=step_secs, own_secs=own_secs))
        for rank, (step_secs, own_secs) in enumerate(paces)
    ]


@each(
    "paces, found",
    [
        ([(0.2, 0.05), (0.2, 0.12), (0.21, 0.04)], ("rank:1", True, 0.12, 0.045)),
        ([(0.2, 0.05), (0.2, 0.19)], ("rank:1", True, 0.19, 0.05)),
        ([(0.2, 0.2), (0.5, 0.5), (0.22, 0.22)], ("rank:1", False, 0.5, 0.21)),  # each for itself
        ([(0.2, 0.05), (0.2, 0.09), (0.2, 0.05)], None),  # by chance
        ([(0.2, 0.2), (0.22, 0.22)], None),
        ([(0.2, 0.19), (0.2, 0.2), (0.2, 0.18)], None),  # all of them compute
        ([(0.2, 0.2)], None),
        ([(0.0, 5.0), (0.2, 0.2)], None),  # forged
        ([(0.2, 1e14), (0.2, 0.2)], None),
        ([], None),
    ],
)
def test_who_is_slower_by_more_than_a_quarter_of_a_step(
    paces: Sequence[tuple[float, float]], found: tuple[str, bool, float, float] | None
) -> None:
    """By what it does not wait, where steps take the same; else by the steps."""
    slow = straggler(paced(*paces))
    assert (slow is None) == (found is None)
    if slow is not None and found is not None:
        assert (slow.paced.name, slow.is_waited_for, slow.secs) == found[:3]
        assert slow.usual_secs == pytest.approx(found[3])

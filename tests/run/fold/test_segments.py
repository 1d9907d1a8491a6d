from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from supervisor_core.events.columns import Columns
from supervisor_core.run.fold.points import UNKNOWN, Segments, abandoned_after_steps
from supervisor_core.run.model.run import Recovery, Restart, Run
from tests.cases import each
from tests.tb_plugin.conftest import a_run, a_session


def restarted(*sessions: tuple[str, int | None, int | None]) -> Run:
    """A run of sessions, each with the step it went on from and the step it got to."""
    return a_run(
        sessions=tuple(a_session(id, first_step=first, last_step=last) for id, first, last in sessions),
        restarts=tuple(
            Restart(
                at=None,
                from_session=before[0],
                to_session=after[0],
                reason="lost",
                from_step=before[2],
                to_step=after[1],
                rewind_steps=None,
                downtime_secs=None,
                inferred=False,
            )
            for before, after in itertools.pairwise(sessions)
        ),
    )


def test_an_inferred_restart_went_back_to_before_its_first_point() -> None:
    """Of an inferred session only the first written step is known: that one was recomputed, too."""
    run = restarted(("one", 0, 130), ("two", 101, 200))
    inferred = tuple(dataclasses.replace(session, inferred=True) for session in run.sessions)
    assert abandoned_after_steps(dataclasses.replace(run, sessions=inferred)) == {"one": 100}
    run = restarted(("one", 0, 9), ("two", 0, 9))
    inferred = tuple(dataclasses.replace(session, inferred=True) for session in run.sessions)
    assert abandoned_after_steps(dataclasses.replace(run, sessions=inferred)) == {"one": -1}


@each(
    "sessions, abandoned",
    [
        ((("one", 0, 130), ("two", 100, 200)), {"one": 100}),
        ((("one", 0, 130), ("two", 130, 200)), {}),  # it ended with a checkpoint
        ((("one", 0, 130), ("two", None, 200)), {}),  # unknown
        ((("one", 0, None), ("two", 100, 200)), {"one": 100}),  # its points show which steps were recomputed
        # A restart from before its predecessor's own start undoes what an earlier session had kept.
        ((("one", 0, 130), ("two", 100, 110), ("three", 50, 60), ("four", 60, 300)), {"one": 50, "two": 50}),
    ],
)
def test_what_a_restart_went_back_over_is_abandoned(
    sessions: tuple[tuple[str, int | None, int | None], ...], abandoned: dict[str, int]
) -> None:
    """A session's points above the step that a later one went on from were done again."""
    assert abandoned_after_steps(restarted(*sessions)) == abandoned


def owners(run: Run, path: str, walls: list[float]) -> dict[int, list[float]]:
    """The wall times of a file's points, by the segment that they are given to."""
    column = np.array(walls)
    return {
        owner: columns.walls.tolist() for owner, columns in Segments(run).split(path, Columns(column, column, column))
    }


def test_a_file_belongs_to_its_session() -> None:
    """Every point of a file is its session's, whatever the wall times say."""
    run = a_run(sessions=(a_session("one", files=("/f1", "/f2")), a_session("two", files=("/f3",))))
    assert owners(run, "/f2", [0.0, 9e9]) == {0: [0.0, 9e9]}
    assert owners(run, "/f3", [1.0]) == {1: [1.0]}


def test_a_file_of_several_sessions_is_divided_by_time() -> None:
    """Where a program trained twice with one writer, each point is that session's which had begun last."""
    run = a_run(
        sessions=(
            a_session("one", started_at=100.0, files=("/f",)),
            a_session("two", started_at=200.0, files=("/f",)),
            a_session("three", started_at=None, files=("/other",)),
        )
    )
    assert owners(run, "/f", [50.0, 199.0, 200.0, 300.0]) == {0: [50.0, 199.0], 1: [200.0, 300.0]}
    assert owners(run, "/f", [250.0]) == {1: [250.0]}


def test_points_whose_times_fall_are_divided_all_the_same() -> None:
    """Points of one segment stay in their order, wherever those of others stand between them."""
    sessions = (a_session("one", started_at=100.0, files=("/f",)), a_session("two", started_at=200.0, files=("/f",)))
    walls = [150.0, 250.0, 140.0, 240.0, float("nan")]
    assert owners(a_run(sessions=sessions), "/f", walls[:-1]) == {0: [150.0, 140.0], 1: [250.0, 240.0]}
    assert sum(map(len, owners(a_run(sessions=sessions), "/f", walls).values())) == len(walls)


class Walked(tuple[Recovery, ...]):
    """Counts how often it is walked over."""

    walks = 0

    def __iter__(self) -> Iterator[Recovery]:
        self.walks += 1
        return super().__iter__()


def test_recoveries_are_walked_over_once() -> None:
    """However many sessions there are, each recovery is looked at once: ten thousand of both take no seconds."""
    sessions = tuple(a_session(f"s{at}", started_at=100.0 * at, files=("/f",)) for at in range(50))
    recoveries = Walked(recovery(session.id, 10.0 + 100.0 * at, at) for at, session in enumerate(sessions))
    recoveries.walks = 0
    found = owners(a_run(sessions=sessions, recoveries=recoveries), "/f", [100.0 * at + 50.0 for at in range(50)])
    assert found == {2 * at + 1: [100.0 * at + 50.0] for at in range(50)}
    assert recoveries.walks == 1


def test_a_file_of_no_session_is_of_none() -> None:
    """Points of files in which no session was found are there all the same."""
    assert owners(a_run(), "/f", [1.0, 2.0]) == {UNKNOWN: [1.0, 2.0]}
    assert Segments(a_run()).describe([UNKNOWN]) == [{"session": None, "abandoned_after_step": None}]


def recovery(session: str, at: float, to_step: int | None) -> Recovery:
    """A restart within a session that went on from a step."""
    return Recovery(
        session=session,
        at=at,
        secs=1.0,
        error="AbortedError",
        losses=1,
        step=None,
        restored_step=to_step,
    )


def test_a_recovery_divides_its_session() -> None:
    """What was written before a restart within the session is a segment of its own, abandoned from the step that it
    went back to; a later recovery, or restart, that went back further undoes more of it."""
    sessions = (
        a_session("one", started_at=100.0, last_step=90, files=("/f",)),
        a_session("two", started_at=900.0, first_step=70, last_step=95, files=("/g",)),
    )
    run = a_run(
        sessions=sessions,
        recoveries=(recovery("one", 200.0, 40), recovery("one", 300.0, 30), recovery("one", 400.0, None)),
        restarts=restarted(("one", 0, 90), ("two", 70, 95)).restarts,
    )
    assert owners(run, "/f", [150.0, 199.0, 200.0, 350.0, 500.0]) == {
        0: [150.0, 199.0],
        1: [200.0],
        2: [350.0],
        3: [500.0],
    }
    assert owners(run, "/g", [901.0]) == {4: [901.0]}
    described = Segments(run).describe([0, 1, 2, 3, 4])
    assert [(item["session"], item["abandoned_after_step"]) for item in described] == [
        ("one", 30),
        ("one", 30),
        ("one", 70),
        ("one", 70),
        ("two", None),
    ]


def test_a_point_is_kept_unless_its_segment_was_abandoned_before_its_step() -> None:
    """Of each point by itself, in the order of the file; the last step that was kept is kept. Points of no session, and
    of one that was not abandoned, are kept whatever their step."""
    sessions = (
        a_session("one", started_at=100.0, last_step=130, files=("/f",)),
        a_session("two", started_at=200.0, first_step=100, last_step=200, files=("/f", "/g")),
    )
    run = a_run(sessions=sessions, restarts=restarted(("one", 0, 130), ("two", 100, 200)).restarts)
    steps, walls = np.array([99, 100, 101, 101, 2**63 - 1, 130]), np.array([150.0, 160.0, 170.0, 250.0, 260.0, 190.0])
    segments, columns = Segments(run), Columns(steps, walls, walls)
    assert segments.kept("/f", columns).tolist() == [True, True, False, True, True, False]
    assert segments.owners("/f", walls).tolist() == [0, 0, 0, 1, 1, 0]
    assert segments.kept("/g", columns).all() and segments.kept("/nobody's", columns).all()
    assert [segments.session(index) for index in (0, 1, UNKNOWN)] == ["one", "two", None]

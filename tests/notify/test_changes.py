"""What is said of a run, and what is not: each change once, in the words of the findings."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from supervisor_core.notify.changes import Changes
from supervisor_core.notify.event import Topic, event_json
from supervisor_core.run.judge.finding import KINDS
from supervisor_core.run.judge.held import MOMENTS, QUIET
from supervisor_core.run.model.thresholds import Thresholds
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.conftest import StillClock
from tests.story import stories as voice_stories
from tests.story.lives import NOT_SCRIPTED, random_life, short
from tests.story.scene import (
    BEGAN,
    DAY,
    HOUR,
    MINUTE,
    Hangs,
    Scene,
    Scripted,
    launch,
    names,
    trains,
)

STORIES = voice_stories.STORIES
LATER = {
    "has a damaged checkpoint": ["warn begins checkpoint_overdue"],
    "has a checkpoint in doubt": ["warn begins checkpoint_overdue"],
    "recovers all the time": ["page is_over recovery_loop"],
    "dies after its first event, by another writer": ["page begins lost"],
}
"""What is said of stories that go on after the first look, beside what is said at that moment."""
NOT_SENT = (*QUIET, "notice")


@pytest.fixture(scope="module")
def told_stories(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """All stories, watched for 20 minutes."""
    scene = Scene(tmp_path_factory.mktemp("stories"))
    go_on = [story.write(scene.logdir / name, BEGAN) for name, story in STORIES.items()]
    scene.look()
    scene.go_on(20 * MINUTE, *go_on, every=30.0)
    return scene


@pytest.mark.parametrize("name", STORIES)
def test_a_story_that_is_so_at_the_first_look(told_stories: Scene, name: str) -> None:
    """What needs somebody is said once, in the words of the finding; what ended before, or long ago, is not."""
    said = [each.split() for each in STORIES[name].says]
    is_over = "completed" in name or name == "had nothing to do"
    expected = [
        f"{severity} {'happened' if kind in MOMENTS else 'begins'} {kind}"
        for severity, kind in said
        if kind not in NOT_SENT and severity == KINDS[kind].severity and not is_over
    ]
    events = [event for _, event in told_stories.told if event.run == name and event.kind != "notice"]
    assert sorted(names(events)) == sorted(expected + LATER.get(name, []))
    if expected and expected[0].endswith(said[0][1]):
        first = next(event for event in events if event.kind == said[0][1])
        assert first.text.startswith(f"{name}: ") and STORIES[name].words.removesuffix(".") in first.text
        assert first.action or first.severity == "info"
    assert all(event.logdir == str(told_stories.logdir / name) for event in events)


def test_every_event_has_its_own_id_and_fits_the_schema(told_stories: Scene) -> None:
    """No two events share an id; each is JSON as the published schema says."""
    events = [event for _, event in told_stories.told]
    assert len({event.id for event in events}) == len(events) > 30
    schema = json.loads((Path(__file__).parents[2] / "docs" / "event.schema.json").read_text())
    for event in events:
        jsonschema.validate(json.loads(json.dumps(event_json(event))), schema)


def _oom(tmp_path: Path) -> tuple[Scene, Any]:
    """A run that is OOM-killed 20 minutes after its begin, and is started again within 8 s."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    launch(run, 1, BEGAN)
    first = Scripted(run, BEGAN, rate=2.0, host="gpu-7")
    scene.go_on(20 * MINUTE, trains(first))
    launch(run, 1, BEGAN, first.at + 1, cause="oom", session=first.session, oom_kills=1)
    launch(run, 2, first.at + 8)
    second = Scripted(run, first.at + 8, attempt=2, step=first.step - 120, rate=2.0, host="gpu-7",
                      placed={"previous_outcome": "lost", "previous_step": first.step})  # fmt: skip
    return scene, second


def test_a_restart_within_the_hold_is_told_as_a_restart_only(tmp_path: Path) -> None:
    """With how it ended, where, how long it was down, and what was recomputed."""
    scene, second = _oom(tmp_path)
    events = scene.go_on(5 * MINUTE, trains(second))
    assert names(events) == ["restart happened restarted"]
    (event,) = events
    assert event.text == (
        "tuning: OOM-killed at step 2,383 on gpu-7; restarted after 8 s, at least 120 steps recomputed"
    )
    assert (event.run, event.host, event.step, event.severity) == ("tuning", "gpu-7", 2383, "warn")


def test_a_death_is_told_after_its_hold_and_over_when_the_run_is_back(tmp_path: Path) -> None:
    """Not before the alert's time and at most a look after it; then its restart, once."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    first = Scripted(run, BEGAN)
    scene.go_on(20 * MINUTE, trains(first))
    died = first.at
    events = scene.go_on(10 * MINUTE)
    assert names(events) == ["page begins lost"]
    (told_at,) = (at for at, event in scene.told if event.kind == "lost")
    assert died + 45.0 <= told_at < died + 45.0 + 15.0
    assert events[0].at == pytest.approx(died, abs=1.0) and "no sign of life" in events[0].text
    second = Scripted(run, scene.now, attempt=2, step=first.step - 600)
    (again,) = scene.go_on(5 * MINUTE, trains(second))
    assert names([again]) == ["page is_over lost"]
    assert again.text == (
        "tuning: lost at step 11,915 on trainer-0; restarted after 10 min, at least 600 steps recomputed"
    )


@pytest.mark.parametrize("how", ["hung", "failed"])
@pytest.mark.parametrize("topics", [("page", "restart"), ("page",), ("restart",)])
def test_a_restart_is_one_message_however_slowly_it_starts(tmp_path: Path, how: str, topics: tuple[Topic, ...]) -> None:
    """The launch begins, and its session a minute later: what was said is over with the session, not with the launch.
    Who did not want to be told of the death gets the restart."""
    run, scene = tmp_path / "tuning", Scene(tmp_path, changes=Changes(topics=topics))
    launch(run, 1, BEGAN)
    first = Scripted(run, BEGAN)
    scene.go_on(20 * MINUTE, trains(first))
    if how == "hung":
        begins, hang = "stalled", [Hangs(first, thread="MainThread", location="/app/train.py:88 load")]
    else:
        begins, hang = "failed", []
        first.stop("error", error="ValueError: no such class")
    scene.go_on(10 * MINUTE, *hang)
    if how == "hung":
        launch(run, 1, BEGAN, first.at + 1, cause="hang", session=first.session)
    launch(run, 2, scene.now + 1)
    scene.go_on(90.0)
    second = Scripted(run, scene.now, attempt=2, step=first.step - 600)
    scene.go_on(5 * MINUTE, trains(second))
    one = "restart happened restarted" if topics == ("restart",) else f"page is_over {begins}"
    assert names(event for _, event in scene.told) == [f"page begins {begins}"] * ("page" in topics) + [one]
    last = scene.told[-1][1]
    assert how in last.text and "; restarted after " in last.text and last.at == second.start


def test_a_hang_that_ends_in_a_death_is_over_with_the_page_of_it(tmp_path: Path) -> None:
    """No good news shortly before: both come with one look."""
    scene = Scene(tmp_path)
    first = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(20 * MINUTE, trains(first))
    scene.go_on(10 * MINUTE, Hangs(first, thread="MainThread", location="/app/train.py:88 load"))
    scene.go_on(5 * MINUTE)
    assert names(event for _, event in scene.told) == [
        "page begins stalled",
        "page is_over stalled",
        "page begins lost",
    ]
    assert scene.told[1][0] == scene.told[2][0]


def test_a_hang_is_told_with_its_line_and_over_when_it_goes_on(tmp_path: Path) -> None:
    """Once each, however often it is looked at."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    session = Scripted(run, BEGAN)
    scene.go_on(20 * MINUTE, trains(session))
    hang = Hangs(session, thread="MainThread", location="/app/train.py:88 load")
    events = scene.go_on(10 * MINUTE, hang)
    assert names(events) == ["page begins stalled"]
    where = "MainThread is at train.py:88 in load"
    assert events[0].text.startswith(f"tuning: No progress in the phase training: {where} (process 4001 on trainer-0)")
    assert "(for 5 min 44 s)" in events[0].text and events[0].at == hang.since
    hang.end()
    events = scene.go_on(10 * MINUTE, trains(session))
    assert names(events) == ["page is_over stalled"] and "makes progress again after 9 min 50 s" in events[0].text


def test_saves_that_fail_are_told_and_over_with_a_good_one(tmp_path: Path) -> None:
    """Two failures in a row for a minute, then a save that succeeds."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(20 * MINUTE, trains(session))
    events = scene.go_on(10 * MINUTE, trains(session, failing_saves=True))
    assert names(events) == ["page begins saves_failing"] and "No space left on device" in events[0].text
    events = scene.go_on(10 * MINUTE, trains(session))
    assert names(events) == ["page is_over saves_failing"] and "saves again" in events[0].text


def test_a_hang_of_less_than_its_hold_is_not_told(tmp_path: Path) -> None:
    """A quarter of a minute past the hang timeout."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(20 * MINUTE, trains(session))
    hang = Hangs(session)
    assert scene.go_on(315.0, hang) == []
    hang.end()
    assert scene.go_on(10 * MINUTE, trains(session)) == []


@pytest.mark.parametrize("reason", ["completed", "exhausted"])
def test_a_completed_run_is_told_with_its_duration_and_goodput(tmp_path: Path, reason: str) -> None:
    """At once, and once."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(2 * HOUR, trains(session), every=60.0)
    session.stop(reason)
    events = scene.go_on(HOUR, every=60.0)
    assert names(events) == ["end happened completed"]
    assert events[0].text == "tuning: completed after 2 h, goodput 99.5 %" and scene.told[0][0] <= session.at + 60.0


def test_a_planned_stop_is_an_end(tmp_path: Path) -> None:
    """By its own request at once; it is no page."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(HOUR, trains(session), every=60.0)
    session.stop("requested")
    events = scene.go_on(HOUR, every=60.0)
    assert names(events) == ["end happened stopped"]
    assert events[0].text.startswith("tuning: stopped at step 35,815 after 1 h")


def test_a_preemption_that_resumes_is_quiet(tmp_path: Path) -> None:
    """Neither an end nor a restart, but an info."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    session = Scripted(run, BEGAN)
    scene.go_on(HOUR, trains(session), every=15.0)
    session.stop("signal", signal="SIGTERM")
    assert scene.look(session.at + 20) == []
    second = Scripted(run, scene.now + 20, attempt=2, step=session.step)
    events = scene.go_on(HOUR, trains(second))
    assert names(events) == ["info happened restarted"] and "stopped by a signal" in events[0].text


def test_a_preemption_that_does_not_resume_is_an_end(tmp_path: Path) -> None:
    """After the time in which a dead run may be started again."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(HOUR, trains(session))
    session.stop("signal", signal="SIGTERM")
    ended = session.at
    events = scene.go_on(HOUR)
    assert names(events) == ["end happened stopped"] and "stopped by SIGTERM at step" in events[0].text
    assert ended + 45.0 <= scene.told[0][0] <= ended + 60.0


def test_a_run_that_its_restarter_gives_up_is_told_at_once(tmp_path: Path) -> None:
    """Nothing will start it again, so that nothing is waited for; while it does, nothing is said."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    launch(run, 1, BEGAN)
    session = Scripted(run, BEGAN)
    scene.go_on(10 * MINUTE, trains(session))
    session.stop("error", error="ValueError: no such class")
    how = {"cause": "error", "error": "ValueError at train.py:31", "exit_code": 1, "session": session.session}
    launch(run, 1, BEGAN, session.at + 1, backoff_secs=300.0, **how)
    assert scene.go_on(4 * MINUTE) == []
    launch(run, 2, scene.now)
    second = Scripted(run, scene.now, attempt=2, step=session.step)
    assert names(scene.go_on(5 * MINUTE, trains(second))) == ["restart happened restarted"]
    killed = {**how, "cause": "signal", "signal": "SIGKILL", "error": None, "session": second.session}
    launch(run, 2, second.start, second.at + 1, backoff_secs=900.0, **killed)
    assert scene.go_on(14 * MINUTE) == []
    launch(run, 3, scene.now)
    second = Scripted(run, scene.now, attempt=3, step=second.step)
    assert names(scene.go_on(5 * MINUTE, trains(second))) == ["restart happened restarted"]
    second.stop("error", error="ValueError: no such class")
    launch(run, 3, second.start, second.at + 1, **how | {"session": second.session, "action": "end"})
    events = scene.look(second.at + 2)
    assert names(events) == ["page begins failed"] and "no such class" in events[0].text


def test_launches_without_a_session_are_restarts(tmp_path: Path) -> None:
    """A program that ends before its first event, and is started again."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    launch(run, 1, BEGAN)
    scene.look()
    launch(run, 1, BEGAN, BEGAN + 20, cause="error", error="ImportError at train.py:3", exit_code=1)
    launch(run, 2, BEGAN + 30)
    events = scene.go_on(MINUTE)
    assert names(events) == ["restart happened restarted"]
    assert events[0].text == (
        "tuning: failed on trainer-0: launch 1 ended before its first event, with ImportError at train.py:3; restarted "
        "after 10 s"
    )


def test_a_program_without_telemetry_under_a_restarter(tmp_path: Path) -> None:
    """Its restarts, by the records of its restarter, and how it ended."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    write = voice_stories._other_writer(run, BEGAN)
    launch(run, 1, BEGAN - 3000)
    assert scene.go_on(10 * MINUTE, write) == []
    launch(run, 1, BEGAN - 3000, scene.now, cause="oom", step=300, oom_kills=1)
    launch(run, 2, scene.now + 8)
    events = scene.go_on(10 * MINUTE, write)
    assert [event.text for event in events] == ["tuning: OOM-killed at step 300 on trainer-0; restarted after 8 s"]
    other = tmp_path / "other"
    write = voice_stories._other_writer(other, scene.now)
    launch(other, 1, scene.now - 3000)
    assert scene.go_on(10 * MINUTE, write) == []
    launch(other, 1, scene.now - 3600, scene.now, cause="completed", action="end")
    assert [event.text for event in scene.go_on(MINUTE)] == ["other: completed after 1 h"]


def test_a_watcher_that_slept_waits_before_it_pages(tmp_path: Path) -> None:
    """Its machine was suspended, with the training: that one writes again in a moment."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(20 * MINUTE, trains(session))
    assert scene.look(scene.now + 8 * HOUR) == []
    session.freeze(scene.now + 10 - session.at)
    assert scene.go_on(10 * MINUTE, trains(session)) == []


def test_the_last_look_waits_for_nothing(tmp_path: Path) -> None:
    """Whoever looks no more says now how the run ended."""
    run, scene = tmp_path / "tuning", Scene(tmp_path)
    session = Scripted(run, BEGAN)
    scene.go_on(10 * MINUTE, trains(session))
    session.stop("signal", signal="SIGTERM")
    assert scene.look(session.at + 1) == []
    assert names(scene.look(is_last=True)) == ["end happened stopped"]


def test_since_says_from_when_on_ends_are_told(tmp_path: Path) -> None:
    """What ended or was restarted before the first look is not said, but since another time if that is wanted."""
    run = tmp_path / "tuning"
    first = Scripted(run, BEGAN).train(600)
    Scripted(run, first.at + 20, attempt=2, step=first.step - 10).train(600).stop()
    assert Scene(tmp_path, BEGAN + HOUR).look() == []
    since = Scene(tmp_path, BEGAN + HOUR, Changes(since=BEGAN)).look()
    assert names(since) == ["restart happened restarted", "end happened completed"]
    assert names(Scene(tmp_path, BEGAN + HOUR, Changes(since=first.at + 60)).look()) == ["end happened completed"]


def test_a_run_that_comes_and_ends_between_two_looks(tmp_path: Path) -> None:
    """Its end is said; that of an old run which is copied into the logdir is not."""
    scene = Scene(tmp_path)
    scene.look()
    Scripted(tmp_path / "short", BEGAN + 1).train(10).stop()
    Scripted(tmp_path / "broken", BEGAN + 1).train(10).stop("error", error="KeyError: 1")
    Scripted(tmp_path / "old", BEGAN - DAY).train(10).stop()
    Scripted(tmp_path / "old and lost", BEGAN - 2 * DAY).train(10)
    Scripted(tmp_path / "unsaved", BEGAN + 1).train(10).save("OSError: disk full").stop()
    found = names(scene.go_on(HOUR))
    assert sorted(found) == [*["end happened completed"] * 2, "page begins failed"]


def test_a_copy_is_quiet(tmp_path: Path) -> None:
    """Of a dead run and of one that lives."""
    scene = Scene(tmp_path)
    placed = {"logdir": str(tmp_path / "tuning")}
    session = Scripted(tmp_path / "tuning", BEGAN, placed=placed)
    scene.go_on(10 * MINUTE, trains(session))
    shutil.copytree(tmp_path / "tuning", tmp_path / "copy")
    assert scene.go_on(10 * MINUTE, trains(session)) == []
    second = Scripted(tmp_path / "tuning", scene.now + 20, attempt=2, step=session.step, placed=placed)
    events = scene.go_on(10 * MINUTE, trains(second))
    shutil.copytree(tmp_path / "tuning", tmp_path / "copy", dirs_exist_ok=True)
    assert [event.run for event in [*events, *scene.go_on(10 * MINUTE, trains(second))]] == ["tuning"]
    assert [event.run for event in scene.go_on(10 * MINUTE)] == ["tuning"]


def test_files_that_cannot_be_read_end_nothing(tmp_path: Path) -> None:
    """A look that cannot read a run leaves what was known of it; nothing is concluded from its age."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(20 * MINUTE, trains(session))
    scene.go_on(10 * MINUTE, trains(session, failing_saves=True))
    assert names(event for _, event in scene.told) == ["page begins saves_failing"]
    runs = scene.watch.refresh().runs
    old: Any = replace(runs["tuning"].run, state="lost")  # by its age, as nothing new is read
    unreadable = {"tuning": replace(runs["tuning"], run=old, problem="Stale file handle")}
    for at in range(15, 300, 15):
        assert scene.changes.of({}, scene.now + at, unread=["tuning"]) == []
    for at in range(300, 900, 15):
        assert scene.changes.of(unreadable, scene.now + at) == []
    assert names(scene.changes.of(unreadable, scene.now + 900)) == ["warn begins read_error"]
    assert names(scene.changes.of(runs, scene.now + 915)) == ["warn is_over read_error"]


def test_a_directory_that_vanishes(tmp_path: Path) -> None:
    """Of a run that was alive that is said after a minute; of one that had ended, or was dead, it is not."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    Scripted(tmp_path / "done", BEGAN).train(60).stop()
    Scripted(tmp_path / "dead", BEGAN - HOUR).train(60)
    scene.go_on(10 * MINUTE, trains(session))
    assert {event.run for _, event in scene.told} == {"done", "dead"}
    for path in tmp_path.iterdir():
        path.rename(tmp_path.parent / f"{tmp_path.name}-{path.name}")
    events = scene.go_on(10 * MINUTE)
    assert names(events) == ["page begins unreachable"] and events[0].run == "tuning"
    (tmp_path.parent / f"{tmp_path.name}-tuning").rename(tmp_path / "tuning")
    assert "page is_over unreachable" in names(scene.go_on(MINUTE, trains(session)))


def test_a_renamed_run_is_the_same(tmp_path: Path) -> None:
    """What was said of it is not said again under its new name."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(10 * MINUTE, trains(session))
    assert names(scene.go_on(10 * MINUTE)) == ["page begins lost"]
    (tmp_path / "tuning").rename(tmp_path / "tuned")
    assert scene.go_on(10 * MINUTE) == []


def test_a_live_run_of_another_writer_may_be_renamed(tmp_path: Path) -> None:
    """Its directory and its file are the same: it is not gone. Once it is, it is gone by its new name."""
    scene = Scene(tmp_path)
    STORIES["is another writer's"].write(tmp_path / "tuning", BEGAN)
    assert scene.go_on(MINUTE) == []
    (tmp_path / "tuning").rename(tmp_path / "tuned")
    assert scene.go_on(3 * MINUTE) == []
    (tmp_path / "tuned").rename(tmp_path.parent / f"{tmp_path.name}-away")
    events = scene.go_on(MINUTE)
    assert [(event.run, event.kind) for event in events] == [("tuned", "unreachable")]


def test_clocks_that_differ_are_quiet(tmp_path: Path) -> None:
    """A machine whose clock is ten minutes behind is neither lost nor said to be, and its death waits for its hold."""
    scene = Scene(tmp_path)
    session = Scripted(tmp_path / "tuning", BEGAN - 10 * MINUTE)

    def trains_behind(until: float) -> None:
        session.train(max(0.0, until - 10 * MINUTE - session.at))
        os.utime(session.path, (until, until))

    assert scene.go_on(20 * MINUTE, trains_behind) == []
    seen = scene.now
    assert names(scene.go_on(10 * MINUTE)) == ["page begins lost"]
    assert seen + 60 <= scene.told[0][0] <= seen + 120


def test_what_cannot_be_judged_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And nothing else suffers."""
    session = Scripted(tmp_path / "tuning", BEGAN).train(60)
    session.stop("error", error="KeyError")
    snapshot = LogdirWatch(str(tmp_path), clock=StillClock(BEGAN + HOUR)).refresh()
    broken: Any = replace(snapshot.runs["tuning"], run=None)
    changes = Changes()
    with caplog.at_level(logging.WARNING, "supervisor_core"):
        for _ in range(3):
            events = changes.of({"broken": broken, **snapshot.runs}, BEGAN + HOUR)
    assert len([each for each in caplog.records if "broken" in each.getMessage()]) == 1
    assert events == [] and names(Changes().of({"b": broken, **snapshot.runs}, BEGAN + HOUR)) == ["page begins failed"]


def test_links_and_the_name_of_the_logdir_itself(tmp_path: Path) -> None:
    """The runbook's entry, and the run in the tab; a logdir that is a run is called as its directory."""
    run = tmp_path / "fine tuning"
    Scripted(run, BEGAN - HOUR, placed={"labels": {"team": "vision"}}).train(600)
    changes = Changes(runbook_base="http://x/alerts", tab_url="http://tb:6006/")
    (event,) = Scene(tmp_path, BEGAN, changes).look()
    assert event.runbook_url == "http://x/alerts#supervisortraininglost"
    assert event.tab_url == "http://tb:6006/#supervisor&p.supervisor.s=run%3Dfine%2520tuning"
    assert event.labels == {"team": "vision"}
    (same,) = Scene(run, BEGAN, Changes()).look()
    assert (same.run, same.id, same.logdir) == ("fine tuning", event.id, event.logdir)
    assert same.runbook_url is None and same.tab_url is None


def test_what_comes_and_goes_is_told_once_a_day(tmp_path: Path) -> None:
    """Of kinds whose begin no record dates."""
    morning = BEGAN + 2 * HOUR
    scene = Scene(tmp_path, morning)
    session = Scripted(tmp_path / "tuning", morning, save_every=HOUR)

    def has_service(state: str, secs: float, every: float = 60.0) -> list[str]:
        session._threads["mine"] = {"name": "mine", "state": state, "interval_secs": 60.0}
        return names(scene.go_on(secs, trains(session), every=every))

    both = ["warn begins thread_down", "warn is_over thread_down"]
    found = [has_service(state, HOUR) for state in ("failed", "idle", "failed", "idle")]
    assert found == [[both[0]], [both[1]], [], []]
    assert has_service("idle", DAY, every=600.0) == [] and has_service("failed", HOUR) == [both[0]]


def test_two_watchers_agree_on_what_no_record_dates(tmp_path: Path) -> None:
    """Though they see it at different moments; it began when it was first seen, not when it had held."""
    Scripted(tmp_path / "tuning", BEGAN - HOUR).train(HOUR)
    [(name, watched)] = LogdirWatch(str(tmp_path), clock=StillClock(BEGAN)).refresh().runs.items()
    *before, last = watched.run.sessions
    sessions = (*before, replace(last, events_error="No space left on device"))
    runs = {name: replace(watched, run=replace(watched.run, sessions=sessions))}
    ids, began = [], []
    for later in (0.0, 97.0):
        changes = Changes()
        found = [event for at in range(0, 600, 120) for event in changes.of(runs, BEGAN + later + at)]
        ids.append([(event.kind, event.id) for event in found])
        began += [event.at - BEGAN - later for event in found]
    assert began == [0.0, 0.0] and ids[0] == ids[1] and ids[0][0][0] == "events_failing"


def test_old_files_that_come_late_are_no_news(tmp_path: Path) -> None:
    """A session of yesterday, copied into the directory while the run goes on."""
    first = Scripted(tmp_path / "old", BEGAN - HOUR).train(600)
    second = Scripted(tmp_path / "tuning", first.at + 20, attempt=2, step=first.step).train(1200)
    scene = Scene(tmp_path / "tuning")
    second.train(BEGAN - second.at)
    assert scene.look() == []
    shutil.copy(first.path, tmp_path / "tuning")
    assert scene.go_on(10 * MINUTE, trains(second)) == []
    assert len(scene.watch.refresh().runs["."].run.restarts) == 1


def test_thresholds_are_the_alerts(tmp_path: Path) -> None:
    """Who waits longer before an alert waits longer here."""
    scene = Scene(tmp_path, changes=Changes(thresholds=Thresholds(dead_hold_secs=600.0)))
    session = Scripted(tmp_path / "tuning", BEGAN)
    scene.go_on(10 * MINUTE, trains(session))
    assert scene.go_on(10 * MINUTE) == [] and names(scene.go_on(MINUTE)) == ["page begins lost"]


@pytest.mark.parametrize("seed", [100, *(pytest.param(seed, marks=pytest.mark.long) for seed in (101, 120))])
def test_who_looks_and_from_where_changes_no_id(tmp_path: Path, seed: int) -> None:
    """Watchers that look every 5 s or every minute, at different moments, over another mount and from another
    directory, have the same events, each once: those of the script."""
    logdir = tmp_path / "logs"
    os.symlink(logdir, tmp_path / "mount")
    life = random_life(logdir / "team" / "tuning", BEGAN + 30, seed, 2.0)
    often, seldom, elsewhere = Scene(logdir), Scene(logdir), Scene(tmp_path / "mount" / "team")
    for tick in range(int((life.until + 10 * MINUTE - BEGAN) / 5)):
        now = BEGAN + 5 * tick
        life(now)
        often.look(now)
        if tick % 12 == 7:
            seldom.look(now)
        if tick % 6 == 2:
            elsewhere.look(now)
    told = [event for _, event in often.told if event.kind not in NOT_SCRIPTED]
    assert Counter(names(told)) == short(life.due), life.acts
    ids = [sorted(event.id for _, event in scene.told) for scene in (often, seldom, elsewhere)]
    assert ids[0] == ids[1] == ids[2] and len(set(ids[0])) == len(ids[0]) > 5

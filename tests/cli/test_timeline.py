"""One run on a terminal: bars on one axis, tables below, and the table of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from supervisor_core.cli.look import SeenRun
from supervisor_core.cli.overview import overview
from supervisor_core.cli.text import SHOWN_NONFINITE, STATES, advice_text, again_text
from supervisor_core.events.telemetry import ResumeRecord
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.model.checkpoints import Checkpoint
from supervisor_core.run.model.run import AtRisk, Goodput, NonFinite, Run, Stall, ThreadHistory
from supervisor_core.run.model.snapshot import WatchedRun
from tests.cases import each
from tests.cli.conftest import END, START, restart, session, shown

GOODPUT = Goodput(
    wall_secs=1000.0, secs={"productive": 900.0, "other": 100.0}, booked_secs={}, ratio=0.9, inferred=False
)
NO_ADVICE = RunFold("a").run(START).advice


def run(**changes: Any) -> Run:
    """Return a run of two sessions, with changes."""
    values: dict[str, Any] = {
        "state": "running",
        "inferred": False,
        "sessions": (
            session(1, 0.0, 400.0, "lost", first_step=0, last_step=850),
            session(2, 500.0, 1000.0, "running", first_step=800, last_step=1800),
        ),
        "restarts": (restart(1, 850, 800),),
        "checkpoints": (
            Checkpoint(session="s1", at=START + 390.0, step=800, path="/r/model.ckpt-800", bytes=21_000_000),
            Checkpoint(session="s2", at=START + 900.0, error="OSError: no space"),
        ),
        "goodput": GOODPUT,
        "step": 1800,
        "steps_per_sec": 2.0,
        "last_event_at": END,
    }
    return replace(RunFold("a/[b]").run(START), **{**values, **changes})


def thread(name: str, session: str = "s2", **more: Any) -> ThreadHistory:
    """A service thread that is well."""
    known = {"interval_secs": 120.0, "ticks": 7, "failures": 0, "last_error": None, "state": "idle"}
    return ThreadHistory(name=name, session=session, **{**known, "spans": (), "seen_ticks": (), **more})


def stall(**more: Any) -> Stall:
    """A stall of the second session that lasts."""
    known = {"session": "s2", "phase": "training", "since": START, "step": 5, "secs": 50.0, "timeout_secs": 30.0}
    return Stall(**{**known, "until": None, "stacks": {}, **more})


def test_a_timeline_shows_what_happened() -> None:
    """Sessions with how they ended, the boundary's cost, checkpoints with the failed one standing out, goodput."""
    drawn = shown(run())
    assert "a/[b]" in drawn
    assert "1 min 40 s down, at least 50 steps recomputed" in drawn
    assert "0 to 850" in drawn
    assert "model.ckpt-800" in drawn
    assert "failed: OSError: no space" in drawn
    assert "90.0 %" in drawn
    lines = {line.split("  ")[0].strip(): line for line in drawn.splitlines()}
    assert "✗" in lines["sessions"] and "█" in lines["sessions"]
    assert "◆" in lines["checkpoints"] and "✗" in lines["checkpoints"]


@each(
    "path, step, words",
    [("/r/model.ckpt", 1000, "model.ckpt, step 1,000"), ("/r/model.ckpt", None, "model.ckpt  "), (None, 7, "step 7")],
)
def test_a_checkpoint_has_its_step(path: str | None, step: int | None, words: str) -> None:
    """TensorFlow's own hooks record the basename that all checkpoints have in common."""
    drawn = shown(run(checkpoints=(Checkpoint(session="s1", at=START + 390.0, step=step, path=path),)))
    assert f"\n{words}" in drawn


def lane(drawn: str, name: str) -> str:
    """Return what is drawn in a lane."""
    (found,) = [line for line in drawn.splitlines() if line.startswith(f"{name}  ")]
    return found.removeprefix(name).strip(" ")


def test_of_a_lost_session_what_was_kept_is_drawn_as_kept() -> None:
    """Up to the checkpoint that the next session resumed from: 390 of its 400 seconds. Its bad end has a sign."""
    sessions, _, after = lane(shown(run(), 113), "sessions").partition(" ")
    assert sessions == "█" * 39 + "▒✗"
    assert set(after.strip()) == {"█"}


def test_a_lost_session_is_cut_by_its_steps_where_no_save_is_known() -> None:
    """Half of the steps are half of the time; of a session none of whose steps were kept nothing is."""
    runs = run().sessions
    again = replace(run().restarts[0], to_step=425, rewind_steps=425)
    drawn = lane(shown(run(restarts=(again,)), 113), "sessions").split(" ")[0]
    assert drawn == "█" * 20 + "▒" * 20 + "✗"
    whole = replace(again, to_step=0, rewind_steps=850)
    drawn = lane(shown(run(restarts=(whole,)), 113), "sessions").split(" ")[0]
    assert drawn == "▒" * 40 + "✗"
    lost = run(state="lost", sessions=runs[:1], restarts=(), at_risk=AtRisk(steps=50, secs=10.0, saved_step=800))
    drawn = lane(shown(lost, 113), "sessions")
    assert drawn.rstrip("▒✗") == "█" * 97 and drawn.endswith("▒✗")


def test_whose_it_is_and_where_it_runs() -> None:
    """Host, processes, devices and labels, as far as they are known; each session's host where they differ."""
    first, last = run().sessions
    last = replace(last, host="node-3", pid=4711, world_size=32, device_count=32, device_kind="NVIDIA H100")
    lines = shown(
        run(sessions=(replace(first, host="node-2"), last), labels={"team": "a[b]", "user": "ada"})
    ).splitlines()
    assert lines[1:4] == ["Process 4711 on node-3", "32 processes on 32 x NVIDIA H100", "team=a[b], user=ada"]
    rows = [line.split()[:2] for line in lines if line.startswith(("session ", "1 ", "2 "))]
    assert rows == [["session", "host"], ["1", "node-2"], ["2", "node-3"]]
    ended = [
        shown(run(sessions=(replace(last, gone=True, outcome=outcome, error=error),))).splitlines()[1]
        for outcome, error in (("completed", None), ("signal", None), ("lost", None), ("lost", "E: as it printed"))
    ]
    said = ["has ended", "has ended", "is gone: it was killed or crashed", "has ended"]
    assert ended == [f"Process 4711 on node-3 {each}" for each in said]
    alone = shown(run(sessions=(first, replace(last, host=first.host, world_size=1, device_count=None))))
    assert "processes" not in alone and "session  started" in alone


def test_values_that_are_not_finite_are_shown_by_tag() -> None:
    """Which tag, how many, the first and the last step; a loss comes first."""
    tags = (
        NonFinite(tag="grads/norm", values=1, first_step=9, last_step=9),
        NonFinite(tag="train/loss", values=1200, first_step=310, last_step=4200),
    )
    drawn = shown(run(nonfinite=1201, nonfinite_tags=tags, loss_finite=False))
    assert drawn.splitlines()[1:3] == [
        "Not finite: train/loss: 1,200 values are NaN or infinite, steps 310 to 4,200.",
        "Not finite: grads/norm: 1 value is NaN or infinite, step 9.",
    ]
    assert "finite" not in shown(run(loss_finite=True))


def test_a_stall_has_a_lane() -> None:
    """It is on the axis and, with its deepest frames, in the tables."""
    stacks = {"MainThread": ("train.py:88 main", "input.py:12 next_batch")}
    hang = stall(phase="[/x]\x1b[2J", since=START + 950, step=1800, stacks=stacks)
    drawn = shown(run(stalls=(hang,)))
    assert "!" in lane(drawn, "stalls") and "[/x]\\x1b[2J" in drawn
    assert "input.py:12 next_batch" in drawn
    assert "50 s so far" in drawn


def test_a_stall_that_lasts_shows_where_the_program_hangs() -> None:
    """The table has the program's own line; below are the stacks of the threads that it may be about, the main thread's
    first, and not those of services that wait for their next tick. Of a stall that is over the table is enough."""
    stacks = {
        "thread 7": ("/srv/train.py:12 read_batch", "/usr/lib/python3.12/threading.py:331 wait"),
        "summary": ("/x/supervisor_core/engine/service.py:9 run",),
        "supervisor_monitor": ("/x/supervisor_core/engine/monitor.py:30 python_stacks",),
        "MainThread": ("/srv/train.py:88 main", "/x/site-packages/tensorflow/session.py:1477 run"),
    }
    hang, summary = stall(stacks=stacks), thread("summary")
    drawn = shown(run(stalls=(hang,), threads=(summary,))).splitlines()
    assert row_of(hang)[1:] == ["MainThread", "/srv/train.py:88", "main"]
    first = drawn.index("Stacks when the stall began, innermost line last")
    assert drawn[first + 1 : first + 8] == [
        "  MainThread",
        "    /srv/train.py:88 main",
        "    /x/site-packages/tensorflow/session.py:1477 run",
        "  thread 7",
        "    /srv/train.py:12 read_batch",
        "    /usr/lib/python3.12/threading.py:331 wait",
        "  and 2 more threads (--json has all)",
    ]
    recorded = replace(hang, thread="summary", location="/srv/job.py:5 write", same_frames=True, activity="waits")
    drawn = shown(run(stalls=(recorded,), threads=(summary,))).splitlines()
    assert drawn[drawn.index("Stacks when the stall began, innermost line last") + 1] == "  summary"
    saving = replace(hang, phase="checkpointing")
    assert "  summary" in shown(run(stalls=(saving,), threads=(summary,))).splitlines()
    assert "Stacks when" not in shown(run(stalls=(replace(hang, until=START + 50.0),)))


def row_of(hang: Stall) -> list[str]:
    """The thread, what it does and where, in the row of a stall."""
    drawn = shown(run(stalls=(hang,))).splitlines()
    return drawn[next(index for index, line in enumerate(drawn) if line.startswith("stall since")) + 1].split()[-4:]


def test_the_head_has_what_is_said_worst_first() -> None:
    """Each with for how long, since when and its cost; what to do is in a line of its own, which is not wrapped."""
    command = f"tb-supervisor stacks -- '/runs/{'a' * 90}'"
    stalled = Finding(
        kind="stalled", severity="page", since=END - 180, text="No progress: it hangs at \x1bx.py:15.", action=command,
        is_command=True, cost="12 steps are in no checkpoint.",
    )  # fmt: skip
    info = Finding(kind="restarted", text="Restarted: it was killed.")
    lines = shown(run(), 80, (stalled, info)).splitlines()
    assert lines[1].startswith("No progress: it hangs at \\x1bx.py:15. (for 3 min, since 20")
    said = [line for line in lines if line.startswith(("  12 steps", "  do: ", "Restarted"))]
    assert said == ["  12 steps are in no checkpoint.", f"  do: {command}", info.text]


def test_a_service_in_trouble_is_shown_with_its_last_error() -> None:
    """One that fails, or is late, in the newest session; not one that is well, nor what was in an earlier session."""

    bad = thread("mine", state="failed", failures=3, last_error="OSError: no space left on [device]")
    late = thread("evaluate", state="overdue", overdue_secs=90.0)
    old = thread("mine", "s1", state="failed", failures=1, last_error="ValueError: old")
    drawn = shown(run(threads=(old, thread("summary"), bad, late)))
    rows = [line.split() for line in drawn[drawn.index("service thread") :].splitlines()[1:3]]
    assert rows[0] == ["mine", "failed", "7", "3", "-", "OSError:", "no", "space", "left", "on", "[device]"]
    assert rows[1] == ["evaluate", "overdue", "7", "0", "1", "min", "30", "s", "-"]
    assert "old" not in drawn
    assert "service thread" not in shown(run(threads=(thread("summary"),)))


@each(
    "most, words",
    [
        (50, "50 steps recomputed"),
        (75, "at least 50 steps recomputed, at most 75"),
        (None, "at least 50 steps recomputed"),
    ],
)
def test_recomputed_steps_are_as_exact_as_they_are_known(most: int | None, words: str) -> None:
    """After a kill the last steps are unknown: the text gives bounds."""
    restart = replace(run().restarts[0], rewind_steps_most=most)
    assert again_text(restart) == words


EQUAL = ResumeRecord(session="b", what="losses", compared=3, equal=3)


@each(
    "exact, check, word",
    [
        (True, None, "not observed"),
        (True, EQUAL, "observed exact"),
        (None, EQUAL, "observed exact"),
        (False, None, "not exact"),
        (False, EQUAL, "not exact"),
    ],
)
def test_a_session_has_the_verdict_on_its_resume(exact: bool | None, check: ResumeRecord | None, word: str) -> None:
    """In a column that is there only where a session has one; what was observed has a line, too."""
    first, second = run().sessions
    drawn = shown(run(sessions=(first, replace(second, resume_exact=exact, resume_check=check))), 160)
    assert ("Resume: 3 of 3 recomputed losses equal." in drawn) is (check is not None)
    start = drawn.index("session  started")
    head, one, two = (line.split("  ") for line in drawn[start:].splitlines()[:3])
    assert "resume" in head and word in two and word not in one
    assert "resume" not in shown(run(), 160)


def test_a_run_without_anything_is_shown() -> None:
    """No session, no checkpoint, no time: its name, and no traceback."""
    empty = RunFold("a").run(START)
    assert shown(empty, 80).split() == ["a", "no", "session"]
    assert rows([empty], START, 80) == ["run", "a"]


def rows(runs: Sequence[Run], now: float, width: int | None, *found: Finding) -> list[str]:
    """The lines of the table of runs; of the first one something may be said."""
    seen = [SeenRun(WatchedRun(run=each, files=()), found if each is runs[0] else ()) for each in runs]
    return [line.plain for line in overview(seen, now, width)]


def test_the_overview_has_a_line_for_each_run() -> None:
    """State with a glyph of its own, age of the checkpoint against its interval, restarts, goodput. What needs somebody
    comes first, with the reason; on a terminal below its line."""
    advice = replace(NO_ADVICE, present_interval_secs=600.0)
    lost = Finding(kind="lost", severity="page", since=END - 60, text="The process is gone.")
    runs = [run(name="c", state="lost", steps_per_sec=None), run(name="b", advice=advice)]
    counts, _, first, second = rows(runs, END, None, lost)
    assert counts == "1 needs you · 1 fine"
    assert first.startswith("c    ✗ lost") and first.endswith("  The process is gone. (for 1 min)")
    assert "▶ running" in second and "10 min 10 s of 10 min" in second and "90.0 %" in second
    assert rows(runs, END, 80, lost)[4] == "    The process is gone. (for 1 min)"


def test_names_are_shortened_where_there_is_no_room() -> None:
    """What three names have in common is printed once; a name that is longer than there is room for has a line of its
    own. None is cut, in a pipe none is shortened."""
    names = ["long/" * 5 + name for name in ("a", "b/c", "x" * 90)]
    runs = [run(name=name, state="completed") for name in names]
    lines = rows(runs, END, 80)[3:]
    assert lines[0] == "long/" * 5 and lines[3] == "  " + "x" * 90
    assert [lines[1].split()[0], lines[2].split()[0]] == ["a", "b/c"] and lines[1].split()[1:] == lines[4].split()
    assert max(map(len, lines[:3])) <= 80
    assert [line.split()[0] for line in rows(runs, END, None)[2:]] == names


def test_every_state_can_be_read_without_colour() -> None:
    """What needs somebody looks unlike what does not, in black and white."""
    urgent = {STATES[name][0] for name in ("stalled", "lost", "failed")}
    assert not urgent & {STATES[name][0] for name in ("running", "stopped", "completed", "unknown")}


@each("interval", [600.0, None])
def test_the_advice_is_one_sentence(interval: float | None) -> None:
    """It names the recommended interval, what each costs, and says nothing while nothing is known."""
    advice = replace(
        NO_ADVICE,
        present_interval_secs=interval,
        failures=5,
        recommended_interval_secs=415.0,
        present_cost_ratio=0.0052 if interval else None,
        recommended_cost_ratio=0.0048,
    )
    expected = "Recommended checkpoint interval: 6 min 55 s (expected cost 0.5 % of the time)"
    expected += ", from 5 failures"
    expected += "; present interval 10 min (0.5 %)." if interval else "."
    assert advice_text(advice) == expected
    assert advice_text(NO_ADVICE) is None


def test_of_many_tags_that_are_not_finite_some_are_shown() -> None:
    """A model whose every gradient is NaN does not push the rest off the screen; control characters are escaped."""
    tags = tuple(NonFinite(tag=f"g\x1b{i}", values=1, first_step=1, last_step=1) for i in range(100))
    drawn = shown(run(nonfinite=100, nonfinite_tags=tags))
    assert drawn.count("Not finite: g") == SHOWN_NONFINITE
    assert "Not finite: 95 more tags (--json has all)." in drawn and "\x1b" not in drawn

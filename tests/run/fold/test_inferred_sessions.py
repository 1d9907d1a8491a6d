"""Logs of writers without telemetry: each test is a line of what real logdirs were found to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor_core.run.fold import other_writers
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.run import NonFinite, Run

RunOf = Callable[..., Run]
T = 1_600_000_000.0
SECS_OF_DAY = 86_400.0


def rewinds(run: Run) -> list[tuple[int | None, int | None, int | None]]:
    """From, to and rewind of each restart."""
    return [(restart.from_step, restart.to_step, restart.rewind_steps) for restart in run.restarts]


@pytest.fixture
def log(events_file: Any) -> Callable[..., Any]:
    """Returns a function that begins an events file of TensorFlow 1 at a time."""

    def begin(at: float = T, suffix: str = "") -> Any:
        return events_file(f"/run/events.out.tfevents.{int(at)}.host{suffix}", at)

    return begin


def test_stop_is_at_step_0_and_no_position(log: Any, run_of: RunOf) -> None:
    """STOP always has step 0: it ends the session, and neither its last step nor a regression comes of it."""
    file = log().log("START", 0, T + 1).scalars("loss", range(100), T + 2).log("STOP", 0, T + 200)
    run = run_of(file, now=T + 300)
    [session] = run.sessions
    assert (session.last_step, session.ended_at, session.outcome) == (99, T + 200, "unknown")
    assert (run.restarts, run.state, run.step) == ((), "stopped", 99)


def test_start_without_stop_is_a_session_that_ends_at_its_last_event(log: Any, run_of: RunOf) -> None:
    """Most files have START and no STOP: the end is unknown."""
    file = log().log("START", 0, T + 1).scalars("loss", range(50), T + 2)
    run = run_of(file, now=T + SECS_OF_DAY)
    assert (run.state, run.sessions[0].outcome, run.sessions[0].ended_at) == ("unknown", "unknown", T + 51)


def test_stop_without_start_is_a_launch_that_failed(log: Any, run_of: RunOf) -> None:
    """STOP alone is a session without steps; the next file is another."""
    failed = log().log("STOP", 0, T + 1)
    run = run_of(failed, log(T + 60).log("START", 0, T + 61).scalars("loss", range(5), T + 62))
    assert [(session.first_step, session.last_step) for session in run.sessions] == [(None, None), (0, 4)]
    assert rewinds(run) == [(None, 0, None)]


def test_checkpoint_before_start_is_one_session(log: Any, run_of: RunOf) -> None:
    """Hooks write CHECKPOINT N and then START N+1: one launch, from step N."""
    file = log().log("CHECKPOINT", 500, T + 1, "/tmp/x/model.ckpt").log("START", 501, T + 2)
    run = run_of(file.scalars("loss", range(501, 600), T + 3))
    [session] = run.sessions
    assert (session.first_step, session.last_step, session.inferred) == (500, 599, True)
    assert run.inferred


def test_two_summary_hooks_write_two_starts_of_one_session(log: Any, run_of: RunOf) -> None:
    """A second START at the step of the first, with nothing done in between, begins nothing."""
    file = log().log("CHECKPOINT", 0, T + 1).log("START", 1, T + 2).scalar("loss", 1, T + 2)
    file.log("START", 1, T + 2.1).scalar("lr", 1, T + 2.1).scalars("loss", range(2, 90), T + 3)
    assert len(run_of(file).sessions) == 1


def test_several_starts_in_one_file_are_as_many_sessions(log: Any, run_of: RunOf) -> None:
    """Each START after steps were done begins a session; of two checkpoints before it one is its own."""
    file = log().log("CHECKPOINT", 0, T + 1).log("START", 1, T + 2).scalars("loss", range(1, 1001), T + 3)
    file.log("CHECKPOINT", 1000, T + 1100).log("CHECKPOINT", 1000, T + 1200).log("START", 1001, T + 1201)
    file.scalars("loss", range(1001, 1500), T + 1202)
    run = run_of(file)
    assert [(session.first_step, session.last_step) for session in run.sessions] == [(0, 1000), (1000, 1499)]
    assert rewinds(run) == [(1000, 1000, 0)]
    assert run.restarts[0].downtime_secs == 100.0
    assert [saved.session for saved in run.checkpoints] == ["inferred-1", "inferred-1", "inferred-2"]


@pytest.mark.parametrize(("reached", "back"), [(8557, 8457), (8557, 8458), (128012, 127968), (132910, 132863)])
@pytest.mark.parametrize("shape", ["files with START", "files", "one file with START", "one file"])
def test_restart_series_that_people_had(log: Any, run_of: RunOf, reached: int, back: int, shape: str) -> None:
    """Real restarts are found to the step: in a file of their own or not, with a session log or without."""
    first = log().log("START", reached - 300, T + 1) if "START" in shape else log()
    first.scalars("loss", range(reached - 300, reached + 1), T + 2)
    later = T + 1000
    second = first if shape.startswith("one file") else log(later)
    if "START" in shape:
        second.log("START", back, later + 1)
    second.scalars("loss", range(back, back + 400), later + 2)
    files = [first] if second is first else [second, first]
    run = run_of(*files)
    assert rewinds(run) == [(reached, back, reached - back)]
    assert run.steps_lost == reached - back
    assert (run.step, run.restarts[0].inferred, run.restarts[0].reason) == (back + 399, True, "unknown")


def test_fourteen_launches_that_all_began_at_29001(log: Any, run_of: RunOf) -> None:
    """Each launch rewinds what the one before it had done."""
    files = [
        log(T + 1000 * index)
        .log("START", 29001, T + 1000 * index + 1)
        .scalars("loss", range(29001, 29100 + index), T + 1000 * index + 2)
        for index in range(14)
    ]
    run = run_of(*reversed(files))
    assert len(run.sessions) == 14
    assert rewinds(run) == [(29099 + index, 29001, 98 + index) for index in range(13)]


def test_a_crash_loop_of_137_files(log: Any, run_of: RunOf) -> None:
    """A loop of crashes from step 4,835,204 to 4,850,313 is as many sessions as launches, in any order of files."""
    step, files = 4_835_204, []
    for index in range(137):
        at = T + 200 * index
        files.append(log(at).log("START", step, at + 1).scalars("loss", range(step, step + 150), at + 2))
        step += 110
    run = run_of(*files[::2], *files[1::2])
    assert len(run.sessions) == 137
    assert {restart.rewind_steps for restart in run.restarts} == {39}
    assert run.sessions[0].first_step == 4_835_204
    assert run.max_step == step - 110 + 149


def test_checkpoints_are_named_without_their_step(log: Any, events_file: Any, fold_of: Any) -> None:
    """The event's path lacks -N, and its step may be 1 to 3 above the file's: the file is found all the same."""
    file = log().log("START", 0, T + 1).log("CHECKPOINT", 5877, T + 2, "C:\\runs/a\\model.ckpt")
    file.log("CHECKPOINT", 9000, T + 3, "C:\\runs/a\\model.ckpt")
    there = {"C:\\runs/a\\model.ckpt-5875"}
    run = fold_of(file).run(T + 4, lambda path: path in there)
    assert [(saved.step, saved.on_disk, saved.inferred) for saved in run.checkpoints] == [
        (5877, True, True),
        (9000, False, True),
    ]
    copy = fold_of(file).run(T + 4, lambda path: False)  # of the events file alone: it never had them
    assert {saved.on_disk for saved in copy.checkpoints} == {None}


def test_the_first_rate_of_all_is_of_the_time_before_the_first_step(log: Any, run_of: RunOf) -> None:
    """TensorFlow's Supervisor writes 0 there: that is no speed. A second one is."""
    file = log().log("START", 0, T + 1).scalar("global_step/sec", 0, T + 120, 0.0)
    assert run_of(file).steps_per_sec is None
    assert run_of(file.scalar("global_step/sec", 0, T + 240, 0.0)).steps_per_sec == 0.0


def test_the_newest_values_of_losses_and_accuracies(log: Any, run_of: RunOf) -> None:
    """The training's own come first, those of held-out data last; other tags have none, however alike they look."""
    file = log()
    for number, tag in enumerate(("val_loss", "train/value_loss", "lr", "glossary", "train/loss", "epoch_accuracy")):
        file.scalar(tag, 1, T + 1, 9.0).scalar(tag, 2, T + 2, float(number))
    found = [(item.tag, item.value, item.step) for item in run_of(file).last_values]
    assert found == [
        ("train/loss", 4.0, 2),
        ("epoch_accuracy", 5.0, 2),
        ("train/value_loss", 1.0, 2),
        ("val_loss", 0.0, 2),
    ]


def test_empty_files_and_version_records_begin_nothing(events_file: Any, log: Any, run_of: RunOf) -> None:
    """Hundreds of files without events, or with the version record alone, make no session and no restart."""
    empty = [events_file(f"/run/events.out.tfevents.{int(T) + index}.host.{index}.0", None) for index in range(362)]
    versions = [log(T + 500 + index, f".{index}.0") for index in range(40)]
    run = run_of(*empty, *versions, log(T + 100).scalars("loss", range(20), T + 101))
    assert (len(run.sessions), run.restarts) == (1, ())


def test_a_tag_that_mixes_epochs_and_iterations_is_no_restart(log: Any, run_of: RunOf) -> None:
    """Keras' evaluation_* go up and down between epochs and iterations, while the others only rise."""
    file = log()
    for epoch in range(30):
        at = T + 100 * epoch
        file.scalars("batch_loss", range(epoch * 20, epoch * 20 + 20), at)
        file.scalar("evaluation_loss", epoch * 20 + 20, at + 50).scalar("evaluation_loss", epoch, at + 51)
        file.scalar("evaluation_loss", epoch, at + 52)
    assert run_of(file).restarts == ()


def test_a_metric_at_step_0_is_no_restart(log: Any, run_of: RunOf) -> None:
    """Lightning's hp_metric and other values that sit at step 0 are not compared with other tags."""
    file = log().scalars("loss", range(1000), T)
    for index in range(4):
        file.scalar("hp_metric", 0, T + 1001 + index)
    run = run_of(file)
    assert (len(run.sessions), run.sessions[0].last_step, run.step) == (1, 999, 999)


def test_a_step_that_repeats_is_no_restart(log: Any, run_of: RunOf) -> None:
    """The same step 1,980 times is one session."""
    assert run_of(log().scalars("loss", [7] * 1980, T)).restarts == ()


def test_a_point_out_of_its_turn_is_no_restart(log: Any, run_of: RunOf) -> None:
    """Steps of several threads arrive a little out of order; training goes on above at once."""
    assert run_of(log().scalars("loss", [1, 2, 4, 3, 5, 6, 8, 7, 9], T)).restarts == ()


def test_most_tags_must_agree(log: Any, run_of: RunOf) -> None:
    """One of three tags that begins again is no restart; two of three are."""

    def run(again: int) -> Run:
        file = log()
        for index in range(3):
            steps = [*range(100), *(range(50, 150) if index < again else range(100, 200))]
            for turn, step in enumerate(steps):
                file.events.append((T + turn * 1.0, (f"tag{index}", step, 1.0)))
        file.events.sort(key=lambda event: event[0])
        return run_of(file)

    assert run(1).restarts == ()
    assert rewinds(run(2)) == [(99, 50, 49)]


def test_the_main_series_decides_alone(log: Any, run_of: RunOf) -> None:
    """Where global_step/sec begins again, training did, whatever the other tags do."""
    file = log()
    for turn, (main, other) in enumerate(zip([*range(50), *range(30, 80)], range(100), strict=True)):
        file.scalar("global_step/sec", main, T + turn).scalar("by_epoch", other, T + turn).scalar("x", other, T + turn)
    assert rewinds(run_of(file)) == [(49, 30, 19)]


def test_rarely_written_tags_have_no_say(log: Any, run_of: RunOf) -> None:
    """Tags so sparse that they could not have shown the rewind do not outvote the ones that did."""
    file = log()
    for turn, step in enumerate([*range(0, 1000, 2), *range(900, 1500, 2)]):
        file.scalar("loss", step, T + turn)
        if step % 500 == 0:
            for name in "abcde":
                file.scalar(f"eval/{name}", step, T + turn)
    assert rewinds(run_of(file)) == [(998, 900, 98)]


def test_two_writers_at_the_same_time_are_no_restart(log: Any, run_of: RunOf) -> None:
    """An evaluation that writes beside the training, with other steps, belongs to its session."""
    train = log().log("START", 0, T + 1).scalars("loss", range(1000), T + 2)
    evals = [log(T + 100 * index, f".eval{index}").scalar("loss", 50 * index, T + 100 * index) for index in range(1, 5)]
    run = run_of(*evals, train)
    [session] = run.sessions
    assert set(session.files) == {train.path, *(file.path for file in evals)}
    assert session.last_step == 999


def test_an_evaluation_beside_two_trainings_hides_no_restart(log: Any, run_of: RunOf) -> None:
    """One writer that goes on through a restart of another does not make them one session."""
    first = log().log("START", 0, T + 1).scalars("loss", range(500), T + 2)
    second = log(T + 600).log("START", 400, T + 601).scalars("loss", range(400, 900), T + 602)
    evaluation = log(T + 10, ".eval").scalars("accuracy", range(0, 900, 2), T + 11, 2.5)
    run = run_of(evaluation, second, first)
    assert rewinds(run) == [(499, 400, 99)]
    assert [restart.downtime_secs for restart in run.restarts] == [0.0]  # the run was not down: it wrote throughout
    assert sum(run.goodput.secs.values()) == pytest.approx(run.goodput.wall_secs) == pytest.approx(1131.5, abs=40)


def test_another_process_is_another_session(events_file: Any, run_of: RunOf) -> None:
    """Host and process in a file's name identify the writer: the same goes on, another begins, whatever the steps."""

    def file(at: float, pid: int, steps: range) -> Any:
        path = f"/run/events.out.tfevents.{int(at)}.host.example.{pid}.0"
        return events_file(path, at).scalars("loss", steps, at + 1)

    files = file(T, 11, range(100)), file(T + 500, 11, range(100, 200)), file(T + 900, 12, range(200, 300))
    assert rewinds(run_of(*files)) == [(199, 200, 0)]


def test_a_file_that_goes_on_above_is_the_same_session(log: Any, run_of: RunOf) -> None:
    """A new file without a session log whose steps continue is no restart: nothing shows one."""
    run = run_of(log().scalars("loss", range(100), T), log(T + 300).scalars("loss", range(100, 200), T + 301))
    assert (len(run.sessions), run.sessions[0].last_step) == (1, 199)


def test_wall_times_of_0_and_small_jumps_back(events_file: Any, log: Any, run_of: RunOf) -> None:
    """Without wall times sessions have no times; a jump back by 0.1 s between two files is no overlap."""
    timeless = events_file("/run/events.out.tfevents.x", None).scalars("loss", range(5), 0.0, 0.0)
    run = run_of(timeless, now=T)
    assert (run.sessions[0].started_at, run.sessions[0].last_step, run.goodput.wall_secs) == (None, 4, 0)
    first = log().scalars("loss", range(101), T)
    second = log(T + 100 - 0.1).scalars("loss", range(60, 90), T + 100)
    assert rewinds(run_of(first, second)) == [(100, 60, 40)]


def test_nan_and_infinite_values_are_counted(log: Any, run_of: RunOf) -> None:
    """Values that are no numbers are counted, by tag and over all files, with their steps; they disturb nothing."""
    file, later = log(), log(T + 900)
    for step, value in enumerate([1.0, np.nan, np.inf, -np.inf, 2.0]):
        file.scalar("loss", step, T + step, value)
    later.scalar("loss", 7, T + 901, np.nan).scalar("a", 8, T + 902, np.inf).scalar("fine", 9, T + 903, 1.0)
    run = run_of(file, later)
    assert (run.nonfinite, run.scalar_tags, len(run.sessions)) == (5, 3, 1)
    assert run.nonfinite_tags == (
        NonFinite(tag="a", values=1, first_step=8, last_step=8),
        NonFinite(tag="loss", values=4, first_step=1, last_step=7),
    )


def test_steps_are_those_of_the_records_in_file_order(log: Any, run_of: RunOf) -> None:
    """First and last are of the first and last record in the order of the files, the largest is the largest."""
    run = run_of(log(T + 900).scalars("loss", [40, 30], T + 901), log().scalars("loss", [7, 90, 50], T + 1))
    assert (run.first_step, run.last_step, run.max_step) == (7, 30, 90)


def test_an_older_inferred_session_comes_before_a_recorded_one(log: Any, trainer: Any, run_of: RunOf) -> None:
    """A run of the original that went on under the new supervisor: inferred first, exact then, and a restart between;
    files of other writers beside the exact session add none."""
    old = log().log("START", 0, T + 1).scalars("loss", range(500), T + 2)
    new = trainer("a", T + 1000.0, attempt=1).spend(5).ready(450).train(100)
    beside = log(T + 1010.0, ".mine").scalars("mine", [3, 2, 1], T + 1011)
    run = run_of(new, beside, old)
    assert [(session.id, session.attempt, session.inferred) for session in run.sessions] == [
        ("inferred-1", 1, True),
        ("a", 2, False),
    ]
    assert rewinds(run) == [(499, 450, 49)]
    assert (run.restarts[0].inferred, run.inferred) == (True, False)


def test_results_written_after_the_training_are_no_session(log: Any, trainer: Any, run_of: RunOf) -> None:
    """Once a run has telemetry, a file without START is no session; one with a START is."""
    ended = trainer("a", T).spend(5).ready().train(100).stop()
    results = log(ended.now + 50).scalar("test/accuracy", 100, ended.now + 51)
    run = run_of(results, ended)
    assert ([session.id for session in run.sessions], run.state) == (["a"], "completed")
    original = log(ended.now + 90).log("START", 100, ended.now + 91).scalars("loss", range(100, 120), ended.now + 92)
    assert [session.id for session in run_of(results, ended, original).sessions] == ["a", "inferred-1"]


def test_an_inferred_run_that_writes_is_running(log: Any, run_of: RunOf) -> None:
    """Without telemetry a run counts as running for ten minutes after its last event, then nothing is known."""
    file = log().log("START", 0, T + 1).scalars("global_step/sec", range(100), T + 2)
    running, silent = run_of(file, now=T + 500), run_of(file, now=T + 900)
    assert (running.state, running.sessions[0].outcome, running.steps_per_sec) == ("running", "running", 1.0)
    assert (silent.state, silent.sessions[0].outcome) == ("unknown", "unknown")


EVENT = st.one_of(
    st.tuples(st.sampled_from(["START", "CHECKPOINT", "STOP"]), st.integers(0, 12)),
    st.tuples(st.sampled_from(["loss", "accuracy", "global_step/sec"]), st.integers(0, 12)),
)


@settings(max_examples=150)
@given(data=st.data(), files=st.lists(st.lists(EVENT, max_size=14), min_size=1, max_size=4))
def test_any_log_in_any_pieces_gives_the_same_sane_run(
    data: Any, files: list[list[tuple[str, int]]], events_file: Any
) -> None:
    """Whatever a writer wrote: sessions in their order, restarts between them, seconds that sum up; and the same run,
    however the files are cut and whichever comes first."""
    written, at = [], T
    for index, events in enumerate(files):
        at += data.draw(st.sampled_from([-20.0, 0.0, 50.0]))
        file = events_file(f"/run/events.out.tfevents.{int(at)}.host.{index}", at if index % 3 else None)
        for what, step in events:
            at += data.draw(st.sampled_from([-0.1, 0.0, 1.0, 90.0]))
            file.scalar(what, step, at) if what.islower() else file.log(what, step, at)
        written.append(file)
    whole, pieces = RunFold("run"), RunFold("run")
    for file in written:
        whole.update(file.chunks())
    queues = [file.chunks(data.draw(st.lists(st.integers(1, 14), max_size=4))) for file in written]
    while queues := [queue for queue in queues if queue]:
        pieces.update([data.draw(st.sampled_from(queues)).pop(0)])
    run = whole.run(at + 5)
    assert pieces.run(at + 5) == run
    assert [session.attempt for session in run.sessions] == [*range(1, len(run.sessions) + 1)]
    assert len(run.restarts) == max(0, len(run.sessions) - 1)
    assert sum(run.goodput.secs.values()) == run.goodput.wall_secs
    assert min(run.goodput.secs.values()) >= 0
    starts = [session.started_at for session in run.sessions]
    assert starts == sorted(starts)


def test_of_tags_with_as_many_points_the_same_one_leads_however_the_file_is_cut(log: Any) -> None:
    """The pieces of a file may begin with another tag than the file."""
    file = log().scalar("accuracy", 3, T + 1).log("START", 0, T + 2)
    for at, (tag, step) in enumerate([("loss", 1), ("loss", 0), ("loss", 0), *[("accuracy", 0)] * 2, ("accuracy", 5)]):
        file.scalar(tag, step, T + 3 + at)
    whole = RunFold("run")
    whole.update(file.chunks())
    for cut in range(1, len(file.events)):
        pieces = RunFold("run")
        pieces.update(file.chunks([cut]))
        assert pieces.run(T + 20) == whole.run(T + 20)


def test_tags_beyond_the_bound_are_counted_and_not_followed(log: Any, run_of: RunOf, monkeypatch: Any) -> None:
    """A writer of a tag for everything takes no more memory than the bound allows; its steps are known all the same."""
    monkeypatch.setattr(other_writers, "MAX_FOLLOWED_TAGS_OF_FILE", 5)
    file = log()
    for step in range(3):
        for tag in range(20):
            file.scalar(f"tag-{tag}", step, T + step)
    fold = RunFold("r")
    fold.update(file.chunks())
    run = fold.run(T + 3)
    assert (run.scalar_tags, run.step) == (20, 2)
    assert [len(launch.tags) for each in fold._files.values() for launch in each.launches.all] == [5]

"""`tb-supervisor verify` reads checkpoints back, says what is wrong, and ends with a status that scripts can use."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from supervisor_core.checkpoint.sealed_store import SealedStore
from supervisor_core.checkpoint.store import CheckpointStore
from supervisor_core.events.writer import EventsWriter
from supervisor_core.storage import local
from supervisor_core.storage.local import LocalFilesystem
from supervisor_core.training import supervise
from supervisor_core.training.state import NO_DATA_POSITION
from tests.cases import each

Run = Callable[..., Result]


@pytest.fixture
def logdir(tmp_path: Path, writer: Any) -> Path:
    """A logdir with two runs, each with checkpoints at steps 100 and 200."""
    for name in ("first", "second"):
        writer.write_run(tmp_path / "logs" / name, [100, 200])
    return tmp_path / "logs"


def test_all_is_well(run: Run, logdir: Path) -> None:
    """Each run, each checkpoint with its step, size and verdict, and what a restart would resume from; status 0."""
    result = run("verify", logdir)
    assert result.exit_code == 0
    size = sum(path.stat().st_size for path in (logdir / "first").glob("model.ckpt-200.*"))
    assert result.stdout == "".join(
        f"{name}\n"
        f"  good     step 200       model.ckpt-200  {size:,} bytes, 2 tensors\n"
        f"  good     step 100       model.ckpt-100  {size:,} bytes, 2 tensors\n"
        "  A restart would resume from model.ckpt-200 (step 200), which the state file names.\n"
        for name in ("first", "second")
    )


def test_damage_is_shown_with_its_place(run: Run, logdir: Path) -> None:
    """A damaged checkpoint shows the file and the place; what a restart falls back to is said; status 1."""
    os.truncate(logdir / "second" / "model.ckpt-200.data-00000-of-00001", 700)
    result = run("verify", logdir)
    assert result.exit_code == 1
    assert (
        "  damaged  step 200       model.ckpt-200  model.ckpt-200.data-00000-of-00001: it ends at byte 700, 508 bytes "
        "before the end of 'global_step'\n"
    ) in result.stdout
    assert result.stdout.endswith(
        "  A restart would resume from model.ckpt-100 (step 100), the newest that is whole: model.ckpt-200 would be "
        "passed over.\n"
    )


def test_sealed_checkpoints(run: Run, tmp_path: Path) -> None:
    """Those of `supervise` are checked against their manifests, without a framework; the run is the directory above."""
    with supervise(tmp_path / "run", save_secs=None, save_steps=2) as training:
        for _ in training.steps(4):
            training.wait_until_saved()
    result = run("verify", tmp_path)
    size = (tmp_path / "run" / "checkpoints" / "ckpt-4" / "tree.json").stat().st_size
    assert result.exit_code == 0
    assert f"run\n  good     step 4         ckpt-4  {size:,} bytes\n  good     step 2 " in result.stdout
    assert "  A restart would resume from ckpt-4 (step 4), the newest.\n" in result.stdout
    (tmp_path / "run" / "checkpoints" / "ckpt-4" / "tree.json").write_text("{}")
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    assert "damaged  step 4         ckpt-4  " in result.stdout and "tree.json: it has 2 bytes" in result.stdout
    assert "resume from ckpt-2 (step 2), the newest that is whole: ckpt-4 would be passed over.\n" in result.stdout
    (tmp_path / "run" / "checkpoints" / "ckpt-2" / "tree.json").unlink()
    assert "stop with an error: none of its checkpoints can be read." in run("verify", tmp_path).stdout


def test_one_in_doubt_and_how_to_resume_from_the_one_before(run: Run, tmp_path: Path) -> None:
    """It is whole, so a restart takes it; why it is in doubt is said, and the command that leads past it."""
    with supervise(tmp_path, save_secs=None, save_steps=1) as training:
        for step in training.steps(3):
            training.wait_until_saved()
            training.log("loss", math.nan if step == 2 else 0.5)
    result = run("verify", tmp_path)
    good = tmp_path / "checkpoints" / "ckpt-2"
    assert result.exit_code == 0
    assert (
        "ckpt-3  " in result.stdout and '  doubt    The newest value of "loss" is NaN or infinite.\n' in result.stdout
    )
    assert result.stdout.endswith(
        f"  A restart would resume from ckpt-3 (step 3), the newest.\n  Not exactly: {NO_DATA_POSITION}\n"
        f"  It is in doubt; to resume from ckpt-2: tb-supervisor rewind -- {good}\n"
    )
    assert run("rewind", "--", good).exit_code == 0
    assert "  A restart would resume from ckpt-2 (step 2), the newest.\n" in run("verify", tmp_path).stdout


def test_what_a_training_deletes_and_saves_meanwhile(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that rotation deletes while it is read is no damage, nor is a directory of a save that has ended."""
    with supervise(tmp_path, save_secs=None, save_steps=1) as training:
        for _ in training.steps(3):
            training.wait_until_saved()
    saved, real = tmp_path / "checkpoints", SealedStore.verify
    (saved / "ckpt-9.saving-s-00112233445566778899aabbccddeeff" / "inner").mkdir(parents=True)

    def verify(store: SealedStore, path: str, **how: Any) -> Any:
        shutil.rmtree(saved / "ckpt-1", ignore_errors=True)
        shutil.copytree(saved / "ckpt-3", saved / "ckpt-3.2", dirs_exist_ok=True)
        return real(store, path, **how)

    def walk(self: LocalFilesystem, top: str, on_error: Any) -> Any:
        for found in local.walk(top, on_error):
            shutil.rmtree(saved / "ckpt-9.saving-s-00112233445566778899aabbccddeeff", ignore_errors=True)
            yield found

    monkeypatch.setattr(SealedStore, "verify", verify)
    monkeypatch.setattr(LocalFilesystem, "walk", walk)
    result = run("verify", tmp_path)
    assert result.exit_code == 0, result.stdout
    assert "damaged" not in result.stdout and "not searched" not in result.stdout and "ckpt-2  " in result.stdout


@each("damage", [lambda path: path.write_bytes(b""), Path.unlink])
def test_when_nothing_is_left(run: Run, logdir: Path, damage: Callable[[Path], object]) -> None:
    """Where no checkpoint can be read, nor an index is there, a restart would stop with an error; status 1."""
    for path in (logdir / "first").glob("*.index"):
        damage(path)
    result = run("verify", logdir / "first")
    assert result.exit_code == 1
    assert result.stdout.count("damaged  step ") == 2
    assert "A restart would stop with an error: none of its checkpoints can be read." in result.stdout


def test_older_ones_that_were_deleted_are_no_damage(run: Run, logdir: Path) -> None:
    """A checkpoint that the state file still names and somebody deleted is missing; only the chosen one matters."""
    for path in (logdir / "first").glob("model.ckpt-100.*"):
        path.unlink()
    result = run("verify", logdir / "first")
    assert result.exit_code == 0
    assert "  missing  step 100       model.ckpt-100  model.ckpt-100.index: the file is missing\n" in result.stdout
    for path in (logdir / "second").glob("model.ckpt-200.*"):
        path.unlink()
    assert run("verify", logdir / "second").exit_code == 1


def test_json(run: Run, logdir: Path) -> None:
    """One JSON object with everything that the text shows, and nothing else on the way."""
    (logdir / "second" / "model.ckpt-100.data-00000-of-00001").unlink()
    result = run("verify", logdir, "--json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert {key: shown[key] for key in ("v", "logdir", "good", "damaged", "missing", "unsearched")} == {
        "v": 1,
        "logdir": str(logdir),
        "good": 3,
        "damaged": 1,
        "missing": 0,
        "unsearched": [],
    }
    second = shown["runs"][1]
    assert second["run"] == "second"
    assert (second["resume"], second["resume_step"]) == (str(logdir / "second" / "model.ckpt-200"), 200)
    assert (second["state_problem"], second["problem"]) == (None, None)
    assert second["checkpoints"][1] == {
        "path": str(logdir / "second" / "model.ckpt-100"),
        "name": "model.ckpt-100",
        "step": 100,
        "bytes": None,
        "tensors": None,
        "verdict": "damaged",
        "reason": "model.ckpt-100.data-00000-of-00001: the file is missing",
        "doubt": None,
        "not_captured": [],
        "source": "state",
    }


def test_a_directory_that_may_not_be_searched(run: Run, logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be looked at is listed, and is no all-clear: status 1."""
    real = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path).endswith("second"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    result = run("verify", logdir)
    assert result.exit_code == 1
    assert result.stdout.endswith(f"not searched {logdir / 'second'}: Permission denied\n")


@pytest.fixture
def with_events(logdir: Path) -> Path:
    """The logdir, with an events file of a graph and ten scalars in its first run, and one in a run of its own."""
    for name in ("first", "third"):
        with EventsWriter(logdir / name) as events:
            events.payload("graph_def", bytes(100_000))
            for step in range(10):
                events.scalar("loss", 0.5, step)
    return logdir


def events_file(run_directory: Path) -> Path:
    """The one events file of a run."""
    (file,) = run_directory.glob("*tfevents*")
    return file


def test_a_damaged_graph_is_found(run: Run, with_events: Path) -> None:
    """Though no reader needs it, a flipped byte in it is shown with its place; status 1."""
    file = events_file(with_events / "third")
    content = bytearray(file.read_bytes())
    content[50_000] ^= 1
    file.write_bytes(content)
    result = run("verify", with_events)
    assert result.exit_code == 1
    assert f"  damaged  {file.name}  at byte " in result.stdout
    verdicts = {item["run"]: item["events"] for item in json.loads(run("verify", with_events, "--json").stdout)["runs"]}
    assert [item["state"] for item in verdicts["third"]] == ["damaged"]
    assert [item["state"] for item in verdicts["first"]] == ["good"]
    assert verdicts["second"] == []


def test_a_torn_end_and_what_is_no_events_file_are_no_damage(run: Run, with_events: Path) -> None:
    """A kill leaves half a record, a full disk an empty file: both are said, neither fails a script."""
    file = events_file(with_events / "third")
    os.truncate(file, file.stat().st_size - 5)
    (with_events / "third" / "events.out.tfevents.9.empty").touch()
    result = run("verify", with_events)
    assert result.exit_code == 0
    assert f"  torn     {file.name}  its last " in result.stdout
    assert "  skipped  events.out.tfevents.9.empty  " in result.stdout


def test_what_was_set_aside_is_shown_with_its_reason(run: Run, logdir: Path, clock_at: Any) -> None:
    """A damaged checkpoint that a session moved away is listed with when and why; it is no run, and no damage now."""
    store = CheckpointStore(logdir / "first")
    aside = store.set_aside(str(logdir / "first" / "model.ckpt-200"), "it was altered", clock=clock_at(1.5e9))
    assert aside is not None
    result = run("verify", logdir)
    assert "  aside    step 200       model.ckpt-200.damaged/  it was altered\n" in result.stdout
    assert [line for line in result.stdout.splitlines() if not line.startswith(" ")] == ["first", "second"]
    found = json.loads(run("verify", logdir, "--json").stdout)
    assert found["set_aside"] == 1
    assert found["runs"][0]["set_aside"] == [
        {"path": aside.path, "name": "model.ckpt-200", "step": 200, "at": 1.5e9, "reason": "it was altered"}
    ]


def test_verifying_moves_and_deletes_nothing(run: Run, logdir: Path) -> None:
    """Whatever is damaged, it is as it was afterwards."""
    (logdir / "first" / "model.ckpt-200.index").write_bytes(b"")
    (logdir / "second" / "model.ckpt-200.index").unlink()
    before = {path: path.read_bytes() for path in logdir.rglob("*") if path.is_file()}
    assert run("verify", logdir).exit_code == 1
    assert {path: path.read_bytes() for path in logdir.rglob("*") if path.is_file()} == before


def test_a_torn_state_file_is_noted(run: Run, logdir: Path) -> None:
    """The checkpoints are found all the same; the torn file is noted; status 1."""
    (logdir / "first" / "checkpoint").write_bytes(b'model_checkpoint_path: "mod')
    result = run("verify", logdir / "first")
    assert result.exit_code == 1
    assert "  note     the state file 'checkpoint' cannot be understood:" in result.stdout
    assert "A restart would resume from model.ckpt-200 (step 200), " in result.stdout


def test_a_remote_logdir_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not answer, or is not known, is one clear line as well."""
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    for logdir, said in (
        ("nosuchscheme://bucket/run", "Error: Cannot read events from 'nosuchscheme://bucket/run': no file system for"),
        ("memory://no-such-run", "Error: memory://no-such-run cannot be listed: "),
    ):
        result = run("verify", logdir)
        assert result.exit_code == 2
        assert said in result.stderr and result.stderr.count("\n") == 1


def test_the_step_inside_counts(run: Run, tmp_path: Path, writer: Any) -> None:
    """The step shown is the one stored in the checkpoint, whatever its name says."""
    writer.write_bundle(tmp_path / "model.ckpt-100", {"global_step": writer.step(123)})
    assert "A restart would resume from model.ckpt-100 (step 123), " in run("verify", tmp_path).stdout


def test_an_empty_run_with_a_torn_state_file(run: Run, tmp_path: Path) -> None:
    """A state file without any checkpoint: a restart would begin at step 0, so the status is 1."""
    (tmp_path / "checkpoint").write_bytes(b"")
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    assert "A restart would begin at step 0: there is no checkpoint." in result.stdout


@each("command", ["inspect", "verify"])
def test_thousands_of_directories_that_cannot_be_searched(
    command: str, run: Run, logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred are named; of the others their number is said. The runs are shown."""
    scandir = os.scandir
    for number in range(300):
        (logdir / f"closed-{number}").mkdir(exist_ok=True)

    def refused(path: Any) -> Any:
        if "closed-" in os.fspath(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    with EventsWriter(logdir / "first") as events:
        events.scalar("loss", 1.0, 1)
        monkeypatch.setattr(os, "scandir", refused)
        output = run(command, logdir).output
        monkeypatch.undo()
    assert sum("closed-" in line for line in output.splitlines()) == 100
    assert "200 more directories that cannot be listed" in output and "first" in output

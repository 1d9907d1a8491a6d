"""``tb-supervisor inspect`` of damaged runs, with odd names, on narrow terminals; and its exit status."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from supervisor_core.base.checksum import value
from supervisor_core.events.telemetry import SessionRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from tests.cases import each

Run = Callable[..., Result]
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123\n"


def write(directory: Path, *, reason: str | None = None, at: float | None = None) -> Path:
    """Write a run that ended for a reason, or was last heard long ago; return its events file."""
    at = time.time() - 1000.0 if at is None else at
    session = SessionRecord(session=directory.name, attempt=1, host="h", pid=1, facade="Supervisor", started_at=at)
    with EventsWriter(directory) as writer:
        writer.summary(summary_bytes(session), 0, at)
        for step in range(20):
            writer.scalar("loss", 1.0, step, at)
        if reason is not None:
            stop = StopRecord(
                session=directory.name,
                reason=reason,
                step=20,
                error="E: \x1b[31m\u202etxet" if reason == "error" else None,
            )
            writer.summary(summary_bytes(stop), 20, at + 10.0)
    (file,) = directory.iterdir()
    return file


def flip(file: Path) -> None:
    """Change one byte in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@each(
    "damage, text",
    [
        (flip, "at byte "),
        (lambda file: file.write_bytes(LFS), "a Git LFS pointer"),
        (lambda file: file.write_bytes(os.urandom(4096)), "no events file"),
        (lambda file: (file.unlink(), file.symlink_to("gone")), "it is gone"),
    ],
)
def test_what_of_a_run_could_not_be_read_is_printed(
    run: Run, tmp_path: Path, damage: Callable[[Path], object], text: str
) -> None:
    """A line names run, file and reason, beside the other runs' rows; status 1, with --json and with --run as well."""
    write(tmp_path / "good", reason="completed")
    file = write(tmp_path / "bad", reason="completed")
    damage(file)
    shown = run("inspect", tmp_path)
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("not read")]
    assert line.startswith(f"not read bad: {file}") and text in line
    assert any(row.startswith("good  ✓ completed") for row in shown.stdout.splitlines())
    assert shown.exit_code == 1
    assert run("inspect", tmp_path, "--json").exit_code == 1
    one = run("inspect", tmp_path, "--run", "bad")
    assert (one.exit_code, text in one.stdout) == (1, True)
    assert run("inspect", tmp_path, "--run", "good").exit_code == 0


@each("terminal", [False, True])
def test_a_name_is_never_cut_nor_wrapped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """In a pipe each run is one line with every column; on a terminal where there is no room it has its own line."""
    name = "experiments/resnet50/learning_rate_0.1/seed_3"
    write(tmp_path / name, reason="completed")
    monkeypatch.setenv("COLUMNS", "80")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
    head, row, *rest = run("inspect", tmp_path).stdout.splitlines()
    if terminal:
        assert row == name and rest[0].startswith("     ✓ completed") and max(map(len, rest)) <= 80
    else:
        assert row.startswith(f"{name}  ✓ completed")
        assert head.split() == ["run", "state", "started", "lasted", "step", "sessions", "loss", "accuracy"]
        assert rest == []


def test_control_characters_are_escaped(run: Run, tmp_path: Path) -> None:
    """Names, errors and paths that would steer a terminal, or turn the text after them round, are shown as escapes."""
    name = "a\x1b[31mb\u202ec\nd"
    flip(write(tmp_path / name, reason="error"))
    write(tmp_path / name / "more", reason="error")
    for arguments in ([], ["--run", name], ["--run", f"{name}/more"]):
        shown = run("inspect", tmp_path, *arguments).stdout
        assert r"a\x1b[31mb\u202ec\nd" in shown
        assert not {"\x1b", "\u202e"} & set(shown)
    assert r"E: \x1b[31m\u202etxet" in run("inspect", tmp_path, "--run", f"{name}/more").stdout
    wrong = run("inspect", tmp_path, "--run", "no\x1b[2J").stderr
    assert "\x1b" not in wrong and wrong.count("\n") == 1
    verified = run("verify", tmp_path).stdout
    assert r"\x1b[31mb\u202ec" in verified and not {"\x1b", "\u202e"} & set(verified)


@each("at", [1e300, -1e300, float("inf"), float("nan"), 1e18])
def test_any_wall_time_is_survived(run: Run, tmp_path: Path, at: float) -> None:
    """What no clock ever showed is not known; the rest of the run is shown."""
    with EventsWriter(tmp_path / "odd") as writer:
        writer.scalar("loss", 1.0, 1, 1795222244.0)
        writer.scalar("loss", 1.0, 2, at)
    for arguments in ([], ["--run", "odd"], ["--json"]):
        shown = run("inspect", tmp_path, *arguments)
        assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
        assert shown.exit_code == 0
    assert len(run("inspect", tmp_path).stdout) < 500


def test_fail_on_is_for_cron(run: Run, tmp_path: Path) -> None:
    """Status 3 and one line on standard error where a run is in such a state; else as ever."""
    write(tmp_path / "done", reason="completed")
    write(tmp_path / "broken", reason="error")
    met = run("inspect", tmp_path, "--fail-on", "lost,failed,stalled")
    assert met.exit_code == 3
    assert met.stderr == "In a state of --fail-on: broken (failed).\n"
    assert run("inspect", tmp_path, "--fail-on", "lost,stalled").exit_code == 0
    assert run("inspect", tmp_path, "--fail-on", "failed", "--run", "done").exit_code == 0
    assert run("inspect", tmp_path, "--fail-on", "failed", "--json").exit_code == 3


def test_a_run_that_may_not_be_listed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is named, in the table's footnotes and in the object; status 1."""
    write(tmp_path / "bad", reason="completed")
    monkeypatch.setattr(
        "supervisor_core.events.index.RunIndex.problem", f"{tmp_path}/bad: Permission denied", raising=True
    )
    shown = run("inspect", tmp_path)
    assert f"not read bad: {tmp_path}/bad: Permission denied" in shown.stdout
    assert shown.exit_code == 1
    (seen,) = json.loads(run("inspect", tmp_path, "--json").stdout)["runs"]
    assert seen["problems"] == [
        {"path": None, "offset": None, "kind": "run", "text": f"{tmp_path}/bad: Permission denied"}
    ]


META = b"fileFormatVersion: 2\nguid: 0123456789abcdef\nDefaultImporter:\n"
"""What Unity writes beside each file."""


def commands(run: Run, logdir: Path, tmp_path: Path) -> dict[str, int]:
    """The exit status of each command that reads a logdir to its end."""
    return {
        name: run(name, *more, str(logdir)).exit_code
        for name, more in (
            ("inspect", ()),
            ("verify", ()),
            ("export", ("-o", str(tmp_path / "scalars.csv"))),
            ("report", ("--json",)),
        )
    }


def test_a_text_file_of_another_program_is_no_events_file(run: Run, tmp_path: Path) -> None:
    """Beside one it is passed over by every command; a directory with nothing else is no run."""
    file = write(tmp_path / "logs" / "a", reason="completed")
    Path(f"{file}.meta").write_bytes(META)
    (tmp_path / "logs" / "b").mkdir()
    (tmp_path / "logs" / "b" / f"{file.name}.meta").write_bytes(META)
    assert set(commands(run, tmp_path / "logs", tmp_path).values()) == {0}
    assert len(json.loads(run("inspect", "--json", str(tmp_path / "logs")).stdout)["runs"]) == 1
    found = commands(run, tmp_path / "logs" / "b", tmp_path)
    assert set(found.values()) == {2}


@each("checksum", [lambda crc: b"\0\0\0\0", lambda crc: crc])
def test_wrong_checksums_are_named(run: Run, tmp_path: Path, checksum: Callable[[bytes], bytes]) -> None:
    """A writer that leaves them zero, or does not mask them, is told so; the file counts as not read."""
    file = write(tmp_path / "a", reason="completed")
    data, wrong = file.read_bytes(), b""
    while data:
        length = int.from_bytes(data[:8], "little")
        body = data[12 : 12 + length]
        crcs = [struct.pack("<I", value(part)) for part in (data[:8], body)]
        wrong += data[:8] + checksum(crcs[0]) + body + checksum(crcs[1])
        data = data[16 + length :]
    file.write_bytes(wrong)
    found = commands(run, tmp_path / "a", tmp_path)
    assert (found["inspect"], found["verify"]) == (1, 1)
    for command in ("inspect", "verify"):
        assert "it has events, and their checksums are wrong" in run(command, str(tmp_path / "a")).output

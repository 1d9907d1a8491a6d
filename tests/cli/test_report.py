"""``tb-supervisor report``: which run, which file, and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from supervisor_core.events.telemetry import CheckpointRecord, StopRecord, summary_bytes
from supervisor_core.events.writer import EventsWriter
from tests.cases import each

Command = Callable[..., Result]


def write(run: Path, reason: str = "completed", **how: str) -> None:
    """A session that saved once and ended."""
    with EventsWriter(run) as writer:
        writer.summary(summary_bytes(CheckpointRecord(session=run.name, trigger="timer", path="m-3", step=3)), 3)
        writer.summary(summary_bytes(StopRecord(session=run.name, reason=reason, step=4, **how)), 4)


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A frontend as a build leaves it."""
    import tb_plugin.report

    directory = tmp_path / "static"
    directory.mkdir()
    (directory / "index.js").write_text('export { render } from "./tab-ABCD2345.js";\n')
    (directory / "tab-ABCD2345.js").write_text("export const render = null;")
    monkeypatch.setattr(tb_plugin.report.report_page, "__defaults__", (directory,))
    return directory


def test_the_only_run_needs_no_name(run: Command, tmp_path: Path) -> None:
    """One line says which file and which run; the page is there, and nothing beside it."""
    write(tmp_path / "logs" / "digits")
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "report.html"
    done = run("report", tmp_path / "logs", "--html", target)
    assert (done.exit_code, done.output) == (0, f"{target}: the run digits in 0.0 MB.\n")
    page = target.read_text()
    assert "<title>digits - Supervisor report</title>" in page and '"run":"digits"' in page
    assert os.listdir(tmp_path / "out") == ["report.html"]


def test_one_of_several_runs(run: Command, tmp_path: Path) -> None:
    """The one that is named; a name that is none is an error with those that there are."""
    write(tmp_path / "a")
    write(tmp_path / "z", "error", error="ValueError: x")
    assert run("report", tmp_path, "--run", "z", "--html", tmp_path / "r.html").exit_code == 0
    assert '"run":"z"' in (tmp_path / "r.html").read_text()
    missing = run("report", tmp_path, "--run", "b", "--html", tmp_path / "r.html")
    assert (missing.exit_code, missing.stderr) == (2, f"Error: {tmp_path} has no run 'b'; it has 2 runs: 'a', 'z'.\n")


def test_several_runs_or_a_window_are_the_fleet_s(run: Command, tmp_path: Path) -> None:
    """A page of one run is that of --run, or of --html alone where there is one run."""
    write(tmp_path / "a")
    target = tmp_path / "r.html"
    assert run("report", tmp_path, "--html", target).exit_code == 0
    assert '"run":"a"' in target.read_text()
    done = run("report", tmp_path, "--since", "1h", "--html", target)
    assert (done.exit_code, done.output) == (0, f"{target}: the fleet, 1 run, in 0.0 MB.\n")
    assert "fleet report</title>" in target.read_text()
    write(tmp_path / "b")
    assert "the fleet, 2 runs, in" in run("report", tmp_path, "--html", target).output


def test_only_a_file_is_replaced(run: Command, tmp_path: Path) -> None:
    """A directory, a pipe, and a directory that is not there are errors that name them; a link is followed."""
    write(tmp_path / "logs")
    os.mkfifo(tmp_path / "pipe")
    for target, text in (
        (tmp_path, f"{tmp_path} is a directory; expected the name of a file to write."),
        (tmp_path / "pipe", f"{tmp_path}/pipe is no file; expected the name of a file to write."),
        (f"{tmp_path}/new/", f"{tmp_path}/new/ is the name of a directory; expected the name of a file to write."),
        (tmp_path / "none" / "r.html", f"The directory {tmp_path}/none does not exist; create it first."),
    ):
        done = run("report", tmp_path / "logs", "--html", target)
        assert (done.exit_code, done.stderr) == (2, f"Error: {text}\n")
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "link.html").symlink_to("old.html")
    assert run("report", tmp_path / "logs", "--html", tmp_path / "link.html").exit_code == 0
    assert (tmp_path / "link.html").is_symlink() and "doctype" in (tmp_path / "old.html").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_link_of_another_user_is_not_followed(run: Command, tmp_path: Path) -> None:
    """Whoever may write into a directory cannot have a report written over a file of whoever makes one there."""
    write(tmp_path / "logs")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "r.html").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "r.html", 65534, 65534)
    done = run("report", tmp_path / "logs", "--html", tmp_path / "r.html")
    assert done.exit_code == 2
    assert f"{tmp_path}/r.html is another user's link to {tmp_path}/mine: give that, or" in done.stderr
    assert (tmp_path / "mine").read_text() == "mine"


@each(
    "error, status, text",
    [
        (PermissionError(13, "Permission denied"), 2, "{target} cannot be written: Permission denied."),
        (OSError(28, "No space left on device"), 74, "Cannot write the output: No space left on device."),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, status: int, text: str
) -> None:
    """In one line; the file that was there stays, and nothing is left beside it."""
    write(tmp_path / "logs")
    target = tmp_path / "r.html"
    target.write_text("old")

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", failing)
    done = run("report", tmp_path / "logs", "--html", target)
    assert (done.exit_code, done.stderr) == (status, f"Error: {text.format(target=target)}\n")
    assert target.read_text() == "old" and not list(tmp_path.glob("*.tmp*"))


def test_a_clone_without_its_frontend_says_what_to_do(run: Command, tmp_path: Path, built: Path) -> None:
    """An error, not an empty page."""
    write(tmp_path / "logs")
    (built / "index.js").unlink()
    done = run("report", tmp_path / "logs", "--html", tmp_path / "r.html")
    assert done.exit_code == 2 and "run: make frontend" in done.stderr
    assert not (tmp_path / "r.html").exists()

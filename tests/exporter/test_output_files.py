"""What an exporter writes into files: the page for node_exporter, and where this machine's trainings are scraped."""

from __future__ import annotations

import json
import logging
import re
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor_core.metrics import output_files
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.output_files import OutputFile, page, targets
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.watch.logdir_watch import LogdirWatch

OF_PROCESS = re.compile(r"(# \w+ )?process_")
HERE = socket.gethostname()


def test_the_page_is_what_a_scrape_gets(
    tmp_path: Path, writing, clock, exporter_of, promtool: Callable[..., str]
) -> None:
    """All but what is about the process, of which node_exporter has metrics of these names; anybody may read it, and
    no other file is there that node_exporter would read."""
    writing.RunFile(tmp_path / "logs" / "a").ready(run="digits").beat(clock.now - 5)
    exporter = exporter_of(tmp_path / "logs")
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "supervisor.prom"
    OutputFile(str(path), page).update(exporter)
    expected = [line for line in lines(exporter.scrape(TEXT).decode()) if not OF_PROCESS.match(line)]
    assert lines(path.read_text()) == expected and len(expected) > 50
    assert path.stat().st_mode & 0o444 == 0o444
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    promtool("check", "metrics", given=path.read_text())


def lines(text: str) -> list[str]:
    """The lines of a page, but how long the scrape took."""
    return [line for line in text.splitlines() if "scrape_duration" not in line]


def test_it_is_written_after_each_look(tmp_path: Path, writing, clock) -> None:
    """What a look has found is there when it is over; at the end the file is gone, once or twice."""
    path = tmp_path / "supervisor.prom"
    written = OutputFile(str(path), page)
    exporter = Exporter([LogdirWatch(str(tmp_path / "logs"), clock=clock)], on_page=[written.update], clock=clock)
    exporter.refresh()
    assert "supervisor_active" not in path.read_text()
    writing.RunFile(tmp_path / "logs" / "a").ready(run="digits").beat(clock.now - 5)
    exporter.refresh()
    assert 'supervisor_active{run="digits"} 1' in path.read_text()
    written.remove()
    assert not path.exists()
    written.remove()


def test_what_cannot_be_written_is_said_once(tmp_path: Path, exporter_of, caplog: pytest.LogCaptureFixture) -> None:
    """And when it can be again; a look ends as ever."""
    path = tmp_path / "out" / "targets.json"
    written, exporter = OutputFile(str(path), targets), exporter_of(tmp_path / "logs")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            written.update(exporter)
        path.parent.mkdir()
        written.update(exporter)
        written.update(exporter)
    about = [record for record in caplog.records if str(path) in record.getMessage()]
    assert [record.levelno for record in about] == [logging.ERROR, logging.INFO]
    assert "No such file or directory" in about[0].getMessage()
    assert json.loads(path.read_text()) == []


def test_a_disk_that_hangs_holds_up_no_look(
    tmp_path: Path, exporter_of, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor the end; that is said once. When the disk answers again the file is written."""
    path, answers = tmp_path / "supervisor.prom", threading.Event()
    written, exporter = OutputFile(str(path), page), exporter_of(tmp_path / "logs")
    begun: list[str] = []
    has_begun = threading.Event()

    class Hanging:
        def replace(self, path: str, content: bytes) -> None:
            begun.append(path)
            has_begun.set()
            assert answers.wait(60)
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(output_files, "WRITE_SECS", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(output_files, "filesystem_for", lambda path: (Hanging(), path))
        for _ in range(3):
            written.update(exporter)
            assert has_begun.wait(60)
        written.remove()
    assert begun == [str(path)]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert said == [f"{path} cannot be written: its disk does not answer"]
    answers.set()
    assert written._thread is not None
    written._thread.join(60)
    monkeypatch.setattr(output_files, "WRITE_SECS", 60.0)
    written.update(exporter)
    assert "supervisor_exporter_build_info" in path.read_text()


def test_live_trainings_of_this_machine_are_targets(tmp_path: Path, writing, clock, exporter_of) -> None:
    """Those that run or hang, at the addresses that they have recorded; an address of every network is the machine's.
    Others are not: those that serve nothing, are dead or over, or on another machine, or of no sense; nor what a
    forged record calls its address, to which Prometheus would send its credentials."""

    def training(name: str, address: str | None, host: str = HERE, beat_at: float = clock.now - 5):
        file = writing.RunFile(tmp_path / name, session=name)
        return file.ready(run=name, host=host, metrics_address=address).beat(beat_at)

    training("a", "127.0.0.1:40001")
    training("every", "0.0.0.0:40002")
    training("six", "[::]:40003")
    training("silent", None)
    training("elsewhere", "127.0.0.1:40004", host="another")
    training("lost", "127.0.0.1:40005", beat_at=clock.now - 90)
    training("over", "127.0.0.1:40006").stop(clock.now - 4)
    training("nonsense", "file:///etc/passwd")
    for number, address in enumerate(("192.0.2.1:80", "metadata.example:80", "[2001:db8::1]:80")):
        training(f"of another machine {number}", address)
    exporter = exporter_of(tmp_path)
    assert json.loads(targets(exporter) or b"") == [
        {"targets": sorted(["127.0.0.1:40001", f"{HERE}:40002", f"{HERE}:40003"])}
    ]


def test_no_target_is_lost_at_a_start(tmp_path: Path, writing, clock) -> None:
    """Until the first look is over the file of the exporter before stays; the same content is not written again."""
    file = writing.RunFile(tmp_path / "logs" / "a")
    file.ready(run="a", host=HERE, metrics_address="127.0.0.1:1").beat(clock.now - 5)
    path = tmp_path / "targets.json"
    path.write_text("before")
    exporter = Exporter([LogdirWatch(str(tmp_path / "logs"), clock=clock)], clock=clock)
    written = OutputFile(str(path), targets)
    written.update(exporter)
    assert path.read_text() == "before"
    exporter.refresh()
    written.update(exporter)
    first = path.stat().st_ino
    exporter.refresh()
    written.update(exporter)
    assert path.stat().st_ino == first
    shutil.rmtree(tmp_path / "logs" / "a")
    exporter.refresh()
    exporter.refresh()
    written.update(exporter)
    assert path.stat().st_ino != first

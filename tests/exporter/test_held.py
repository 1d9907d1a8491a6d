"""What an exporter holds of a run: only what has lasted, across a rename and a restart."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.held_file import HeldFile
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.judge.held import MOST_TEXTS
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tests.story.session import Scripted


def kinds(exporter: Exporter) -> list[tuple[str, str]]:
    """What is held, by run."""
    return [(run, found.kind) for run, found in exporter.findings()]


def test_a_finding_is_held_once_it_has_lasted(tmp_path: Path, writing: Any, exporter_of: Any, clock: Any) -> None:
    """Its text stays what it was; a directory that is renamed, and a new exporter, change nothing."""
    file = writing.RunFile(tmp_path / "logs" / "a").ready(run="digits")

    def fail(why: str) -> None:
        file.saved(clock.now - 2, "ckpt", why).beat(clock.now - 1, steps=5)

    fail("first")
    fail("No space left on device")
    exporter: Exporter = exporter_of(tmp_path / "logs")
    assert kinds(exporter) == []
    clock.now += 61
    fail("No space left on device")
    exporter.refresh()
    assert kinds(exporter) == [("digits", "saves_failing")]
    [(_, said)] = exporter.findings()
    fail("Disk quota exceeded")
    (tmp_path / "logs" / "a").rename(tmp_path / "logs" / "b")
    exporter.refresh()
    [(run, found)] = exporter.findings()
    assert (run, found.text, found.since) == ("digits", said.text, said.since) and found.cost != said.cost

    kept = HeldFile(str(tmp_path), [str(tmp_path / "logs")])
    kept.update(exporter)
    watch = LogdirWatch(str(tmp_path / "logs"), clock=clock)
    after = Exporter([watch], clock=clock, held_before=HeldFile(str(tmp_path), [str(tmp_path / "logs")]).read())
    after.refresh()
    assert kinds(after) == [("digits", "saves_failing")]


def test_texts_are_few_series(tmp_path: Path, clock: Any) -> None:
    """A loop of 25 attempts in 10 minutes has one text; a program that says another thing each minute of three hours
    has at most 20 in a day and one that says so. The series of a deleted run end with the next look."""
    logdir = tmp_path / "logs"
    exporter = Exporter([LogdirWatch(str(logdir), clock=clock)], clock=clock)
    start = clock.now = 19_675 * 86_400.0  # a day begins
    texts: dict[str, set[str]] = {"loops": set(), "says": set()}

    def look() -> str:
        exporter.refresh()
        page = exporter.scrape(TEXT).decode()
        for name, found in texts.items():
            found.update(re.findall(rf'^(supervisor_finding_text_info{{.*run="{name}".*}}) ', page, re.M))
        return page

    step = 0
    for attempt in range(1, 26):
        session = Scripted(logdir / "loops", start + 24 * attempt, attempt=attempt, step=step).train(15)
        step, clock.now = session.step, session.at
        look()
    assert len(texts["loops"]) == 1
    session = Scripted(logdir / "says", clock.now, beat_every=60.0, write_every=10**9)
    for minute in range(180):
        session.train(60).say(f"accuracy is {minute}", "page").flush()
        clock.now = session.at
        look()
    assert len(texts["says"]) == MOST_TEXTS + 1
    assert 'run="loops"' in look()
    shutil.rmtree(logdir / "loops")
    assert 'run="loops"' not in look()


def test_a_damaged_file_is_ignored(tmp_path: Path, caplog: Any) -> None:
    """What was held before is then not known, and the log says so."""
    kept = HeldFile(str(tmp_path), ["/logs"])
    assert kept.read() == {}
    Path(kept._path).write_bytes(b'{"/logs": {"r": 1}}')
    assert kept.read() == {} and "holds begin again" in caplog.text

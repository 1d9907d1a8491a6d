"""The one thread that writes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.events.writer import EventsWriter
from tests.cases import each


@each("when", ["before", "after"])
def test_a_handler_that_interrupts_the_start_of_the_thread(
    tmp_path: Path, read_logdir: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A signal handler that adds and flushes just then leaves one thread that writes: each event once, in order."""
    writer = EventsWriter(tmp_path)
    start = threading.Thread.start
    started: list[threading.Thread] = []
    interruptions = iter([True])

    def interrupted(thread: threading.Thread) -> None:
        def handle() -> None:
            if next(interruptions, False):
                writer.payload("graph_def", b"handler", 2)
                writer.flush()

        if when == "before":
            handle()
        start(thread)
        started.append(thread)
        if when == "after":
            handle()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    for step in (1, 3, 4, 5):
        writer.payload("graph_def", b"loop", step)
    writer.flush()
    for thread in started:
        if thread.ident != writer._writer_thread._started[0]:
            thread.join(30)
    assert [thread.is_alive() for thread in started].count(True) == 1
    writer.close()
    (contents,) = read_logdir(tmp_path)
    assert contents.steps == [1, 2, 3, 4, 5]

"""A session to supervise, with what it says kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.events.telemetry import Record, from_json
from supervisor_core.options import Options
from supervisor_core.runtime.registry import ServiceRegistry
from supervisor_core.supervision.outcome import Outcome
from supervisor_core.supervision.supervised_run import SupervisedRun


class KeepingWriter:
    """A summary writer that keeps the telemetry records, and what was synced when."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.synced: list[str] = []
        self.dropped = 0

    def add_summary(self, summary: bytes, global_step: int | None = None) -> None:
        from tensorboard.compat.proto import summary_pb2

        (value,) = summary_pb2.Summary.FromString(summary).value
        kind = value.tag.removeprefix("supervisor/")
        self.records.append(from_json(kind, value.tensor.string_val[0].decode()))

    def flush(self) -> None:
        raise AssertionError("a writer that can sync is synced")

    def sync(self) -> None:
        self.synced.append(self.records[-1].kind)

    def of(self, kind: str) -> list[Any]:
        """The records of a kind, in order."""
        return [record for record in self.records if record.kind == kind]


@pytest.fixture
def writer() -> KeepingWriter:
    """Where the sessions of a test say what happens."""
    return KeepingWriter()


@pytest.fixture
def begin(tmp_path: Path, writer: KeepingWriter) -> Iterator[Callable[..., SupervisedRun]]:
    """Begin a session in the test's logdir; those that a test leaves open are ended after it."""
    runs: list[SupervisedRun] = []

    def begin(options: Options | None = None, **arguments: Any) -> SupervisedRun:
        run = SupervisedRun(
            logdir=str(tmp_path),
            facade="Test",
            options=options or Options(),
            writer=writer,
            services=ServiceRegistry(),
            **arguments,
        )
        run.begin()
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.end(Outcome(reason="requested"))
        run.close(0.0)

"""The newest kept value of a tag, from the first step and the last point of each file."""

from __future__ import annotations

import numpy as np

from supervisor_core.events.chunk import Chunk, Points, TelemetryMark
from supervisor_core.events.telemetry import RecoveryRecord, SessionRecord
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.tag_values import LastValue
from tests.cases import each

NOW = 1_795_222_300.0


def session_file(number: int, restored: int, steps: range, *, recovered_to: int | None = None) -> Chunk:
    """The file of a session that wrote its step as its loss at each of some steps; and was recovered after these."""
    at = NOW + 1000.0 * number
    id = f"s{number}"
    record = SessionRecord(session=id, attempt=number + 1, started_at=at, restored_step=restored)
    marks = [TelemetryMark(offset=0, at=at, step=restored, record=record)]
    if recovered_to is not None:
        recovery = RecoveryRecord(session=id, step=steps[-1], restored_step=recovered_to)
        marks.append(TelemetryMark(offset=900, at=at + 900.0, step=recovered_to, record=recovery))
    count = np.arange(len(steps))
    points = Points(count + 1, np.array(steps), at + 1 + count, np.array(steps, float))
    return Chunk(path=f"/runs/a/{number}", from_start=True, marks=tuple(marks), scalars={"loss": points})


@each(
    "files, newest",
    [
        ([session_file(0, 0, range(1, 31))], 30),
        ([session_file(0, 0, range(1, 31)), session_file(1, 20, range(21, 26))], 25),
        # The second died before it had saved: all of its points were done again, or will be.
        (
            [
                session_file(0, 0, range(1, 21)),
                session_file(1, 20, range(21, 26)),
                session_file(2, 20, range(100, 100)),
            ],
            20,
        ),
        # What it wrote at step 23 was kept, and only its last point is known, which was not.
        (
            [
                session_file(0, 0, range(1, 21)),
                session_file(1, 20, range(21, 26)),
                session_file(2, 23, range(100, 100)),
            ],
            None,
        ),
        ([session_file(0, 0, range(1, 31), recovered_to=40)], 30),
        ([session_file(0, 0, range(1, 31), recovered_to=10)], None),
    ],
)
def test_the_newest_kept_value(files: list[Chunk], newest: int | None) -> None:
    """It is that of the last point that no restart and no recovery has undone, or it is not known; never another."""
    fold = RunFold("a")
    fold.update([chunk if len(chunk.scalars["loss"]) else _without_scalars(chunk) for chunk in files])
    found = fold.run(NOW + 10_000.0).tag_values.of("loss")
    assert found == (None if newest is None else LastValue(tag="loss", value=float(newest), step=newest))


def _without_scalars(chunk: Chunk) -> Chunk:
    return Chunk(path=chunk.path, from_start=True, marks=chunk.marks)

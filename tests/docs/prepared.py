"""What a page's commands find when they begin: logdirs of others, which no command of the page makes."""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.events.event_format import event_prefix, frame, scalar_prefix, version_event
from supervisor_core.events.telemetry import (
    CheckpointRecord,
    HeartbeatRecord,
    SessionRecord,
    StopRecord,
    summary_bytes,
)
from tests.checkpoint.bundle_writer import Tensor, floats, write_bundle
from tests.checkpoint.bundle_writer import step as number_of

HOUR = 3600.0
PORT = 10988
"""On which the exporter listens by default."""


class Past:
    """An events file of the past, on the machine of the pages."""

    def __init__(self, run: Path, started_at: float) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self.run, self.step, self.started_at = run, 0, started_at
        self.path = run / f"events.out.tfevents.{int(started_at)}.node-3"
        self._append(version_event(started_at), started_at)

    def begins(self, attempt: int, restored_step: int | None = None) -> None:
        """A session begins."""
        self.step = restored_step or 0
        self.session = f"{zlib.crc32(self.run.name.encode()):08x}{attempt:08x}"
        record = SessionRecord(
            session=self.session,
            attempt=attempt,
            host="node-3",
            pid=4711,
            facade="Supervisor",
            started_at=self.started_at,
            restored_step=restored_step,
            heartbeat_secs=10.0,
            checkpoint_interval_secs=30.0,
        )
        self.write(record, self.started_at)

    def write(self, record: Any, at: float) -> None:
        """Append a record."""
        summary = summary_bytes(record)
        self._append(event_prefix(at, self.step, 5, len(summary)) + summary, at)

    def scalar(self, tag: str, value: float, step: int, at: float) -> None:
        """Append a scalar."""
        self._append(event_prefix(at, step, 5, 0)[:-2] + scalar_prefix(tag) + struct.pack("<f", value), at)

    def trains(self, until: float, step: int) -> None:
        """Train to a step, with a heartbeat and a loss every 10 s; there is a checkpoint of the last but one."""
        first, beats = self.step, int((until - self.started_at) / 10.0)
        speed = (step - first) / (until - self.started_at)
        for number in range(1, beats + 1):
            at = until - 10.0 * (beats - number)
            self.step = step - round(speed * (until - at))
            beat = HeartbeatRecord(
                session=self.session,
                phase="training",
                step=self.step,
                steps=self.step - first,
                steps_per_sec=speed,
                progress_timeout_secs=300.0,
                activity_secs={"productive": at - self.started_at},
            )
            self.write(beat, at)
            self.scalar("loss", 1.0 / number, self.step, at)
            if number == beats - 1:
                path = self.run / f"model.ckpt-{self.step}"
                write_bundle(str(path), {"dense/kernel": floats(5000), "global_step": number_of(self.step)})
                saved = CheckpointRecord(session=self.session, trigger="timer", path=str(path), step=self.step)
                self.write(saved, at)

    def stops(self, at: float, reason: Any = "completed") -> None:
        """Write the stop record."""
        self.write(StopRecord(session=self.session, reason=reason, step=self.step, steps=self.step), at)

    def damage(self, at: float) -> None:
        """Append a record whose payload is not what its checksum says."""
        record = bytearray(frame(version_event(self.started_at)))
        record[14] ^= 1
        self._append_bytes(bytes(record), at)

    def _append(self, event: bytes, at: float) -> None:
        self._append_bytes(frame(event), at)

    def _append_bytes(self, record: bytes, at: float) -> None:
        with self.path.open("ab") as file:
            file.write(record)
        os.utime(self.path, (at, at))


def four_runs(root: Path) -> None:
    """``/runs``: one that is lost and whose file is damaged, one that trains, one that is complete, one of Keras."""
    now, runs = time.time(), root / "runs"
    first = Past(runs / "broken", now - 2 * HOUR)
    first.begins(1)
    first.trains(now - 1.5 * HOUR, 400)
    second = Past(runs / "broken", now - 1.4 * HOUR)
    second.begins(2, restored_step=380)
    second.trains(now - 720, 820)
    second.damage(now - 720)
    listed = 'model_checkpoint_path: "model.ckpt-819"\n' + "".join(
        f'all_model_checkpoint_paths: "model.ckpt-{step}"\n' for step in (398, 819)
    )
    (runs / "broken" / "checkpoint").write_text(listed)
    with (runs / "broken" / "model.ckpt-819.data-00000-of-00001").open("r+b") as file:
        file.write(b"damaged!")
    trains = Past(runs / "digits", now - 600)
    trains.begins(1)
    trains.trains(now - 1, 1250)
    done = Past(runs / "tuning", now - 30 * HOUR)
    done.begins(1)
    done.trains(now - 29 * HOUR, 2500)
    done.stops(now - 29 * HOUR)
    keras = Past(runs / "keras", now - 1000 * HOUR)
    for step in range(20):
        keras.scalar("epoch_loss", 1 / (step + 1), step, now - 1000 * HOUR + 60 * step)


def for_the_exporter(root: Path) -> None:
    """The same in ``/data/runs``; the exporter's usual port must be free."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", PORT))
        except OSError as error:
            pytest.skip(f"the exporter's port {PORT} is taken: {error}")
    four_runs(root / "data")


def for_the_command_line(root: Path) -> None:
    """`four_runs`, and two checkpoints of one training, in which one tensor of two has changed."""
    four_runs(root)
    for number, scale in ((1000, 1.0), (2000, 1.02)):
        values = {"objects/model/head": scale, "objects/model/layer0": 1.0}
        tensors = {
            name: Tensor(
                "float32", (300, 200), struct.pack("<60000f", *(index % 97 / 97 * by for index in range(60_000)))
            )
            for name, by in values.items()
        }
        write_bundle(root / "runs" / "tuning" / "checkpoints" / f"ckpt-{number}", tensors)


PREPARED: dict[str, Callable[[Path], None]] = {"cli.md": for_the_command_line, "exporter.md": for_the_exporter}
"""Page -> makes it, below the directory that stands for ``/`` on the page."""

"""A program without TensorFlow: appends events as fast as it can, and says up to which step they are flushed."""

from __future__ import annotations

import os
from typing import Any

from supervisor_core.events import EventsWriter


def main(config: dict[str, Any]) -> None:
    """Append until it is killed: scalars, and now and then something large."""
    writer, step = EventsWriter(config["logdir"]), 0
    os.write(1, b"ready 0\n")
    while True:
        for _ in range(config["batch"]):
            step += 1
            writer.scalar("loss", 1.0 / step, step)
            if step % 50 == 0:
                writer.payload("graph_def", bytes(20_000), step)
        (writer.sync if config["durable"] else writer.flush)()
        os.write(1, f"flushed {step}\n".encode())

"""What appending events costs: the caller, the machine, and a large event from call to file.

Every writer gets the same scalars in the same loop, in turns; each one's best turn counts, since whatever else the
machine does only ever adds. Peers run with their own defaults, as their users have them.

    python -m benchmarks.writer [--quick]
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table

OURS = "ours"
LARGE_BYTES = 5_000_000
CALLER_GOAL_US, RATE_GOAL, LARGE_GOAL_MS = 1.5, 0.6e6, 3.0


@dataclass(frozen=True)
class Writer:
    """One open writer, behind four functions."""

    scalar: Callable[[int], Any]
    large: Callable[[bytes], Any] | None
    flush: Callable[[], Any]
    close: Callable[[], Any]


def open_ours(logdir: str) -> Writer:
    from supervisor_core.events import EventsWriter

    writer = EventsWriter(logdir)
    add = writer.scalar
    return Writer(
        lambda step: add("train/loss", 0.5, step),
        lambda data: writer.payload("graph_def", data, 1),
        writer.flush,
        writer.close,
    )


def open_tensorflow_v1(logdir: str) -> Writer:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        writer = v1.summary.FileWriter(logdir)
    summary, value = v1.Summary, v1.Summary.Value
    return Writer(
        lambda step: writer.add_summary(summary(value=[value(tag="train/loss", simple_value=0.5)]), step),
        lambda data: writer.add_event(v1.Event(wall_time=1.0, step=1, graph_def=data)),
        writer.flush,
        writer.close,
    )


def open_tensorflow_v2(logdir: str) -> Writer:
    import tensorflow as tf

    writer = tf.summary.create_file_writer(logdir)
    entered = writer.as_default()
    entered.__enter__()

    def close() -> None:
        entered.__exit__(None, None, None)
        writer.close()

    return Writer(lambda step: tf.summary.scalar("train/loss", 0.5, step), None, writer.flush, close)


def open_tensorboard(logdir: str) -> Writer:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(logdir)

    def scalar(step: int) -> None:
        summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=0.5)])
        writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    return Writer(
        scalar,
        lambda data: writer.add_event(Event(wall_time=1.0, step=1, graph_def=data)),
        writer.flush,
        writer.close,
    )


def open_summary_writer(module: str) -> Callable[[str], Writer]:
    def open_it(logdir: str) -> Writer:
        writer = importlib.import_module(module).SummaryWriter(logdir)
        return Writer(lambda step: writer.add_scalar("train/loss", 0.5, step), None, writer.flush, writer.close)

    return open_it


def open_in_line(logdir: str) -> Writer:
    """Our encoder on the caller's thread, into a buffer: what the queue saves the caller."""
    from supervisor_core.events.event_format import BatchEncoder

    encode, buffer = BatchEncoder().encode, bytearray()
    os.makedirs(logdir)

    def scalar(step: int) -> None:
        buffer.extend(encode((("train/loss", 0.5, step, time.time()),)).chunks[0])

    file = open(os.path.join(logdir, "events"), "wb", buffering=0)  # noqa: SIM115

    def flush() -> None:
        file.write(buffer)
        buffer.clear()

    def large(data: bytes) -> None:
        file.write(data)

    return Writer(scalar, large, flush, file.close)


IN_LINE = "our encoder in line, no thread"
PLAIN_WRITE = "one plain write of as many bytes"
CONTENDERS: dict[str, tuple[str, Callable[[str], Writer]]] = {
    OURS: ("supervisor_core", open_ours),
    "tf.compat.v1.summary.FileWriter": ("tensorflow", open_tensorflow_v1),
    "tf.summary": ("tensorflow", open_tensorflow_v2),
    "tensorboard EventFileWriter": ("tensorboard", open_tensorboard),
    "torch SummaryWriter": ("torch", open_summary_writer("torch.utils.tensorboard")),
    "tensorboardX SummaryWriter": ("tensorboardX", open_summary_writer("tensorboardX")),
    IN_LINE: ("supervisor_core", open_in_line),
}


def present() -> dict[str, Callable[[str], Writer]]:
    found = {}
    for name, (module, open_it) in CONTENDERS.items():
        if importlib.util.find_spec(module) is not None:
            found[name] = open_it
    return found


def append_secs(writer: Writer, count: int) -> tuple[float, float]:
    """Return the seconds that ``count`` appends took their caller, and until they were flushed."""
    add = writer.scalar
    gc.collect()
    began = time.perf_counter()
    for step in range(count):
        add(step)
    added = time.perf_counter()
    writer.flush()
    return added - began, time.perf_counter() - began


def large_secs(writer: Writer) -> float | None:
    if writer.large is None:
        return None
    data = os.urandom(LARGE_BYTES)
    began = time.perf_counter()
    writer.large(data)
    writer.flush()
    return time.perf_counter() - began


def turn(open_it: Callable[[str], Writer], logdir: Path, few: int, many: int) -> tuple[float, float, float | None]:
    """Return one writer's seconds per append, seconds per event end to end, and seconds for a large event."""
    writer = open_it(str(logdir))
    append_secs(writer, 100)  # warm
    burst = min(append_secs(writer, few)[0] for _ in range(3)) / few
    through = append_secs(writer, many)[1] / many
    large = large_secs(writer)
    writer.close()
    return burst, through, large


def rows(quick: bool) -> Iterable[Row]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    turns = 3 if quick else 7
    contenders = present()
    burst: dict[str, list[float]] = {name: [] for name in contenders}
    through: dict[str, list[float]] = {name: [] for name in contenders}
    large: dict[str, list[float]] = {name: [] for name in contenders}
    with ExitStack() as closing:
        directory = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        for index in range(turns):
            for number, (name, open_it) in enumerate(contenders.items()):
                fast = name in (OURS, IN_LINE)
                few = 10_000 if fast else 500
                many = (200_000 if quick else 1_000_000) if fast else (1_000 if quick else 5_000)
                seconds = turn(open_it, directory / f"{index}-{number}", few, many)
                burst[name].append(seconds[0])
                through[name].append(seconds[1])
                if seconds[2] is not None:
                    large[name].append(seconds[2])
    absent = ", ".join(sorted(set(CONTENDERS) - set(contenders)))
    note = f"best of {turns} turns" + (f"; not installed: {absent}" if absent else "")
    yield from report(best(burst), best(through), best(large), note)


def best(measured: dict[str, list[float]]) -> dict[str, float]:
    return {name: min(seconds) for name, seconds in measured.items() if seconds}


def report(burst: dict[str, float], through: dict[str, float], large: dict[str, float], note: str) -> Iterator[Row]:
    caller = {name: seconds * 1e6 for name, seconds in burst.items()}
    ours = caller.pop(OURS)
    yield Row(
        "writer",
        "appending a scalar, as the caller sees it",
        "us",
        ours,
        caller,
        f"at most {CALLER_GOAL_US:g} us",
        ours <= CALLER_GOAL_US,
        note,
    )
    rate = {name: 1 / seconds for name, seconds in through.items()}
    ours = rate.pop(OURS)
    yield Row(
        "writer",
        "scalars from call to file, without a pause",
        "events/s",
        ours,
        rate,
        f"at least {RATE_GOAL:,.0f} events/s",
        ours >= RATE_GOAL,
        note,
    )
    waited = {name: seconds * 1e3 for name, seconds in large.items()}
    ours = waited.pop(OURS)
    waited[PLAIN_WRITE] = waited.pop(IN_LINE)
    yield Row(
        "writer",
        "one 5 MB event, from call to flushed",
        "ms",
        ours,
        waited,
        f"at most {LARGE_GOAL_MS:g} ms",
        ours <= LARGE_GOAL_MS,
        note,
    )


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

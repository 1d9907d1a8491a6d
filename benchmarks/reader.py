"""What reading events files costs: the first look, looking again, images that are not wanted, thousands of runs.

Everyone reads the same files, from the page cache, until every point is at hand; best turns count, since whatever else
the machine does only ever adds. The peers that take half a minute for a million events get a tenth of them, and ten
times their time counts.

    python -m benchmarks.reader [--quick]
"""

from __future__ import annotations

import importlib.util
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table
from benchmarks.rust_server import rust_server_secs

SCALARS, IMAGES, RUNS = 1_000_000, 500, 5_000
IMAGE_BYTES = 1_000_000
NAME = "events.out.tfevents.1700000000.host"
TAGS = tuple(f"{kind}/{name}" for kind in ("train", "eval") for name in ("loss", "accuracy", "lr", "grad_norm", "mem"))


def scalar_record(number: int, tag: str) -> bytes:
    from supervisor_core.events import event_format

    event = b"\x09" + struct.pack("<d", 1.7e9 + number * 0.01) + event_format.step_field(number)
    return event_format.frame(event + event_format.scalar_prefix(tag) + struct.pack("<f", number * 0.5))


def write_scalars(directory: Path, count: int) -> str:
    from supervisor_core.events import event_format

    directory.mkdir()
    path = directory / NAME
    records = (scalar_record(number // len(TAGS), TAGS[number % len(TAGS)]) for number in range(count))
    path.write_bytes(event_format.frame(event_format.version_event(1.7e9)) + b"".join(records))
    return str(path)


def write_images(directory: Path, count: int) -> str:
    from supervisor_core.base import wire
    from supervisor_core.events import event_format

    directory.mkdir()
    log = wire.encode_varint(1 << 3) + b"\x03" + wire.delimited(2, b"model.ckpt-1")  # SessionLog: CHECKPOINT, path
    mark = event_format.frame(event_format.event_prefix(1.7e9, 1, 7, len(log)) + log)
    image = wire.delimited(4, wire.delimited(4, os.urandom(IMAGE_BYTES)))
    value = wire.delimited(1, wire.delimited(1, b"image/0") + image)
    picture = event_format.frame(event_format.event_prefix(1.7e9, 1, 5, len(value)) + value)
    path = directory / NAME
    with path.open("wb") as file:
        file.write(event_format.frame(event_format.version_event(1.7e9)))
        for number in range(count):
            file.write(picture)
            if number % 5 < 2:
                file.write(mark)
    return str(path)


def ours(path: str) -> int:
    from supervisor_core.events.reader import EventsFileReader

    chunk = EventsFileReader(path).read()
    assert chunk is not None
    return chunk.records


def raw_loader(path: str) -> int:
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    return sum(1 for _ in RawEventFileLoader(path).Load())


def loader(path: str) -> int:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return sum(1 for _ in EventFileLoader(path).Load())


def accumulator(path: str) -> int:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loaded = EventAccumulator(path, size_guidance={"scalars": 0})
    loaded.Reload()
    return sum(len(loaded.Scalars(tag)) for tag in loaded.Tags()["scalars"]) + 1


def iterator(path: str) -> int:
    import tensorflow as tf

    return sum(1 for _ in tf.compat.v1.train.summary_iterator(path))


RAW = "tensorboard RawEventFileLoader (bytes, not decoded)"
PEERS: dict[str, tuple[str, Callable[[str], int]]] = {
    RAW: ("tensorboard", raw_loader),
    "tensorboard EventFileLoader": ("tensorboard", loader),
    "tensorboard EventAccumulator": ("tensorboard", accumulator),
    "tf.compat.v1.train.summary_iterator": ("tensorflow", iterator),
}


def timed(read: Callable[[str], int], path: str, records: int | None, turns: int) -> float:
    """Return the seconds of the best turn; every record must have been seen."""
    best = float("inf")
    for _ in range(turns):
        began = time.perf_counter()
        found = read(path)
        best = min(best, time.perf_counter() - began)
        assert records is None or found == records, f"{read.__name__} found {found} of {records} records"
    return best


def first_reads(directory: Path, quick: bool) -> Iterator[Row]:
    count, images = (SCALARS // 10, IMAGES // 10) if quick else (SCALARS, IMAGES)
    part = count // 10
    whole, tenth = write_scalars(directory / "scalars", count), write_scalars(directory / "part", part)
    warm = write_scalars(directory / "warm", 100)
    peers = {
        name: (timed(read, warm, 101, 1), timed(read, tenth, part + 1, 3))[1] * (count / part)
        for name, (module, read) in PEERS.items()
        if importlib.util.find_spec(module) is not None
    }
    server = rust_server_secs(os.path.dirname(whole), TAGS, count // len(TAGS))
    if server is not None:
        peers = {"tensorboard-data-server (Rust)": server, **peers}
    secs = timed(ours, whole, count + 1, 7)
    size = f"{os.path.getsize(whole) / 1e6:.0f} MB, {len(TAGS)} tags"
    note = f"{size}; best of 7, of 3 for the peers; Python peers from a tenth of it"
    goal = 0.3 * count / SCALARS
    yield Row("reader", f"first read of {count:,} scalars", "s", secs, peers, f"at most {goal:g} s", secs <= goal, note)
    pictures = write_images(directory / "images", images)
    records = 1 + images + sum(number % 5 < 2 for number in range(images))
    skipped = {
        name: timed(PEERS[name][1], pictures, records, 3)
        for name in (RAW, "tf.compat.v1.train.summary_iterator")
        if name in peers
    }
    secs = timed(ours, pictures, records, 9)
    goal = 0.01 * images / IMAGES
    what = f"first read of {images * IMAGE_BYTES / 1e6:.0f} MB of images with {records - images - 1} session logs"
    yield Row("reader", what, "s", secs, skipped, f"at most {goal:g} s", secs <= goal, "1 MB an image; best of 9")


def looks(directory: Path, quick: bool) -> Iterator[Row]:
    """Looking again at a file of a thousand events."""
    turns = 200 if quick else 3000
    path = write_scalars(directory / "grows", 1000)
    found = {name: again(*opened, path, turns) for name, opened in lookers(path).items()}
    for index, (what, goal) in enumerate((("that has not grown", 1.0), ("that has grown by an event", 5.0))):
        times = {name: seconds[index] * 1e6 for name, seconds in found.items()}
        secs = times.pop("ours")
        times["one os.stat (the floor)"] = stat_secs(path, turns) * 1e6
        note = f"best fiftieth of {turns} looks"
        yield Row(
            "reader", f"looking again at a file {what}", "us", secs, times, f"at most {goal:g} us", secs <= goal, note
        )


def lookers(path: str) -> dict[str, tuple[Callable[[], Any]]]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader, RawEventFileLoader

    from supervisor_core.events.reader import EventsFileReader

    raw, full = RawEventFileLoader(path), EventFileLoader(path)
    return {
        "ours": (EventsFileReader(path).read,),
        RAW: (lambda: list(raw.Load()),),
        "tensorboard EventFileLoader": (lambda: list(full.Load()),),
    }


def again(look: Callable[[], Any], path: str, turns: int) -> tuple[float, float]:
    """Return the seconds of a look at an unchanged file, and at one that has just grown."""
    look()
    unchanged, grown = [], []
    with open(path, "ab", buffering=0) as file:
        for turn in range(turns):
            unchanged.append(once(look))
            file.write(scalar_record(turn, TAGS[0]))
            grown.append(once(look))
    return low(unchanged), low(grown)


def once(look: Callable[[], Any]) -> float:
    began = time.perf_counter()
    look()
    return time.perf_counter() - began


def low(times: list[float]) -> float:
    return sorted(times)[len(times) // 50]


def stat_secs(path: str, turns: int) -> float:
    return low([once(lambda: os.stat(path)) for _ in range(turns)])


def many_runs(directory: Path, quick: bool) -> Iterator[Row]:
    from tensorboard.backend.event_processing.io_wrapper import GetLogdirSubdirectories

    from supervisor_core.events.directory import DirectoryTree
    from supervisor_core.events.index import LogdirIndex

    count = RUNS // 10 if quick else RUNS
    root = directory / "runs"
    root.mkdir()
    for number in range(count):
        write_scalars(root / f"run-{number}", 3)

    def walk(path: str) -> int:
        tree = DirectoryTree(path)
        tree.refresh()
        return sum(1 for _ in tree.runs())

    def refresh(path: str) -> int:
        return len(LogdirIndex(path).refresh().changed)

    peers = {
        "tensorboard GetLogdirSubdirectories": timed(
            lambda path: len(list(GetLogdirSubdirectories(path))), str(root), count, 3
        )
    }
    secs, goal = timed(walk, str(root), count, 5), 0.15 * count / RUNS
    yield Row("reader", f"finding {count:,} runs", "s", secs, peers, f"at most {goal:g} s", secs <= goal, "best of 5")
    index = LogdirIndex(str(root))
    index.refresh()
    first = timed(refresh, str(root), count, 3)
    again = timed(lambda _: len(index.refresh().changed), str(root), 0, 9)
    note = "three events in each; every file is asked for its size"
    yield Row("reader", f"reading {count:,} runs for the first time", "s", first, {}, "", None, note)
    yield Row("reader", f"looking again at {count:,} runs, nothing new", "s", again, {}, "", None, note)


def rows(quick: bool) -> Iterable[Row]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    with tempfile.TemporaryDirectory() as name:
        for measure in (first_reads, looks, many_runs):
            directory = Path(name) / measure.__name__
            directory.mkdir()
            yield from measure(directory, quick)


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

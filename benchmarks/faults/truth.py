"""What is on disk, read without this project: checkpoints by TensorFlow's reader, events by a walk over the records.

Format of an events file (tensorflow's ``record_writer.cc``): per record 8 bytes length, 4 bytes masked CRC32C of those,
the payload, 4 bytes masked CRC32C of the payload, all little-endian.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

_INDEX = re.compile(r"(.*-(\d+))\.index")
_TELEMETRY = "supervisor/"


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a logdir."""

    whole: tuple[int, ...]
    """Steps of those that TensorFlow reads in full, in which each variable is of that step; ascending."""
    named: int | None
    """The step of the one that the state file names; None where TensorFlow finds none."""
    broken: tuple[str, ...] = ()
    """Those with an index that are not whole, and why."""

    @property
    def resumable(self) -> set[int]:
        """The steps that a session may resume at: what the state file names if that is whole, or the newest whole."""
        if not self.whole:
            return {0}
        return {self.whole[-1]} | ({self.named} if self.named in self.whole else set())


def checkpoints(logdir: Path) -> Checkpoints:
    """Read all checkpoints of a logdir."""
    whole, broken = [], []
    for path in logdir.glob("*.index"):
        match = _INDEX.fullmatch(str(path))
        if match is None:
            continue
        problem = damage(match[1], int(match[2]))
        if problem is None:
            whole.append(int(match[2]))
        else:
            broken.append(f"{path.name}: {problem}")
    # Data is moved into place before the index; the next session moves an index that is left behind.
    staged = {path: _INDEX.fullmatch(str(path)) for path in logdir.glob("*_temp_*/*.index")}
    whole += [int(match[2]) for path, match in staged.items() if match and not [*path.parent.glob("*.data-*")]]
    return Checkpoints(tuple(sorted({*whole})), named_step(logdir), tuple(broken))


def damage(prefix: str, step: int) -> str | None:
    """Return what is wrong with a checkpoint of that step; None if it is whole."""
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            value = reader.get_tensor(name)
            if not (value == step).all():
                return f"{name} is not of step {step}"
    except Exception as error:  # whatever TensorFlow's reader raises: it cannot be read
        return str(error).partition("\n")[0][:200]
    return None


def named_step(logdir: Path) -> int | None:
    """Return the step of the checkpoint that the state file names, by TensorFlow's reading of it."""
    import tensorflow as tf

    try:
        state = tf.train.get_checkpoint_state(str(logdir))
    except Exception:  # a torn file: it names nothing
        return None
    step = "" if state is None else state.model_checkpoint_path.rpartition("-")[2]
    return int(step) if step.isdigit() else None


@lru_cache(1)
def _parsers() -> tuple[Any, Any]:
    import google_crc32c
    from tensorboard.compat.proto.event_pb2 import Event

    return google_crc32c.value, Event


def records(path: Path) -> Iterator[Any]:
    """Yield a file's events up to its torn end.

    Raises:
        ValueError: if a record that is there in full does not match its checksum.
    """
    crc, event_class = _parsers()

    def masked(data: bytes) -> int:
        value = int(crc(data))
        return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF

    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        if masked(data[at : at + 8]) != length_crc:
            raise ValueError(f"{path.name}: the length at byte {at} does not match its checksum")
        end = at + 12 + length + 4
        if end > len(data):
            return
        payload = data[at + 12 : end - 4]
        if masked(payload) != struct.unpack_from("<I", data, end - 4)[0]:
            raise ValueError(f"{path.name}: the record at byte {at} does not match its checksum")
        yield event_class.FromString(payload)
        at = end


@dataclass(frozen=True)
class Events:
    """What some events files hold."""

    losses: tuple[int, ...]
    """Steps of the program's own scalar, in the order of the records."""
    telemetry: tuple[tuple[str, dict[str, Any]], ...]
    """The supervisor's records: kind and values."""

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the values of each record of a kind; None of a field that it leaves out."""
        return [defaultdict(lambda: None, values) for name, values in self.telemetry if name == kind]

    @property
    def saved(self) -> list[int]:
        """The steps that records call saved."""
        return [values["step"] for values in self.of_kind("checkpoint") if values["path"] and not values["error"]]


def events_files(logdir: Path) -> list[Path]:
    """Return a logdir's events files, by name."""
    return sorted(logdir.glob("*tfevents*"))


def events(paths: Iterable[Path]) -> Events:
    """Read events files."""
    losses, telemetry = [], []
    for path in paths:
        for event in records(path):
            for value in event.summary.value:
                if value.tag == "loss":
                    losses.append(event.step)
                elif value.tag.startswith(_TELEMETRY):
                    text = value.tensor.string_val[0]
                    telemetry.append((value.tag.removeprefix(_TELEMETRY), json.loads(text)))
    return Events(tuple(losses), tuple(telemetry))


def read_by_tensorboard(paths: list[Path]) -> int:
    """Return how many of the program's own scalars TensorBoard's loader finds."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    _, event_class = _parsers()
    return sum(
        value.tag == "loss"
        for path in paths
        for data in RawEventFileLoader(str(path)).Load()
        for value in event_class.FromString(data).summary.value
    )

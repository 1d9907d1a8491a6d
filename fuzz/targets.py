"""`TARGETS`: what is fuzzed, what each promises, and the inputs that are kept for it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

Check = Callable[[bytes], None]
"""Returns where the promise holds for an input; raises anything where it does not."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One reader of data that others wrote."""

    name: str
    reads: str
    """What it reads, for the table."""
    promise: str
    """What holds for every input, for the table."""
    module: str
    """Where its check is, a function called ``check_<name>``."""
    max_bytes: int
    """Longer inputs are not tried."""
    is_json: bool = False
    """Whether values in its JSON are altered, besides bytes."""

    def check(self) -> Check:
        """Load the check, and with it the code under test."""
        check: Check = getattr(importlib.import_module(self.module), f"check_{self.name}")
        return check

    @property
    def corpus(self) -> Path:
        """The directory of the inputs to begin with."""
        return HERE / "corpus" / self.name

    @property
    def findings(self) -> Path:
        """The directory of the inputs that broke the promise once."""
        return HERE / "findings" / self.name


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="events",
            reads="events file",
            promise="no error; vectorised, record by record and as the file grows the reader returns the same",
            module="fuzz.events",
            max_bytes=16 << 10,
        ),
        Target(
            name="telemetry",
            reads="telemetry records",
            promise="`EventsError` only; the run and its metrics are made of what is accepted, without an error",
            module="fuzz.telemetry",
            max_bytes=8 << 10,
            is_json=True,
        ),
        Target(
            name="table",
            reads="checkpoint index (table)",
            promise="`DamagedCheckpointError` only; what can be read can be checked and written again",
            module="fuzz.checkpoints",
            max_bytes=8 << 10,
        ),
        Target(
            name="bundle",
            reads="checkpoint (index and data)",
            promise="`DamagedCheckpointError` only; verifying with and without data gives the same step",
            module="fuzz.checkpoints",
            max_bytes=8 << 10,
        ),
        Target(
            name="state",
            reads="state file `checkpoint`",
            promise="no error; what was read is written and read again the same",
            module="fuzz.checkpoints",
            max_bytes=4 << 10,
        ),
        Target(
            name="manifest",
            reads="manifest of a sealed checkpoint",
            promise="`ValueError` only; no path leads out of the checkpoint; written and read again the same",
            module="fuzz.sealed",
            max_bytes=4 << 10,
            is_json=True,
        ),
        Target(
            name="tree",
            reads="`tree.json` and arrays (`supervise`, PyTorch, Keras, and around the others' files)",
            promise="`DamagedCheckpointError` only; what `verify` accepts a resume reads, and nothing else",
            module="fuzz.sealed",
            max_bytes=4 << 10,
            is_json=True,
        ),
        Target(
            name="torch",
            reads="files of `torch.save` (Lightning, Transformers, parts of shards)",
            promise="`ValueError` and `NeedsCodeError` only; nothing is imported or called",
            module="fuzz.sealed",
            max_bytes=4 << 10,
        ),
        Target(
            name="shards",
            reads="metadata of shards (PyTorch's FSDP)",
            promise="`DamagedCheckpointError` only; nothing is imported or called",
            module="fuzz.sealed",
            max_bytes=4 << 10,
        ),
        Target(
            name="trainer",
            reads="state, settings and weights of Transformers' `Trainer`",
            promise="`DamagedCheckpointError` only",
            module="fuzz.sealed",
            max_bytes=4 << 10,
            is_json=True,
        ),
        Target(
            name="task",
            reads="liveness file",
            promise="`ValueError` only; what was read is written and read again the same",
            module="fuzz.records",
            max_bytes=4 << 10,
            is_json=True,
        ),
        Target(
            name="ledger",
            reads="page of the checkpoint ledger",
            promise="`ValueError` only; no path leads out of the logdir; written and read again the same",
            module="fuzz.records",
            max_bytes=4 << 10,
            is_json=True,
        ),
        Target(
            name="page",
            reads="progress page",
            promise="no error; counts and times are bounded, and the step follows from them",
            module="fuzz.records",
            max_bytes=4 << 10,
        ),
        Target(
            name="stacks",
            reads="file of stacks",
            promise="no error; looks, threads and frames are bounded; what was read is written and read again the same",
            module="fuzz.records",
            max_bytes=4 << 10,
        ),
        Target(
            name="restarts",
            reads="state of a restarter; calls and reports of its nodes",
            promise="`ValueError` only; what is accepted decides about launches; written and read again the same",
            module="fuzz.records",
            max_bytes=4 << 10,
            is_json=True,
        ),
        Target(
            name="output",
            reads="end of a program's standard error, by its restarter",
            promise="no error; a launch is decided about, and its failure is short",
            module="fuzz.views",
            max_bytes=4 << 10,
        ),
        Target(
            name="pyspy",
            reads="what py-spy prints",
            promise="no error; stacks or a problem; threads and frames are bounded",
            module="fuzz.views",
            max_bytes=4 << 10,
            is_json=True,
        ),
        Target(
            name="cache",
            reads="file of the cache of ended runs",
            promise="no error; what was read is kept and read again the same",
            module="fuzz.views",
            max_bytes=8 << 10,
        ),
        Target(
            name="shapes",
            reads="text of any shape, as each name and text of a run",
            promise="no error in any view; a terminal, an assistant and a chat obey none of it",
            module="fuzz.views",
            max_bytes=512,
        ),
        Target(
            name="http",
            reads="HTTP requests to the exporter",
            promise="no error, no status 500; each answer is whole, of the stated length; no page without a password",
            module="fuzz.http",
            max_bytes=4 << 10,
        ),
    )
}


def kept_inputs(target: Target) -> list[Path]:
    """Return the files of a target's corpus and findings, in the order of their names."""
    folders = (target.corpus, target.findings)
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()) if path.is_file()]

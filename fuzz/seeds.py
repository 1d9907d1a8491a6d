"""Makes the corpus that fuzzing begins with, from the writers of the project and of its tests.

    python -m fuzz.seeds

Rewrites ``corpus/``; the same files each time.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from fuzz.targets import HERE, TARGETS
from fuzz.telemetry import LETTERS
from supervisor_core.checkpoint import ledger, manifest
from supervisor_core.checkpoint.manifest import Manifest, SealedFile
from supervisor_core.checkpoint.retention import Doubt
from supervisor_core.checkpoint.state_file import CheckpointState, SaveId, format_state
from supervisor_core.events import event_format, telemetry
from supervisor_core.events.chunk import Chunk, TelemetryMark
from supervisor_core.events.telemetry import DigestRecord, Place, ResumeRecord
from supervisor_core.process.page_writer import ProgressPage
from supervisor_core.process.progress_page import LAST_PROGRESS, STEPS
from supervisor_core.process.stacks_file import MAGIC, look_text
from supervisor_core.restarter.logdir_view import encode_state
from supervisor_core.restarter.policy import Failure, RestartState
from supervisor_core.run.fold.run_fold import RunFold
from supervisor_core.run.model.liveness_record import Costs, RunSoFar
from supervisor_core.run.model.snapshot import WatchedRun
from supervisor_core.run.watch import liveness, run_cache

TESTS = HERE.parent / "tests"
RAW, MENDED, LEGACY = b"\0", b"\1", b"\2"
Seeds = Iterator[tuple[str, bytes]]


def tests_module(path: str) -> ModuleType:
    """Return a module of the tests that is no test."""
    name = f"seeds_{Path(path).stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def of_events() -> Seeds:
    """Files of each kind of record that there is."""
    head = event_format.frame(event_format.version_event(1.7e9))
    scalars = b"".join(event_format.frame(scalar(step, ("loss", "rate")[step % 5 == 0])) for step in range(40))
    stop = telemetry.summary_bytes(telemetry.StopRecord(session="s", reason="completed", step=9))
    told = event_format.frame(event_format.event_prefix(1.7e9, 3, 5, len(stop)) + stop)
    odd = b"".join(event_format.frame(payload) for payload in (b"", b"\x09", b"\x2a\x7f", b"\x10\x80\x01"))
    yield "scalars", MENDED + head + scalars
    yield "growing", b"\3" + head + scalars[:400]
    yield "thorough", b"\5" + head + scalars[:400]
    yield "scalars-only", b"\7" + head + told + scalars[:400]
    yield "telemetry", MENDED + head + told * 2
    yield "odd-payloads", MENDED + head + odd + event_format.frame(scalar(1))
    yield "torn", RAW + head + event_format.frame(scalar(1))[:-3]
    yield "damaged-length", RAW + head + b"\xff" * 8 + event_format.frame(scalar(1)) * 3
    yield (
        "damaged-payload",
        RAW + head + event_format.frame(scalar(1)).replace(b"loss", b"lost") + event_format.frame(scalar(2)),
    )
    yield "git-lfs", RAW + b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    yield "empty", RAW
    for seed, kind in enumerate(("merged", "session", "mixed", "odd")):
        writer = tests_module("events/reference.py").Writer(seed)
        records = b"".join(event_format.frame(payload) for payload in getattr(writer, kind)())
        yield f"tests-{kind}", MENDED + head + records[:3000]


def scalar(step: int, tag: str = "loss") -> bytes:
    """The event of one scalar."""
    start = b"\x09" + struct.pack("<d", 1.7e9 + step) + event_format.step_field(step)
    return start + event_format.scalar_prefix(tag) + struct.pack("<f", step / 2)


def of_telemetry() -> Seeds:
    """A session of each kind of record, and each record alone."""
    session = telemetry.SessionRecord(
        session="s", attempt=2, host="h", pid=1, facade="Supervisor", started_at=1.7e9 - 90, heartbeat_secs=10.0,
        restored_checkpoint="/l/model.ckpt-3", restored_step=3, skipped=({"path": "/l/m-4", "reason": "cut"},),
        services=({"name": "checkpoint", "interval_secs": 600.0},), versions={"python": "3.11"}, previous_step=5,
        previous_seen_at=1.7e9 - 200, previous_outcome="lost", run_started_at=1.7e9 - 900, checkpoint_interval_secs=600,
        labels={"team": "vision", "user": "ada"}, world_size=4, device_kind="H100", device_count=8,
    )  # fmt: skip
    thread = {"name": "checkpoint", "state": "idle", "ticks": 3, "failures": 1, "last_tick_at": 1.7e9 - 50,
              "last_tick_secs": 0.5, "overdue_secs": 0.0, "last_error": "no space", "interval_secs": 600.0}  # fmt: skip
    worker = {"name": "worker:1", "state": "running", "step": 4, "phase": "training", "heard_at": 1.7e9 - 41}
    beat = telemetry.HeartbeatRecord(
        session="s", phase="training", attempt=2, elapsed_secs=50.0, step=9, steps=6, steps_per_sec=0.1,
        progress_timeout_secs=600.0, activity_secs={"productive": 40.0, "stall": 2.5}, threads=(thread,),
        workers=(worker,), events_dropped=2, loss_finite=False,
    )  # fmt: skip
    records: list[telemetry.Record] = [
        session,
        replace(beat, elapsed_secs=1.0, step=4, steps=1),
        telemetry.CheckpointRecord(session="s", trigger="timer", path="/l/model.ckpt-7", step=7, bytes=9, secs=0.2,
                                   blocked_secs=0.1, consistent=True, verified=True),
        telemetry.StallRecord(session="s", state="begin", phase="training", since=1.7e9 - 60, step=8, secs=5.0,
                              timeout_secs=600.0, stacks={"MainThread": ("a.py:1 in f", "b.py:2 in g")}),
        telemetry.RecoveryRecord(session="s", error="lost", step=8, restored_step=7, secs=3.0),
        telemetry.NoticeRecord(session="s", severity="page", text="loss", count=2, since=1.7e9, at=1.7e9, step=8),
        DigestRecord(session="s", step=8, states={"model": "0123456789ab"}),
        ResumeRecord(session="s", compared=3, equal=2, tag="loss", step=8, before="0.4", now="nan"),
        beat,
        telemetry.StopRecord(session="s", reason="signal", signal="SIGTERM", step=9, steps=6, elapsed_secs=60.0),
    ]  # fmt: skip
    lines = [f"{record.kind[:2]}{telemetry.to_json(record)}" for record in records]
    yield "session", "\n".join(lines).encode()
    for line, record in zip(lines, records, strict=True):
        yield record.kind, line.encode()
    again = [line.replace('"session": "s"', '"session": "t"').replace('"attempt": 2', '"attempt": 3') for line in lines]
    yield "two-sessions", "\n".join([*lines[:-1], *again]).encode()
    yield "deep", b"he" + b"[" * 300
    yield "huge", b'he{"v":1,"session":"s","phase":"x","step":1e400,"steps":NaN,"elapsed_secs":1%s}' % (b"0" * 400)


def of_table() -> Seeds:
    """Tables of one block and of several, and one that is compressed."""
    write_table = tests_module("checkpoint/bundle_writer.py").write_table
    items = [(f"layer_{number}/kernel".encode(), bytes([number]) * 30) for number in range(12)]
    for name, options in (("blocks", {}), ("one-block", {"block_bytes": 9999}), ("compressed", {"compression": 1})):
        yield name, MENDED + _written(lambda path, options=options: write_table(path, items, **options))  # type: ignore[misc]
    yield "empty", RAW + _written(lambda path: write_table(path, []))


def of_bundle() -> Seeds:
    """Checkpoints of each kind of tensor, in both byte orders."""
    writer = tests_module("checkpoint/bundle_writer.py")
    numbers = {"w": writer.floats(20), "global_step": writer.step(5)}
    texts = {
        "s": writer.strings(b"one", b"", b"three"),
        "v": writer.variants(b"xy", b""),
        "global_step": writer.step(5, "int32"),
    }
    for name, tensors, big in (("numbers", numbers, False), ("texts", texts, False), ("big-endian", texts, True)):
        with tempfile.TemporaryDirectory() as folder:
            writer.write_bundle(Path(folder, "m"), tensors, big_endian=big)
            index = Path(folder, "m.index").read_bytes()
            data = Path(folder, "m.data-00000-of-00001").read_bytes()
        yield name, MENDED + struct.pack("<H", len(index)) + index + data


def _written(write: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "file"))
        return Path(folder, "file").read_bytes()


def of_state() -> Seeds:
    """State files as programs write and as people edit them."""
    paths = ("model.ckpt-5", "model.ckpt-9")
    state = CheckpointState(
        model_checkpoint_path=paths[1], all_model_checkpoint_paths=paths, timestamps=(1.5e9, 1.6e9),
        last_preserved_timestamp=1.4e9, save_id=SaveId(12, 57),
    )  # fmt: skip
    yield "ours", format_state(state)
    yield "plain", b'model_checkpoint_path: "a"\nall_model_checkpoint_paths: "a"\n'
    yield "list", b"model_checkpoint_path: 'a' # x\nall_model_checkpoint_paths: ['a', \"\\x62\\303\"]\n"
    yield "windows", b'model_checkpoint_path: "C:\\runs\\new\\model.ckpt-5"\n'
    yield "unknown", b'model_checkpoint_path: "a"\nother { x: 1 y { z: "q" } }\n[a.b]: 3\n'
    yield "empty", b"  \n"


def of_manifest() -> Seeds:
    """One of a session that knows everything, and the least that there is."""
    whole = Manifest(
        format="state-tree", step=4, session="s", attempt=2, number=3, saved_at=1.7e9, last_preserved_at=1.6e9,
        preserved=("ckpt-2",), files=(SealedFile("shards/a", 5, 7), SealedFile("tree.json", 9, 8)),
        counters={"step": 4, "epoch": 1}, captured=("model",), not_captured=("No data.",), data_position="d",
        facts={"workers": "2"}, doubt=Doubt("There is NaN.", ("loss",)), versions={"torch": "2"},
    )  # fmt: skip
    yield "whole", manifest.encode(whole)
    yield "least", manifest.encode(Manifest(format="transformers", step=4))
    yield "deep", b'{"v":1,"files":' + b"[" * 300


def of_tree() -> Seeds:
    """A training with an array of each sort, one without arrays, one of two ranks."""
    reference = {"array": ["numpy", "objects/m/w"]}
    array = {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}
    none = {"dtype": "I64", "shape": [0, 3], "data_offsets": [64, 64]}
    state = {"dict": [["w", reference], [5, {"tuple": [1, {"float": "nan"}, {"bytes": "AA=="}]}]]}
    random = {"dict": [["python", {"array": ["numpy", "random"]}]]}

    def tree(*more: list[Any], objects: Any = {"dict": []}, random: Any = {"dict": []}) -> bytes:  # noqa: B006
        return json.dumps({"dict": [["objects", objects], ["random", random], *more]}).encode()

    header = json.dumps({"objects/m/w": array, "random": none}).encode()
    yield "arrays", tree(objects={"dict": [["m", state]]}, random=random) + b"\n" + header
    yield "no-arrays", tree(["position", "x"])
    ranks = json.loads(tree())
    yield "ranks", tree(["ranks", [ranks, ranks]])
    yield "kinds", tree(objects={"dict": [["m", {"array": ["lightning", "x"]}], ["n", {"array": ["shards", "y"]}]]})
    yield "deep", b'{"dict":' + b"[" * 300


def of_torch() -> Seeds:
    """Files with tensors, classes and code."""
    sealed = importlib.import_module("fuzz.sealed")
    text, named, tensor = sealed.text, sealed.name, sealed.tensor()
    whole = b"\x80\x02}(" + text("w") + tensor + text("n") + b"K\x05" + text("t") + b"(K\x02tu."
    numpy = named("numpy.dtype") + b"(" + text("f8") + b"\x89\x88tR(K\x03" + text("<") + b"NNNtb"
    yield "state", b"\1" + whole
    yield "numpy", b"\1\x80\x02}" + text("d") + numpy + b"s."
    yield "code", b"\1\x80\x02" + named("os.system") + b"(" + text("true") + b"tR."
    yield "shared", b"\1\x80\x02]" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(40)) + b"."
    yield "file", b"\0" + sealed._archive(whole)


def of_shards() -> Seeds:
    """Metadata of one tensor in two parts, as PyTorch writes them."""
    sealed = importlib.import_module("fuzz.sealed")
    text, named, place = sealed.text, sealed.name, "torch.distributed.checkpoint.metadata."

    def made(of: str, **state: bytes) -> bytes:
        items = b"".join(text(key) + value for key, value in state.items())
        return named(of) + b")\x81}(" + items + b"ub"

    def size(*numbers: int) -> bytes:
        return named("torch.Size") + b"(" + b"(" + b"".join(b"K%c" % number for number in numbers) + b"ttR"

    chunk = made(f"{place}ChunkStorageMetadata", offsets=size(0), sizes=size(4))
    layout = named("torch.serialization._get_layout") + b"(" + text("torch.strided") + b"tR"
    memory = named(f"{place}_MEM_FORMAT_ENCODING") + b"(K\x00tR"
    properties = (
        named(f"{place}TensorProperties") + b")\x81(" + named("torch.float32") + layout + b"\x89" + memory + b"\x89tb"
    )
    tensor = made(f"{place}TensorStorageMetadata", properties=properties, size=size(4), chunks=b"]" + chunk + b"a")
    index = made(f"{place}MetadataIndex", fqn=text("w"), offset=size(0), index=b"K\x00")
    length = len(sealed._archive(b"\x80\x02" + sealed.tensor() + b"."))
    info = made(
        "torch.distributed.checkpoint.filesystem._StorageInfo", relative_path=text("__0_0.distcp"), offset=b"K\x00",
        length=b"M" + length.to_bytes(2, "little"),
    )  # fmt: skip
    metadata = made(
        f"{place}Metadata",
        state_dict_metadata=b"}" + text("w") + tensor + b"s",
        storage_data=b"}" + index + info + b"s",
    )
    yield "one", b"\x80\x02" + metadata + b"."
    yield "code", b"\x80\x02" + named("os.system") + b"(" + text("true") + b"tR."


def of_trainer() -> Seeds:
    """With weights and settings, and without."""
    state = json.dumps({"global_step": 4, "epoch": 0.5, "log_history": [{"loss": float("nan"), "step": 1}]}).encode()
    weights = json.dumps(
        {"w": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]}, "__metadata__": {}}
    ).encode()
    yield "whole", state + b"\n" + weights + b"\n" + b'{"architectures": ["Bert"]}'
    yield "no-weights", state


def of_page() -> Seeds:
    """A page that was just begun, one in training, one in a stall; without what is of this machine."""

    def seed() -> bytes:
        assert page.path is not None
        data = page.path.read_bytes()
        return (data[:24] + bytes(8) + data[32:192] + b"b".ljust(128, b"\0") + data[320:1536]).rstrip(b"\0")

    with tempfile.TemporaryDirectory() as directory:
        page = ProgressPage.create(Path(directory), session_id="s", pid=7, started_at=1.7e9, started_boot_secs=5.0)
        yield "new", seed()
        page.step_is(100, 1)
        page.update(phase="training", hang_timeout_secs=30.0, act_after_secs=300.0)
        page.counts[STEPS], page.times[LAST_PROGRESS] = 42, 77.5
        yield "training", seed()
        page.update(stalled_since=77.5, location="MainThread at train.py:88 in step")
        yield "stalled", seed()
        page.close()


def of_task() -> Seeds:
    """The heartbeat of a worker, and its last."""
    record = liveness.LivenessRecord(
        task="worker:1", session="s", host="h", boot="b", pids="pid:[1]", pid=3, started_at=1.7e9, written_at=1.7e9,
        beats=4, interval_secs=5.0, phase="training", step=9, steps=8, waiting_for="the chief", stalled=True,
    )  # fmt: skip
    history = RunSoFar(
        attempt=2, first_started_at=1.6e9, restarts={"lost": 2, "signal": 1}, steps_lost=3, predecessor="t",
        costs=Costs(trained_secs=9.0, saves=2, save_secs=0.5, blocked_secs=0.25),
    )  # fmt: skip
    yield "running", liveness.encode(record)
    yield "chief", liveness.encode(replace(record, started_boot_secs=5.0, written_boot_secs=9.5, history=history))
    place = Place(digest="a1", location="train.py:25 train", waits_in="backward", frames=("train.py:25 train",))
    yield "still", liveness.encode(replace(record, place=place, progress_age_secs=7.0, hang_timeout_secs=6.0))
    yield "ended", liveness.encode(replace(record, ended="error", ended_at=1.7e9, error="boom"))
    yield "strange-name", liveness.encode(replace(record, task="./-\u00e9" + "x" * 210))


def of_ledger() -> Seeds:
    """Pages with checkpoints that are kept and that are to be deleted."""
    saved = ledger.SavedAs("model.ckpt-5", 1, 2, 1.7e9)
    gone = ledger.PlannedDeletion(
        "model.ckpt-3", {"model.ckpt-3.index": 1.7e9, "model.ckpt-3.data-00000-of-00001": 1.7e9}
    )
    doubts = {saved.path: Doubt("There is NaN.", ("loss",))}
    page = ledger.LedgerPage(
        session="s", attempt=1, saved=(saved,), deletions=(gone,), doubts=doubts, last_good=saved.path
    )
    yield "page", ledger.encode(page)
    yield "empty", ledger.encode(ledger.LedgerPage("s", 1))
    odd = {"v": 1, "session": "s", "attempt": "2", "saved": [["../x", 1, 2, 3.0]], "deletions": [["x", {"/y": 1}]]}
    yield "outside", json.dumps(odd).encode()


def of_stacks() -> Seeds:
    """A look by the session, and what the timer adds to it; frames of native code, odd names."""
    stacks = {"MainThread": ("/x/train.py:120 main", "/x/train.py:88 step"), "supervisor_monitor": ("/x/m.py:3 f",)}
    look = look_text("no progress for 30 s in the phase training, at step 9120", 1.7e9, stacks).encode()
    head = f"{MAGIC}\nsession s\npid 7\n\n".encode()
    timer = b'Stack (most recent call first):\n  File "/x/train.py", line 91 in step\n  File "<x>", line ??? in ?\n'
    yield "session", head + look
    yield "timer", head + look + timer + look
    yield "timer-only", head + timer
    yield "odd", head + look_text("a\nb", 0.0, {"t[1]": ("x:y:3 f(a: b)", "odd", ""), "": ()}).encode()
    yield "torn", (head + look)[:-40]


def of_restarts() -> Seeds:
    """After some failures, with and without a launch under way."""
    failure = Failure(type="ValueError", where="train.py:88 in step", step=7)
    state = RestartState(
        attempt=4, best_saved_step=200, best_reached_step=None, without_progress=2, backoffs=3,
        failures=(failure, replace(failure, where=None, step=None)), counted_at=(1.7e9 - 5, 1.7e9 - 4),
    )  # fmt: skip
    yield "new", encode_state(RestartState())
    yield "failures", encode_state(replace(state, launched_at=1.7e9, boot="b"))
    yield "strange", encode_state(replace(state, backoffs=10_000)).replace(b"1699999995.0", b"1e999")
    yield "call", b'{"v": 1, "job": "j", "launch": 3, "state": "ends", "status": 93, "admitted": ["a", "b"]}\n'
    yield "half", b'{"v": 1, "restarter": "a", "stderr": "\\ud800"}\n'
    failure_of_rank = {"type": "KeyError", "where": "a.py:3 in f", "step": 5, "rank": 1}
    ended = {"state": "ended", "cause": "error", "exit_code": 1, "signal": None, "oom_kills": 0, "stderr": "x"}
    report = {"v": 1, "restarter": "a", "job": "j", "launch": 3, **ended, "failure": failure_of_rank}
    yield "report", json.dumps({**report, "has_lost_another": False, "not_started": None}).encode() + b"\n"


def of_output() -> Seeds:
    """A traceback, by itself, of ranks, in torchrun's table; a fatal error; and blank lines."""
    traceback = 'Traceback (most recent call last):\n  File "/x/train.py", line 8, in step\n    f()\nValueError: no\n'
    ranks = "".join(f"[rank1]: {line}\n" for line in traceback.splitlines())
    table = "\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n"
    thread = 'Fatal Python error: x\n\nCurrent thread 0x1f (most recent call first):\n  File "/x/a.py", line 3 in f\n'
    yield "error", b"\0" + traceback.encode()
    yield "ranks", b"\0" + (ranks + traceback + table).encode()
    yield "signal", b"\x8b" + thread.encode()
    yield "blank", b"\0" + b"\n" * 2000
    yield "worker", b"\0" + traceback.replace("no", "DataLoader worker (pid(s) 4, 5) exited unexpectedly").encode()
    yield "lightning", b"\x89[rank: 1] Child process with PID 7 terminated with code 1. Forcefully terminating\n"


def of_pyspy() -> Seeds:
    """Threads with and without a name, an id and frames; and errors."""
    frame = {"name": "f", "filename": "/x/a.py", "module": None, "short_filename": "a.py", "line": 3, "locals": None}
    thread = {"pid": 5, "thread_id": 9, "thread_name": "MainThread", "os_thread_id": 5, "active": True,
              "owns_gil": True, "frames": [frame, frame]}  # fmt: skip
    yield "threads", json.dumps([thread, {**thread, "os_thread_id": 6}, {**thread, "thread_name": None}]).encode()
    yield "nameless", json.dumps([{**thread, "thread_name": None, "os_thread_id": None}]).encode()
    yield "odd", b'[{"frames": [1, {}]}, {"frames": null}, [], 7]'
    yield "error", b"Error: Permission denied (os error 13)"


def of_cache() -> Seeds:
    """A run that has ended, as it is kept, before it is compressed."""
    marks = tuple(
        TelemetryMark(offset=at, at=1.7e9 - 90 + at, step=at, record=telemetry.from_json(LETTERS[line[:2]], line[2:]))
        for at, line in enumerate(dict(of_telemetry())["session"].decode().split("\n"))
    )
    fold = RunFold("run", kept_ticks=1)
    fold.update([Chunk(path="events", from_start=True, records=len(marks), marks=marks)])
    watched = WatchedRun(run=fold.run(now=1.7e9), directory="/runs/run", files=())
    kept = run_cache.KeptRun(positions={}, last=watched, stamp=1, looked_at=1.7e9)
    whole = zlib.decompress(run_cache._closed(kept))
    yield "run", whole
    yield "cut", whole[:-100]


def of_shapes() -> Seeds:
    """Names that look like another one, turn the text around, call somebody, or are no text."""
    yield "plain", b"mnist"
    yield "invisible", "a\u034f\u115f\u17b4\u180b\u200d\u2065\u2800\u3164\ufe0f\U000e0100".encode()
    yield "turned", "\u202egnp.exe\u2066a\u2069 e\u0301\u0489 \U0001f468\u200d\U0001f469".encode()
    yield "controls", b"\x1b[2J\x9b31m\r\n\t\0[bold]x[/bold] \xff\xfe"
    yield "calls", "@all_ <@&815> < !here> \uff20x [a](b) \u27e7 \u27e6".encode()
    yield "formula", b"x;=cmd|' /C calc'!A0\n+1\t-1"
    yield "surrogate", b"caf\xe9 \xed\xa0\x80"
    yield "shell", b"$(touch pwned) `x` '; \" --run=x"


def of_http() -> Seeds:
    """Requests for each page, several on one connection, with and without a password, and some that are none."""
    opened, closed = b"\0", b"\1"
    right = b"Authorization: Basic cHJvbWV0aGV1czp4\r\n"
    scrape = b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n"
    yield "scrape", opened + scrape + b"Accept-Encoding: gzip;q=1.0, identity\r\n\r\n"
    yield "twice", opened + b"GET /-/ready HTTP/1.1\r\nHost: h\r\n\r\n" * 2
    yield "head", opened + b"HEAD / HTTP/1.1\r\n\r\nGET /-/healthy HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    yield "closed", closed + scrape + right + b"\r\n"
    yield "wrong-password", closed + scrape + right.replace(b"p4", b"p5") + b"\r\n"
    yield "post", opened + b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n"
    yield (
        "chunked",
        opened + b"GET /x?a=b HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n0\r\n\r\n",
    )
    yield "http-0.9", opened + b"GET /\r\n"
    yield "nonsense", opened + b"\x16\x03\x01\x00\xff\r\n\r\n"


def main() -> None:
    """Replace the corpus."""
    for name, target in TARGETS.items():
        shutil.rmtree(target.corpus, ignore_errors=True)
        target.corpus.mkdir(parents=True)
        for seed, data in globals()[f"of_{name}"]():
            assert len(data) <= target.max_bytes, f"{name}/{seed} has {len(data):,} bytes"
            (target.corpus / seed).write_bytes(data)


if __name__ == "__main__":
    main()

"""Every number of a comparison is that of ``tb-supervisor export``, and TensorBoard's own."""

from __future__ import annotations

import json
import math
import random
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from werkzeug.datastructures import MultiDict

from supervisor_core.cli.export import export_file
from supervisor_core.cli.logdirs import GivenRuns
from supervisor_core.events.index import RunIndex
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin.backend import ROUTES, Backend
from tb_plugin.compare import MOST_TAGS
from tb_plugin.http import Arguments
from tb_plugin.index import Index
from tb_plugin.logdirs import Logdir
from tb_plugin.scalar_store import ScalarStore
from tests.story.run_file import RunFile

BEGAN = 1_795_000_000.0
START = 1
"""Of a session log."""

TENSORBOARD = """
import json, sys
sys.modules["tensorflow"] = None
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.util import tensor_util
everything = dict.fromkeys(("scalars", "tensors", "images", "audio", "histograms", "compressedHistograms", "graph"), 0)
board = EventMultiplexer(size_guidance=everything).AddRunsFromDirectory(sys.argv[1])
board.Reload()
found = {}
for run, tags in board.Runs().items():
    values = found[run] = {}
    for tag in tags["scalars"]:
        values[tag] = [(event.step, event.value) for event in board.Scalars(run, tag)]
    for tag in tags["tensors"]:
        if board.SummaryMetadata(run, tag).plugin_data.plugin_name == "scalars":
            points = [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in board.Tensors(run, tag)]
            values[tag] = [(step, float(value)) for step, value in points]
print(json.dumps(found))
"""


def a_log(directory: Path, seed: int) -> None:
    """A run of some sessions, each killed at a random step and resumed from one before that; some values are none."""
    chance = random.Random(seed)
    at, restored, sessions = BEGAN, 0, chance.randint(1, 4)
    for number in range(sessions):
        step, file = restored, RunFile(directory, at, f"{seed}-{number}")
        file.step = restored
        file.log(START, restored, at).ready(attempt=number + 1, restored_step=restored)
        for _ in range(chance.choice((1, 2, 4, 8, 30))):
            step, at = step + 1, at + 1.0
            for tag, every in (("loss", 1), ("accuracy", 3)):
                if step % every == 0:
                    value = chance.choice((math.nan, math.inf, -1.0)) if chance.random() < 0.05 else chance.random()
                    file.scalar(tag, step, at, struct.pack("<f", value))
            file.beat(at, steps=step)
        if number == sessions - 1:
            file.stop(at)
        at, restored = at + 30.0, chance.randint(restored, step)


def compared(logdir: str) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Name, values by tag, and newest values as the list of runs has them, of each run below a logdir: by the tab."""
    index = Index([Logdir(logdir)], 5.0, LogdirWatch)
    index.refresh()
    store = ScalarStore(lambda path: RunIndex(path, path), 1 << 30, 1.0)
    backend = Backend(index, store)

    def asked(route: str, *arguments: tuple[str, str]) -> Any:
        return json.loads(ROUTES[route](backend, Arguments(MultiDict(arguments), {})).body)

    def read(name: str, tags: Sequence[str]) -> Any:
        while True:
            (run,) = asked("compare", ("run", name), *(("tag", tag) for tag in tags))["runs"]
            if not run["reading"]:
                return run

    try:
        for name in index.view().runs:
            found = read(name, ())["tags"]
            values, newest = {}, {}
            for at in range(0, len(found), MOST_TAGS):
                tags = found[at : at + MOST_TAGS]
                values.update(read(name, tags)["values"])
                columns = asked("columns", *(("key", f"tag:{tag}") for tag in tags))["columns"]
                newest.update({tag: columns[f"tag:{tag}"].get(name) for tag in tags})
            yield name, values, newest
    finally:
        index.close()
        store.close()


def in_numbers(points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """What a comparison says of some points, by its definition."""
    finite = [(value, place) for place, (_, value) in enumerate(points) if math.isfinite(value)]
    odd = [step for step, value in points if not math.isfinite(value)]
    least = min(finite, default=None)
    most = max(finite, key=lambda each: (each[0], -each[1]), default=None)
    last_step, last = points[-1] if points else (None, None)
    return {
        "points": len(points),
        "last": last if last is not None and math.isfinite(last) else None,
        "last_step": last_step,
        "min": None if least is None else least[0],
        "min_step": None if least is None else points[least[1]][0],
        "max": None if most is None else most[0],
        "max_step": None if most is None else points[most[1]][0],
        "nonfinite": len(odd),
        "first_nonfinite_step": min(odd, default=None),
    }


def exported(logdir: str, file: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """The kept points of each tag of each run, by ``export``."""
    assert export_file(str(file), "scalars", GivenRuns(logdirs=(logdir,)))
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["kept"]:
            value = float("nan" if row["value"] is None else row["value"])
            found.setdefault(row["run"], {}).setdefault(row["tag"], []).append((row["step"], value))
    return found


def shown_by_tensorboard(logdir: str) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """All points of each tag of each run that TensorBoard keeps."""
    done = subprocess.run([sys.executable, "-c", TENSORBOARD, logdir], capture_output=True, check=True, text=True)
    found: dict[str, dict[str, list[tuple[int, float]]]] = json.loads(done.stdout)
    return found


def test_a_comparison_is_what_export_and_tensorboard_have(tmp_path: Path) -> None:
    """Of 30 runs with and without restarts: each number of each tag, exactly. TensorBoard drops one point more at a
    restart: that of the restored step itself, which no session wrote again."""
    logdir = tmp_path / "logs"
    for seed in range(30):
        a_log(logdir / f"run-{seed}", seed)
    kept, theirs = exported(str(logdir), tmp_path / "runs.jsonl"), shown_by_tensorboard(str(logdir))
    unknown = alike = 0
    for name, values, newest in compared(str(logdir)):
        restored = {restart.to_step for restart in LogdirWatch(str(logdir / name)).refresh().runs["."].run.restarts}
        assert values.keys() == theirs[name].keys()
        for tag, numbers in values.items():
            assert numbers == in_numbers(kept[name].get(tag, [])), (name, tag)
            ours = dict(kept[name].get(tag, []))
            dropped = ours.keys() - dict(theirs[name][tag]).keys()
            assert dropped <= restored, (name, tag)
            if not dropped:
                alike += 1
                assert numbers == in_numbers([tuple(point) for point in theirs[name][tag]]), (name, tag)
            if newest[tag] is None:
                unknown += 1
            else:
                value = float(newest[tag])
                assert value == numbers["last"] or (numbers["last"] is None and not math.isfinite(value)), (name, tag)
    assert alike > 20
    assert unknown < 30

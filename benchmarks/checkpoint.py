"""What a checkpoint costs training, how soon it is durable, and whether it is of one step.

A step that updates every value trains a model of a given size, while each contender saves the model in its turn.
Training is held up by the time that the steps took from the start of a save to its end, less that of as many median
steps: waiting, copying, and processors and memory shared with the save. The limit is one memory copy of the model,
while training waits, and another process that writes as many bytes (the floor), both measured in the same turns.

A training that uses every processor loses what a save takes of them. So the processor time of a save is measured too,
while nothing trains: it says what the hold-up consists of, and hardly depends on what else the machine does.

    python -m benchmarks.checkpoint [--quick]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table

OURS = "ours"
BLOCKING = "blocking Saver"
BACKGROUND = "original Supervisor's background save"
COPY = "one memory copy"
FLOOR = "another process writing as many bytes (the floor)"
WRITE = "one write and sync"
UNVERIFIED = "ours without reading back"

CALL_GOAL_MS_PER_GB = 10.0
HELD_GOAL, HELD_GOAL_OF_MANY = 1.3, 1.6
"""Of few variables, and of a thousand."""
BLOCKING_GOAL = 0.5
DURABLE_GOAL = 3.0
PROCESSOR_GOAL = 2.0
SETTLING_STEPS = 3

# Megabytes, in how many variables.
MODELS = ((100, 10), (500, 50), (500, 1), (500, 1000))
QUICK_MODELS = ((20, 4),)

Step = Callable[[], Any]


def rows(quick: bool) -> Iterator[Row]:
    rounds = 2 if quick else 7
    for megabytes, variables in QUICK_MODELS if quick else MODELS:
        for kind in ("resource", "ref"):
            yield from cost_rows(megabytes, variables, kind, rounds)
    for kind in ("resource", "ref"):
        yield mixed_row(kind, 20 if quick else 500)


def cost_rows(megabytes: int, variables: int, kind: str, rounds: int) -> Iterator[Row]:
    measured = run_apart("cost", str(megabytes), str(variables), kind, str(rounds))
    model = f"{megabytes} MB in {variables} {kind} variable{'s' * (variables > 1)}"
    note = f"medians of {rounds}; a step takes {measured['step_ms']:.0f} ms"
    held = {name: statistics.median(values) for name, values in measured["held_ms"].items()}
    ours, limit = held.pop(OURS), held[COPY] + held[FLOOR]
    most = HELD_GOAL if variables < 1000 else HELD_GOAL_OF_MANY
    goal = f"at most {most:g} times the copy and the floor, and half of the blocking Saver"
    is_met = ours <= most * limit and ours <= BLOCKING_GOAL * held[BLOCKING]
    relation = f"{note}; {ours / limit:.2f} times the limit of {limit:.0f} ms" if limit > 0 else note
    yield Row("checkpoint", f"training held up: {model}", "ms", ours, held, goal, is_met, relation)
    call = statistics.median(measured["call_ms"]) / megabytes * 1000
    goal = f"at most {CALL_GOAL_MS_PER_GB:g} ms per GB"
    yield Row("checkpoint", f"the snapshot itself: {model}", "ms/GB", call, {}, goal, call <= CALL_GOAL_MS_PER_GB, note)
    durable = {name: statistics.median(values) for name, values in measured["secs"].items() if name != COPY}
    ours, write = durable.pop(OURS), durable[WRITE]
    goal = f"at most {DURABLE_GOAL:g} times one write and sync"
    note += "; the savers among the peers sync and verify nothing"
    yield Row("checkpoint", f"until durable: {model}", "s", ours, durable, goal, ours <= DURABLE_GOAL * write, note)

    spent = {name: statistics.median(values) for name, values in measured["processor_ms"].items()}
    ours = spent.pop(OURS)
    goal = f"at most {PROCESSOR_GOAL:g} times one write and sync"
    note = f"medians of {rounds}, nothing else in the process; shared by {os.cpu_count()} processors"
    yield Row(
        "checkpoint",
        f"processor time of a save: {model}",
        "ms",
        ours,
        spent,
        goal,
        ours <= PROCESSOR_GOAL * spent[WRITE],
        note,
    )


def mixed_row(kind: str, saves: int) -> Row:
    mixed = run_apart("mixed", kind, str(saves))
    what = f"checkpoints of {saves} that mix steps ({kind} variables)"
    return Row("checkpoint", what, "", mixed[OURS], {BACKGROUND: mixed[BACKGROUND]}, "0", mixed[OURS] == 0)


def run_apart(*arguments: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.checkpoint", "--measure", *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


class Training:
    """A model in training: steps as fast as they go in one thread, while another one saves."""

    def __init__(self, variables: int, values: int, kind: str, directory: str) -> None:
        import tensorflow as tf

        from supervisor_core.base.options import Options
        from supervisor_core.engine.step_lock import StepLock
        from supervisor_core.tf1.checkpoint_writer import CheckpointWriter
        from supervisor_core.tf1.session import SupervisedSession

        v1 = tf.compat.v1
        resource = kind == "resource"
        self.directory = Path(directory)
        self.graph = tf.Graph()
        with self.graph.as_default():
            step = v1.train.get_or_create_global_step()
            ones = v1.get_local_variable("ones", [values], initializer=v1.ones_initializer(), use_resource=True)
            weights = [
                v1.get_variable(f"v{n}", [values], initializer=v1.zeros_initializer(), use_resource=resource)
                for n in range(variables)
            ]
            train = tf.group(v1.assign_add(step, 1), *[weight.assign_sub(ones) for weight in weights])
            self.saver = v1.train.Saver(max_to_keep=1)
            step_lock = StepLock()
            self.checkpoints = CheckpointWriter(
                graph=self.graph,
                saver=self.saver,
                save_path=f"{directory}/ours",
                global_step=step,
                meta_graph_def=None,
                step_lock=step_lock,
                options=Options(),
            )
            self.session = SupervisedSession(graph=self.graph, step_lock=step_lock)
            self.session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        self.global_step = step
        self._train = train
        self._between: list[Step] = []
        self._stop = threading.Event()
        self.ends: list[float] = []
        self.thread = threading.Thread(target=self._loop)

    def _loop(self) -> None:
        while not self._stop.is_set():
            if self._between:
                self._between.pop()()
            self.session.run(self._train)
            self.ends.append(time.perf_counter())

    def between_steps(self, call: Step) -> None:
        """Have the training thread do this between two steps."""
        done = threading.Event()
        self._between.append(lambda: (call(), done.set()))
        done.wait()

    def wait_for(self, steps: int) -> None:
        wanted = len(self.ends) + steps
        while len(self.ends) < wanted:
            time.sleep(0.001)

    def held_up(self, save: Step) -> tuple[float, float]:
        """Return for how long a save held training up, and how long it took, in seconds."""
        self.wait_for(2 * SETTLING_STEPS)
        started = time.perf_counter()
        first = len(self.ends) - 1
        save()
        taken = time.perf_counter() - started
        self.wait_for(SETTLING_STEPS)
        last = len(self.ends) - 1
        return self.ends[last] - self.ends[first] - (last - first) * self.median_secs(first), taken

    def median_secs(self, before: int) -> float:
        """A step's time, by the steps before this one."""
        ends = self.ends[max(0, before - 200) : before]
        return statistics.median(late - early for early, late in pairwise(ends))

    def stop(self) -> None:
        self._stop.set()
        self.thread.join()
        self.session.close()


def measure_cost(megabytes: int, variables: int, kind: str, rounds: int) -> dict[str, Any]:
    import numpy as np

    from supervisor_core.tf1.snapshot import Snapshot

    taken: dict[str, dict[str, list[float]]] = {"held_ms": {}, "secs": {}}
    calls: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        training = Training(variables, megabytes * 250_000 // variables, kind, directory)
        plain = training.session.plain_session()

        def ours() -> None:
            result = training.checkpoints.save(training.session, "timer")
            assert result.error is None and result.consistent, result

        def by_the_original() -> None:
            training.saver.save(plain, f"{directory}/original", write_meta_graph=False)

        take_snapshot = Snapshot.take

        def timed(snapshot: Any) -> int | None:
            started = time.perf_counter()
            step = take_snapshot(snapshot)
            calls.append((time.perf_counter() - started) * 1e3)
            return step

        Snapshot.take = timed  # type: ignore[method-assign]
        model, copy = (np.zeros(megabytes * 1_000_000, np.uint8) + 1 for _ in range(2))
        contenders: dict[str, Step] = {
            OURS: ours,
            COPY: lambda: training.between_steps(lambda: np.copyto(copy, model)),
            BLOCKING: lambda: training.between_steps(by_the_original),
            BACKGROUND: by_the_original,
            FLOOR: lambda: write_apart(directory, megabytes),
            WRITE: lambda: write_and_sync(directory, megabytes),
        }
        spent = processor_time(contenders, training, rounds)
        calls.clear()
        training.thread.start()
        training.wait_for(20)
        for turn in range(rounds + 1):  # the first turn is to get warm
            for name, save in contenders.items():
                held, secs = training.held_up(save)
                if turn:
                    taken["held_ms"].setdefault(name, []).append(held * 1e3)
                    taken["secs"].setdefault(name, []).append(secs)
                for file in training.directory.iterdir():
                    file.unlink()
        step_ms = training.median_secs(len(training.ends)) * 1e3
        training.stop()
    return {**taken, "call_ms": calls[1:], "step_ms": step_ms, "processor_ms": spent}


def processor_time(contenders: dict[str, Step], training: Training, rounds: int) -> dict[str, list[float]]:
    """Measure what each save takes of the processors, in milliseconds, with its child processes; nothing trains."""
    from supervisor_core.base.options import Options

    def unverified() -> None:
        training.checkpoints.options = Options(verify_checkpoints=False)
        try:
            contenders[OURS]()
        finally:
            training.checkpoints.options = Options()

    saves = {**{name: contenders[name] for name in (OURS, FLOOR, WRITE)}, UNVERIFIED: unverified}
    saves[BLOCKING] = contenders[BACKGROUND]  # what it writes is the same; here there is nothing to block
    spent: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for name, save in saves.items():
            before = processor_secs()
            save()
            if turn:
                spent.setdefault(name, []).append(1e3 * (processor_secs() - before))
            for file in training.directory.iterdir():
                file.unlink()
    return spent


def processor_secs() -> float:
    """What this process has taken of the processors, with its children that have ended, and the saver process."""
    from supervisor_core.checkpoint import saver_process

    process = saver_process._process
    if process is None:
        return sum(os.times()[:4])
    fields = Path(f"/proc/{process._process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(os.times()[:4]) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_apart(directory: str, megabytes: int) -> None:
    code = f"import os; file = open({directory!r} + '/floor', 'wb', 0); data = os.urandom(1_000_000)\n"
    subprocess.run([sys.executable, "-c", code + f"for _ in range({megabytes}): file.write(data)"], check=True)


def write_and_sync(directory: str, megabytes: int) -> None:
    data = os.urandom(1_000_000)
    with open(f"{directory}/written", "wb", 0) as file:
        for _ in range(megabytes):
            file.write(data)
        os.fsync(file.fileno())


def measure_mixed(kind: str, saves: int) -> dict[str, int]:
    import tensorflow as tf

    mixed = {OURS: 0, BACKGROUND: 0}
    with tempfile.TemporaryDirectory() as directory:
        training = Training(4, 50_000, kind, directory)
        training.thread.start()
        for _ in range(saves):
            path = training.checkpoints.save(training.session, "timer").path
            mixed[OURS] += is_mixed(tf, path)
            path = training.saver.save(
                training.session.plain_session(),
                f"{directory}/original",
                global_step=training.global_step,
                write_meta_graph=False,
            )
            mixed[BACKGROUND] += is_mixed(tf, path)
        training.stop()
    return mixed


def is_mixed(tf: Any, path: str | None) -> bool:
    assert path is not None
    reader = tf.train.load_checkpoint(path)
    steps = {int(path.rpartition("-")[2]), int(reader.get_tensor("global_step"))}
    for name in reader.get_variable_to_shape_map():
        if name.startswith("v"):
            values = reader.get_tensor(name)
            steps |= {int(-values.min()), int(-values.max())}
    return len(steps) > 1


def main() -> None:
    if sys.argv[1:2] != ["--measure"]:
        print_table(rows("--quick" in sys.argv))
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    tf.get_logger().setLevel("ERROR")
    if sys.argv[2] == "mixed":
        print(json.dumps(measure_mixed(sys.argv[3], int(sys.argv[4]))))
    else:
        print(json.dumps(measure_cost(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))))


if __name__ == "__main__":
    main()

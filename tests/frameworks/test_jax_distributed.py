"""JAX in several processes: they stop, save and resume together, bit by bit, or say by name why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from trial import Job, Others

from supervisor_core.base.errors import CheckpointError, RanksError
from supervisor_core.checkpoint.jax_files import FOLDER

jax = pytest.importorskip("jax", reason="jax is not installed: make test-frameworks has it")
pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
pytest.importorskip("optax", reason="optax is not installed")
pytest.importorskip("flax.nnx", reason="flax is not installed")

import numpy as np  # noqa: E402

from supervisor_core.base.errors import DamagedCheckpointError  # noqa: E402
from supervisor_core.checkpoint.jax_files import files_of  # noqa: E402
from supervisor_core.checkpoint.sealed_files import SealedFiles  # noqa: E402
from supervisor_core.jax.ranks import JaxRanks  # noqa: E402
from supervisor_core.jax.shards import ShardedArrays, write_pieces  # noqa: E402

pytestmark = pytest.mark.timeout(400)  # several processes each, of which every one may wait for every other


@pytest.fixture(scope="module")
def program(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The trainings that the processes run."""
    return module_at("frameworks/jax_ranks_program.py")


@pytest.fixture(scope="module")
def job(program: ModuleType) -> Callable[[Path], Job]:
    """Makes a job in a directory."""
    return lambda directory: Job(directory, program.launch)


def test_a_killed_process(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]]) -> None:
    """In the middle: the next start goes on from the checkpoint that process 0 chooses, in each process with the same
    batches, random keys and bits. Arrays that are split, those that each has, and each process's own are captured."""
    killed = job(tmp_path)
    first = killed.run({"act": "kill", "rank": 0, "step": 9, "donate": True})
    assert killed.status == 128 + 9 and len(first[0]) == 9
    for before, (verdict, *after), expected in zip(first, killed.run({"donate": True}), truth, strict=True):
        assert len(expected) == 15 and before == expected[: len(before)]
        assert (verdict, after) == ("exact", expected[8:])
    assert killed.status == 0
    run = killed.watch()
    one, two = run.sessions
    assert one.outcome in ("lost", "error") and (two.restored_step, two.resume_exact) == (8, True)
    assert (two.outcome, two.last_step) == ("completed", 14)
    assert [(worker.name, worker.state) for worker in run.workers] == [("rank:1", "stopped")]


def test_a_sigterm(tmp_path: Path, job: Callable[[Path], Job], truth: list[list[str]]) -> None:
    """To one process: all stop after the same step, and it is saved. One process alone goes on from there, and says
    that there were two; so do two processes, exactly."""
    stopped = job(tmp_path)
    first = stopped.run({"act": "sigterm", "rank": 1, "step": 9})
    assert stopped.status == 128 + 15
    done = len(first[0])
    assert 10 <= done <= 12 and [len(lines) for lines in first] == [done, done]
    (session,) = stopped.watch().sessions
    assert (session.outcome, session.last_step, stopped.watch().checkpoints[-1].step) == ("signal", done, done)
    ((verdict, *_),) = stopped.run({"steps": 0, "devices": 2}, ranks=1)
    assert verdict == "exact Another number of ranks: 2 at the save, 1 now."
    for before, (verdict, *after), expected in zip(first, stopped.run(), truth, strict=True):
        assert verdict == "exact" and [*before, *after] == expected


def test_flax_is_killed(tmp_path: Path, program: ModuleType) -> None:
    """A model of Flax with batches from Grain, in two processes: bit by bit."""

    def start(directory: Path, plan: dict[str, Any] | None, **options: Any) -> None:
        program.launch(directory, plan, program=program.train_flax, **options)

    truth, _ = Job(tmp_path / "truth", start).run()
    flax = Job(tmp_path / "killed", start)
    first, _ = flax.run({"act": "kill", "rank": 0, "step": 8})
    assert flax.status == 128 + 9 and first == truth[:8]
    (verdict, *after), _ = flax.run()
    assert (verdict, after) == ("exact", truth[6:]) and flax.status == 0


def test_what_a_process_says_when_it_ends(tmp_path: Path, program: ModuleType) -> None:
    """One that has ended with an error, or has left, is an error in the others at once; one that does not leave its
    loop is waited for a while."""
    job = Job(tmp_path, lambda *args, **options: program.launch(*args, program=program.talk, **options))
    first, second = job.run()
    assert job.status == 0
    assert first == [
        "[[1, 0], [1, 1]]",
        "announced by 0",
        "['a', 'b']",
        "RanksError: Rank 1 has ended, or has left its loop.",
    ]
    assert second == [
        "[[1, 0], [1, 1]]",
        "announced by 0",
        "None",
        "RanksError: Rank 0 has not come in time: it is still in its loop, or hangs.",
    ]


def piece_file(directory: Path, rank: int, pieces: dict[str, Any]) -> None:
    """Write a file of pieces."""
    ranks = Others(rank)
    write_pieces(ranks, pieces, str(directory))


def test_pieces_that_are_none(tmp_path: Path) -> None:
    """Whoever can write into a logdir can write any: they are refused before any content is read."""
    for number, (pieces, text) in enumerate(
        [
            ({"w#0:2:4:float32": np.ones(2, np.float32)}, "the pieces of 'w' are not all of it"),
            ({"w#3:2:4:float32": np.ones(2, np.float32)}, "a piece lies outside of its array"),
            ({"w#0,0:2:4:float32": np.ones(2, np.float32)}, "a piece has other dimensions than its array"),
            ({"w#0:2:2:object": np.ones(2)}, "a piece has a name that is none"),
            ({"w#0:2:2:V1000000": np.ones(2)}, "a piece has a name that is none"),
            ({"w#0:3:3:float32": np.ones(2, np.float32)}, "a piece has not the bytes of its shape"),
            ({"v#0:2:2:float32": np.ones(2, np.float32)}, "'w' is not in it"),
        ]
    ):
        (place := tmp_path / str(number)).mkdir()
        piece_file(place, 0, pieces)
        with pytest.raises(DamagedCheckpointError, match=text):
            files_of(SealedFiles.of(str(place)), ["w"])


def test_pieces_of_another_dtype(tmp_path: Path) -> None:
    """With as many bytes in all: refused when they are read."""
    piece_file(tmp_path, 0, {"w#0:2:2:float64": np.ones(2, np.float32)})
    with pytest.raises(DamagedCheckpointError, match="a piece has not the bytes of its shape"):
        ShardedArrays(dict).load(SealedFiles.of(str(tmp_path)), ["w"])


def test_a_process_that_cannot_write_its_pieces(tmp_path: Path) -> None:
    """Is why the save has failed, in every process."""
    with pytest.raises(OSError, match=r"could not be written: rank 1: OSError: \[Errno 28\]"):
        write_pieces(Others(said="OSError: [Errno 28] No space left on device"), {}, str(tmp_path))
    (tmp_path / FOLDER).write_text("in the way")
    with pytest.raises(OSError, match="could not be written: rank 0: FileExistsError"):
        write_pieces(Others(said=None), {"w#0:1:1:int8": np.ones(1, np.int8)}, str(tmp_path))


def test_a_process_that_saves_alone() -> None:
    """Has only its own pieces: that is no checkpoint."""
    with pytest.raises(CheckpointError, match="not all of them save"):
        ShardedArrays(dict).copy(None)


def test_values_are_deleted_when_all_have_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service keeps at most two of each process."""
    values: dict[str, bytes] = {}
    client = SimpleNamespace(
        key_value_set_bytes=values.__setitem__, key_value_delete=values.pop,
        blocking_key_value_get_bytes=lambda key, wait: values[f"{key.rpartition('/')[0]}/0"],
    )  # fmt: skip
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    ranks = JaxRanks(client)
    ranks.open()
    for number in range(10):
        ranks.announce(number)
        assert ranks.compare([number]) == [[number], [number]]
    assert len(values) <= 2

    def fail(key: str, wait: int) -> bytes:
        raise RuntimeError("UNAVAILABLE: the service has ended")

    client.blocking_key_value_get_bytes = fail
    for _ in range(2):
        with pytest.raises(RanksError, match="Another rank has ended, or cannot be reached: UNAVAILABLE"):
            ranks.exchange(1)

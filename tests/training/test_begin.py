"""How a session of `supervise` begins: what cannot be saved is an error before anything is restored or trained."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core import Options, supervise
from supervisor_core.base.errors import CheckpointError
from supervisor_core.training.state import TrainingState
from supervisor_core.training.tree import MAX_DEPTH
from tests.training.parts import run_of


class Part:
    """An object with a state; draws a random number to return it."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.loaded: list[Any] = []

    def state_dict(self) -> Any:
        random.random()
        np.random.random()
        return self.state() if callable(self.state) else self.state

    def load_state_dict(self, state: Any) -> None:
        self.loaded.append(state)


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    tree: list[Any] = []
    for _ in range(depth):
        tree = [tree]
    return tree


def outcomes(logdir: Path) -> list[str]:
    """How the sessions ended, as every reader sees it."""
    return [session.outcome for session in run_of(logdir).sessions]


def test_a_state_that_cannot_be_saved(tmp_path: Path) -> None:
    """Is an error at once, with its place. Nothing is restored then, and nothing saved as if it had been."""
    for number, (state, text) in enumerate(
        [
            (
                lambda: 1 / 0,
                r"state\['bad'\] cannot be saved: its state is not returned, but ZeroDivisionError: division",
            ),
            ({"a": [0, object()]}, r"state\['bad'\]\['a'\]\[1\] is a builtins.object, which cannot be saved"),
            (
                {"a": np.zeros(2, "complex128")},
                r"state\['bad'\]\['a'\] is an array of complex128, which",
            ),
            ({"a": np.array(["x"])}, r"state\['bad'\]\['a'\] is an array of <U1"),
            (nested(MAX_DEPTH + 1), "is nested deeper than 200 levels"),
        ]
    ):
        (place := tmp_path / str(number)).mkdir()
        good = Part({"value": 1})
        with supervise(place, state={"good": good, "bad": Part({})}, save_secs=None) as run:
            list(run.steps(3))
        options = Options(save_on_error=True)
        with (
            pytest.raises(CheckpointError, match=text),
            supervise(place, state={"good": good, "bad": Part(state)}, save_secs=None, options=options) as run,
        ):
            raise AssertionError("it has begun")
        assert good.loaded == [] and outcomes(place) == ["completed", "error"]
        assert [path.name for path in (place / "checkpoints").iterdir()] == ["ckpt-3"]


def test_an_object_that_refuses_its_state(tmp_path: Path) -> None:
    """Ends the session at once, also where an error is followed by a save: there is nothing to save yet."""

    def refuse(state: Any) -> None:
        raise ValueError("another number of layers")

    part = Part({})
    with supervise(tmp_path, state={"part": part}, save_secs=None) as run:
        list(run.steps(3))
    part.load_state_dict = refuse  # type: ignore[method-assign]
    options = Options(save_on_error=True)
    with (
        pytest.raises(CheckpointError, match=r"state\['part'\] refused the checkpoint's state: ValueError: another"),
        supervise(tmp_path, state={"part": part}, options=options) as run,
    ):
        raise AssertionError("it has begun")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["ckpt-3"]


def test_facts_that_cannot_be_read() -> None:
    """Are an error at the beginning, and not at the first save, which asks for them."""
    state = TrainingState(facts=lambda: {"samples": str(1 // 0)})
    with pytest.raises(CheckpointError, match=r"Nothing can be saved: .* ZeroDivisionError: "):
        state.probe()


def test_what_the_probe_leaves_alone(tmp_path: Path) -> None:
    """It draws no random number, though an object does to return its state, and copies no array."""

    class Array(np.ndarray[Any, Any]):
        def __array_finalize__(self, other: Any) -> None:
            assert not isinstance(other, Array), "it was copied"

    array = np.zeros(3).view(Array)
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.random(3).tolist()
    np.random.seed(1)
    with supervise(tmp_path, state={"part": Part({"array": array})}, options=Options(save_on_stop=False)):
        assert (random.getstate(), np.random.random(3).tolist()) == before


def test_steps_that_are_counted_twice(tmp_path: Path) -> None:
    """A second loop up to the same step has nothing left to do: an error, in the same session too. One that goes
    further is none, nor one in a session that finds a run which this process has not trained."""
    with supervise(tmp_path, save_secs=None) as run:
        assert [len(list(run.steps(until))) for until in (2, 4)] == [2, 2]
        with pytest.raises(ValueError, match=r"has 4 of 4 steps.*one loop over all of them"):
            list(run.steps(4))
        with pytest.raises(ValueError, match="has 4 of 2 steps"):
            list(run.steps(2))
    with pytest.raises(ValueError, match="Nothing is left to do"), supervise(tmp_path) as run:
        list(run.steps(4))
    with supervise(tmp_path) as run:
        assert list(run.steps(5)) == [4]
    assert outcomes(tmp_path) == ["completed", "error", "completed"]
    with supervise(tmp_path) as run:
        run.request_stop()
        assert list(run.steps(9)) == []
    with supervise(tmp_path) as run:
        assert list(run.steps(6)) == [5]


def test_a_dtype_that_an_object_converts(tmp_path: Path) -> None:
    """Is named with the array's place. What takes the arrays as they are, goes on as it was saved; a number that was a
    scalar of numpy is none of them."""

    class Converts(Part):
        def load_state_dict(self, state: Any) -> None:
            self.state = {**self.state, "a": [part.astype("float32") for part in state["a"]]}

    arrays = [np.zeros(2), np.zeros(3), np.zeros(2, "int64")]
    converts, takes = Converts({"a": arrays, "rate": np.float32(1)}), Part({"b": np.zeros(2, "float32")})
    with supervise(tmp_path, state={"converts": converts, "takes": takes}, save_secs=None) as run:
        list(run.steps(1))
    converts.state = {"a": arrays, "rate": 1.0}
    with supervise(tmp_path, state={"converts": converts, "takes": takes}) as run:
        assert run.exactness is not None
        assert [text for text in run.exactness.reasons if "dtype" in text] == [
            'Another dtype in "converts" (a/0 and 1 more): float64 at the save, float32 now.',
            'Another dtype in "converts" (a/2): int64 at the save, float32 now.',
        ]

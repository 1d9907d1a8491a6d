"""The objects in a training's state: dicts and lists of them, and environments that keep their state to themselves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supervisor_core.training.api import supervise
from supervisor_core.training.objects import has
from supervisor_core.training.state import NO_DATA_POSITION
from tests.training.parts import Part


class Walk:
    """An environment as gymnasium's: its state is nobody's but its own."""

    def __init__(self, seed: int = 0) -> None:
        self.np_random = np.random.default_rng(seed)
        self.at = 0.0

    def reset(self) -> float:
        self.at = 0.0
        return self.at

    def step(self, action: float) -> float:
        self.at += action * self.np_random.random()
        return self.at


class Walks(Walk):
    """Several of them."""

    def __init__(self) -> None:
        super().__init__(0)
        self.envs = [Walk(1), Walk(2)]


def test_dicts_and_lists_of_objects_are_saved_and_restored(tmp_path: Path) -> None:
    """Each object under a name of its own; values beside them, also later ones, under the dict's; None is nothing."""

    def state() -> dict[str, Any]:
        mixed = {"net": Part(), "frames": 0, "later": {"rng": random.Random(3), "means": {}}}
        return {"pair": [Part(), None, (Part(),)], "agent": mixed, "best": {"loss": 1e9}, "data": Part()}

    first = state()
    with supervise(tmp_path, state=first, save_secs=None) as run:
        for step in run.steps(3):
            first["pair"][0].value, first["pair"][2][0].value, first["agent"]["net"].value = step, step + 10, step + 20
            first["agent"]["frames"] += 1
            first["agent"]["later"]["means"] = {"w": np.full(2, step)}
            first["best"]["loss"] = 0.5
            first["agent"]["later"]["rng"].random()
        draws = [first["agent"]["later"]["rng"].random()]
    second = state()
    with supervise(tmp_path, state=second) as run:
        assert run.exactness is not None and run.exactness.is_exact, run.exactness
    assert [second["pair"][0].value, second["pair"][2][0].value, second["agent"]["net"].value] == [2, 12, 22]
    assert (second["agent"]["frames"], second["best"]) == (3, {"loss": 0.5})
    assert second["agent"]["later"]["means"]["w"].tolist() == [2, 2]
    assert draws != [second["agent"]["later"]["rng"].random()]  # it was drawn before the last save


def test_an_object_that_comes_or_goes_is_named(tmp_path: Path) -> None:
    """By its own name, not by that of its list."""
    with supervise(tmp_path, state={"pair": [Part(1), Part(2)], "data": Part()}, save_secs=None) as run:
        list(run.steps(2))
    with supervise(tmp_path, state={"pair": [Part(), Part(), Part()], "data": Part()}, save_secs=None) as run:
        assert run.exactness is not None
        assert run.exactness.reasons == ('"pair.2" is not in the checkpoint: it starts fresh.',)


def test_what_has_no_state_is_refused_at_once(tmp_path: Path) -> None:
    """With its place."""
    for number, (state, error) in enumerate(
        [
            ({"pair": [Part(), 3]}, r"state\['pair\.1'\] is a builtins.int; expected an object with state_dict"),
            ({"pair": [1, 2]}, r"state\['pair'\] is a builtins.list"),
            ({"pair": [Part()], "pair.0": Part()}, r"Two objects have the name 'pair\.0'"),
            ({1: Part()}, "state has the name 1; expected a text"),
            ({"": Part()}, "state has the name ''; expected a text"),
            ({"pair": {"x" * 1000: Part()}}, "state has the name 'pair.x+; expected a text of 1 to 1,000 letters"),
            ([Part()], "state is a list; expected a dict of objects by name"),
        ]
    ):
        (place := tmp_path / str(number)).mkdir()
        with pytest.raises((TypeError, ValueError), match=error):
            supervise(place, state=state)


def test_an_environment_without_a_state_is_named(tmp_path: Path) -> None:
    """It is no error: the verdict of a resume says it; its random generators go on."""
    env = Walks()
    with supervise(tmp_path, state={"env": env, "data": Part()}, save_secs=None) as run:
        for _ in run.steps(3):
            env.step(1.0)
            env.envs[1].step(1.0)
    expected = [env.np_random.random(), env.envs[0].np_random.random(), env.envs[1].np_random.random()]
    env = Walks()
    with supervise(tmp_path, state={"env": env, "data": Part()}, save_secs=None) as run:
        assert run.exactness is not None
        (reason,) = run.exactness.reasons
    assert reason.startswith('"env" (Walks) has no state that can be saved: after a resume its episode begins again.')
    assert [env.np_random.random(), *(item.np_random.random() for item in env.envs)] == expected


def test_an_environment_with_a_state_is_an_object_as_others(tmp_path: Path) -> None:
    """Nothing is said of it."""

    class Stateful(Walk):
        def get_state(self) -> dict[str, Any]:
            return {"at": self.at}

        def set_state(self, state: dict[str, Any]) -> None:
            self.at = state["at"]

    for end in (2, 4):
        env = Stateful()
        with supervise(tmp_path, state={"env": env}, save_secs=None) as run:
            for _ in run.steps(end):
                env.at += 1
    assert env.at == 4
    assert run.exactness is not None and run.exactness.reasons == (NO_DATA_POSITION,)


def test_an_object_that_answers_to_any_name_is_not_asked(tmp_path: Path) -> None:
    """Such an answer may draw a random number, as with the `Rngs` of Flax: the training would be another one."""

    class Answers:
        drawn = 0

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return self

        def __call__(self) -> Answers:
            type(self).drawn += 1
            return self

        __iter__ = __call__

    streams, state = Answers(), {"weights": 1.0}
    with supervise(tmp_path, state={"model": state}, save_secs=None, save_steps=1) as run:
        for _ in run.steps(3):
            assert streams.drawn == 0
    assert not has(streams, "param_groups") and has(streams, "drawn")

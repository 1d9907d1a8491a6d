"""What another user puts into a Trainer's output directory: where it saves next, or as checkpoints without a seal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: make test-frameworks has it")
pytestmark = pytest.mark.timeout(600)


NAMES = (
    "model.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "training_args.bin",
    "trainer_state.json",
)


def test_transformers_writes_through_no_link(tmp_path: Path, forging: ModuleType, trials: ModuleType) -> None:
    """Links in the places of the files of its next checkpoints, which the Trainer opens by their names."""
    with trials.trial(tmp_path, forging, "transformers") as trial:
        private = trial.forger.home / "private"
        private.mkdir(mode=0o700)
        for name in NAMES[1:]:
            (private / name).write_text("precious")

        def make() -> None:
            for step in (6, 8):
                place = trial.logdir / f"checkpoint-{step}"
                place.mkdir()
                for name in NAMES:
                    (place / name).symlink_to(private / name)

        forging.as_nobody(make)
        done = trial.train(8)
        assert done.returncode == 0, done.stdout + done.stderr
        assert sorted(path.name for path in private.iterdir()) == sorted(NAMES[1:])
        assert {path.read_text() for path in private.iterdir()} == {"precious"}
        for step in (6, 8):
            (aside,) = trial.logdir.glob(f".not-ours-checkpoint-{step}-*")
            assert f"checkpoint-{step} was moved to {aside}" in done.stderr
            assert (trial.logdir / f"checkpoint-{step}" / "supervisor-manifest.json").exists()
        assert os.path.basename(trial.verify()["resume"]) == "checkpoint-8"


@pytest.mark.parametrize("kind", ["link", "linked directory", "two names", "FIFO", "another user's", "inner"])
def test_transformers_saves_into_no_strange_directory(tmp_path: Path, forging: ModuleType, kind: str) -> None:
    """It is moved away, with what is in it; one of this user's own files alone stays."""
    from supervisor_core.transformers.sealing import clear_the_way

    place = tmp_path / "checkpoint-8"
    (place / "inner").mkdir(parents=True)
    (place / "model.safetensors").write_bytes(b"own")
    (tmp_path / "secret").write_bytes(b"secret")
    assert clear_the_way(str(tmp_path), 8) and clear_the_way(str(tmp_path), 9) and place.exists()
    if kind == "link":
        (place / "optimizer.pt").symlink_to(tmp_path / "secret")
    elif kind == "linked directory":
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "two names":
        os.link(tmp_path / "secret", place / "optimizer.pt")
    elif kind == "FIFO":
        os.mkfifo(place / "inner" / "optimizer.pt")
    elif os.geteuid():
        pytest.skip("only root can give a file to another user")
    else:
        os.chown(place if kind == "another user's" else place / "inner", forging.NOBODY, forging.NOBODY)
    assert clear_the_way(str(tmp_path), 8)
    assert not os.path.lexists(place)
    (aside,) = tmp_path.glob(".not-ours-checkpoint-8-*")
    assert (aside / "model.safetensors").read_bytes() == b"own"


def test_transformers_passes_over_what_is_endless(tmp_path: Path, forging: ModuleType) -> None:
    """A hole of terabytes, or directories deeper than the stack, in a checkpoint that is not sealed."""
    from supervisor_core.transformers.sealing import newest

    if os.geteuid():
        pytest.skip("only root can become another user: run it as root")
    with forging.shared(tmp_path) as place:
        place.chmod(0o777)

        def make() -> None:
            for step in (8, 9, 10):
                (place / f"checkpoint-{step}").mkdir()
                (place / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"global_step": step}))
            with open(place / "checkpoint-9" / "x", "wb") as file:
                file.truncate(8 << 40)
            os.chdir(place / "checkpoint-10")
            for _ in range(1500):
                os.mkdir("a")
                os.chdir("a")

        forging.as_nobody(make)
        found = newest(str(place), start_over=True)
        assert found is None or found.path == str(place / "checkpoint-8")

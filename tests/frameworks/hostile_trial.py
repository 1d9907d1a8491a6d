"""One training, whose checkpoints a neighbour has joined with forged ones, and its restart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from forked import Starter

PROGRAM = Path(__file__).with_name("hostile_program.py")
ROOT = Path(__file__).parents[2]
MAIN = "from supervisor_core.cli import main; main()"
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONPATH": str(ROOT),
    "PYTHONFAULTHANDLER": "1",  # a crash says where
}


def starter_of(adapter: str) -> Any:
    """What starts its programs; the fixture of this name takes the place of this."""
    return Starter()


@dataclass
class Trial:
    """A logdir of root's that everybody may write to, with a training's checkpoints of steps 2 and 4."""

    adapter: str
    logdir: Path
    forging: ModuleType
    forger: Any
    ranks: int = 1

    @property
    def directory(self) -> Path:
        """Where the checkpoints are."""
        is_apart = self.adapter not in ("transformers", "Supervisor", "MonitoredTrainingSession")
        return self.logdir / "checkpoints" if is_apart else self.logdir

    def train(self, steps: int, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Train up to a step in a process of its own; of several ranks under torchrun."""
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
        program = [str(PROGRAM), self.adapter, str(self.logdir), str(steps), *options]
        starter = Starter() if self.ranks > 1 else starter_of(self.adapter)
        done: subprocess.CompletedProcess[str] = starter.run(
            [*(launcher if self.ranks > 1 else ()), *program], {**ENVIRONMENT, **environment}
        )
        return done

    def has_ended(self, done: subprocess.CompletedProcess[str]) -> None:
        """Check that each process has come to its last line, and that its interpreter has ended without an error."""
        others = "\n".join(line for line in done.stderr.splitlines() if " is damaged: " not in line)  # few, and first
        has_ended = done.returncode == 0 and done.stdout.count("done") >= self.ranks
        assert has_ended, f"{done.returncode}: {others}\n{done.stdout}{done.stderr}"

    def verify(self) -> dict[str, Any]:
        """What ``tb-supervisor verify`` says of the run, and of each of its checkpoints by name."""
        command = [sys.executable, "-c", MAIN, "verify", "--json", str(self.logdir)]
        done = subprocess.run(
            command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False, cwd=ROOT
        )
        self.forger.check(iter([("verify", (done.stdout + done.stderr).encode())]))
        assert done.stdout, done.stderr
        run = next(run for run in json.loads(done.stdout)["runs"] if run["run"] == ".")
        return {**run, "checkpoints": {item["name"]: item for item in run["checkpoints"]}}

    def resumes(self, expected: Mapping[str, str], *, only_with_framework: Collection[str] = ()) -> None:
        """Restart, and check that the training goes on from its own checkpoint and says why not from each other one,
        and that `verify` has said the same.

        Args:
            expected: kind of a forged checkpoint -> what is said of it, as a pattern.
            only_with_framework: those of which `verify` cannot know, since it has no framework.
        """
        good = f"{self.forger.prefix}4"
        said = self.verify()
        whole = {name for name, item in said["checkpoints"].items() if item["verdict"] == "good"}
        own = {f"{self.forger.prefix}{step}" for step in (2, 4)}
        assert {kind for kind, path in self.forger.made.items() if path.name in whole} == set(only_with_framework)
        assert whole >= own
        if not only_with_framework:
            assert os.path.basename(said["resume"]) == good, said
        done = self.train(8)
        output = done.stdout + done.stderr
        self.has_ended(done)
        assert f"resumed {good} 4" in done.stdout, output
        self.forger.check(self.forging.outputs(self.logdir, output))
        for kind, pattern in expected.items():
            path = self.forger.made[kind]
            line = next((line for line in output.splitlines() if f" {path}: " in line or f" {path} " in line), None)
            assert line is not None and re.search(pattern, line), f"{kind} ({path.name}): {line}\n{output}"


@contextmanager
def trial(tmp_path: Path, forging: ModuleType, adapter: str, *, ranks: int = 1, **environment: str) -> Any:
    """Yield a trial, after its first training."""
    if os.geteuid():
        import pytest

        pytest.skip("only root can become another user: run it as root")
    with forging.shared(tmp_path) as place:
        logdir = place / "run"
        found = Trial(adapter, logdir, forging, None, ranks)
        done = found.train(4, **environment)
        found.has_ended(done)
        prefix = "checkpoint-" if adapter == "transformers" else "ckpt-"
        good = found.directory / f"{prefix}4"
        for path in (logdir, found.directory, place):
            path.chmod(0o777)
        for path in good.rglob("*"):  # which everybody may copy
            path.chmod(0o755 if path.is_dir() else 0o644)
        found.forger = forging.Forger(directory=found.directory, good=good, home=place, prefix=prefix)
        found.forger.secret.write_bytes(forging.SECRET)
        found.forger.secret.chmod(0o600)
        yield found


Forgeries = Mapping[str, tuple[Callable[..., Any], str]]


def forge(found: Trial, forgeries: Forgeries) -> dict[str, str]:
    """Forge all of them; return what is said of each."""
    for kind, (alter, _) in forgeries.items():
        found.forger.forge(kind, alter)
    return {kind: pattern for kind, (_, pattern) in forgeries.items()}

"""Makes the trials, prints the tables, and ends with status 1 if a resume was called exact and was not.

    python -m benchmarks.exactness [--trials N] [--seed S] [--jobs N] [--only NAME ...] [--python PYTHON] [--write]

A training is drawn at random, made once without an interruption, and then, five times, with one or two: by ours, and
the first time by each tool of the framework's own. Each trial that went wrong is printed with the command that makes
it again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.exactness.judge import FAILED, Outcome, Said, judge
from benchmarks.exactness.matrix import FRAMEWORKS, NONE, OURS, Framework, Interrupted, by_kill, interrupted
from benchmarks.exactness.programs import Asked
from benchmarks.exactness.table import Result, to_text, write_page
from benchmarks.faults.launcher import HANG_SECS, TENSORFLOW_ENVIRONMENT, Launcher, TrialError

ENDS = {"SIGTERM": ("SIGTERM",), "SIGKILL": ("kill", "moment")}
"""How a training ends: see `Asked.how`."""
KILLS = 5
"""Trials of one drawn training."""
NAMES = [framework.name.lower() for framework in FRAMEWORKS]


TOGETHER = (
    ("torch_loop", "shapes", "trainer", "lightning_fit", "kinds_torch", "kinds_trainer", "kinds_lightning"),
    ("keras_tensorflow", "jax_loop", "kinds_jax"),
    ("keras_torch", "kinds_keras"),
    ("keras_jax",),
)
"""The programs that one process may have imported: imports take long, forks do not."""


def module_of(program: str) -> str:
    """Return a program's module."""
    return f"benchmarks.exactness.programs.{program}"


class Servers:
    """Servers of processes, each for the programs that go together, started when first asked for; a context manager.

    Args:
        directory: where their logs go.
        python: the interpreter.
        programs: the programs that are going to be asked for.
    """

    def __init__(self, directory: Path, python: str, programs: Iterable[str]) -> None:
        self._directory = directory
        self._python = python
        asked = set(programs)
        groups = [tuple(name for name in group if name in asked) for group in TOGETHER]
        self._groups = {name: group for group in groups for name in group}
        self._locks = {group: threading.Lock() for group in groups}
        self._launchers: dict[tuple[str, ...], Launcher] = {}

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *error: object) -> None:
        for launcher in self._launchers.values():
            launcher.__exit__(*error)

    def launcher(self, program: str) -> Launcher:
        """Return the server of a program."""
        group = self._groups[program]
        with self._locks[group]:
            if group not in self._launchers:
                self._launchers[group] = Launcher(self._directory, tuple(map(module_of, group)), self._python)
            return self._launchers[group]

    def run(self, program: str, asked: Asked, rng: random.Random) -> tuple[int, list[list[str]], str]:
        """Run a session to its end; return its status, what it said, and what it logged at last.

        Args:
            program: its name.
            asked: how it trains.
            rng: draws the moment of a kill.
        """
        errors = Path(f"{asked.directory}.log")
        process = self.launcher(program).start(module_of(program), asdict(asked), errors)
        try:
            if asked.how == "moment" and asked.interrupted_at is not None:
                try:
                    process.until("kill")
                    time.sleep(rng.uniform(0.0, 0.04))
                    process.kill(signal.SIGKILL)
                except TrialError:
                    if process.returncode is None:
                        raise
            status = process.wait(HANG_SECS)
            return status, process.said, process.story()
        finally:
            process.close()


@dataclass
class Drawn:
    """A training that was drawn, and the trials that it is put to."""

    framework: Framework
    seed: int
    number: int
    options: dict[str, Any]
    interruptions: list[Interrupted]
    truths: dict[str, Said] = field(default_factory=dict)
    """By system, uninterrupted trainings."""
    results: list[Result] = field(default_factory=list)

    def session(
        self, servers: Servers, system: str, directory: Path, given: Interrupted, at: int | None, rng: random.Random
    ) -> tuple[int, list[list[str]], str]:
        """Run one session."""
        asked = Asked(
            system=system, directory=str(directory), options=self.options, save_every=given.save_every,
            interrupted_at=at, how=given.how,
        )  # fmt: skip
        return servers.run(self.framework.program(self.options), asked, rng)

    def make(self, servers: Servers, home: Path, rng: random.Random, with_peers: bool = True) -> None:
        """Make its trials."""
        truths = self.truths
        for number, given in enumerate(self.interruptions):
            systems = [(OURS, False)]
            if not number and with_peers:
                systems += [(peer.name, peer.is_own_reference) for peer in self.framework.peers
                            if peer.fits(self.options)]  # fmt: skip
            for system, is_own_reference in systems:
                reference = system if is_own_reference else NONE
                if reference not in truths:
                    truths[reference] = self.truth(servers, reference, home / f"truth-{reference}", given, rng)
                planned = given if system == OURS else by_kill(given)
                said = self.trial(servers, system, home / f"{system}-{number}", planned, rng)
                outcome = judge(truths[reference], said)
                self.results.append(
                    Result(self.framework.name, self.seed, self.number, system, self.options, planned, outcome)
                )

    def truth(self, servers: Servers, system: str, directory: Path, given: Interrupted, rng: random.Random) -> Said:
        """Train without an interruption."""
        said = Said()
        status, lines, story = self.session(servers, system, directory, given, None, rng)
        said.add(lines)
        if status or said.end is None:
            raise TrialError(f"uninterrupted it did not come to its end{story}")
        return said

    def trial(self, servers: Servers, system: str, directory: Path, given: Interrupted, rng: random.Random) -> Said:
        """Train with interruptions, to the end."""
        said = Said()
        for at in (*given.at, None):
            status, lines, story = self.session(servers, system, directory, given, at, rng)
            said.add(lines)
            if said.end is not None:
                break
            if at is None or status not in (-signal.SIGKILL, -signal.SIGTERM):
                said.errors.append(f"ended with {status}{story}")
                break
        shutil.rmtree(directory, ignore_errors=True)
        return said


def main() -> None:
    """Make the trials that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description="Interrupt, resume, compare.")
    parser.add_argument("--trials", type=int, default=1000, help="of ours, over all frameworks (%(default)s)")
    parser.add_argument("--each", type=int, default=20, help="trials of each kind and end (%(default)s)")
    parser.add_argument("--end", nargs="+", choices=ENDS, default=list(ENDS), help="of the sessions of kinds")
    parser.add_argument("--kinds", nargs="+", metavar="FACADE:KIND", help="only these, as lightning:dropout")
    parser.add_argument("--seed", type=int, help="of the random numbers (default: the time)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at a time (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="which frameworks")
    parser.add_argument("--number", type=int, help="one drawn training alone, as a report names it")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of an environment with the extra")
    parser.add_argument("--add", type=Path, help="a file: the results are added to it, and those in it count, too")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/exact_resume.md")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 2**32
    os.environ.update(TENSORFLOW_ENVIRONMENT | {"OMP_NUM_THREADS": "1"})
    started = time.monotonic()
    frameworks = [item for item in FRAMEWORKS if item.name.lower() in arguments.only]
    frameworks = [item for item in frameworks if is_there(item, arguments.python)]
    drawn = [
        item
        for framework in frameworks
        for item in (
            fixed(framework, arguments.each, seed, arguments.end)
            if framework.fixed
            else draw(framework, share(framework, frameworks, arguments.trials), seed)
        )
        if arguments.number in (None, item.number)
        and (not arguments.kinds or f"{item.options.get('facade')}:{item.options.get('kind')}" in arguments.kinds)
    ]
    random.Random(seed).shuffle(drawn)  # so that a run that is ended has some of each
    results = run(drawn, seed, arguments)
    secs = time.monotonic() - started
    if arguments.add and arguments.add.exists():
        results = [Result.of(json.loads(line)) for line in arguments.add.read_text().splitlines()]
    print(to_text(results), f"seed {seed}, {secs:.0f} s", sep="\n")
    if arguments.write:
        write_page(results, versions(arguments.python))
    sys.exit(any(result.outcome.is_wrong for result in results if result.system == OURS))


def share(framework: Framework, frameworks: list[Framework], trials: int) -> int:
    """Return how many of the trials are a framework's."""
    return round(trials * framework.weight / (sum(item.weight for item in frameworks) or 1))


def draw(framework: Framework, trials: int, seed: int, kills: int = KILLS) -> list[Drawn]:
    """Draw the trainings of a number of trials."""
    found = []
    for number, begin in enumerate(range(0, trials, kills)):
        rng = random.Random(f"{seed}/{framework.name}/{number}")
        options = framework.draw(rng)
        interruptions = [interrupted(rng, options.get("accumulate", 1)) for _ in range(min(kills, trials - begin))]
        found.append(Drawn(framework, seed, number, options, interruptions))
    return found


def fixed(
    framework: Framework, each: int, seed: int, ends: Iterable[str] = tuple(ENDS), kills: int = KILLS
) -> list[Drawn]:
    """Return the trainings of a number of trials of each kind and end."""
    found = []
    known: dict[str, dict[str, Said]] = {}
    for options, end in product(framework.fixed, ends):
        for begin in range(0, each, kills):
            rng = random.Random(f"{seed}/{framework.name}/{len(found)}")
            interruptions = [
                replace(interrupted(rng, 1), how=rng.choice(ENDS[end])) for _ in range(min(kills, each - begin))
            ]
            truths = known.setdefault(str(options), {})
            found.append(Drawn(framework, seed, len(found), options, interruptions, truths))
    return found


def run(drawn: list[Drawn], seed: int, arguments: argparse.Namespace) -> list[Result]:
    """Make the trials, ``jobs`` trainings at a time; return their results."""
    parent = Path(tempfile.mkdtemp(prefix="exactness-"))
    stop, written = threading.Event(), threading.Lock()

    def make(item: Drawn) -> None:
        if stop.is_set():
            return
        home = parent / f"{item.framework.name}-{item.number}"
        home.mkdir()
        try:
            item.make(servers, home, random.Random(f"{seed}/{item.framework.name}/{item.number}/moments"))
        except TrialError as error:
            item.results.append(
                Result(
                    item.framework.name, seed, item.number, OURS, item.options, None, Outcome(FAILED, (), str(error))
                )
            )
        for result in item.results:
            report(result, arguments.trials)
        if arguments.add:
            with written, open(arguments.add, "a") as file:
                file.writelines(json.dumps(asdict(result)) + "\n" for result in item.results)
        shutil.rmtree(home, ignore_errors=True)

    programs = {item.framework.program(item.options) for item in drawn}
    with Servers(parent, arguments.python, programs) as servers, ThreadPoolExecutor(arguments.jobs) as pool:
        try:
            for number, _ in enumerate(pool.map(make, drawn), start=1):
                if number % 10 == 0:
                    print(f"{number} of {len(drawn)} trainings", file=sys.stderr)
        except KeyboardInterrupt:  # what there is counts
            stop.set()
    shutil.rmtree(parent, ignore_errors=True)
    return [result for item in drawn for result in item.results]


def report(result: Result, trials: int) -> None:
    """Print a trial of ours that was called exact and was not."""
    if result.system != OURS or not result.outcome.is_wrong:
        return
    again = f"--only {result.framework.lower()} --number {result.number} --seed {result.seed} --trials {trials}"
    print(f"{result.framework}: {result.outcome.way}: {result.outcome.detail}", file=sys.stderr)
    print(f"  {json.dumps(result.options)} {result.interrupted}", file=sys.stderr)
    print(f"  again: python -m benchmarks.exactness {again}", file=sys.stderr)


def is_there(framework: Framework, python: str) -> bool:
    """Return whether the interpreter has what a framework's program imports; say what it lacks."""
    code = f"import importlib.util as u; print(*[n for n in {framework.modules!r} if u.find_spec(n) is None])"
    lacks = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    if lacks:
        print(f"{framework.name}: not installed: {', '.join(lacks)} (the extra 'faults')", file=sys.stderr)
    return not lacks


def versions(python: str) -> str:
    """Return the frameworks' versions."""
    names = sorted({name for item in FRAMEWORKS for name in item.packages})
    code = (
        "import importlib.metadata as m, importlib.util as u\n"
        f"for n in {names!r}:\n"
        "    try: print(n, m.version(n), end=', ')\n"
        "    except m.PackageNotFoundError: pass"
    )
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    return found.rstrip(", ")


if __name__ == "__main__":
    main()

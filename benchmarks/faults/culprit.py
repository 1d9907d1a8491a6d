"""One rank of several hangs, at a random place: the verdict names it, or is undecided; it never names another one."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.faults.trial import Fault, Findings, Outcome, Trial
from supervisor_core.run.model.run import Run
from supervisor_core.run.watch.logdir_watch import LogdirWatch

PLACES = ("user code", "loader", "collective", "save", "evaluation")
MOST_RANKS = 4
SEEN_WITHIN_SECS = 20.0
"""The learned hang timeout (6 s here), a refresh, and what processes take to find out on a busy machine."""
AGAIN_SECS = 8.0
"""A verdict is read again so long: it must not become a wrong one."""
PROGRAM = "programs.torch_ranks"


def missing(python: str) -> str | None:
    """Say what the interpreter lacks; None if nothing."""
    done = subprocess.run([python, "-c", "import torch"], capture_output=True)
    return "not installed: torch (the extra 'faults')" if done.returncode else None


def _hang(trial: Trial, trials: int, place: str) -> Iterator[Outcome]:
    """Let one of two to four ranks hang, and read the run as `inspect` does."""
    for number in range(trials):
        directory = trial.directory / f"trial-{number}"
        directory.mkdir()
        rng, size = trial.rng, trial.rng.randint(2, MOST_RANKS)
        config: dict[str, Any] = {
            "directory": str(directory), "size": size, "victim": rng.randrange(size), "place": place,
            "how": rng.choice(("waits", "sleeps", "computes")), "step": rng.randint(30, 60),
            "workers": rng.randint(0, 1) if place == "loader" else 0, "together": rng.random() < 0.5,
            "has_phase": rng.random() < 0.5, "pause_secs": rng.choice((0.005, 0.03, 0.07)),
        }  # fmt: skip
        ranks = [trial.start(PROGRAM, {**config, "rank": rank}) for rank in range(size)]
        victim, findings = config["victim"], Findings()
        ranks[victim].until("hangs")
        hung = time.monotonic()
        watch = LogdirWatch(str(directory / "run"))
        run, secs = _await_verdict(watch, hung, SEEN_WITHIN_SECS * trial.patience)
        about = ", ".join(f"{name}={value}" for name, value in config.items() if name != "directory")
        note = None
        if run is None:
            findings.wrong.append(f"no verdict within {secs:.0f} s ({about}){ranks[0].story()}")
        else:
            note = _judge(findings, run, config, about)
            until = time.monotonic() + AGAIN_SECS
            while time.monotonic() < until and findings.outcome().survived:
                ranks[0].listen(0.5)
                later = _run_of(watch)
                if later.verdict is not None and later.verdict != run.verdict:
                    run = later
                    note = _judge(findings, run, config, about)
        trial.close()
        yield Outcome(wrong=tuple(findings.wrong), secs=secs, note=note)


def _judge(findings: Findings, run: Run, config: dict[str, Any], about: str) -> str | None:
    """Compare a verdict with the truth; return it where it is undecided."""
    text, victim = run.verdict or "", f"rank {config['victim']}"
    stall = run.stalls[-1] if run.stalls else None
    culprit = None if stall is None else stall.culprit
    if culprit is not None:
        findings.fault(culprit != victim, f"not {victim}: {text!r} ({about})")
        return None
    findings.fault(not text.startswith("undecided: "), f"neither {victim} nor undecided: {text!r} ({about})")
    findings.fault(text.count("train.py") + text.count("torch_ranks.py") < 2, f"not both groups: {text!r} ({about})")
    return f"{text} ({about})"


def _await_verdict(watch: LogdirWatch, hung: float, within_secs: float) -> tuple[Run | None, float]:
    while (secs := time.monotonic() - hung) < within_secs:
        run = _run_of(watch)
        if run.state == "stalled" and run.verdict is not None:
            return run, secs
        time.sleep(0.5)
    return None, secs


def _run_of(watch: LogdirWatch) -> Run:
    (watched,) = watch.refresh().runs.values()
    return watched.run


FAULTS = tuple(
    Fault(
        name=f"one of 2 to 4 ranks hangs: {place}",
        survived="it is named, or the verdict is undecided and has both groups",
        long=20,
        short=2,
        batch=5,
        run=partial(_hang, place=place),
    )
    for place in PLACES
)

"""Fuzzes targets, one after the other, each in a process of its own.

    python -m fuzz [TARGET ...] [--secs 60] [--write]

An input that breaks a promise is kept in ``.fuzz/<target>/`` and named with the command that repeats it; the exit
status is then 1. What was found worth keeping on the way is in ``.fuzz/<target>/corpus``, where the next run goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.page import PAGE, Result, write_row
from fuzz.targets import HERE, TARGETS, Target

KEPT = HERE.parent / ".fuzz"
INPUT_SECS = 20
"""No input may take longer, on a machine that does other things too."""


def main() -> None:
    """Fuzz what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz what reads the data of others.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--secs", type=int, default=60, help="for how long, each (default: %(default)s)")
    parser.add_argument("--repeat", type=Path, help="give one file to the target, without fuzzing")
    parser.add_argument("--write", action="store_true", help=f"write the figures into docs/{PAGE.name}")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"no such targets: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in arguments.targets or TARGETS]
    if arguments.repeat is not None:
        for target in chosen:
            target.check()(arguments.repeat.read_bytes())
        return
    if importlib.util.find_spec("atheris") is None:
        sys.exit("fuzz: atheris is missing, which is there for Linux on x86-64 only: pip install '.[fuzz]'")
    failed = False
    for target in chosen:
        result = fuzz(target, arguments.secs)
        print(
            f"{target.name}: {result.executions:,} executions in {result.secs:,} s "
            f"({result.processor_secs:,} s of a processor), {result.features:,} features, "
            f"{result.corpus:,} inputs, {len(result.broken)} findings",
            flush=True,
        )
        for path in result.broken:
            print(f"  {path}; again: python -m fuzz {target.name} --repeat {path}")
        failed |= bool(result.broken)
        if arguments.write and not result.broken:
            write_row(result)
    sys.exit(failed)


def fuzz(target: Target, secs: int) -> Result:
    """Fuzz one target until the time is up, or an input breaks its promise."""
    home = KEPT / target.name
    corpus = home / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(home.glob("*-*"))
    seeds = [str(folder) for folder in (corpus, target.corpus, target.findings) if folder.is_dir()]
    options = {
        "max_total_time": secs,
        "timeout": INPUT_SECS,
        "rss_limit_mb": 0,  # the worker limits itself
        "max_len": target.max_bytes,
        "artifact_prefix": f"{home}/",
        "print_final_stats": 1,
        "verbosity": 1,
        "use_value_profile": 1,
    }
    command = [
        sys.executable,
        "-m",
        "fuzz.worker",
        target.name,
        *(f"-{name}={value}" for name, value in options.items()),
    ]
    log = home / "log"
    spent = _processor_secs()
    # The worker's end is libFuzzer's, which cleans up nothing; files of its own are in memory where that is possible.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with open(log, "w") as file, tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as scratch:
        environment = {**os.environ, "TMPDIR": scratch}
        done = subprocess.run([*command, *seeds], stdout=file, stderr=subprocess.STDOUT, env=environment, check=False)
    text = log.read_text(errors="replace")
    broken = tuple(sorted(set(home.glob("*-*")) - before))
    if done.returncode and not broken:
        sys.exit(f"fuzz: {target.name} ended with {done.returncode}:\n{text[-3000:]}")
    if broken:
        print(text[text.find("=== Uncaught") :][:4000], file=sys.stderr)
    return Result(
        target=target,
        executions=_last(r"stat::number_of_executed_units: +(\d+)", text),
        secs=_last(r"Done \d+ runs in (\d+) second", text),
        processor_secs=round(_processor_secs() - spent),
        features=_last(r" ft: (\d+)", text),
        corpus=_last(r" corp: (\d+)", text),
        broken=broken,
    )


def _processor_secs() -> float:
    """What the processes that have ended took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


if __name__ == "__main__":
    main()

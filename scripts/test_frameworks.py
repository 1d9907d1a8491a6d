#!/usr/bin/env python3
"""Run the tests of the adapters with the frameworks: the newest versions that pyproject.toml allows, and the oldest.

    scripts/test_frameworks.py            all environments, as make release-check does
    scripts/test_frameworks.py newest     one of them, as CI does
    scripts/test_frameworks.py oldest -- tests/frameworks/test_torch.py -x

Each is a virtual one below the temporary directory, which is deleted afterwards; uv makes it. Tests that are skipped
because a framework is missing, in an environment that should have it, count as failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from check_versions import ROOT, TOOLS, fetch_as_pip_does, find_python, get_uv, run

FRAMEWORKS = ("keras", "torch", "lightning", "transformers", "jax")
BESIDE = ("torchdata>=0.11", "grain>=0.2.11", "flax>=0.11", "optax>=0.2.5", "scikit-learn>=1.4")
"""What the tests use besides."""
TESTS = "tests/frameworks"
OF_VERSIONS = (
    *(
        f"{TESTS}/test_{name}.py"
        for name in ("torch", "torch_steps", "torch_variables", "torch_loaders", "torch_distributed")
    ),
    *(
        f"{TESTS}/test_{name}.py"
        for name in (
            "lightning",
            "lightning_distributed",
            "lightning_order",
            "lightning_paths",
            "jax",
            "jax_distributed",
            "keras",
            "pages",
        )
    ),
    f"{TESTS}/test_forged.py::test_a_checkpoint_of_another_user_is_resumed_from",
)
"""What depends on the versions of the frameworks. What the engine does, and what forged files do, is seen with the
newest."""
ENDINGS = ("tests/endings/test_loops_end_how.py", "tests/endings/test_crash_loop.py")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Versions to test with."""

    frameworks: tuple[str, ...] = FRAMEWORKS
    """Their extras are installed."""
    resolution: str
    """As uv calls it."""
    pythons: tuple[str, ...]
    """The Pythons to try, in this order."""
    beside: tuple[str, ...] = BESIDE
    tests: tuple[str, ...] = (TESTS,)


ENVIRONMENTS = {
    "newest": Environment(
        resolution="highest",
        pythons=("3.12", "3.13", "3.11"),
        beside=(*BESIDE, "datasets>=3"),
        tests=(*ENDINGS, TESTS, "tests/docs"),  # the longest first
    ),
    "oldest": Environment(
        frameworks=("keras", "torch", "lightning", "jax"),
        resolution="lowest-direct",
        pythons=("3.11", "3.10"),
        beside=(*BESIDE, "numpy<2.3"),
        tests=OF_VERSIONS,
    ),
    "oldest-transformers": Environment(  # with what it asks for itself, which is newer
        frameworks=("transformers",),
        resolution="lowest-direct",
        pythons=("3.11", "3.10"),
        beside=("torchdata>=0.11", "scikit-learn>=1.4", "numpy<2.3"),
        tests=tuple(f"{TESTS}/test_{name}.py" for name in ("transformers", "transformers_distributed", "accelerate")),
    ),
}


def check(name: str, uv: Path, work: Path, arguments: list[str]) -> bool:
    """Make the environment, run the tests, delete it; return whether they passed."""
    environment = ENVIRONMENTS[name]
    python = next((found for version in environment.pythons if (found := find_python(version))), Path(sys.executable))
    venv, report = work / name, work / f"{name}.xml"
    started = time.monotonic()
    try:
        run(uv, "venv", "--quiet", "--python", python, venv)
        asked = [part for framework in environment.frameworks for part in ("--extra", framework)]
        into = (uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python")
        resolution = ("--resolution", environment.resolution)
        run(*into, *resolution, "-r", ROOT / "pyproject.toml", *asked, *TOOLS, *environment.beside)
    except subprocess.CalledProcessError as error:
        print(error.stdout, error.stderr, sep="\n", file=sys.stderr)
        return False
    listed = run(uv, "pip", "freeze", "--python", venv / "bin" / "python")
    wanted = rf"({'|'.join(FRAMEWORKS)}|accelerate|orbax-checkpoint)=="
    shown = [line for line in listed.splitlines() if re.match(wanted, line)]
    print(f"== {name}: {', '.join(shown)}; installed in {time.monotonic() - started:.0f} s", flush=True)
    pytest = (venv / "bin" / "python", "-m", "pytest", "-q", "--long", "-n", "3", f"--junitxml={report}")
    pytest += ("--dist", "loadfile", "--no-loadscope-reorder")  # in the order of FIRST in tests/conftest.py
    done = subprocess.run(
        [*map(str, pytest), *(arguments or environment.tests)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    shutil.rmtree(venv, ignore_errors=True)
    missing = skipped(report.read_text(encoding="utf-8") if report.exists() else "") & set(environment.frameworks)
    for framework in sorted(missing):
        print(f"{name}: tests were skipped because {framework} could not be imported", file=sys.stderr)
    return done.returncode == 0 and not missing


def skipped(report: str) -> set[str]:
    """Return the frameworks for whose lack tests were skipped, as the report of a test run names them."""
    return set(re.findall(r"(\w+) is not installed: make test-frameworks has it", report))


def main() -> int:
    """Return 0 if everything passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=ENVIRONMENTS, help="default: all")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made is deleted
    with tempfile.TemporaryDirectory(prefix="frameworks-") as directory:
        work = Path(directory)
        uv = get_uv(work)
        fetch_as_pip_does()
        chosen = [given.which] if given.which else list(ENVIRONMENTS)
        passed = [check(which, uv, work, given.pytest) for which in chosen]
    return int(not all(passed))


if __name__ == "__main__":
    raise SystemExit(main())

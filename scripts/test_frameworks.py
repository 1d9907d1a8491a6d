#!/usr/bin/env python3
"""Run the tests of the adapters with the frameworks: the newest versions that pyproject.toml allows, and the oldest.

    scripts/test_frameworks.py            both, as CI does
    scripts/test_frameworks.py newest     one of them
    scripts/test_frameworks.py oldest -- tests/frameworks/test_torch.py -x

Each environment is a virtual one below the temporary directory, which is deleted afterwards; uv makes it.
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
from pathlib import Path

from check_versions import ROOT, TOOLS, fetch_as_pip_does, find_python, get_uv, run

FRAMEWORKS = ("keras", "torch", "lightning", "transformers", "jax")
PYTHON_OF = {"newest": ("3.12", "3.13", "3.11"), "oldest": ("3.11", "3.10")}
"""The Pythons to try, in this order."""
BESIDE = {
    "newest": ("torchdata>=0.11", "grain>=0.2.11", "flax>=0.11", "optax>=0.2.5", "scikit-learn>=1.4"),
    "oldest": ("torchdata>=0.11", "grain>=0.2.11", "flax>=0.11", "optax>=0.2.5", "scikit-learn>=1.4", "numpy<2.3"),
}
"""What the tests use besides."""


def extras() -> list[str]:
    """Return the adapters' extras, as pyproject.toml has them."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return [name for name in FRAMEWORKS if re.search(rf"^{name} = \[", text, re.MULTILINE)]


def check(which: str, uv: Path, work: Path, arguments: list[str]) -> bool:
    """Make the environment, run the tests, delete it; return whether they passed."""
    python = next((found for version in PYTHON_OF[which] if (found := find_python(version))), Path(sys.executable))
    venv = work / which
    try:
        run(uv, "venv", "--quiet", "--python", python, venv)
        resolution = "highest" if which == "newest" else "lowest-direct"
        asked = [part for name in extras() for part in ("--extra", name)]
        into = (uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python")
        run(*into, "--resolution", resolution, "-r", ROOT / "pyproject.toml", *asked, *TOOLS, *BESIDE[which])
    except subprocess.CalledProcessError as error:
        print(error.stdout, error.stderr, sep="\n", file=sys.stderr)
        return False
    listed = run(uv, "pip", "freeze", "--python", venv / "bin" / "python")
    shown = [line for line in listed.splitlines() if re.match(rf"({'|'.join(FRAMEWORKS)}|orbax-checkpoint)==", line)]
    print(f"== {which}: {', '.join(shown)}", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [venv / "bin" / "python", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *arguments]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, check=False)
    shutil.rmtree(venv, ignore_errors=True)
    return done.returncode == 0


def main() -> int:
    """Return 0 if everything passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=("newest", "oldest"), help="default: both")
    parser.add_argument("pytest", nargs="*", default=["tests/frameworks"], help="arguments for pytest")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made is deleted
    with tempfile.TemporaryDirectory(prefix="frameworks-") as directory:
        work = Path(directory)
        uv = get_uv(work)
        fetch_as_pip_does()
        chosen = [given.which] if given.which else ["newest", "oldest"]
        passed = [check(which, uv, work, given.pytest) for which in chosen]
    return int(not all(passed))


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""Run the demo with another framework's example: make demo ARGS="--framework torch".

What it needs (this project with the framework's extra, scikit-learn) is installed by uv into an environment of its own,
build/demo-<framework>: once, and again when pyproject.toml has changed. The arguments are those of the demo.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

OLDEST_PYTHON = (3, 10)
if sys.version_info[:2] < OLDEST_PYTHON:
    raise SystemExit("demo: Python 3.10 or newer is needed (make PYTHON=/path/to/python3.x)")

from check_versions import ROOT, fetch_as_pip_does, find_python, get_uv  # noqa: E402

sys.path.insert(0, str(ROOT))
from examples.demo.frameworks import FRAMEWORKS, Framework  # noqa: E402

PYTHONS = ("3.12", "3.13", "3.11")
"""Looked for, in this order, where the present one is too old for a framework."""


def install(framework: Framework, directory: Path) -> Path:
    """Return the Python of an environment that has what the framework's example needs.

    Raises:
        SystemExit: if no Python is new enough, or a package cannot be installed.
    """
    asked = [f"{ROOT}[{framework.name}]", *framework.beside]
    wanted = "\n".join(asked) + (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    venv, python = directory / f"demo-{framework.name}", Path("bin", "python")
    installed = venv / "installed"
    if installed.exists() and installed.read_text(encoding="utf-8") == wanted:
        return venv / python
    base = Path(sys.executable)
    if sys.version_info < framework.oldest_python:
        found = next(filter(None, map(find_python, PYTHONS)), None)
        if found is None:
            oldest = ".".join(map(str, framework.oldest_python))
            raise SystemExit(f"demo: {framework.title} needs Python {oldest} or newer (make PYTHON=/path/to/python3.x)")
        base = found
    print(f"demo: installing {framework.title} into {venv.relative_to(ROOT)} (gigabytes, for some)", flush=True)
    uv = get_uv(directory)
    fetch_as_pip_does()
    for command in (
        (uv, "venv", "--quiet", "--clear", "--python", base, venv),
        (uv, "pip", "install", "--quiet", "--python", venv / python, "--editable", *asked),
    ):
        if subprocess.run([*map(str, command)], check=False).returncode:
            raise SystemExit(f"demo: {framework.title} could not be installed")
    installed.write_text(wanted, encoding="utf-8")
    return venv / python


def main() -> None:
    """Install what is missing, and become the demo."""
    parser = argparse.ArgumentParser(prog="demo", add_help=False, allow_abbrev=False)
    parser.add_argument("--framework", choices=FRAMEWORKS, required=True)
    given, _ = parser.parse_known_args()
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    python = install(FRAMEWORKS[given.framework], build)
    os.chdir(ROOT)
    os.execv(python, [str(python), "-m", "examples.demo", *sys.argv[1:]])


if __name__ == "__main__":
    main()

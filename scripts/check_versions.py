#!/usr/bin/env python3
"""Install the lowest and the newest versions that pyproject.toml allows, and run the tests with them.

    scripts/check_versions.py            what make release-check runs
    scripts/check_versions.py --all      every TensorFlow and Python of docs/compatibility.md
    scripts/check_versions.py --list     names only
    scripts/check_versions.py NAME...    these

Each environment is a virtual one below the temporary directory, which is deleted afterwards; uv makes it, since pip
cannot resolve to the lowest versions. The wheel is tested, with the sources out of reach. Pythons are looked for on the
path and among pyenv's; one that is missing is said and left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TENSORFLOWS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21")
OLDEST_ON = {"3.13": "2.20"}
"""The first TensorFlow that has a wheel for a Python, where that is not the first of all."""
UV = "uv>=0.5"
TOOLS = ("pytest>=8.2", "pytest-timeout>=2.3", "pytest-xdist>=3.8", "hypothesis>=6.100")
TOOLS_WITHOUT_TENSORFLOW = ("cryptography>=42", "fsspec>=2024.2", "jsonschema>=4.18")
OLD_SETUPTOOLS = "setuptools>=77,<81"
"""What TensorBoard before 2.21 needs, which imports ``pkg_resources``."""
WITHOUT_TENSORFLOW = [
    *("tests", "--ignore=tests/tf1", "--ignore=tests/examples", "--ignore=tests/structure", "--ignore=tests/frontend"),
    *("--ignore=tests/frameworks", "--ignore=tests/docs"),
    *("--ignore=tests/endings/test_what_ends_how.py", "--ignore=tests/endings/test_stop_path.py"),
    *("--ignore=tests/browser", "--ignore=tests/faults", "--ignore=tests/restarter", "--ignore=tests/voice"),
    *("--ignore=tests/monitoring/test_alerts.py", "--ignore=tests/monitoring/test_end_to_end.py"),
    *("--ignore=tests/hostile/test_corpus.py", "--ignore=tests/hostile/test_forged_checkpoints.py"),
    *("--ignore=tests/checkpoint/test_retention_kills.py", "--ignore=tests/run/judge/test_fleet.py"),
    *("--ignore=tests/run/judge/test_session_rows.py", "--ignore=tests/notify/test_changes.py"),
    *("--ignore=tests/notify/test_end_to_end.py", "--ignore=tests/monitoring/test_manifests.py"),
]
"""Without what does not depend on the versions of Python and libraries, and takes long."""
_SYMBOLS = "tests/tf1/test_private_symbols.py"
_SMOKE = ("tests/tf1/test_graph_record.py", "tests/tf1/test_native_runs.py", "tests/tf1/saving/test_saving.py")
TRAINING = [_SYMBOLS, "tests/tf1/test_native_runs.py", "tests/tf1/test_run_cache.py", *_SMOKE]
"""For the lowest and the newest TensorFlow."""
SMOKE = [
    *(f"{_SYMBOLS}::test_training_goes_on_without[nothing]", f"{_SYMBOLS}::test_a_session_in_a_cluster_goes_on"),
    *(f"{_SYMBOLS}::test_this_tensorflow_has_every_symbol", *_SMOKE),
]
"""For those between: two sessions of a supervisor, monitored ones, a cluster, saving, the fast path."""
SHOWN = ("tensorflow", "tensorboard", "protobuf", "numpy", "prometheus-client", "click", "google-crc32c", "setuptools")


@dataclass(frozen=True)
class Environment:
    """One set of versions.

    Args:
        python: its Python, like ``"3.10"``.
        lowest: the lowest versions that are allowed, or the newest.
        tensorflow: ``"2.17"``; ``""`` for what the resolution gives; None for none.
    """

    python: str
    lowest: bool
    tensorflow: str | None = None

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        parts = [f"python{self.python}", "lowest" if self.lowest else "newest"]
        if self.tensorflow is not None:
            parts.append(f"tensorflow{self.tensorflow}")
        return "-".join(parts)

    def install(self, uv: Path, python: Path, wheel: Path, venv: Path) -> None:
        """Make it.

        Raises:
            subprocess.CalledProcessError: if that fails; its ``stderr`` says why.
        """
        wanted = list(TOOLS if self.tensorflow is not None else (*TOOLS, *TOOLS_WITHOUT_TENSORFLOW))
        if self.tensorflow:
            wanted.append(f"tensorflow=={self.tensorflow}.*")
        if self.lowest or (self.tensorflow and self.tensorflow != TENSORFLOWS[-1]):
            wanted.append(OLD_SETUPTOOLS)
        resolution = "lowest-direct" if self.lowest else "highest"
        extras = ["tab", *(("notify", "otlp") if self.tensorflow is None else ())]
        if self.tensorflow == "":
            extras.append("tensorflow")
        asked = ["-r", str(ROOT / "pyproject.toml"), *(word for extra in extras for word in ("--extra", extra))]
        run(uv, "venv", "--quiet", "--python", python, venv)
        into = (uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python")
        run(*into, "--resolution", resolution, *asked, *wanted)
        run(*into, "--no-deps", wheel)

    def tests(self) -> list[str]:
        """What pytest is to run."""
        if self.tensorflow is None:
            return WITHOUT_TENSORFLOW
        return SMOKE if self.tensorflow else TRAINING


IN_CI = (
    Environment("3.10", lowest=True),
    Environment("3.13", lowest=False),
    Environment("3.10", lowest=True, tensorflow=""),
    Environment("3.12", lowest=False, tensorflow="2.17"),
    Environment("3.13", lowest=False, tensorflow=""),
)


def everything() -> Iterator[Environment]:
    """Both resolutions on every Python; every TensorFlow on the newest Python that it has wheels for, and both ends."""
    for python in PYTHONS:
        yield Environment(python, lowest=True)
        yield Environment(python, lowest=False)
    yield Environment(PYTHONS[0], lowest=True, tensorflow="")
    for tensorflow in TENSORFLOWS[:-1]:
        has_wheel = [each for each in PYTHONS if _number(tensorflow) >= _number(OLDEST_ON.get(each, "0.0"))]
        yield Environment(has_wheel[-1], lowest=False, tensorflow=tensorflow)
    yield Environment(PYTHONS[-1], lowest=False, tensorflow="")


def find_python(version: str) -> Path | None:
    """Return a Python of this version, from the path or from pyenv; None if there is none."""
    found = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found += [str(path / "bin" / "python") for path in sorted(pyenv.glob(f"{version}.*"), reverse=True)]
    for candidate in filter(None, found):
        code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return Path(candidate)
    return None


def build_wheel(work: Path) -> Path:
    """Build the wheel from what is committed, with the tab as it is built already."""
    source = work / "source"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], input=archive, cwd=source, check=True)
    if (ROOT / "tb_plugin" / "static").is_dir():
        shutil.copytree(ROOT / "tb_plugin" / "static", source / "tb_plugin" / "static", copy_function=shutil.copyfile)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", work / "dist", source)
    for name in (
        "tests",
        "docs",
        "benchmarks",
        "fuzz",
        "pyproject.toml",
    ):  # the tests run from here, where there are no sources
        shutil.move(source / name, work / name)
    shutil.rmtree(source)
    (wheel,) = (work / "dist").glob("*.whl")
    return wheel


def check(environment: Environment, uv: Path, wheel: Path, work: Path, arguments: list[str]) -> tuple[str, str]:
    """Make an environment, run its tests, delete it; return its versions, and what came of it."""
    python = find_python(environment.python)
    if python is None:
        return "", f"skipped: there is no Python {environment.python}, neither on the path nor of pyenv"
    venv = work / environment.name
    started = time.monotonic()
    try:
        environment.install(uv, python, wheel, venv)
        listed = run(uv, "pip", "freeze", "--python", venv / "bin" / "python")
        pins = dict(line.split("==") for line in listed.splitlines() if "==" in line)
        versions = ", ".join(f"{name} {pins[name]}" for name in SHOWN if name in pins)
        print(f"   {versions}", flush=True)
        run(venv / "bin" / "tb-supervisor", "rules")
        options = ("-q", "--long", "-n", "3", "--dist", "loadfile", "-p", "no:cacheprovider")
        command = [str(venv / "bin" / "python"), "-m", "pytest", *options, *environment.tests(), *arguments]
        done = subprocess.run(command, cwd=work, env=_clean(), text=True, check=False)
        verdict = "passed" if done.returncode == 0 else "FAILED"
    except subprocess.CalledProcessError as error:
        print(error.stdout, error.stderr, sep="\n", file=sys.stderr)
        versions, verdict = "", "FAILED"
    finally:
        shutil.rmtree(venv, ignore_errors=True)
    return versions, f"{verdict} in {time.monotonic() - started:.0f} s"


def run(*command: object) -> str:
    """Run a command, and return what it prints; what it says about a failure goes with the error."""
    done = subprocess.run(list(map(str, command)), env=_clean(), capture_output=True, text=True, check=True)
    return done.stdout


def get_uv(work: Path) -> Path:
    """Return the program uv: this machine's, or one that pip installs below a directory."""
    found = shutil.which("uv")
    own = work / "uv" / "bin" / "uv"
    if found is None and not own.exists():
        run(sys.executable, "-m", "venv", work / "uv")
        run(work / "uv" / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", UV)
    return own if found is None else Path(found)


def fetch_as_pip_does() -> None:
    """Have uv fetch packages from where this machine's pip does: uv does not read pip's settings."""
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        setting, _, value = line.partition("=")
        variable = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}.get(setting.rpartition(".")[2])
        if variable:
            os.environ.setdefault(variable, value.strip("'"))


def _clean() -> dict[str, str]:
    """The environment without what would put other packages in the way of those that are tested."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main() -> int:
    """Return 0 if everything that could be run passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which environments (default: those of CI)")
    parser.add_argument("--all", action="store_true", help="every environment")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    parser.add_argument("--pytest", default="", help="further arguments for pytest, in one string")
    given = parser.parse_args()
    every = {environment.name: environment for environment in (*IN_CI, *everything())}
    if unknown := sorted(set(given.names) - set(every)):
        parser.error(f"no such environments: {unknown}; there are {list(every)}")
    chosen = [every[name] for name in given.names] or list(everything() if given.all else IN_CI)
    if given.list:
        print(*(environment.name for environment in chosen), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made is deleted
    results = []
    with tempfile.TemporaryDirectory(prefix="versions-") as directory:
        work = Path(directory)
        uv = get_uv(work)
        fetch_as_pip_does()
        wheel = build_wheel(work)
        for environment in chosen:
            print(f"== {environment.name}", flush=True)
            versions, verdict = check(environment, uv, wheel, work, given.pytest.split())
            results.append((environment.name, versions, verdict))
            print(f"   {verdict}", flush=True)
    print("\nenvironment | result | versions")
    for name, versions, verdict in results:
        print(f"{name} | {verdict} | {versions}")
    return int(any(verdict.startswith("FAILED") for _, _, verdict in results))


if __name__ == "__main__":
    raise SystemExit(main())

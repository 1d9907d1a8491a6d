"""The demo of other frameworks: the table, what their sessions record, when they are killed, what is installed."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from examples.demo.acts import is_provable
from examples.demo.frameworks import FRAMEWORKS, SAVE_SECS
from examples.demo.metrics import Reading
from tests.cases import each

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
ADAPTERS = {
    path.parent.name
    for path in ROOT.glob("supervisor_core/*/__init__.py")
    if f"Needs the extra ``{path.parent.name}``" in path.read_text("utf-8")
}


def test_every_adapter_has_an_example_a_page_an_extra_and_a_demo() -> None:
    """The first tutorial names all of them."""
    assert set(FRAMEWORKS) == ADAPTERS and len(ADAPTERS) >= 5
    tutorial = (ROOT / "docs" / "first-run.md").read_text("utf-8")
    (choices,) = re.findall(r'--framework (\w+)"    # or (.*)', tutorial)
    assert {choices[0], *choices[1].split(", ")} == set(FRAMEWORKS)
    for name, framework in FRAMEWORKS.items():
        example = ROOT / (framework.program.replace(".", "/") + ".py")
        assert f"from supervisor_core.{name} import" in example.read_text("utf-8")
        assert f"supervisor_core.{name}" in (ROOT / "docs" / f"{name}.md").read_text("utf-8")
        assert f"[{framework.title}]({name}.md)" in tutorial and f"`examples/{name}_digits.py`" in tutorial
        assert re.search(rf"^{name} = \[", PROJECT, re.MULTILINE)


@each("name", FRAMEWORKS)
def test_the_examples_take_what_the_demo_gives(name: str) -> None:
    """The example has these options, prints what the supervisor logs, and writes the scalars that are compared."""
    framework = FRAMEWORKS[name]
    source = (ROOT / (framework.program.replace(".", "/") + ".py")).read_text("utf-8")
    assert framework.options(61) == ("--epochs", "3", "--save-secs", str(SAVE_SECS))
    for option in ("--logdir", "--epochs", "--save-secs"):
        assert f'"{option}"' in source
    assert 'logging.getLogger("supervisor_core").setLevel(logging.INFO)' in source


@each(
    "saved, age, losses, seen",
    [
        (41, 0.1, {59: 0.5}, True),
        (41, 0.1, {29: 0.5}, False),  # no loss would be computed again
        (60, 0.1, {89: 0.5}, False),  # between two epochs
        (41, 0.9, {59: 0.5}, False),  # the next checkpoint is near
        (None, None, {59: 0.5}, False),
    ],
)
def test_a_training_is_killed_where_a_resume_proves_something(
    saved: int | None, age: float | None, losses: dict[int, float], seen: bool
) -> None:
    """In the middle of an epoch, with a loss after the newest checkpoint."""
    assert is_provable(Reading(step=70, checkpoint_step=saved, checkpoint_age_secs=age), losses, 30) is seen


def test_each_adapter_is_tested_with_its_newest_and_its_oldest_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """In some environment each. What is skipped for lack of a framework is seen in the report."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script: Any = import_module("test_frameworks")
    for resolution in ("highest", "lowest-direct"):
        chosen = [item for item in script.ENVIRONMENTS.values() if item.resolution == resolution]
        assert sorted(name for item in chosen for name in item.frameworks) == sorted(ADAPTERS)
        assert all((ROOT / name.partition("::")[0]).exists() for item in chosen for name in item.tests)
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests" / "frameworks").glob("test_*.py"))
    assert script.skipped(tests) >= ADAPTERS
    assert script.skipped('<skipped message="keras is not installed: make test-frameworks has it"/>') == {"keras"}


def test_what_a_framework_needs_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By uv, with the extra; again when what is asked for has changed; a failure names the framework."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script: Any = import_module("demo_framework")
    said = tmp_path / "said"
    uv = tmp_path / "uv"
    uv.write_text(
        f'#!/bin/sh\necho "$@" >> {said}\ntest -e {tmp_path}/broken && exit 1\nmkdir -p {tmp_path}/demo-torch\n'
    )
    uv.chmod(0o755)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "get_uv", lambda work: uv)
    monkeypatch.setattr(script, "fetch_as_pip_does", lambda: None)
    (tmp_path / "pyproject.toml").write_text("one")
    torch = FRAMEWORKS["torch"]
    for _ in range(2):
        assert script.install(torch, tmp_path) == tmp_path / "demo-torch" / "bin" / "python"
    made, installed = said.read_text().splitlines()
    assert made.startswith("venv ")
    assert installed.endswith(f"--editable {tmp_path}[torch] scikit-learn>=1.4")
    (tmp_path / "pyproject.toml").write_text("two")
    script.install(torch, tmp_path)
    assert len(said.read_text().splitlines()) == 4
    (tmp_path / "broken").touch()
    with pytest.raises(SystemExit, match="Transformers could not be installed"):
        script.install(FRAMEWORKS["transformers"], tmp_path)

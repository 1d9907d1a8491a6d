"""Files that tools and contributors read: they name what exists, in the form that is expected."""

from __future__ import annotations

import configparser
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cases import each

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def test_hooks_call_what_make_check_calls() -> None:
    """Each hook is local and starts a tool of `make check`, from .venv or scripts: nothing is downloaded for it."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program, *words = hook["entry"].split()
        assert program.replace(".venv/bin/", "$(BIN)/") in MAKEFILE
        assert program.startswith((".venv/bin/", "scripts/"))
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
    assert len(repository["hooks"]) >= 3


def test_the_editor_configuration_agrees_with_the_formatter() -> None:
    """The configuration can be read, and agrees with the formatter."""
    parser = configparser.ConfigParser()
    text = (ROOT / ".editorconfig").read_text("utf-8")
    parser.read_string(text.replace("root = true", "[top]\nroot = true"))
    assert parser["*"]["indent_size"] == "4"
    assert parser["{Makefile,*.mk}"]["indent_style"] == "tab"


def test_the_changelog_has_its_form() -> None:
    """Versions newest first, the unreleased one at the top; in each only the kinds of change that the form knows."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[([^]]+)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert len(versions) == text.count("\n## ")
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds


def test_every_error_is_public() -> None:
    """What a caller can catch is imported from the package itself."""
    import supervisor_core
    from supervisor_core.base import errors

    raised = {name: error for name, error in vars(errors).items() if name.endswith("Error")}
    assert raised == {name: getattr(supervisor_core, name) for name in supervisor_core.__all__ if name in raised}


@each("script", ["architecture", "dashboard", "schema"])
def test_what_a_script_writes_is_up_to_date(script: str) -> None:
    """The picture of the packages and their imports; the places of the dashboard's panels, none of which covers
    another; the schemas of the records and of `inspect --json`."""
    done = subprocess.run([sys.executable, f"scripts/{script}.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_files_that_the_architecture_names_are_there() -> None:
    """A newcomer is sent to no file that has moved."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = re.findall(r"`((?:supervisor_core|tb_plugin|frontend)/[\w/.]+)`", page)
    assert named and all((ROOT / path).exists() for path in named)


def test_what_people_read_is_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens, logs, alerts, errors and pages have no words that `scripts/words` counts, beyond what is usual."""
    read = ("supervisor_core", "tb_plugin", "frontend/src", "docs", "README.md", "CHANGELOG.md", "SECURITY.md")
    assert words(monkeypatch, *(str(ROOT / part) for part in read)) == 0, "scripts/words --show PATH names the places"


def test_the_site_has_every_page_once() -> None:
    """The navigation of the site names each page of docs/, in one of its groups."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    groups = settings["nav"]
    named = [page for group in groups for entry in group.values() for page in flat(entry)]
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {settings["exclude_docs"].strip()}
    assert len(named) == len(set(named))
    assert pages <= set(named)
    assert set(named) - pages <= {"changelog.md", "contributing.md", "security-policy.md"}
    assert [name for group in groups for name in group][:5] == [
        "Start",
        "Tutorials",
        "How to",
        "Reference",
        "Explanation",
    ]


def flat(entry: str | list[dict[str, str]]) -> list[str]:
    """The pages of a part of the navigation."""
    return [entry] if isinstance(entry, str) else [page for item in entry for page in item.values()]


def words(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Run scripts/words; return its status."""
    monkeypatch.setattr(sys, "argv", ["words", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "scripts" / "words"), run_name="__main__")
    return ended.value.code


def test_pages_and_screens_are_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The documentation, the command line and the alerts have no more of these words than comparable projects."""
    parts = (
        "docs",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "supervisor_core/cli",
        "supervisor_core/metrics",
    )
    assert words(monkeypatch, *(str(ROOT / part) for part in parts)) == 0, "scripts/words --show PATH names the places"

"""The documentation is in step with the code: what exists is documented, and what is documented exists."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import jsonschema

from supervisor_core.base.options import CACHE_VARIABLE, HANG_TIMEOUT_SECS, OPTION_NAMES, Options
from supervisor_core.base.session_labels import VARIABLE as LABELS_VARIABLE
from supervisor_core.checkpoint.ledger import decode as decode_ledger
from supervisor_core.checkpoint.ledger import encode as encode_ledger
from supervisor_core.engine.environment import ADDRESS_VARIABLE, LOGDIR_VARIABLE, PUSH_VARIABLE
from supervisor_core.engine.placement import FOUND_IN
from supervisor_core.engine.tf_config import TF_CONFIG_VARIABLE
from supervisor_core.engine.timeouts import HANG_TIMEOUT_VARIABLE, STOP_TIMEOUT_VARIABLE
from supervisor_core.events.telemetry import KINDS, WorkerState, WorkerStatus, from_json, to_json
from supervisor_core.notify.secret import NOTIFY_VARIABLE, PING_VARIABLE
from supervisor_core.notify.watch_state import STATE_VARIABLE
from supervisor_core.process.outside import TRACER_VARIABLE
from supervisor_core.process.runtime_directory import VARIABLE as RUNTIME_DIRECTORY_VARIABLE
from supervisor_core.process.runtime_directory import XDG_VARIABLE
from supervisor_core.run.watch.liveness import LivenessRecord, decode, encode
from tb_plugin.loader import SupervisorLoader
from tests.cases import each

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def rows(text: str, section: str = "") -> dict[str, list[str]]:
    """The tables of a page (from a heading on, up to the next): first cell without backticks -> the other cells."""
    if section:
        text = text.split(f"\n{section}\n", 1)[1].split("\n#", 1)[0]
    cells = (re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `"))
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in cells}


def test_options_page_lists_every_option_with_its_default() -> None:
    """Each option is documented under its name and default, and no other is."""
    page = (ROOT / "docs/options.md").read_text()
    table = rows(page.split("## Hang timeouts")[0])
    assert set(table) == set(OPTION_NAMES)
    for name in OPTION_NAMES:
        assert table[name][0] == f"`{getattr(Options(), name)!r}`"


def test_options_page_lists_every_label_that_is_found() -> None:
    """Each with the variables that it is looked for in, in their order."""
    table = rows((ROOT / "docs/options.md").read_text(), "## Labels")
    named = {label: tuple(re.findall(r"`(\w+)`", cells[0])) for label, cells in table.items()}
    assert named == FOUND_IN


def test_options_page_lists_every_budget_and_variable() -> None:
    """The default hang timeouts are the code's, and so are the environment's variables."""
    page = (ROOT / "docs/options.md").read_text()
    assert {phase: float(cells[0]) for phase, cells in rows(page, "## Hang timeouts").items()} == HANG_TIMEOUT_SECS
    assert set(rows(page, "## Environment")) == {
        ADDRESS_VARIABLE,
        CACHE_VARIABLE,
        LOGDIR_VARIABLE,
        LABELS_VARIABLE,
        PUSH_VARIABLE,
        RUNTIME_DIRECTORY_VARIABLE,
        HANG_TIMEOUT_VARIABLE,
        STOP_TIMEOUT_VARIABLE,
        NOTIFY_VARIABLE,
        PING_VARIABLE,
        STATE_VARIABLE,
        TF_CONFIG_VARIABLE,
        TRACER_VARIABLE,
        XDG_VARIABLE,
    }


def test_tensorboard_page_lists_every_flag_with_its_default() -> None:
    """Each flag of the tab is documented under its name and default, and no other is."""
    parser = argparse.ArgumentParser()
    SupervisorLoader().define_flags(parser)
    flags = {f"--{name}": f"`{value!r}`" for name, value in vars(parser.parse_args([])).items()}
    table = rows((ROOT / "docs/tensorboard.md").read_text(), "## Flags")
    assert {name: cells[0] for name, cells in table.items()} == flags


@each("kind", KINDS)
def test_events_page_lists_every_field(kind: str) -> None:
    """Each kind of record is documented field by field, and no other field is."""
    table = rows((ROOT / "docs/events.md").read_text(), f"### `{kind}`")
    assert set(table) == {"v"} | {item.name for item in fields(KINDS[kind])}


@each("kind", KINDS)
def test_events_page_shows_records_that_are_read_back(kind: str) -> None:
    """The example of each kind is a record, whole: read and written again it is the same."""
    section = (ROOT / "docs/events.md").read_text().split(f"\n### `{kind}`\n", 1)[1]
    example = section.split("```json\n", 1)[1].split("\n```", 1)[0]
    assert json.loads(to_json(from_json(kind, example))) == json.loads(example)
    published = json.loads((ROOT / "docs/events.schema.json").read_text())
    jsonschema.validate(json.loads(example), {**published["properties"][kind], "$defs": published["$defs"]})


def test_events_page_lists_the_fields_of_a_worker() -> None:
    """Each field of a worker in a heartbeat is documented, and no other is."""
    table = rows((ROOT / "docs/events.md").read_text(), "#### `workers`")
    assert set(table) == {item.name for item in fields(WorkerStatus)}


def test_the_page_of_formats_lists_every_field_of_a_liveness_file() -> None:
    """Documented field by field; the example is one, whole."""
    heading = "## Liveness files"
    section = (ROOT / "docs/formats.md").read_text().split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    assert set(rows(section.split("\nHow the chief judges another")[0])) == {"v"} | {
        item.name for item in fields(LivenessRecord)
    }
    example = section.split("```json\n", 1)[1].split("\n```", 1)[0]
    assert json.loads(encode(decode(example.encode()))) == json.loads(example)
    assert set(rows(section.split("\nHow the chief judges another")[1])) == set(get_args(WorkerState))


def test_every_dependency_has_a_reason() -> None:
    """What pyproject.toml asks for is on the page of dependencies, and pinned."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(item for extra in project["optional-dependencies"].values() for item in extra)]
    names = {re.split(r"[<>=\[]", item)[0] for item in asked} - {project["name"]}
    page = (ROOT / "docs/dependencies.md").read_text()
    pins = (ROOT / "constraints.txt").read_text().lower()
    for name in names:
        assert re.search(rf"\b{re.escape(name)}\b", page), f"{name} has no reason"
        assert f"\n{name.lower()}==" in pins, f"{name} is not pinned"


def test_nothing_is_installed_by_a_name_that_no_index_has() -> None:
    """The package is not published: no page and no docstring has a line that would ask an index for it. docs/install.md
    has those that work, and `supervisor_core.base.install` makes those of messages."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    sources = [path for part in ("supervisor_core", "tb_plugin", "examples") for path in (ROOT / part).rglob("*.py")]
    others = [path for path in (ROOT / "examples").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    words = r"(?:(?!--no-index)[^\n`])*"
    asks = re.compile(rf"\bpip (?:install|wheel)\b{words}[ \"']tensorboard[-_]plugin[-_]supervisor(?![^\s]*\.whl)")
    assert asks.search("`pip install 'tensorboard-plugin-supervisor[torch]'`")
    found = [path for path in (*pages, *sources, *others) if asks.search(path.read_text("utf-8", "replace"))]
    assert [str(path.relative_to(ROOT)) for path in found] == []


def test_the_page_of_dependencies_states_every_floor() -> None:
    """The lowest version of each package, for each Python, is on the page as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(item for extra in project["optional-dependencies"].values() for item in extra)]
    page = (ROOT / "docs/dependencies.md").read_text()
    for item in asked:
        requirement = re.match(r"([\w-]+)(?:\[\w+\])?(>=[\d.]+)", item)
        if requirement is None:
            continue  # ourselves with an extra; an exact version
        name, floor = requirement.groups()
        row = next((line for line in page.splitlines() if re.search(rf"^\|.*\b{re.escape(name)}\b.*`>=", line)), None)
        assert row is not None and f"`{floor}`" in row, f"{item} is not on the page of dependencies like that"


def test_lock_and_configuration_name_no_host() -> None:
    """Where packages come from is the machine's business: no registry's host, no download address."""
    locks = [f"locks/{path.name}" for path in (ROOT / "locks").iterdir()]
    for name in (*locks, "constraints.txt", "pyproject.toml", "setup.cfg", "Makefile"):
        assert not re.search(r"https?://|index-url|find-links", (ROOT / name).read_text()), name


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w -]", "", title).strip().replace(" ", "-") for title in plain}


@each("path", PAGES)
def test_links_lead_somewhere(path: Path) -> None:
    """Each relative link of a page leads to a file of the repository, and to a heading that is there."""
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", path.read_text()):
        file = path.parent / target if target else path
        assert file.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{path.name} links to {target}#{anchor}"


def test_every_page_can_be_found_from_the_first() -> None:
    """docs/index.md links to each page, but to the one for a package index."""
    linked = set(re.findall(r"\]\(([\w.-]+\.md)", (ROOT / "docs/index.md").read_text()))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages - linked == {"index.md", "package-index.md"}


def test_every_row_of_the_comparison_is_backed_by_a_test() -> None:
    """Each difference to the original is shown by a test of that name, or a file of tests; a group has at most five."""
    page = (ROOT / "docs/why.md").read_text()
    backed = json.loads((ROOT / "tests/structure/backed.json").read_text())["why.md"]
    groups = [re.findall(r"^\| (?!situation )([^|]+) \|", group, re.MULTILINE) for group in page.split("\n## ")[1:]]
    assert len(groups) >= 5 and all(1 < len(group) <= 5 for group in groups)
    assert [situation for group in groups for situation in group] == list(backed)
    tests = "".join(f"\ndef {path.stem}(" + path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in backed.values() if f"def {name}(" not in tests] == []


def test_the_map_for_contributors_leads_to_files() -> None:
    """Each path of CONTRIBUTING.md's tables is in the repository."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:supervisor_core|tb_plugin|frontend|tests|examples|docs|scripts)(?:/[\w./]+)?)`", text)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_first_page_names_the_targets_of_make() -> None:
    """Each ``make`` in README.md and CONTRIBUTING.md is a target, and CONTRIBUTING.md explains each target."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    texts = {name: (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md")}
    for name, text in texts.items():
        assert set(re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE)) <= targets, name
    explained = set(re.findall(r"^\| `make ([\w-]+)` \|", texts["CONTRIBUTING.md"], re.MULTILINE))
    assert targets - explained == {"clean", "frontend"}


def test_promises_name_tests_that_exist() -> None:
    """Each promise of storage names a test that is there: on a page for contributors, not on the user's."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/architecture.md").read_text())
    assert len(named) > 10
    assert "tests/" not in (ROOT / "docs/storage.md").read_text()
    for path, test in named:
        assert f"\ndef {test}(" in (ROOT / path).read_text(), f"{path}::{test}"


def test_the_page_of_formats_shows_a_ledger_that_is_read() -> None:
    """The example is one, whole, and each of its fields is described."""
    section = (ROOT / "docs/formats.md").read_text().split("## The ledger", 1)[1].split("\n## ")[0]
    section = section.split("The ledger, as one JSON object and a newline:", 1)[1]
    example = json.loads(section.split("```json\n", 1)[1].split("\n```", 1)[0])
    assert json.loads(encode_ledger(decode_ledger(json.dumps(example).encode()))) == example
    assert set(rows(section)) == set(example)

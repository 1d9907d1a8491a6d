"""What a page says that a command prints is what it prints: every console of every page is typed, offline."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cases import each
from tests.docs.console import ROOT, File, Terminal, Typed, matches, normal, parts_of
from tests.docs.prepared import PREPARED

COPIES = ("index.md", "package-index.md")
"""Written from README.md."""
PAGES = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")) if path.name not in COPIES)

NOT_RUN = {
    "README.md: .venv/bin/pip install ": "it loads packages",
    "metrics.md: curl ": "the training that it asks is the reader's",
}
"""Beginning of ``page: command`` -> why it is not typed here."""

NEEDS = {
    "README.md: .venv/bin/python -m examples.torch_digits": ("torch", "sklearn"),
    "README.md: .venv/bin/tb-supervisor inspect --run first /tmp/torch": ("torch", "sklearn"),
    "README.md: .venv/bin/python -m examples.digits": ("tensorflow", "sklearn"),
    "README.md: .venv/bin/tb-supervisor inspect --run first /tmp/tf1": ("tensorflow", "sklearn"),
    "first-run.md: ": ("tensorflow", "sklearn"),
    "read-a-run.md: ": ("tensorflow", "sklearn"),
    "torch.md: ": ("torch",),
}
"""Beginning of ``page: command`` -> the modules without which it is not typed; `make test-frameworks` has those of
frameworks."""

LONG = {"README.md", "first-run.md", "read-a-run.md", "torch.md"}
"""Pages whose consoles take more than some seconds: `make test-long` types them."""

FOLLOWS = {"read-a-run.md": "first-run.md"}
"""A page -> the page that its reader has followed before."""


def reason_of(typed: Typed) -> str | None:
    """Why a command is not typed; None if it is."""
    missing = (
        f"{module} is not installed: make test-frameworks has it"
        for start, modules in NEEDS.items()
        if str(typed).startswith(start)
        for module in modules
        if find_spec(module) is None
    )
    return next((reason for start, reason in NOT_RUN.items() if str(typed).startswith(start)), next(missing, None))


def typed_on(page: Path) -> list[Typed]:
    """The commands of a page's consoles."""
    return [part for part in parts_of(page) if isinstance(part, Typed)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.long] if page.name in LONG else [])
        for page in PAGES
        if any(not str(typed).startswith(tuple(NOT_RUN)) for typed in typed_on(page))
    ],
)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    """In the page's order, with the files that it shows; numbers and times may differ, words may not."""
    reasons = [reason_of(typed) for typed in typed_on(page)]
    if None not in reasons:
        pytest.skip(str(reasons[-1]))
    prepare: Callable[[Path], None] | None = PREPARED.get(page.name)
    if prepare is not None:
        prepare(tmp_path)
    terminal = Terminal(tmp_path)
    before = FOLLOWS.get(page.name)
    try:
        for part in (*(parts_of(page.with_name(before)) if before else ()), *parts_of(page)):
            if isinstance(part, File):
                terminal.write(part)
            elif reason_of(part) is None:
                printed, status = terminal.type(part)
                expected = part.printed.replace("^C\n", "")
                is_right = matches(expected, printed, begins=part.command.endswith(" &")) if expected else status == 0
                assert is_right, f"{part}\n--- the page\n{normal(expected)}\n--- printed (status {status})\n{printed}"
    finally:
        terminal.close()


def test_what_is_not_typed_is_there() -> None:
    """Each exception is of a command on a page, each page that is named has a console."""
    commands = [str(typed) for page in PAGES for typed in typed_on(page)]
    assert [start for start in (*NOT_RUN, *NEEDS) if not any(command.startswith(start) for command in commands)] == []
    pages = {page.name for page in PAGES if typed_on(page)}
    assert (LONG | set(PREPARED) | set(FOLLOWS)) - pages == set()


@each("page", PAGES)
def test_what_is_printed_stands_in_a_console(page: Path) -> None:
    """Elsewhere it is not compared: no block of shell commands, and no indented one, has a prompt, or is followed
    by what it prints."""
    text = page.read_text("utf-8")
    found = re.findall(r"^```sh\n(?:(?!```).*\n)*?\$ .*", text, re.MULTILINE)
    found += re.findall(r"^```sh\n((?:(?!```).*\n)+)```\n\n(?:    |```text)", text, re.MULTILINE)
    found += re.findall(r"^    \$ .*", text, re.MULTILINE)
    assert found == [], "CONTRIBUTING.md (Blocks on a page) says how to write it"


@each(
    "page, printed, is_said",
    [
        ("run  digits\n  lost 1 min 2 s", "run digits lost 2.5 s", True),
        ("lost 2.5 s", "silent 2.5 s", False),
        ("2026-11-21 09:30:00,123 INFO ok", "2025-01-01 00:00:00,000 INFO ok", True),
        ("restarts 1", "restarts 2", False),
        ("step 385", "step 1,201", True),
        ("one\n...\nfour", "one two three four", True),
        ("one\n...\nfour", "one two three", False),
        ("goodput 9 %", "goodput 91.5 %", True),
        ("one", "one two", False),
    ],
)
def test_words_are_compared_and_numbers_are_not(page: str, printed: str, is_said: bool) -> None:
    """But whole numbers below 10 are counts, and are."""
    assert matches(page, printed) is is_said


def test_a_program_that_goes_on_is_interrupted_when_it_has_printed_that(tmp_path: Path) -> None:
    """What it prints after the interruption is compared, too; paths are the page's, and a file is where it was put."""
    terminal = Terminal(tmp_path)
    terminal.write(
        File("train.py", "# train.py\nprint(open('/tmp/told').read())\ninput = __import__('signal').pause()\n")
    )
    (tmp_path / "tmp" / "told").write_text("/tmp/told\n".replace("/tmp", f"{tmp_path}/tmp"))
    printed, status = terminal.type(Typed("page.md", "python -u train.py", "/tmp/told\n^C\nKeyboardInterrupt"))
    assert printed.startswith("/tmp/told\n") and printed.rstrip().endswith("KeyboardInterrupt") and status != 0
    printed, _ = terminal.type(Typed("page.md", "sleep 60 &", ""))
    assert printed == ""
    assert terminal.type(Typed("page.md", "kill -KILL $$", ""))[0] == "Killed\n"
    terminal.close()

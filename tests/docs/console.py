"""Consoles on a page: what is typed and what it prints; typed in a terminal of their own, and compared.

CONTRIBUTING.md ("Blocks on a page") says how a page writes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOST = "node-3"
"""What the machine is called on every page."""
COLUMNS = 100
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What makes text bold."""
PLACES = re.compile(r"(?<![\w./-])/(?=(?:tmp|runs|data|mnt)\b)")
"""Where the absolute paths of pages begin; the test puts a directory of its own before them."""
WAITS_SECS = 60
"""For what a program that does not end is to print."""

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"#(?:!.*\n#)? ([\w-]+\.\w+)\n")
_CONTROLS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\x1b\][^\a]*\a")
_NORMAL = (
    (re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?(?:[,.]\d+)?Z?)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d(?::\d\d)?\b"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8,64}\b"), "<id>"),
    (re.compile(r"(?:\b\d[\d.,]* (?:ms|s|min|h|d)\b ?)+"), "<secs> "),
    (re.compile(r"\b\d[\d.,]* ?(?:%|B|kB|KB|KiB|MB|MiB|GB|GiB|bytes)(?!\w)"), "<amount>"),
    (re.compile(r"\b\d[\d,]* of \d[\d,]*(?= recomputed )"), "<number> of <number>"),
    (re.compile(r"\b\d{2,}(?:[.,]\d+)*\b|\b\d+(?:[.,]\d+)+\b"), "<number>"),
    (re.compile("[\u2500-\u25ff\u2800-\u28ff]{3,}"), "<bar>"),
)
"""What differs from time to time. A whole number below 10 without a unit, as a count of restarts, does not."""


@dataclass(frozen=True)
class Typed:
    """A command of a console, and what the page says that it prints."""

    page: str
    command: str
    printed: str

    def __str__(self) -> str:
        return f"{self.page}: {self.command}"


@dataclass(frozen=True)
class File:
    """A block whose first line is a comment with a name: that file."""

    name: str
    text: str


def parts_of(page: Path) -> Iterator[Typed | File]:
    """The commands of a page and the files that it shows, in its order."""
    for indent, language, text in _FENCE.findall(page.read_text("utf-8")):
        text = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        if language == "console":
            assert text.startswith("$ "), f"{page.name}: a console begins with a prompt: {text[:60]!r}"
            for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, printed = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", each, re.DOTALL).groups()  # type: ignore[union-attr]
                yield Typed(page.name, command, printed)
        elif found := _FILE.match(text):
            yield File(found[1], text)


def normal(text: str) -> str:
    """A text as it is every time: words with one space between them, numbers and times by their kind."""
    text = " ".join(_CONTROLS.sub("", text).split())
    for pattern, name in _NORMAL:
        text = pattern.sub(name, text)
    return " ".join(text.split())


def matches(expected: str, printed: str, *, begins: bool = False) -> bool:
    """Whether that was printed; ``...`` on the page is any text. ``begins``: more may follow."""
    parts = [r"\s*".join(map(re.escape, normal(part).split())) for part in expected.split("...")]
    pattern = r"\s*" + r"\s*.*\s*".join(parts) + r"\s*"
    found = (re.match if begins else re.fullmatch)(pattern, normal(printed), re.DOTALL)
    return found is not None


class Terminal:
    """Types the commands of one page, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "clone"
        self.home.mkdir()
        for name in ("examples", "docs"):
            (self.home / name).symlink_to(ROOT / name)
        (directory / "tmp").mkdir()
        commands = self.home / ".venv" / "bin"
        commands.mkdir(parents=True)
        for path in Path(sys.executable).parent.iterdir():
            (commands / path.name).symlink_to(path)
        for name, text in (
            ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
            ("tb-supervisor", f"#!{sys.executable}\nfrom supervisor_core.cli import main\n\nmain()\n"),
        ):
            (commands / name).unlink(missing_ok=True)
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        self._left: list[tuple[subprocess.Popen[bytes], int]] = []
        nowhere = "http://127.0.0.1:9"  # offline
        self._environment = {
            **{name: os.environ[name] for name in ("PYTHONPATH", "CI") if name in os.environ},
            "PATH": f"{commands}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TERM": "linux",  # of a dumb one nothing asks for the width
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": "1",  # PyTorch's threads wait actively for each other
            "http_proxy": nowhere,
            "https_proxy": nowhere,
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }

    def write(self, file: File) -> None:
        """Save a file that the page shows."""
        (self.home / file.name).write_text(self._placed(file.text))

    def type(self, typed: Typed) -> tuple[str, int]:
        """Return what a command printed, with the page's paths, and its exit status.

        Of a command that the page interrupts (``^C``) or leaves to itself (``&``) only so much is waited for as the
        page shows before that.
        """
        command = typed.command
        is_left = command.endswith(" &")
        before, interrupts, _ = typed.printed.partition("^C\n")
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", self._placed(command.removesuffix("&"))],
            cwd=self.home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        said = b""
        if is_left or interrupts:
            deadline = time.monotonic() + WAITS_SECS
            while not matches(before, self._shown(said), begins=True) and time.monotonic() < deadline:
                if select.select([ours], [], [], 1)[0]:
                    more = _read(ours)
                    said += more
                    if not more:
                        break
            if is_left:
                self._left.append((process, ours))
                return self._shown(said), 0
            os.killpg(process.pid, signal.SIGINT)
        while more := _read(ours):
            said += more
        os.close(ours)
        status = process.wait()
        shown = self._shown(said).replace("^C", "")
        if status in (-signal.SIGKILL, 128 + signal.SIGKILL):
            shown += "Killed\n"  # an interactive shell says so
        return shown, status

    def close(self) -> None:
        """End what was left to itself."""
        for process, ours in self._left:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(ours)

    def _placed(self, text: str) -> str:
        return PLACES.sub(f"{self.directory}/", text)

    def _shown(self, said: bytes) -> str:
        text = CONTROLS.sub("", said.decode("utf-8", "replace").replace("\r\n", "\n"))
        return re.sub(rf"\b{re.escape(socket.gethostname())}\b", HOST, text.replace(f"{self.directory}/", "/"))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: nobody writes any more
        return b""

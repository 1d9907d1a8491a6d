"""Real TensorBoards on made-up and real logdirs, and a real Chromium in which every complaint fails the test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.story import runs

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",  # a name that somebody has lead here
)
STARTED = re.compile(r"TensorBoard \S+ at (http://\S+?)/? \(")
PATIENCE_MS = 120_000
TIMEOUT_SECS = 400
"""Of each test: the first of a module starts TensorBoard and Chromium, and a busy machine takes its time."""
AXE = ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
PAPER = {"width": 718, "height": 1000}
"""A4 between its margins, in CSS pixels."""
CUT = """() => [...document.querySelectorAll('#supervisor *')].filter(element => {
    const box = element.getBoundingClientRect();
    const scrolls = /auto|scroll|hidden/.test(getComputedStyle(element).overflow)
        && (element.scrollHeight > element.clientHeight + 4 || element.scrollWidth > element.clientWidth + 1);
    return box.width && box.height && (box.right > innerWidth + 1 || scrolls);
}).map(element => element.className || element.tagName)"""
BEYOND = """() => [...document.querySelectorAll('#supervisor *')].filter(element => {
    const box = element.getBoundingClientRect();
    return box.width && box.right > innerWidth + 1 && !element.closest('.table-box, .tooltip, [hidden]');
}).map(element => element.className || element.tagName)"""
GO = """hash => new Promise(done => {
    if (location.hash.slice(1) === hash) return done();
    addEventListener('hashchange', () => requestAnimationFrame(() => requestAnimationFrame(done)), {once: true});
    location.hash = hash;
})"""
"""Follow a link within the tab, until the page has drawn what it leads to."""
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Once the page has drawn what it has: it does so in the next frame."""
PROGRAM = "import sys; sys.modules['tensorflow'] = None; from tensorboard.main import run_main; run_main()"
"""TensorBoard as on a machine without TensorFlow, whose import is most of its start."""


def _missing() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "playwright is missing: pip install playwright"
    if CHROMIUM is None:
        return "Chromium is missing; on Debian: apt-get install chromium"
    if not (ROOT / "tb_plugin" / "static" / "index.js").exists():
        return "the frontend is not built: scripts/build-frontend"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip aloud where there is nothing to drive; in CI that is a failure."""
    reason = _missing()
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(TIMEOUT_SECS))
        if reason is None:
            continue
        if os.environ.get("CI") == "true":
            pytest.exit(f"browser tests: {reason}", returncode=1)
        item.add_marker(pytest.mark.skip(reason=reason))


def load(name: str, full: str = "") -> ModuleType:
    """A module of this directory, known by its full name to all others."""
    full = full or f"browser_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """The module that writes runs."""
    return runs


@pytest.fixture(scope="session")
def still_tab() -> ModuleType:
    """The module that shows runs at one moment."""
    return load("still_tab")


@dataclass
class TensorBoard:
    """TensorBoard in a process of its own, on a port of its own choosing."""

    logdir: Path
    arguments: Sequence[str] = ()
    url: str = ""
    process: subprocess.Popen[str] | None = None
    said: list[str] = field(default_factory=list)

    def start(self, port: int = 0) -> TensorBoard:
        """Start it, and return once it says where it listens."""
        self.process = subprocess.Popen(
            [
                sys.executable, "-c", PROGRAM, "--logdir", str(self.logdir), "--host", "127.0.0.1",
                "--port", str(port), "--supervisor_refresh_secs", "0.5", *self.arguments,
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        listening = threading.Event()
        threading.Thread(target=self._listen, args=(listening,), daemon=True).start()
        assert listening.wait(PATIENCE_MS / 1000), "".join(self.said)
        assert self.url, "".join(self.said)
        # Until the runs have been read answers are 503, of which a browser complains.
        self.fetch("runs", lambda body: b'"reading":null' in body.replace(b" ", b""))
        return self

    def _listen(self, listening: threading.Event) -> None:
        assert self.process is not None and self.process.stderr is not None
        with self.process.stderr as stderr:
            for line in stderr:
                self.said.append(line)
                if found := STARTED.search(line):
                    self.url = found[1]
                    listening.set()
        listening.set()

    def kill(self) -> None:
        """End it without notice."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.split(":")[2].split("/")[0])

    def fetch(self, path: str, is_read: Callable[[bytes], bool] = lambda body: True) -> bytes:
        """The body of an answer of the plugin's, once what it is of has been read: while it is not, it may be a 503."""
        pause, deadline = threading.Event(), time.monotonic() + PATIENCE_MS / 1000
        address = f"{self.url}/data/plugin/supervisor/{path}"
        while True:
            try:
                with urllib.request.urlopen(address, timeout=PATIENCE_MS / 1000) as answer:
                    body: bytes = answer.read()
                if is_read(body):
                    return body
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
            assert time.monotonic() < deadline, path
            pause.wait(0.05)

    def address(self, hosted: bool, dark: bool = False, **state: Any) -> str:
        """The tab's address in a state: ``run="a/b", x="step"``; within TensorBoard's page, or its frame by itself."""
        own = urlencode(state, doseq=True)
        if not hosted:
            return f"{self.url}/data/plugin_entry.html?name=supervisor#{own}"
        query = "?darkMode=true" if dark else ""
        return f"{self.url}/{query}#supervisor" + (f"&p.supervisor.s={quote(own, safe='')}" if own else "")


@pytest.fixture(scope="module")
def tensorboard() -> Iterator[Callable[..., TensorBoard]]:
    """Returns a function that starts a TensorBoard on a logdir; they end with the module."""
    started: list[TensorBoard] = []

    def start(logdir: Path, *arguments: str) -> TensorBoard:
        started.append(TensorBoard(logdir, arguments))
        return started[-1].start()

    yield start
    for item in started:
        item.kill()


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A Chromium, for the files of this directory that come one after the other."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(CHROMIUM_ARGUMENTS))
        yield running
        running.close()


class Tab:
    """The Supervisor tab; keeps every complaint of the browser.

    Args:
        hosted: within TensorBoard's page; else the frame that TensorBoard makes for it, without TensorBoard around,
            under the same policies and in a tenth of the time.
    """

    def __init__(self, browser: Any, hosted: bool = False, **how: Any) -> None:
        self.hosted = hosted
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **how})
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        # On a busy machine scalars are not read in time, and are asked for again.
        self.excused = ["503.*/supervisor/(tags|scalars)"]
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))

    def _on_console(self, message: Any) -> None:
        where = str(message.location.get("url"))
        if where.endswith("/favicon.ico"):  # a frame has none
            return
        # TensorBoard's own page warns of its own libraries.
        if message.type == "error" or (message.type == "warning" and "plugin" in where):
            self.complaints.append(f"{message.type}: {message.text} ({where})")

    def open(self, board: TensorBoard, dark: bool = False, **state: Any) -> Tab:
        """Go to the tab in a state, and wait until it shows something. A page that is there already follows a link."""
        document, _, there = board.address(self.hosted, dark, **state).partition("#")
        if not self.hosted and self.page.url.partition("#")[0] == document:
            for link in ("" if "view" in state or "run" in state else "view=compare", there):
                self.page.evaluate(GO, link)  # by another page: what was opened or typed on the one before is gone
        else:
            self.page.goto("about:blank")
            self.page.goto(f"{document}#{there}")
        self.find(".main > :not([aria-busy])").first.wait_for()
        return self

    @property
    def frame(self) -> Any:
        """The tab's own frame."""
        return self.page.frame_locator("iframe") if self.hosted else self.page

    def find(self, selector: str, **how: Any) -> Any:
        """Elements of the tab."""
        return self.frame.locator(selector, **how)

    def inside(self) -> Any:
        """The frame in which scripts of the tab run."""
        if not self.hosted:
            return self.page.main_frame
        return next(frame for frame in self.page.frames if "plugin_entry" in frame.url)

    def drawn(self) -> None:
        """Wait until what has come by now is drawn."""
        self.inside().evaluate(DRAWN)

    def whole(self) -> Tab:
        """Wait for what a run's page asks for after the rest, and draws: checkpoints and curves. The run has both."""
        self.find("[aria-label='Checkpoints'] tbody tr").first.wait_for()
        self.find(".chart .muted", has_text="point").first.wait_for()
        self.find(".chart .muted", has_not_text="point").first.wait_for(state="detached")
        self.drawn()
        return self

    def rows(self) -> list[str]:
        """Names of the runs in sight, from top to bottom, once the filter has been applied."""
        self.find(".runs[aria-busy=false]").wait_for()
        found: list[str] = self.inside().evaluate(
            """() => [...document.querySelectorAll('.body .row:not([hidden])')]
                .sort((a, b) => a.getAttribute('aria-rowindex') - b.getAttribute('aria-rowindex'))
                .map(row => row.querySelector('.run-name').textContent)"""
        )
        return found

    def hovers(self, lowest_px: int = 10_000) -> dict[str, str]:
        """What comes up while the pointer crosses the timeline, or its lowest part: the whole text by title."""
        self.drawn()
        found: dict[str, str] = self.inside().evaluate(
            """lowest => {
                const canvas = document.querySelector('.timeline-canvas');
                const box = canvas.getBoundingClientRect();
                const found = {};
                for (let y = Math.max(4, box.height - lowest); y < box.height; y += 11) {
                    for (let x = 118; x < box.width; x += 5) {
                        const at = {clientX: box.left + x, clientY: box.top + y, bubbles: true};
                        canvas.dispatchEvent(new PointerEvent('pointermove', at));
                        const tooltip = document.querySelector('.tooltip:not([hidden])');
                        if (tooltip) found[tooltip.querySelector('strong').textContent] = tooltip.innerText;
                    }
                }
                return found;
            }""",
            lowest_px,
        )
        return found

    @contextlib.contextmanager
    def printing(self) -> Iterator[None]:
        """As while Chromium prints: it says so, then uses the style of paper."""
        self.page.set_viewport_size(PAPER)
        self.inside().evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.page.emulate_media(media="print")
        yield
        self.page.emulate_media(media="screen")
        self.inside().evaluate("window.dispatchEvent(new Event('afterprint'))")

    def cut(self) -> list[str]:
        """What is not seen in full."""
        found: list[str] = self.inside().evaluate(CUT)
        return found

    def beyond(self) -> list[str]:
        """What sticks out of the window; tables may, in boxes that scroll."""
        found: list[str] = self.inside().evaluate(BEYOND)
        return found

    def violations(self) -> list[str]:
        """What axe finds wrong, in words."""
        if not AXE.exists():
            if os.environ.get("CI") == "true":
                pytest.fail("axe-core is not installed: scripts/build-frontend")
            pytest.skip("axe-core is not installed: scripts/build-frontend")
        self.inside().evaluate(AXE.read_text())
        found: list[str] = self.inside().evaluate(
            """async () => (await axe.run(document)).violations.flatMap(
                rule => rule.nodes.map(node => `${rule.id}: ${node.target} ${node.failureSummary}`))"""
        )
        # The document's own head is TensorBoard's.
        return [text for text in found if not text.startswith("page-has-heading-one")]

    def excuse(self, pattern: str) -> None:
        """Complaints that belong to the test."""
        self.excused.append(pattern)

    def check(self) -> None:
        """Fail where the browser had anything to complain of since the last check."""
        left = [text for text in self.complaints if not any(re.search(pattern, text) for pattern in self.excused)]
        self.complaints.clear()
        assert left == []

    def close(self) -> None:
        """Close it, and fail where the browser had anything to complain of."""
        with contextlib.suppress(Exception):
            self.context.close()
        self.check()


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Returns a function that opens a tab; fails the test on any error of the console or violation of a policy."""
    opened: list[Tab] = []

    def open_one(**how: Any) -> Tab:
        opened.append(Tab(browser, **how))
        return opened[-1]

    yield open_one
    for item in opened:
        item.close()


@pytest.fixture(scope="module")
def one_tab(browser: Any) -> Iterator[Tab]:
    """A tab for all tests of a module."""
    made = Tab(browser, permissions=["clipboard-read", "clipboard-write"])
    yield made
    made.close()


@pytest.fixture
def shown(one_tab: Tab) -> Iterator[Tab]:
    """The tab that the tests of a module share, where they need none of their own: each goes to a state of it."""
    yield one_tab
    one_tab.check()


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], logdir: Path) -> Any:
    """TensorBoard as most have it, on the module's logdir."""
    return tensorboard(logdir)

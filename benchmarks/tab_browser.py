"""What the tab feels like: first paint, opening a long run, frames while zooming, bytes shipped.

A real Chromium without a display (drawing is done by the processor, not by a graphics card) on a real TensorBoard,
which has read the runs by then. Times are taken in the page, from its own clock.

    python -m benchmarks.tab_browser [--quick]
"""

from __future__ import annotations

import gzip
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table
from benchmarks.tab import MANY_RUNS, TAG, WITH, serving, write

STATIC = Path(__file__).parents[1] / "tb_plugin" / "static"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
PATIENCE_MS = 120_000
BYTES_GOAL_KB = 70.0
FRAME_GOAL_MS = 1000 / 60

# Resolves with the page's clock once a frame has been painted in which the condition held.
PAINTED = """() => new Promise(done => {
    const look = () => requestAnimationFrame(CONDITION ? () => done(performance.now()) : look);
    look();
})"""
WHEEL = """async ([selector, count]) => {
    const canvas = document.querySelector(selector);
    const box = canvas.getBoundingClientRect();
    const frame = () => new Promise(requestAnimationFrame);
    const times = [];
    let before = await frame();
    for (let i = 0; i < count; i++) {
        const deltaY = i % 60 < 30 ? -60 : 60;
        const where = {clientX: box.left + box.width * 0.6, clientY: box.top + 30};
        const how = {deltaY, ctrlKey: true, bubbles: true, cancelable: true};
        canvas.dispatchEvent(new WheelEvent('wheel', {...how, ...where}));
        const now = await frame();
        times.push(now - before);
        before = now;
    }
    return times;
}"""
LISTED = "document.querySelector('.body .run-name')?.textContent"
DRAWN = "document.querySelector('.chart .muted')?.textContent.includes('points')"


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    yield _bytes()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("tab_browser: Chromium is missing; on Debian: apt-get install chromium", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as scratch, browser_of(chromium) as browser:
        yield from _overview(Path(scratch), browser, 500 if quick else MANY_RUNS, 1 if quick else 5)
        yield from _run(Path(scratch), browser, *((50_000, 5_000) if quick else (1_000_000, 100_000)), quick)


@contextmanager
def browser_of(chromium: str) -> Iterator[Any]:
    """Return a browser without a display."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield browser
        browser.close()


def _bytes() -> Row:
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in STATIC.glob("*.js")) / 1000
    goal = f"below {BYTES_GOAL_KB:.0f} kB"
    return Row("tab, browser", "bytes shipped, gzipped", "kB", size, {}, goal, size < BYTES_GOAL_KB)


def _overview(scratch: Path, browser: Any, count: int, times: int) -> Iterator[Row]:
    logdir = scratch / "many"
    for number in range(count):
        write(logdir / f"run-{number:05d}", 3)
    with serving(WITH, logdir) as served:
        served.runs(count)
        first: list[float] = []
        for _ in range(times):
            page = page_of(browser)
            page.goto(f"{served.url}data/plugin_entry.html?name=supervisor")
            first.append(page.evaluate(PAINTED.replace("CONDITION", LISTED)))
            page.close()
        yield Row("tab, browser", "first paint", "ms", statistics.median(first), {}, "", None, f"{count:,} runs")


def _run(scratch: Path, browser: Any, points: int, saves: int, quick: bool) -> Iterator[Row]:
    logdir = scratch / "long"
    write(logdir / "long", points, saves)
    with serving(WITH, logdir) as served:
        served.runs(1)
        page = page_of(browser)
        size = f"{points:,} scalars, {saves:,} checkpoints"
        for what in ("a long run opened, its scalars read", "a long run opened again"):
            page.goto("about:blank")
            page.goto(f"{served.url}data/plugin_entry.html?name=supervisor#run=long&tag={TAG}")
            took = page.evaluate(PAINTED.replace("CONDITION", DRAWN))
            yield Row("tab, browser", what, "ms", took, {}, "", None, size)
        frames = page.evaluate(WHEEL, [".timeline-canvas", 60 if quick else 300])
        median, slow = statistics.median(frames), statistics.quantiles(frames, n=20)[-1]
        note = f"95 of 100 frames within {slow:.1f} ms"
        met = median < FRAME_GOAL_MS * 1.05
        yield Row("tab, browser", "a frame while it is zoomed", "ms", median, {}, "60 frames/s", met, note)
        page.close()


def page_of(browser: Any) -> Any:
    """Return a new page, as large as a laptop's."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    return page


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

"""What views of many runs feel like: curves laid over each other, and the timeline of a night.

As `benchmarks.tab_browser`, in whose browser and by whose clock: TensorBoard has read the runs before the page is
opened. The processor time of a frame is that of all of Chromium's processes: other work on the machine hardly changes
it, while it does change the time from frame to frame.

    python -m benchmarks.tab_views [--quick]
"""

from __future__ import annotations

import math
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Row, print_table
from benchmarks.tab import TAG, WITH, Served, serving, write
from benchmarks.tab_browser import PAINTED, WHEEL, browser_of, page_of
from benchmarks.trained import write_night

AREA = "tab, many runs"
COMPARED, NIGHT = 12, 10_000
TIMES, FRAMES = 5, 300
FIRST_PAINT_MS, FRAME_MS, WORST_FRAME_MS = 1500.0, 17.0, 34.0
NIGHT_PAINT_MS = 1000.0
OVERLAID = (
    f"document.querySelector('.compare-page .chart .muted')?.textContent.includes('{COMPARED} runs')"
    " && !document.querySelector('.compare-page .chart .muted').textContent.includes('being read')"
)
LANES = (
    "document.querySelector('[aria-label=Timeline]:not([aria-busy]) .lanes-canvas')?.width > 100"
    " && document.querySelector('[aria-label=Timeline] .lanes-spacer').clientHeight > 100"
)
SCROLL = """async ([selector, count]) => {
    const box = document.querySelector(selector);
    const frame = () => new Promise(requestAnimationFrame);
    const most = box.scrollHeight - box.clientHeight;
    const times = [];
    let before = await frame();
    for (let i = 0; i < count; i++) {
        box.scrollTop = most * (i % 100) / 100;
        const now = await frame();
        times.push(now - before);
        before = now;
    }
    return times;
}"""


def rows(quick: bool) -> Iterator[Row]:
    """Measure."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("tab_views: Chromium is missing; on Debian: apt-get install chromium", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as scratch, browser_of(chromium) as browser:
        yield from _compare(Path(scratch, "sweep"), browser, 50_000 if quick else 1_000_000, quick)
        yield from _timeline(Path(scratch, "night"), browser, 500 if quick else NIGHT, quick)


def _compare(logdir: Path, browser: Any, points: int, quick: bool) -> Iterator[Row]:
    names = [f"lr-{number}" for number in range(COMPARED)]
    for number, name in enumerate(names):
        write(logdir / name, points, values=_loss(number, points))
    state = "&".join(["view=compare", *(f"with={number}~{name}" for number, name in enumerate(names)), f"tag={TAG}"])
    note = f"{COMPARED} runs, {points:,} scalars each, one tag"
    with serving(WITH, logdir) as board:
        board.runs(COMPARED)
        took = _painted(board, browser, state, OVERLAID)
        yield Row(AREA, "curves of runs that were not looked at before", "ms", took, {}, "", None, note)
        yield from _first_paint("curves overlaid", board, browser, state, OVERLAID, FIRST_PAINT_MS, note, quick)
        page = _opened(board, browser, state, OVERLAID)
        yield from _frames("the curves are zoomed", page, WHEEL, ".compare-page .chart-canvas", note, quick)
        page.close()


def _timeline(logdir: Path, browser: Any, count: int, quick: bool) -> Iterator[Row]:
    write_night(logdir, count, time.time())
    note = f"{count:,} runs of one night"
    with serving(WITH, logdir) as board:
        board.runs(count, pause_secs=1.0)
        yield from _answers(board, note)
        yield from _first_paint("timeline", board, browser, "view=timeline", LANES, NIGHT_PAINT_MS, note, quick)
        page = _opened(board, browser, "view=timeline", LANES)
        yield from _frames("the timeline is zoomed", page, WHEEL, ".lanes-canvas", note, quick)
        for button in page.locator(".lanes [aria-expanded=false]").all():
            button.click()
        yield from _frames("the timeline is scrolled", page, SCROLL, ".lanes", note, quick)
        page.close()


def _answers(board: Served, note: str) -> Iterator[Row]:
    now = time.time()
    for what, route in (("timeline, its answer", "timeline"), ("timeline, incidents in sentences", "incidents")):
        took = board.milliseconds(f"data/plugin/supervisor/{route}?from={now - 12 * 3600}&to={now}", 5)
        yield Row(AREA, what, "ms", took, {}, "", None, note)


def _loss(seed: int, points: int) -> list[float]:
    """Return a noisy curve that falls."""
    noise = random.Random(seed).random
    return [2.3 * math.exp(-4 * step / points) + 0.12 + 0.02 * seed + 0.1 * noise() for step in range(points)]


def _opened(board: Served, browser: Any, state: str, condition: str) -> Any:
    page = page_of(browser)
    page.goto(f"{board.url}data/plugin_entry.html?name=supervisor#{state}")
    page.evaluate(PAINTED.replace("CONDITION", condition))
    return page


def _painted(board: Served, browser: Any, state: str, condition: str) -> float:
    page = page_of(browser)
    page.goto(f"{board.url}data/plugin_entry.html?name=supervisor#{state}")
    took: float = page.evaluate(PAINTED.replace("CONDITION", condition))
    page.close()
    return took


def _first_paint(
    what: str, board: Served, browser: Any, state: str, condition: str, goal_ms: float, note: str, quick: bool
) -> Iterator[Row]:
    took = [_painted(board, browser, state, condition) for _ in range(1 if quick else TIMES)]
    median = statistics.median(took)
    note = f"{note}; the best of {len(took)}: {min(took):,.0f} ms"
    yield Row(AREA, f"first paint: {what}", "ms", median, {}, f"within {goal_ms:g} ms", median <= goal_ms, note)


def _frames(what: str, page: Any, script: str, selector: str, note: str, quick: bool) -> Iterator[Row]:
    count = 60 if quick else FRAMES
    before = _processor_secs()
    frames = page.evaluate(script, [selector, count])
    busy_ms = (_processor_secs() - before) / count * 1e3
    slow, worst = statistics.quantiles(frames, n=20)[-1], max(frames)
    goal = f"95 of 100 within {FRAME_MS:g} ms, none above {WORST_FRAME_MS:g} ms"
    said = f"{note}; median {statistics.median(frames):.1f} ms, the worst {worst:.1f} ms"
    met = slow <= FRAME_MS and worst <= WORST_FRAME_MS
    yield Row(AREA, f"a frame while {what}, 95 of 100 within", "ms", slow, {}, goal, met, said)
    yield Row(AREA, f"processor time of a frame while {what}", "ms", busy_ms, {}, "", None, note)


def _processor_secs() -> float:
    """Return the processor time of all processes that this one has started, and theirs; of those that ended, too."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, left = 0, list(children.get(os.getpid(), ()))
    while left:
        pid = left.pop()
        total += ticks[pid]
        left += children.get(pid, ())
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print_table(rows("--quick" in sys.argv))

"""Takes the pictures of docs/images, of made-up runs in a real browser: python tests/browser/pictures.py"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))

from conftest import CHROMIUM, CHROMIUM_ARGUMENTS, ROOT, TensorBoard
from scripted_run import Scripted
from scripted_runs import checkpoint_file, newest_saves, write_big_cluster, write_cluster, write_stormy

sys.path.append(str(Path(__file__).parents[1] / "voice"))
from stories import STORIES

IMAGES = ROOT / "docs" / "images"
AHEAD_SECS = 200
"""The runs' events end this long after now, so that no run falls silent while pictures are taken."""
REASONS = (
    "Another number of workers: 2 at the save, 4 now.",
    "Another version of numpy: 2.4.1 at the save, 2.5.0 now.",
)
"""Why a resume of the pictures was not exact."""


def write_runs(logdir: Path) -> None:
    """Runs in all states, with and without a cluster."""
    now = time.time() + AHEAD_SECS
    write_stormy(logdir / "mnist" / "dropout-0.3", now, reasons=REASONS)
    write_stormy(logdir / "mnist" / "dropout-0.5", now - 6600, running=False, reasons=REASONS)
    write_cluster(logdir / "ctr" / "wide-and-deep", now)
    write_cluster(logdir / "ctr" / "wide", now - 9000, running=False)
    write_big_cluster(logdir / "ctr" / "hundred-workers", now)
    Scripted(logdir / "resnet50" / "lr-1.0", now - 8600).train(300).stop("error", error="ValueError: NaN loss")
    for number, rate in enumerate((10.7, 10.1, 9.5)):
        name = ("lr-0.1", "lr-0.03", "lr-0.01")[number]
        Scripted(logdir / "resnet50" / name, now - 4000 - number * 700, rate=rate).train(3996 + number * 700)
    Scripted(logdir / "bert" / "large-bf16", now - 14_400, rate=1.1).train(5000)
    Scripted(logdir / "gan" / "progressive", now - 3600, rate=3.9).train(2200, failing_saves=True).stall(
        1400, ended=False
    )
    for ended in (logdir / "resnet50" / "lr-1.0", logdir / "bert" / "large-bf16"):
        for step in newest_saves(ended, 3):  # what is in no checkpoint on disk is not kept
            checkpoint_file(ended, step)
    Scripted(logdir / "vae" / "beta-8", now - 18_600, rate=22.2).train(1700).stop("requested")
    Scripted(logdir / "vae" / "beta-4", now - 8700, rate=19.6).train(1800).stop()


TROUBLES = {
    "hangs at a line": "bert/large",
    "was killed": "resnet50/lr-1.0",
    "failed": "gan/progressive",
    "has a loss that is NaN": "gpt/lr-3e-4",
    "cannot save any more": "mnist/dropout-0.5",
    "is slow": "ctr/wide",
    "is restarted all the time": "vae/beta-8",
    "lost a worker": "ctr/wide-and-deep",
    "trains": "resnet50/lr-0.1",
    "did not resume exactly": "t5/small",
    "completed": "vae/beta-4",
    "was killed long ago": "vae/beta-1",
}
"""What happens to the runs of the list, and their names."""


def write_troubles(logdir: Path) -> None:
    """A run for each trouble, some that are fine, and some that are over."""
    now = time.time() + AHEAD_SECS
    for story, name in TROUBLES.items():
        STORIES[story].write(logdir / name, now)
        for step in newest_saves(logdir / name, 8):  # of the run with NaN, one from before
            checkpoint_file(logdir / name, step)


class Camera:
    """A browser that waits until the tab has drawn."""

    def __init__(self, browser: Any, board: TensorBoard) -> None:
        self.browser = browser
        self.board = board

    def take(
        self, name: str, width: int, height: int, scheme: str, at: tuple[str, float] | None = None, **state: Any
    ) -> None:
        """Take a picture, with the pointer on a row of the timeline, at a share of the width."""
        size = {"width": width, "height": height}
        page = self.browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=1)
        page.goto(self.board.address(hosted=False, **state))
        page.locator(".sentences, .row .run-name").first.wait_for()
        if "run" in state:
            page.locator(".chart .muted", has_text="points").first.wait_for()
        if at is not None:
            row = page.locator(".row-name", has_text=at[0]).first.bounding_box()
            page.mouse.move(at[1] * width, row["y"] + row["height"] / 2)
            page.locator(".tooltip").wait_for()
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.quantize(256, kmeans=1, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
        page.close()


def main() -> None:
    """Take all of them."""
    from playwright.sync_api import sync_playwright

    directory = Path(tempfile.gettempdir(), "demo")  # commands in the pictures name it
    directory.mkdir()
    with contextlib.ExitStack() as left, sync_playwright() as playwright:
        left.callback(shutil.rmtree, directory)
        os.chdir(directory)
        write_runs(Path("runs"))
        write_troubles(Path("troubles"))
        os.environ["PYTHONPATH"] = str(ROOT)
        boards = [TensorBoard(Path(logdir)).start() for logdir in ("runs", "troubles")]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(CHROMIUM_ARGUMENTS))
        try:
            camera, troubles = (Camera(browser, board) for board in boards)
            stormy, cluster = "mnist/dropout-0.3", "ctr/wide-and-deep"
            camera.take("tab-run", 1280, 800, "light", run=stormy)
            camera.take("tab-run-dark", 1280, 800, "dark", at=("Sessions", 0.5), run=stormy, smooth=0.6, tag="loss")
            camera.take("tab-cluster", 1280, 860, "light", at=("worker:1", 0.92), run=cluster)
            camera.take("tab-narrow", 375, 1000, "light", run=cluster)
            troubles.take("tab-runs", 1280, 1040, "light")
            troubles.take("tab-runs-dark", 1280, 1040, "dark")
            troubles.take("tab-runs-narrow", 375, 1000, "light")
            troubles.take("tab-hang", 1280, 720, "light", run="bert/large")
            troubles.take("tab-hang-narrow", 375, 1000, "dark", run="bert/large")
        finally:
            browser.close()
            for board in boards:
                board.kill()
        os.chdir(ROOT)


if __name__ == "__main__":
    main()

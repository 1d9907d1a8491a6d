"""Takes the pictures of docs/images, of made-up runs in a real browser: python tests/browser/pictures.py

Those of a run are taken of its report.
"""

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

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from conftest import CHROMIUM, CHROMIUM_ARGUMENTS, DRAWN, ROOT
from still_tab import StillTab

from tests.story.runs import checkpoint_file, newest_saves, write_cluster, write_stormy
from tests.story.stories import STORIES

IMAGES = ROOT / "docs" / "images"
REASONS = (
    "Another number of workers: 2 at the save, 4 now.",
    "Another version of numpy: 2.4.1 at the save, 2.5.0 now.",
)
"""Why a resume of the pictures was not exact."""


def write_runs(logdir: Path, now: float) -> None:
    """Runs with and without a cluster."""
    write_stormy(logdir / "mnist" / "dropout-0.3", now, reasons=REASONS)
    write_cluster(logdir / "ctr" / "wide-and-deep", now)


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


def write_troubles(logdir: Path, now: float) -> None:
    """A run for each trouble, some that are fine, and some that are over."""
    for story, name in TROUBLES.items():
        STORIES[story].write(logdir / name, now)
        for step in newest_saves(logdir / name, 8):  # of the run with NaN, one from before
            checkpoint_file(logdir / name, step)


class Camera:
    """A browser that waits until a page has drawn."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def take(
        self,
        name: str,
        shown: StillTab,
        run: str | None,
        size: tuple[int, int],
        scheme: str = "light",
        state: str = "",
        at: tuple[str, float] | None = None,
    ) -> None:
        """Take a picture of a run's report, or of the list; with the pointer on a row of the timeline, at a share of
        the width."""
        width, height = size
        page = self.browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        if run is None:
            shown.open(page, state)
            page.locator(".row .run-name").first.wait_for()
        else:
            file = Path("report.html").absolute()
            file.write_bytes(shown.report(run).page)
            page.goto(f"{file.as_uri()}#{state}")
            page.locator(".chart .muted", has_text="points").first.wait_for()
        if at is not None:
            row = page.locator(".row-name", has_text=at[0]).first.bounding_box()
            page.mouse.move(at[1] * width, row["y"] + row["height"] / 2)
            page.locator(".tooltip").wait_for()
        page.evaluate(DRAWN)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.quantize(256, kmeans=1, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
        page.close()


def main() -> None:
    """Take all of them."""
    from playwright.sync_api import sync_playwright

    directory = Path(tempfile.gettempdir(), "demo")  # commands in the pictures name it
    directory.mkdir()
    with sync_playwright() as playwright, contextlib.ExitStack() as left:
        left.callback(shutil.rmtree, directory)
        os.chdir(directory)
        left.callback(os.chdir, ROOT)
        now = time.time()
        write_runs(Path("runs"), now)
        write_troubles(Path("troubles"), now)
        runs, troubles = (StillTab(Path(logdir), now) for logdir in ("runs", "troubles"))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(CHROMIUM_ARGUMENTS))
        left.callback(browser.close)
        take = Camera(browser).take
        stormy, cluster, hang = "mnist/dropout-0.3", "ctr/wide-and-deep", "bert/large"
        take("tab-run", runs, stormy, (1280, 960))
        take("tab-run-dark", runs, stormy, (1280, 960), "dark", "smooth=0.6&tag=loss", ("Sessions", 0.5))
        take("tab-cluster", runs, cluster, (1280, 860), at=("worker:1", 0.92))
        take("tab-narrow", runs, cluster, (375, 1000))
        take("tab-hang", troubles, hang, (1280, 720))
        take("tab-hang-narrow", troubles, hang, (375, 1000), "dark")
        take("tab-runs", troubles, None, (1280, 1040))
        take("tab-runs-narrow", troubles, None, (375, 1000))


if __name__ == "__main__":
    main()

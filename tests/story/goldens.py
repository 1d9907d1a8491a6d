"""Write what every view shows of every story, to compare changes: python -m tests.story.goldens OUT

One file per run and view below OUT; ``diff -r BEFORE AFTER`` shows what a change made different. Runs: the stories, 200
generated lives, the real logdirs where they are present. All at one fixed time.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from supervisor_core.cli.inspect import run_object
from supervisor_core.cli.look import SeenRun
from supervisor_core.cli.overview import overview
from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.render import TEXT
from supervisor_core.run.judge.findings import findings
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin.index import Index
from tb_plugin.logdirs import Logdir
from tb_plugin.report import report_page
from tb_plugin.run_data import details
from tests.conftest import StillClock
from tests.story.lives import random_life
from tests.story.scene import MINUTE, Scene
from tests.story.stories import STORIES

NOW = 1_700_000_000.0
LIVES = 200
REAL = Path(__file__).parents[3] / "shared" / "logdirs"


def write_views(logdir: Path, now: float, out: Path) -> None:
    """Write JSON, text, metrics, the tab's answers and the report of each run of a logdir."""
    clock: Any = StillClock(now)

    def write(name: str, view: str, text: str) -> None:
        path = out / f"{name.replace('/', '__')}.{view}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(str(logdir), "LOGDIR") + "\n")

    def pretty(value: Any) -> str:
        return json.dumps(value, indent=1, sort_keys=True, default=str)

    watched = LogdirWatch(str(logdir), clock=clock).refresh().runs
    seen = [SeenRun(each, findings(each, now)) for each in watched.values()]
    write("logdir", "overview", "\n".join(line.plain for line in overview(seen, now)))
    for each in seen:
        write(each.run.name, "inspect.json", pretty(run_object(each, now)))
    exporter = Exporter([LogdirWatch(str(logdir), clock=clock)], clock=clock)
    exporter.refresh()
    page = exporter.scrape(TEXT).decode().splitlines()
    write("logdir", "metrics", "\n".join(line for line in page if re.match(r"supervisor_(?!exporter_|build_)", line)))
    index = Index([Logdir(str(logdir))], 5.0, lambda path: LogdirWatch(path, clock=clock))
    index.refresh()
    view = index.view()
    with tempfile.TemporaryDirectory() as static:
        (Path(static) / "index.js").write_text('export { render } from "./tab-ABCD2345.js";')
        (Path(static) / "tab-ABCD2345.js").write_text("")
        for name, run in view.runs.items():
            write(name, "tab.json", pretty({**json.loads(details(view, run)), "generation": None}))
            write(name, "line.json", pretty(json.loads(run.line)))
            made = report_page(name, watched[name], now, str(logdir), Path(static)).page.decode()
            (text,) = re.findall(r'id="supervisor-report">([^<]*)</script>', made)
            write(name, "report.json", pretty(json.loads(text)))


def write_life(seed: int, directory: Path, out: Path) -> None:
    """Write one generated life minute by minute, the messages about it, and the views at its end."""
    life = random_life(directory / "run", NOW, seed, 0.5 + seed % 4 / 2)
    scene = Scene(directory, NOW)
    while scene.now < life.until + 10 * MINUTE:
        life(scene.now + MINUTE)
        scene.look(scene.now + MINUTE)
    out.mkdir(parents=True)
    said = [f"{at - NOW:.0f} {event}".replace(str(directory), "LOGDIR") for at, event in scene.told]
    (out / "messages").write_text("\n".join(said) + "\n")
    write_views(directory, scene.now, out)


def main() -> None:
    """Write the goldens of this checkout."""
    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        goes_on = {name: story.write(root / "stories" / name, NOW) for name, story in STORIES.items()}
        write_views(root / "stories", NOW, out / "stories")
        scene = Scene(root / "stories", NOW)
        scene.look()
        scene.go_on(10 * MINUTE, *goes_on.values())
        said = sorted(f"{at - NOW:.0f} {event}".replace(str(root), "ROOT") for at, event in scene.told)
        (out / "stories" / "messages").write_text("\n".join(said) + "\n")
        for seed in range(LIVES):
            write_life(seed, root / f"life-{seed}", out / f"life-{seed:03d}")
    for real in sorted(path for path in REAL.iterdir() if path.is_dir()) if REAL.is_dir() else ():
        write_views(real, NOW, out / f"real-{real.name}")


if __name__ == "__main__":
    main()

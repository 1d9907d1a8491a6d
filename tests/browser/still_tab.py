"""`StillTab`: the tab, and reports, of runs at one moment, without TensorBoard: nothing depends on the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from werkzeug.datastructures import MultiDict

from supervisor_core.events.index import RunIndex
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from tb_plugin.backend import ROUTES, Backend
from tb_plugin.http import Arguments
from tb_plugin.index import Index
from tb_plugin.logdirs import Logdir
from tb_plugin.report import Report, report_page
from tb_plugin.scalar_store import ScalarStore
from tb_plugin.static_files import static_files
from tests.conftest import StillClock

URL = "http://tab.example/"
PAGE = """<!doctype html><html><head><meta name="viewport" content="width=device-width"></head>
<body><script type="module" src="start.js"></script></body></html>"""
START = 'import { render } from "./index.js"; render();'


@dataclass
class StillTab:
    """Runs below a logdir, as they are at a moment."""

    logdir: Path
    now: float
    runs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clock = StillClock(self.now)
        self.runs = dict(LogdirWatch(str(self.logdir), clock=clock).refresh().runs)
        index = Index([Logdir(str(self.logdir))], 5.0, lambda path: LogdirWatch(path, clock=clock))
        index.refresh()
        store = ScalarStore(lambda path: RunIndex(path, path), 1 << 30, 3600.0)
        self.backend = Backend(index, store)

    def report(self, run: str) -> Report:
        """The report of a run."""
        return report_page(run, self.runs[run], self.now, str(self.logdir))

    def open(self, page: Any, state: str = "") -> None:
        """Open the tab on a page of Playwright's, whose time stands still."""
        page.route(f"{URL}**", self._answer)
        page.clock.set_fixed_time(self.now)
        page.goto("about:blank")
        page.goto(f"{URL}#{state}")

    def _answer(self, route: Any) -> None:
        asked = urlsplit(route.request.url)
        name = asked.path.strip("/")
        if name in ROUTES:
            arguments = MultiDict(parse_qsl(asked.query, keep_blank_values=True))
            answer = ROUTES[name](self.backend, Arguments(arguments, {}))
            route.fulfill(body=answer.body, content_type=answer.content_type)
        elif name in ("", "start.js"):
            route.fulfill(body=START if name else PAGE, content_type="text/javascript" if name else "text/html")
        elif (file := static_files().get(name)) is not None:
            route.fulfill(body=file.body, content_type=file.content_type)
        else:
            route.fulfill(status=404)

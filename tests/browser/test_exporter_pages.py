"""The exporter's pages in a real browser: they look as they should, and a site of another name reads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor_core.metrics.exporter import Exporter
from supervisor_core.metrics.web import Web
from supervisor_core.run.watch.logdir_watch import LogdirWatch


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """An exporter's pages."""
    with Web(Exporter([LogdirWatch(str(tmp_path))]), ":0") as serving:
        yield serving


def test_the_page_of_alerts_has_its_style(browser: Any, web: Web) -> None:
    """The policy allows what the page needs: there is no complaint."""
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(f"http://{web.address}/alerts")
    assert page.evaluate("getComputedStyle(document.querySelector('td')).borderTopStyle") == "solid"
    assert [text for text in complaints if "favicon" not in text] == []
    page.close()


def test_a_page_of_another_name_reads_nothing(browser: Any, web: Web) -> None:
    """A site whose name leads to this machine, as by DNS rebinding, gets a refusal."""
    page = browser.new_page()
    port = web.address.rpartition(":")[2]
    assert page.goto(f"http://evil.example:{port}/metrics").status == 421
    assert "supervisor_" not in page.content()
    assert page.goto(f"http://localhost:{port}/metrics").status == 200
    assert "supervisor_" in page.content()
    page.close()

"""A run in a notebook: the report in a frame of its own, which runs no name as code and changes nothing around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import supervisor_core

HOSTILE = "</iframe><script>alert(1)</script>"


def test_a_run_is_shown_as_its_report(tab: Callable[..., Any], scripted: ModuleType, tmp_path: Path) -> None:
    """With its findings and curves; the sandbox of the frame forbids nothing that the report does."""
    scripted.Scripted(tmp_path / "logs", time.time() - 300, tags=("loss", HOSTILE)).train(200).stop(
        "error", error=HOSTILE
    )
    cell = supervisor_core.open_run(tmp_path / "logs")._repr_html_()
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><title>Notebook</title><h1>Cell</h1>{cell}<p id=after>after</p>")
    shown = tab()
    shown.page.goto(page.as_uri())
    frame = shown.page.frame_locator("iframe")
    frame.locator(".run-page:not([aria-busy]) .chart").first.wait_for()
    assert HOSTILE in frame.locator(".run-body").first.inner_text()
    assert shown.page.locator("#after").inner_text() == "after"
    frame.locator("button[value=step]").click()
    frame.locator("button[aria-label='Zoom in']").click()
    with shown.page.expect_download() as saved:
        frame.locator("button[aria-label='Download checkpoints as CSV']").click()
    assert saved.value.suggested_filename.endswith(".csv")

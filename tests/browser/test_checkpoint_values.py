"""The run page says what the numbers in a checkpoint are, and what changed since the one before, when it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from supervisor_core.training import supervise


class Model:
    """Two arrays, of which a step changes one; the last step spoils it."""

    def __init__(self) -> None:
        self.state = {"head": np.ones(4), "body": np.ones(9)}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


@pytest.fixture(scope="module")
def board(tensorboard: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TensorBoard on a run with four checkpoints: one is deleted, the last has NaN."""
    logdir = tmp_path_factory.mktemp("logs")
    model = Model()
    with supervise(logdir / "run", state={"model": model}, save_secs=None, save_steps=1, max_to_keep=3) as run:
        for step in run.steps(4):
            model.state = {**model.state, "head": model.state["head"] * (1.5 if step < 3 else np.nan)}
            run.wait_until_saved()
    return tensorboard(logdir)


def test_values_of_a_checkpoint(tab: Callable[..., Any], board: Any) -> None:
    """A button in each row whose files are there, by mouse and by keyboard; its answer stays in the row when the table
    is made again, is announced, and is copied as the command that shows all tensors."""
    shown = tab().open(board, run="run")
    table = shown.find("[aria-label='Checkpoints'] tbody")
    cells = table.locator("tr td:nth-child(5)")
    cells.nth(3).wait_for()
    assert cells.count() == 4 and cells.last.get_by_role("button").count() == 0
    button = shown.frame.get_by_role("button", name="Check the values at step 4")
    button.focus()
    button.press("Enter")
    newest = cells.nth(0).get_by_role("status")
    newest.get_by_text("✕ NaN or infinity in 1 of 2 tensors").wait_for()
    assert "first 'objects/model/head': 4 NaN of 4" in newest.inner_text()
    shown.frame.get_by_role("button", name="Check the values at step 3").click()
    cells.nth(1).get_by_text("✓ all finite").wait_for()
    assert "Since ckpt-2: 1 changed, " in cells.nth(1).inner_text()
    assert " frozen; relative change " in cells.nth(1).inner_text()
    shown.frame.get_by_role("button", name="Check the values at step 2").click()
    cells.nth(2).get_by_text("✓ all finite").wait_for()
    assert "Since" not in cells.nth(2).inner_text()  # the one before is deleted
    assert cells.nth(1).get_by_role("button", name="Copy the command").is_visible()
    assert shown.violations() == []


def test_what_cannot_be_read_is_said(tab: Callable[..., Any], board: Any) -> None:
    """A checkpoint that cannot be read is one sentence in its row; no answer, a sentence and the button again."""
    shown = tab()
    nothing = dict.fromkeys(("before", "values", "change", "change_problem", "command"))
    damaged = json.dumps({"problem": "It is damaged <b>here</b>.", **nothing})
    shown.page.route(
        "**/checkpoint_values?*", lambda route: route.fulfill(content_type="application/json", body=damaged)
    )
    shown.open(board, run="run")
    cells = shown.find("[aria-label='Checkpoints'] tbody tr td:nth-child(5)")
    shown.frame.get_by_role("button", name="Check the values at step 4").click()
    cells.nth(0).get_by_text("✕ It is damaged <b>here</b>.").wait_for()
    shown.page.unroute("**/checkpoint_values?*")
    refused = '{"error": "The run has no such checkpoint."}'
    shown.page.route("**/checkpoint_values?*", lambda route: route.fulfill(status=404, body=refused))
    shown.excuse("404")
    again = shown.frame.get_by_role("button", name="Check the values at step 3")
    again.click()
    cells.nth(1).get_by_text("The run has no such checkpoint.").wait_for()
    assert again.is_visible()

"""The program at the top of each adapter's page, as it is written there: it trains, and ends as a completed session.

That of PyTorch's tutorial is typed in `tests/docs/test_console.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from trial import run_of

ROOT = Path(__file__).parents[2]
NEEDS = {
    "keras": "keras",
    "torch-howto": "torch",
    "lightning": "lightning",
    "transformers": "accelerate",
    "jax": "optax",
}
"""Each page, and what its program imports last."""
LOGDIR = re.compile(r'"/tmp/[\w-]+-example"')


@pytest.mark.timeout(600)  # a framework's first import, on a busy machine
@pytest.mark.parametrize("name", [name for name in NEEDS if (ROOT / "docs" / f"{name}.md").exists()])
def test_the_program_of_a_page_trains(tmp_path: Path, name: str, starter_of: Callable[..., Any]) -> None:
    """With nothing but its logdir replaced."""
    page = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    needed, name = NEEDS[name], name.partition("-")[0]
    if find_spec(name) is None or find_spec(needed) is None:
        pytest.skip(f"{name} is not installed: make test-frameworks has it")
    program = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    assert f"from supervisor_core.{name} import" in program
    run = tmp_path / "run"
    program, replaced = LOGDIR.subn(repr(str(run)), program)
    assert replaced == 1
    done = starter_of(name).run(["-c", program], cwd=str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = run_of(run)
    (session,) = found.sessions
    assert session.outcome == "completed" and session.last_step
    assert [saved.step for saved in found.checkpoints if saved.error is None][-1] == session.last_step


def test_the_line_of_the_first_page_is_enough(tmp_path: Path, starter_of: Callable[..., Any]) -> None:
    """The loop that README.md shows for PyTorch, with the lines that it adds, trains and is recorded."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed: make test-frameworks has it")
    readme = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"^## One line added\n\n```diff\n(.*?)```", readme, re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^[+ ](.*)\n", block, re.MULTILINE)
    run = tmp_path / "run"
    made = """import torch
loader = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(5)]
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
    program = made + "\n".join(lines).replace("/tmp/torch/first", str(run))
    done = starter_of("torch").run(["-c", program], cwd=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (session,) = run_of(run).sessions
    assert session.outcome == "completed" and session.last_step == 5 * 20

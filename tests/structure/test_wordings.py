"""What is said of a thing that happens to a run stands once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from supervisor_core.run.judge.wordings import WORDINGS

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "supervisor_core" / "run" / "judge" / "wordings.py"
PRODUCT = [path for part in ("supervisor_core", "tb_plugin") for path in sorted((ROOT / part).rglob("*.py"))]


def literals(path: Path) -> Iterator[str]:
    """Yield the texts in a module, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


LIKE = frozenset(("The newest checkpoint is", "TensorFlow's session was lost", "was stopped by a signal"))
"""How a warning of a training, the condition of a kind, and a pause of a process are worded: something else."""


def bare(text: str) -> str:
    """Return a text without what joins it to its neighbours."""
    return text.strip(" .,:;")


def wordings() -> Iterator[str]:
    """Yield the parts of all forms that are long enough to be known again: what stands between two gaps."""
    for wording in WORDINGS.values():
        for form in asdict(wording).values():
            parts = [bare(part) for part in re.split(r"\{\w+\}", form)]
            yield from (part for part in parts if len(part.split()) >= (2 if len(parts) == 1 else 4))


def test_no_wording_stands_elsewhere() -> None:
    """To change one, one file is changed. Long ones are found within other texts, too."""
    said = set(wordings()) - LIKE
    assert {"saves again", "Checkpoints cannot be saved"} <= said
    long = re.compile("|".join(re.escape(text) for text in sorted(said) if len(text.split()) >= 5))
    again = [
        (str(path.relative_to(ROOT)), text)
        for path in PRODUCT
        if path != TABLE
        for text in literals(path)
        if bare(text) in said or long.search(text)
    ]
    assert again == []


def test_every_text_is_said() -> None:
    """The table has no text of a finding that no rule gives."""
    given = {text for path in TABLE.parent.glob("*.py") if path != TABLE for text in literals(path)}
    assert {kind for kind, wording in WORDINGS.items() if wording.text} <= given

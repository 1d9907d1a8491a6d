"""`tb-supervisor diff` compares two checkpoints; `verify --values` says which has NaN."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from click.testing import Result

Run = Callable[..., Result]


def tensor(writer: Any, *values: float) -> Any:
    """Numbers, as the writer takes them."""
    return writer.Tensor("float32", (len(values),), struct.pack(f"<{len(values)}f", *values))


@pytest.fixture
def logdir(tmp_path: Path, writer: Any) -> Path:
    """A run with two checkpoints; one tensor changes, one is frozen, one comes and one goes."""
    run = tmp_path / "run"
    kept = {"frozen": tensor(writer, 1, 2), "global_step": writer.step(100)}
    writer.write_bundle(run / "model.ckpt-100", {"old": tensor(writer, 1), "w": tensor(writer, 3, 4), **kept})
    kept["global_step"] = writer.step(200)
    writer.write_bundle(run / "model.ckpt-200", {"new": tensor(writer, 1), "w": tensor(writer, 3, 4.5), **kept})
    (run / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-200"\n')
    return run


def test_what_changed(run: Run, logdir: Path) -> None:
    """A line for the whole, one for the values, and a table: what changed most above what is frozen; status 0."""
    before, after = logdir / "model.ckpt-100", logdir / "model.ckpt-200"
    result = run("diff", before, after)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{before} -> {after}"
    assert lines[1] == "2 changed, 1 frozen, 1 added, 1 missing; relative change 9.13 %"
    assert lines[2] == "values of model.ckpt-200: all finite; 3 float32, 1 int64; norm 5.93717"
    words = [line.split() for line in lines[4:]]
    assert [row[:3] for row in words] == [
        ["new", "added", "-"], ["old", "missing", "-"], ["global_step", "changed", "100"], ["w", "changed", "10"],
        ["frozen", "frozen", "0"],
    ]  # fmt: skip
    assert "->" in words[0][3]


def test_json(run: Run, logdir: Path) -> None:
    """One JSON object with every tensor."""
    result = run("diff", "--json", logdir / "model.ckpt-100", logdir / "model.ckpt-200.index")
    shown = json.loads(result.stdout)
    assert {key: shown[key] for key in ("v", "counts", "values")} == {
        "v": 1,
        "counts": {"changed": 2, "frozen": 1, "added": 1, "missing": 1},
        "values": "all finite; 3 float32, 1 int64; norm 5.93717",
    }
    (w,) = (item for item in shown["tensors"] if item["name"] == "w")
    assert w["kind"] == "changed" and w["relative"] == w["distance"] / 5 == 0.1
    assert shown["relative"] == pytest.approx(0.5 / 30**0.5)


def test_many_tensors(run: Run, tmp_path: Path, writer: Any) -> None:
    """The table has the first twenty, and says how many there are besides; no name reaches the terminal as it is."""
    names = [f"t{number}\x1b[2J" for number in range(25)]
    for step in (1, 2):
        writer.write_bundle(tmp_path / f"model.ckpt-{step}", {name: tensor(writer, step) for name in names})
    result = run("diff", tmp_path / "model.ckpt-1", tmp_path / "model.ckpt-2")
    assert result.stdout.count(" 100 % ") == 20
    assert result.stdout.endswith("... and 5 tensors more; --json has all\n")
    assert "\x1b[2J" not in result.stdout and "t1\\x1b[2J" in result.stdout


def test_wrong_input(run: Run, logdir: Path, tmp_path: Path) -> None:
    """A run instead of its checkpoint is an error that names those; so is what is no checkpoint; status 2."""
    result = run("diff", logdir, logdir / "model.ckpt-200")
    assert result.exit_code == 2
    assert f"name one of them: {logdir}/model.ckpt-200, {logdir}/model.ckpt-100." in result.stderr
    result = run("diff", logdir / "model.ckpt-100", tmp_path / "none")
    assert result.exit_code == 2 and "There is no checkpoint" in result.stderr
    numpy.savez(tmp_path / "own.npz", weights=numpy.zeros(2))
    result = run("diff", tmp_path / "own.npz", logdir / "model.ckpt-200")
    assert "'weights.npy' is no file in a folder; expected a file of torch.save" in result.stderr


def test_damage(run: Run, logdir: Path) -> None:
    """A checkpoint that cannot be read is one line; status 1."""
    (logdir / "model.ckpt-200.data-00000-of-00001").write_bytes(b"")
    result = run("diff", logdir / "model.ckpt-100", logdir / "model.ckpt-200")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ") and "bytes early" in result.stderr and not result.stdout


def test_verify_finds_nan(run: Run, logdir: Path, writer: Any) -> None:
    """`verify --values` names the first tensor with NaN, below its checkpoint; status 1. Without it nothing is said."""
    nan = {"a": tensor(writer, 1), "w": tensor(writer, float("nan"), 4, float("inf")), "global_step": writer.step(300)}
    assert run("verify", "--values", logdir).exit_code == 0
    writer.write_bundle(logdir / "model.ckpt-300", nan)
    result = run("verify", "--values", logdir)
    assert result.exit_code == 1
    assert (
        "  NaN      NaN or infinity in 1 of 3 tensors, first 'w': 1 NaN and 1 infinite of 3; 2 float32, 1 int64; "
    ) in result.stdout
    assert result.stdout.count("\n  values   all finite; 3 float32, 1 int64; norm ") == 2
    listed = json.loads(run("verify", "--values", "--json", logdir).stdout)["runs"][0]["checkpoints"]
    (shown,) = (item for item in listed if item["step"] == 300)
    assert shown["values"]["tensors"][2] == {
        "name": "w", "dtype": "float32", "shape": [3], "nan": 1, "inf": 1, "norm": 4.0, "min": 4.0, "max": 4.0,
    }  # fmt: skip
    assert (
        shown["values"]["summary"].startswith("NaN or infinity in 1 of 3 tensors") and shown["values_problem"] is None
    )
    plain = run("verify", logdir)
    assert plain.exit_code == 0 and "NaN" not in plain.stdout and "values" not in plain.stdout


def test_values_that_cannot_be_read(run: Run, logdir: Path) -> None:
    """A good checkpoint whose values are not read is said with the reason; status 1: NaN was not looked for."""
    data = logdir / "model.ckpt-200.data-00000-of-00001"
    data.rename(logdir / "data")
    data.symlink_to(logdir / "data")
    result = run("verify", "--values", logdir)
    assert result.exit_code == 1
    assert "  good     step 200 " in result.stdout and "  unread   " in result.stdout
    assert "is a symbolic link" in result.stdout

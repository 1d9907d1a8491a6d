from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
from forked import ForkServer

SOURCE = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    """The example, where TensorFlow and the data are."""
    pytest.importorskip("tensorflow")
    pytest.importorskip("sklearn")
    import examples.digits

    return examples.digits


def test_each_epoch_sees_every_image_once(digits: ModuleType) -> None:
    """The batches of an epoch are disjoint, and another epoch, or seed, has another order."""
    epochs = [[digits.batch_of(epoch * 7 + place, 4, 30, seed=1) for place in range(7)] for epoch in range(2)]
    for epoch in epochs:
        chosen = [int(image) for batch in epoch for image in batch]
        assert len(set(chosen)) == len(chosen) == 28
        assert set(chosen) <= set(range(30))
    assert [list(batch) for batch in epochs[0]] != [list(batch) for batch in epochs[1]]
    assert list(digits.batch_of(0, 4, 30, seed=1)) != list(digits.batch_of(0, 4, 30, seed=2))


def test_it_runs_under_the_original_too(digits: ModuleType, tmp_path: Path, fork_server: ForkServer) -> None:
    """Without the import and ``options=`` it is a program for ``tf.train.Supervisor``, and runs as one."""
    text = SOURCE.read_text()
    for ours, theirs in (
        ("from supervisor_core import Options, Supervisor\n", "Supervisor = tf.train.Supervisor\n"),
        ("            options=Options(metrics_address=args.metrics_address),\n", ""),
    ):
        assert text.count(ours) == 1
        text = text.replace(ours, theirs)
    program, log = tmp_path / "theirs.py", tmp_path / "log"
    program.write_text(text)
    run = [str(program), "--logdir", str(tmp_path / "logs"), "--steps", "30", "--save-secs", "1"]
    with log.open("wb") as file, closing(fork_server.start(run, stderr=file.fileno())) as process:
        facts = [json.loads(line) for line in process.stdout]
        assert process.wait() == 0, log.read_text()
    assert facts[0] == {"start_step": 0, "steps_per_epoch": 93}
    assert {"end_step": 30} in facts  # not always the last: the service evaluates until the session is closed
    assert any("test_accuracy" in fact and fact["step"] == 30 for fact in facts)

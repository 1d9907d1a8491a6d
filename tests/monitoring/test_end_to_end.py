"""From a training to whoever is on call, through real servers: exactly the right alert arrives, and goes again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from monitoring_end_to_end import FIRING, RESOLVED, Trainer, assert_planned_stop_is_silent
from monitoring_servers import Prometheus, Webhook


@pytest.fixture
def program() -> Path:
    """The training: one that needs no tensorflow."""
    return Path(__file__).with_name("trainer.py")


@pytest.mark.timeout(600)
def test_exactly_the_right_alert_arrives(prometheus: Prometheus, trainer: Trainer, webhook: Webhook) -> None:
    """Stopped, killed, hung in a step, too slow: the stall arrives, once, and resolves; a planned stop is silent."""
    trainer.start()
    trainer.is_known(prometheus)

    trainer.send(signal.SIGSTOP)
    assert webhook.next() == FIRING
    trainer.send(signal.SIGCONT)
    assert webhook.next() == RESOLVED

    trainer.send(signal.SIGKILL)
    assert webhook.next() == FIRING
    trainer.close()
    trainer.start()
    assert webhook.next() == RESOLVED

    trainer.tell("hold")
    assert webhook.next() == FIRING
    trainer.tell("go")
    assert webhook.next() == RESOLVED

    trainer.tell("hold")
    assert webhook.next() == FIRING
    for _ in range(2):  # so slow that each step takes longer than it may
        trainer.tell("step")
        assert [webhook.next(), webhook.next()] == [RESOLVED, FIRING]
    trainer.tell("go")
    assert webhook.next() == RESOLVED

    trainer.tell("stop")
    trainer.expect("stopped")
    assert_planned_stop_is_silent(prometheus, webhook)

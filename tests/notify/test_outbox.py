"""What a service gets and when, and the outbox with its threads: nothing holds up the caller or another service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from supervisor_core.base.clock import SystemClock
from supervisor_core.notify import outbox as module
from supervisor_core.notify.message import Message
from supervisor_core.notify.outbox import (
    GIVE_UP_SECS,
    LONGEST_RETRY_SECS,
    MOST_WAITING,
    Delivery,
    Outbox,
    wait_at_end,
)
from supervisor_core.notify.services import Service
from tests.conftest import StillClock
from tests.notify.receivers import WAIT_SECS
from tests.notify.samples import Kept, event, restart


class Hangs(Service):
    """Hangs in each send until it is freed."""

    name = "hangs"

    def __init__(self) -> None:
        self.free = threading.Event()
        self.entered = threading.Event()

    def send(self, message: Message) -> None:
        self.entered.set()
        self.free.wait(WAIT_SECS)


class Each(Kept):
    """Takes each event for itself."""

    takes_each = True


def outbox(*services: Service, **changed: Any) -> Outbox:
    """An outbox that sends at once."""
    values: dict[str, Any] = {"limit_per_hour": 20, "gather_secs": 0.0, **changed}
    return Outbox(services, **values)


def test_each_service_gets_the_message() -> None:
    """What is put is sent to all."""
    services = [Kept("a"), Kept("b")]
    sent = outbox(*services)
    sent.put([event()])
    for each in services:
        each.wait(1)
    assert sent.close(WAIT_SECS)
    assert [each.runs for each in services] == [["tuning"], ["tuning"]]


def test_an_event_that_came_before_is_left_out() -> None:
    """The same id is sent once."""
    service = Kept()
    sent = outbox(service)
    sent.put([event()])
    service.wait(1)
    sent.put([event(), event("other")])
    assert sent.close(WAIT_SECS)
    assert service.runs == ["tuning", "other"]


def test_a_service_that_hangs_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """`put` returns, the other service gets its message, and the end does not wait longer than it may."""
    hangs, well = Hangs(), Kept()
    sent = outbox(hangs, well, limit_per_hour=10_000)
    sent.put([event("a")])
    assert hangs.entered.wait(WAIT_SECS)
    arrived = well.wait(1)
    for number in range(5000):
        sent.put([event(f"r{number}")])
    while sum(len(message.events) for message in arrived) <= 1000:
        arrived = well.wait(len(arrived) + 1)
    assert not sent.close(0.2)
    assert "hangs: 1,000 changes not sent in time; the first: r0: lost" in caplog.text
    hangs.free.set()


def test_an_end_that_is_under_way_is_made_shorter(caplog: pytest.LogCaptureFixture) -> None:
    """It may wait for an hour, and a signal comes meanwhile: it waits no longer, and says once what was not sent."""
    waits, closed = threading.Event(), list[bool]()

    class Watched(SystemClock):
        calls = 0

        def monotonic(self) -> float:
            if threading.current_thread().name == "closes":
                self.calls += 1
                if self.calls == 2:  # after the first the time is set, after this one it is waited for
                    waits.set()
            return super().monotonic()

    hangs = Hangs()
    sent = outbox(hangs, clock=Watched())
    thread = threading.Thread(target=lambda: closed.append(sent.close(3600.0)), name="closes", daemon=True)
    sent.put([event()])
    assert hangs.entered.wait(WAIT_SECS)
    thread.start()
    assert waits.wait(WAIT_SECS)
    sent.begin_closing(0.0)
    thread.join(WAIT_SECS)
    assert closed == [False]
    assert caplog.messages == ["hangs: the last message may not have been sent in time"]
    hangs.free.set()


def test_a_service_that_raises_anything_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    """An error of a library is logged by its type: its text may hold a secret."""

    class Raises(Kept):
        def send(self, message: Message) -> None:
            if self.attempts == 0:
                self.attempts += 1
                raise RuntimeError("https://hooks.example/hunter2")
            super().send(message)

    service = Raises()
    sent = outbox(service)
    sent.put([event()])
    service.wait(1)
    assert sent.close(WAIT_SECS)
    assert "an error of the type RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


def test_an_error_of_our_own_does_not_end_a_services_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes after it is sent."""

    failed = threading.Event()

    def fail(*_: object, **__: object) -> Message:
        monkeypatch.undo()
        failed.set()
        raise AssertionError("hunter2")

    monkeypatch.setattr(module, "message_of", fail)
    service = Kept("notify 1 (json)")
    sent = outbox(service)
    sent.put([event("a")])
    assert failed.wait(WAIT_SECS)
    sent.put([event("b")])
    assert sent.close(WAIT_SECS)
    assert service.runs == ["b"]
    assert "notify 1 (json): an error of the type AssertionError" in caplog.text and "hunter2" not in caplog.text


def test_the_end_sends_what_waits() -> None:
    """Neither the time to gather nor the limit keeps back the last message."""
    service = Kept()
    sent = outbox(service, gather_secs=3600.0, limit_per_hour=1)
    sent.put([event("a")])
    assert sent.close(WAIT_SECS)
    assert service.runs == ["a"]


def test_the_end_tries_again_and_says_what_was_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    """A service that fails at the end is tried again while there is time; then it is left to the next process."""
    service = Kept("notify 1 (json)")
    service.fails = "it answers 500"
    sent = outbox(service)
    sent.put([event()])
    service.wait_for_attempts(1)
    assert not sent.close(1.5)
    assert service.attempts >= 2
    assert "notify 1 (json): 1 change not sent in time; the first: tuning: lost" in caplog.text
    left = sent.left()
    service, again = Kept("notify 1 (json)"), Kept("notify 2 (json)")
    sent = outbox(service, again)
    sent.resume(left)
    sent.put([event()])
    assert sent.close(WAIT_SECS)
    assert service.runs == again.runs == ["tuning"], "one that is new gets what still holds"


def test_a_service_that_takes_each_gets_each_once(caplog: pytest.LogCaptureFixture) -> None:
    """For a command nothing is merged, limited or tried again; what fails is one line."""
    service = Each()
    sent = outbox(service, limit_per_hour=1, gather_secs=3600.0)
    sent.put([event(f"r{number}") for number in range(10)])
    service.wait(10)
    service.fails = "it ended with status 3"
    sent.put([event("bad")])
    service.wait_for_attempts(11)
    service.fails = None
    assert sent.close(WAIT_SECS)
    assert service.runs == [f"r{number}" for number in range(10)] and service.attempts == 11
    assert caplog.text.count("not done: it ended with status 3: bad: lost") == 1


def test_what_is_sent_is_logged_with_the_services_name(
    caplog: pytest.LogCaptureFixture, begun_threads: Callable[[str], list[threading.Thread]]
) -> None:
    """One line a message; the threads end with the outbox."""
    caplog.set_level(logging.INFO, "supervisor_core")
    sent = outbox(Kept("notify 1 (slack)"))
    sent.put([event()])
    assert sent.close(WAIT_SECS)
    assert caplog.messages == ["notify 1 (slack): sent: tuning: lost at step 2,500 on gpu-7"]
    assert begun_threads("notify 1") == []


def delivery(service: Kept, clock: StillClock, *, limit: int = 20) -> Delivery:
    """A delivery that gathers for 10 s."""
    return Delivery(service, limit_per_hour=limit, gather_secs=10.0, clock=clock)


def run_until(clock: StillClock, until: float, *deliveries: Delivery) -> None:
    """Let time pass, and do what falls due."""
    while True:
        due = min(each.due_in() for each in deliveries)
        if clock.now + due > until:
            clock.now = until
            return
        clock.now += due
        for each in deliveries:
            if not each.due_in():
                each.deliver()


@pytest.fixture
def clock() -> StillClock:
    """Some time of some day."""
    return StillClock(1_800_000_000.0)


def test_what_comes_within_seconds_is_one_message(clock: StillClock) -> None:
    """The first event waits for others for the gather time, and for no longer."""
    service = Kept()
    sent = delivery(service, clock)
    start = clock.now
    sent.add([event("a")])
    assert sent.due_in() == 10.0
    clock.now += 6.0
    sent.add([event("b")])
    assert sent.due_in() == 4.0
    assert not sent.deliver()
    run_until(clock, start + 60.0, sent)
    assert [[each.run for each in message.events] for message in service.messages] == [["a", "b"]]


def test_a_flood_becomes_messages_within_the_limit(clock: StillClock) -> None:
    """A change every 5 s for two hours: no hour has more messages than the limit, and each change is in one."""
    service = Kept()
    sent = delivery(service, clock, limit=4)
    start, times = clock.now, []
    for second in range(0, 7200, 5):
        run_until(clock, start + second, sent)
        sent.add([restart(f"r{second}", at=clock.now)])
        times += [clock.now] * (len(service.messages) - len(times))
    run_until(clock, start + 7200.0 + 3700.0, sent)
    assert len(service.messages) <= 4 * 3 and max(sum(at <= each < at + 3600.0 for each in times) for at in times) <= 4
    assert sum(len(message.events) for message in service.messages) == 1440


def test_only_pages_hold_back_a_page(clock: StillClock, caplog: pytest.LogCaptureFixture) -> None:
    """After a flood of restarts a page goes at once, with what waits. No hour has more messages with a page, or more
    without one, than the limit; what that holds back is one line in the log."""
    service = Kept()
    sent = delivery(service, clock, limit=4)
    start = clock.now
    for minute in range(30):
        run_until(clock, start + 60.0 * minute, sent)
        sent.add([restart(f"r{minute}")])
    assert len(service.messages) == 4
    assert caplog.messages == ["kept: 4 messages without a page in an hour: the next waits 56 min 10 s"]
    sent.add([event("dead")])
    run_until(clock, clock.now + 5.0, sent)
    sent.add([event("dead, too")])
    run_until(clock, clock.now + 60.0, sent)
    assert [each.run for each in service.messages[4].events[:3]] == ["dead", "dead, too", "r4"]
    for number in range(5):
        sent.add([restart(f"with page {number}"), event(f"page {number}")])
        run_until(clock, clock.now + 60.0, sent)
    assert len(service.messages) == 8, "no fifth message with a page within the hour"
    assert caplog.messages[-1] == "kept: 4 messages with a page in an hour: the next waits 56 min 5 s"
    run_until(clock, start + 3609.0, sent)
    assert len(service.messages) == 8, "and no fifth of the others"
    run_until(clock, start + 3610.0, sent)
    assert [each.run for each in service.messages[8].events] == ["page 3", "page 4", "with page 3", "with page 4"]
    assert len({line.partition(":")[2].partition(":")[0] for line in caplog.messages}) == 2


def test_too_many_events_keep_the_urgent_ones(clock: StillClock) -> None:
    """Memory is bounded: what is least urgent is only counted."""
    service = Kept()
    service.fails = "it hangs"
    sent = delivery(service, clock)
    for number in range(3 * MOST_WAITING):
        sent.add([restart(f"r{number}")])
    sent.add([event("dead")])
    service.fails = None
    run_until(clock, clock.now + 60.0, sent)
    (message,) = service.messages
    assert len(message.events) == MOST_WAITING and message.events[0].run == "dead"
    assert f"And {2 * MOST_WAITING + 1:,} more" in message.body


def test_a_run_that_says_much_keeps_back_no_other(clock: StillClock) -> None:
    """What another run says after a thousand notices of one is neither left out nor below them."""
    service = Kept()
    sent = delivery(service, clock)
    said = [
        event("loud", kind="notice", text=f"loud: {number}", at=float(number)) for number in range(3 * MOST_WAITING)
    ]
    sent.add(said[: 2 * MOST_WAITING])
    sent.add([event("quiet")])
    sent.add(said[2 * MOST_WAITING :])
    run_until(clock, clock.now + 20.0, sent)
    (message,) = service.messages
    assert [line.partition(":")[0] for line in message.body.splitlines()[:3]] == ["loud", "quiet", "loud"]
    assert f"And {3 * MOST_WAITING - 9:,} more" in message.body


def test_another_users_runs_hold_nothing_back(clock: StillClock) -> None:
    """After thousands of pages about one user's runs, which use up the limit and fill what waits, a page about another
    user's run is sent at once, and is second in it."""
    service = Kept()
    sent = delivery(service, clock)
    for begin in range(30):
        sent.add([event(f"theirs/{begin}-{number}", owner=2, at=float(begin)) for number in range(100)])
        run_until(clock, clock.now + 20.0, sent)
    flood = len(service.messages)
    sent.add([event("ours", owner=1)])
    run_until(clock, clock.now + 20.0, sent)
    (message,) = service.messages[flood:]
    assert "ours, " in message.title and [each.run for each in message.events].index("ours") == 1


@pytest.mark.parametrize("runs", [1, 3000])
def test_a_command_gets_the_events_of_each_user_in_turn(runs: int, clock: StillClock) -> None:
    """However many events of one user's runs wait, another user's is one of the next two."""
    service = Kept()
    service.takes_each = True
    sent = delivery(service, clock)
    sent.add([event(f"theirs/{number % runs}", owner=2, at=float(number)) for number in range(3000)])
    sent.deliver()
    sent.add([event("ours", owner=1)])
    for _ in range(2):
        sent.deliver()
    assert "ours" in [message.events[0].run for message in service.messages]


def test_a_service_that_fails_is_tried_again_then_logged(clock: StillClock, caplog: pytest.LogCaptureFixture) -> None:
    """The waits are doubled up to 5 minutes; after an hour it is given up and logged once; the next message says how
    much was left out."""
    caplog.set_level(logging.INFO, "supervisor_core")
    service = Kept()
    service.fails = "it answers 500"
    sent = delivery(service, clock)
    sent.add([event("a")])
    start = clock.now
    run_until(clock, start + 10.0 + 1 + 2 + 4 + 8, sent)
    assert service.attempts == 5
    run_until(clock, start + GIVE_UP_SECS + 2 * LONGEST_RETRY_SECS, sent)
    assert 15 <= service.attempts <= 22 and not sent.waiting
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert caplog.messages[1] == "kept: 1 change given up after 1 h; the first: a: lost at step 2,500 on gpu-7"
    service.fails = None
    sent.add([event("b")])
    run_until(clock, clock.now + 600.0, sent)
    assert service.messages[0].title == "b: lost at step 2,500 on gpu-7 (and 1 more)"
    assert "And 1 more since 08:00 UTC." in service.messages[0].body
    assert caplog.messages[2] == "kept takes messages again"


def test_at_the_end_it_is_tried_for_as_long_as_there_is_time(clock: StillClock) -> None:
    """In an hour the waits grow as before; in a few seconds there are some attempts."""
    for left, least, most in ((3000.0, 12, 30), (5.0, 4, 10)):
        service = Kept()
        service.fails = "it answers 500"
        sent = delivery(service, clock)
        sent.add([event()])
        until = clock.now + left
        while clock.now < until:
            assert not sent.deliver(is_last=True)
            clock.now += wait_at_end(sent.next_try_in(), until - clock.now)
        assert least <= service.attempts <= most


def test_events_that_come_meanwhile_go_with_the_next_attempt(clock: StillClock) -> None:
    """A service that comes back gets one message with all."""
    service = Kept()
    service.fails = "no connection"
    sent = delivery(service, clock)
    for number in range(5):
        sent.add([event(f"r{number}")])
        run_until(clock, clock.now + 100.0, sent)
    service.fails = None
    run_until(clock, clock.now + LONGEST_RETRY_SECS, sent)
    assert [len(message.events) for message in service.messages] == [5]


def test_what_an_earlier_process_has_not_sent_is_tried_once_more_at_least(clock: StillClock) -> None:
    """It has waited since then: what is left of the hour is left, and of what is older one attempt."""
    first, second = Kept(), Kept()
    first.fails = second.fails = "no connection"
    killed, sent = delivery(first, clock), delivery(second, clock)
    killed.add([event("a")])
    run_until(clock, clock.now + 100.0, killed)
    left = killed.left()
    assert [(item.event.run, item.since) for item in left.unsent] == [("a", clock.now - 100.0)]
    clock.now += GIVE_UP_SECS
    sent.resume(left)
    run_until(clock, clock.now + 1.0, sent)
    assert second.attempts == 1 and not sent.waiting

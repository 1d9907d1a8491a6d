"""What a service gets, and when: gathered, limited, tried again, and by one watcher of several."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from supervisor_core.notify.claims import TAKE_OVER_SECS, Claims
from supervisor_core.notify.delivery import GIVE_UP_SECS, LONGEST_RETRY_SECS, MOST_WAITING, Delivery
from supervisor_core.notify.outbox import wait_at_end
from supervisor_core.notify.secret import Secret
from tests.conftest import StillClock
from tests.notify.samples import Kept, event, restart


def delivery(service: Kept, clock: StillClock, *, limit: int = 20, claims: Claims | None = None) -> Delivery:
    """A delivery that gathers for 10 s."""
    return Delivery(service, limit_per_hour=limit, gather_secs=10.0, claims=claims, clock=clock)


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


def test_pages_come_before_others_within_the_limit(clock: StillClock) -> None:
    """One of four messages is kept for pages: a flood of restarts leaves room for a run that is lost."""
    service = Kept()
    sent = delivery(service, clock, limit=4)
    start = clock.now
    for minute in range(30):
        run_until(clock, start + 60.0 * minute, sent)
        sent.add([restart(f"r{minute}")])
    assert len(service.messages) == 3
    sent.add([event("dead")])
    run_until(clock, clock.now + 5.0, sent)
    sent.add([event("dead, too")])
    run_until(clock, clock.now + 60.0, sent)
    assert len(service.messages) == 4
    assert service.messages[3].title.startswith("dead: lost at step 2,500 on gpu-7 (and ")
    assert service.messages[3].events[1].run == "dead, too", "pages are gathered as anything else"
    assert service.messages[3].events[0].run == "dead"
    sent.add([event("a fifth")])
    run_until(clock, start + 3600.0, sent)
    assert len(service.messages) == 4, "no fifth message within the hour"


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


def test_a_run_that_pages_all_the_time_delays_no_other(clock: StillClock) -> None:
    """It takes about half of an hour's messages, the next such run about half of what is left; one that has said
    nothing is sent at once, and stands first in its message."""
    service = Kept()
    sent = delivery(service, clock, limit=20)
    start = clock.now
    for runs in (["loud"], ["loud", "next"]):
        for _ in range(30):
            for run in runs:
                sent.add([event(run, at=clock.now)])
            run_until(clock, clock.now + 20.0, sent)
    assert len(service.messages) == 16
    assert len([message for message in service.messages if "next" in {each.run for each in message.events}]) == 5
    sent.add([event("quiet", at=clock.now)])
    run_until(clock, clock.now + 10.0, sent)
    assert len(service.messages) == 17 and service.messages[-1].title.endswith("Runs: quiet, next, loud.")
    run_until(clock, start + 3700.0, sent)
    assert len(service.messages) == 17 and not sent.waiting
    for _ in range(360):
        sent.add([event("loud", at=clock.now)])
        run_until(clock, clock.now + 10.0, sent)
    assert len(service.messages) == 17 + 11, "it goes on: as its messages leave the hour, others take their place"


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


def test_two_watchers_send_an_event_once(clock: StillClock, tmp_path: Path) -> None:
    """Each event is sent by one of the watchers that have a directory of claims in common."""
    services = [Kept(identity="ntfy://a"), Kept(identity="ntfy://a")]
    sent = [delivery(each, clock, claims=Claims(tmp_path, clock)) for each in services]
    for number in range(20):
        for each in sent if number % 2 else reversed(sent):
            each.add([event(f"r{number}")])
        run_until(clock, clock.now + 3.0, *sent)
    run_until(clock, clock.now + 400.0, *sent)
    assert sorted(services[0].runs + services[1].runs) == sorted(f"r{number}" for number in range(20))


def test_what_two_watchers_see_at_once_is_one_message(clock: StillClock, tmp_path: Path) -> None:
    """The one that comes second leaves all of it to the first, which has claimed only some of it by then."""
    first, second = Claims(tmp_path, clock), Claims(tmp_path, clock)
    service = Kept(identity="ntfy://a")
    sent = delivery(service, clock, claims=second)
    events = [event(f"r{number}") for number in range(50)]
    sent.add([*events, event("seen by the second only")])
    key = first.key(service.identity)
    first.take(events[0].id, key)
    run_until(clock, clock.now + 10.0, sent)
    for each in events[1:]:
        first.take(each.id, key)
    run_until(clock, clock.now + 10.0, sent)
    assert service.runs == ["seen by the second only"]
    for each in events:
        first.sent(each.id, key)
    run_until(clock, clock.now + 4000.0, sent)
    assert service.runs == ["seen by the second only"]


def test_another_service_gets_the_event_too(clock: StillClock, tmp_path: Path) -> None:
    """A claim is for a service: two watchers with different services send to both."""
    services = [Kept(identity="ntfy://a"), Kept(identity="ntfy://b")]
    sent = [delivery(each, clock, claims=Claims(tmp_path, clock)) for each in services]
    for each in sent:
        each.add([event()])
    run_until(clock, clock.now + 60.0, *sent)
    assert [each.runs for each in services] == [["tuning"], ["tuning"]]


def test_the_other_watcher_takes_over_from_one_that_died(clock: StillClock, tmp_path: Path) -> None:
    """A watcher that claimed an event and is gone: another one sends it within minutes."""
    dead, alive = Kept(identity="ntfy://a"), Kept(identity="ntfy://a")
    Claims(tmp_path, clock).take(event().id, Claims(tmp_path, clock).key(dead.identity))
    sent = delivery(alive, clock, claims=Claims(tmp_path, clock))
    sent.add([event()])
    run_until(clock, clock.now + TAKE_OVER_SECS - 1.0, sent)
    assert alive.runs == []
    run_until(clock, clock.now + 120.0, sent)
    assert alive.runs == ["tuning"]


def test_a_watcher_that_cannot_reach_the_service_leaves_it_to_the_other(clock: StillClock, tmp_path: Path) -> None:
    """One watcher has no way to the service: the other one sends the event, and the first does not send it again."""
    cut, well = Kept(identity="ntfy://a"), Kept(identity="ntfy://a")
    cut.fails = "no connection"
    first, second = (delivery(each, clock, claims=Claims(tmp_path, clock)) for each in (cut, well))
    first.add([event()])
    run_until(clock, clock.now + 15.0, first)
    second.add([event()])
    run_until(clock, clock.now + 1000.0, first, second)
    assert well.runs == ["tuning"]
    cut.fails = None
    run_until(clock, clock.now + 4000.0, first, second)
    assert (cut.runs, well.runs) == ([], ["tuning"]) and not first.waiting


def test_what_is_only_counted_is_left_to_another_watcher(clock: StillClock, tmp_path: Path) -> None:
    """One that was claimed for an attempt that failed, and is crowded out by what is more urgent."""
    service = Kept(identity="ntfy://a")
    service.fails = "no connection"
    sent, other = delivery(service, clock, claims=Claims(tmp_path, clock)), Claims(tmp_path, clock)
    crowded_out = restart("crowded out")
    sent.add([crowded_out])
    run_until(clock, clock.now + 10.0, sent)
    key = other.key(Secret("ntfy://a"))
    assert service.attempts == 1 and key is not None
    sent.add([event(f"r{number}") for number in range(MOST_WAITING)])
    assert crowded_out not in sent.waiting
    assert other.take(crowded_out.id, key) == "other"
    sent.deliver()
    assert other.take(crowded_out.id, key) == "mine"


def test_a_directory_that_is_there_later_is_used_from_then_on(clock: StillClock, tmp_path: Path) -> None:
    """By the name that other watchers have for the service, which takes a file of that directory."""
    directory = tmp_path / "claims"
    directory.write_text("")
    service = Kept(identity="ntfy://a")
    sent = delivery(service, clock, claims=Claims(directory, clock))
    sent.add([event("a")])
    run_until(clock, clock.now + 20.0, sent)
    directory.unlink()
    sent.add([event("b")])
    run_until(clock, clock.now + 20.0, sent)
    assert service.runs == ["a", "b"]
    other = Claims(directory, clock)
    key = other.key(Secret("ntfy://a"))
    assert key is not None and other.take(event("b").id, key) == "sent"


def test_without_a_directory_it_is_sent_twice_rather_than_never(
    clock: StillClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Claims that cannot be written are logged once, and hold up no message."""
    (tmp_path / "file").write_text("")
    service = Kept(identity="ntfy://token")
    sent = delivery(service, clock, claims=Claims(tmp_path / "file" / "claims", clock))
    for number in range(3):
        sent.add([event(f"r{number}")])
        run_until(clock, clock.now + 20.0, sent)
    assert service.runs == ["r0", "r1", "r2"]
    assert [record.levelname for record in caplog.records if "claims" in record.getMessage()] == ["WARNING"]

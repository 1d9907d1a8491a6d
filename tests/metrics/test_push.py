"""Metrics that are pushed: the same as are served, until the end and of it, whatever the receiver does."""

from __future__ import annotations

import logging
import math
import multiprocessing
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from supervisor_core.base.errors import OptionsError
from supervisor_core.metrics.collector import RunCollector
from supervisor_core.metrics.push import MetricsPusher, metrics_url
from supervisor_core.run.status import RunStatus
from tests.otlp_receiver import Answer, OtlpReceiver, Push

SECRET = "t0ken-0f-ada"
"""What no log may hold."""


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """A receiver that takes everything."""
    with OtlpReceiver() as receiving:
        yield receiving


def pusher(status: Callable[[], RunStatus], url: str, clock, interval_secs: float = 600.0) -> MetricsPusher:
    """A pusher of one run that has begun."""
    pushes = MetricsPusher(
        (RunCollector(lambda: [status()], clock=clock),),
        url,
        instance="node-1:3f2a",
        interval_secs=interval_secs,
        clock=clock,
    )
    assert pushes.start()
    return pushes


def served(status: RunStatus, clock) -> dict[str, float]:
    """What a scraper gets: name and labels -> value."""
    found = {}
    for family in RunCollector(lambda: [status], clock=clock).collect():
        for name, labels, value, *_ in family.samples:
            shown = {
                **labels,
                **({"le": "+Inf" if labels["le"] == "+Inf" else f"{float(labels['le']):g}"} if "le" in labels else {}),
            }
            text = ",".join(f'{label}="{shown[label]}"' for label in sorted(shown))
            found[f"{name}{{{text}}}" if text else name] = value
    return found


def test_what_is_pushed_is_what_is_served(receiver: OtlpReceiver, running: RunStatus, clock) -> None:
    """Every series has the name, the labels and the value that a scraper gets; all are of one moment."""
    pushes = pusher(lambda: running, receiver.url, clock)
    (push,) = receiver.wait_for(lambda found: found)
    assert push.values() == served(running, clock)
    assert {each.millis for each in push.samples} == {round(clock.wall() * 1000)}
    assert {(each.labels["job"], each.labels["instance"]) for each in push.samples} == {("training", "node-1:3f2a")}
    pushes.finish()
    assert pushes.wait(60.0)


def test_the_end_is_pushed(receiver: OtlpReceiver, running: RunStatus, clock) -> None:
    """The last push is of the moment at which the training has ended, however long the interval is; what is no longer
    served is ended, once."""
    now = running
    pushes = pusher(lambda: now, receiver.url, clock)
    receiver.wait_for(lambda found: found)
    now = replace(running, active=False, state="completed", session=replace(running.session, phase="stopped"))
    clock.now += 5
    pushes.finish()
    assert pushes.wait(60.0)
    last = receiver.full[-1]
    assert last.values() == served(now, clock)
    assert last.ended() == set(served(running, clock)) - set(served(now, clock))
    assert 'supervisor_phase{phase="training",run="mnist/train"}' in last.ended()
    assert all(math.isnan(each.value) for each in last.samples if each.is_end)


def test_it_is_said_once_which_series_end(receiver: OtlpReceiver, running: RunStatus, clock) -> None:
    """A series has one end, and only the last push is remembered: a run whose labels change for ever costs nothing."""
    names = iter(range(1_000_000))
    pushes = pusher(lambda: replace(running, run=f"run-{next(names)}"), receiver.url, clock, 0.001)
    found = receiver.wait_for(lambda found: len(found) >= 6)
    pushes.finish()
    pushes.wait(60.0)
    for before, after in pairwise(found):
        assert after.ended() == {text for text in before.values() if "run=" in text and not HISTOGRAM.match(text)}


HISTOGRAM = re.compile(r"\w+_(bucket|sum|count)\b")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(401, body=SECRET.encode()), r"it answers 401 .* OTEL_EXPORTER_OTLP_HEADERS"),
        (Answer(404), r"it answers 404 .* --web.enable-otlp-receiver"),
        (Answer(500, body=SECRET.encode()), r"it answers 500 \(Internal Server Error\)"),
        (Answer(503, {"Retry-After": "3600"}), r"it answers 503 \(Service Unavailable\)"),
        (Answer(599), r"it answers 599$"),
        (Answer(302, {"Location": f"http://127.0.0.1:1/?{SECRET}"}), r"it answers 302 .*: redirects are not followed"),
    ],
    ids=["401", "404", "500", "503", "599", "302"],
)
def test_a_refusal_is_said_once_and_without_a_secret(
    answer: Answer,
    said: str,
    running: RunStatus,
    clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is refused is in no log, however much is logged: no URL, no header, nothing of the answer. What works
    again is said, too."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"Authorization=Bearer%20{SECRET},malformed {SECRET}")
    answers = [answer]
    with caplog.at_level(logging.DEBUG), OtlpReceiver(lambda push: answers[0]) as receiver:
        host = receiver.url.removeprefix("http://")
        pushes = pusher(lambda: running, f"http://ada:{SECRET}@{host}/{SECRET}?token={SECRET}", clock, 0.001)
        receiver.wait_for(lambda found: len(found) >= 3)
        answers[0] = Answer()
        count = len(receiver.full)
        receiver.wait_for(lambda found: len(found) >= count + 3)
        pushes.finish()
        assert pushes.wait(60.0)
        assert all(SECRET in push.path for push in receiver.pushes)
    errors = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in errors] == ["supervisor_core"]
    assert_says(errors[0], f"Metrics cannot be pushed to {host}", said)
    assert [record.getMessage() for record in caplog.records if "again" in record.getMessage()] == [
        f"Metrics are pushed again to {host}, every 0.001 s"
    ]
    assert SECRET not in everything(caplog)


def assert_says(record: logging.LogRecord, begin: str, pattern: str) -> None:
    """Check a line of the log."""
    text = record.getMessage()
    assert text.startswith(begin) and re.search(pattern, text), text


def everything(caplog: pytest.LogCaptureFixture) -> str:
    """All that was logged, errors with their tracebacks."""
    return (
        "\n".join(f"{record.getMessage()} {record.args} {record.exc_info}" for record in caplog.records) + caplog.text
    )


def test_who_is_not_there_is_said_once(running: RunStatus, clock, caplog: pytest.LogCaptureFixture) -> None:
    """A port that nobody has: the system's own words, and that the end could not be pushed."""
    asked = threading.Semaphore(0)

    def status() -> RunStatus:
        asked.release()
        return running

    with caplog.at_level(logging.DEBUG), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without a listener: it refuses connections, and nobody else gets the port
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        pushes = pusher(status, f"http://{address}/?token={SECRET}", clock, 0.001)
        for _ in range(3):
            asked.acquire()
        pushes.finish()
        assert not pushes.wait(60.0)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"Metrics cannot be pushed to {address} (training continues): Connection refused",
        f"The end of the training could not be pushed to {address}: an alert may call it lost",
    ]
    assert SECRET not in everything(caplog)


def test_who_hangs_holds_nobody_up(running: RunStatus, clock, caplog: pytest.LogCaptureFixture) -> None:
    """A receiver that takes a push and says nothing: the training's end waits for as long as it is given."""
    over = threading.Event()

    def hang(push: Push) -> Answer:
        if push.samples:
            over.wait()
        return Answer()

    with OtlpReceiver(hang) as receiver:
        try:
            pushes = pusher(lambda: running, receiver.url, clock, 0.001)
            receiver.wait_for(lambda found: found)
            pushes.finish()
            assert not pushes.wait(0.01)
            assert len(receiver.full) == 1  # none is begun beside it
        finally:
            over.set()
    assert "could not be pushed" in caplog.text


def test_a_redirect_takes_nothing_elsewhere(running: RunStatus, clock) -> None:
    """Headers with tokens go to the receiver that was named, and to no other."""
    with OtlpReceiver() as other:
        moved = Answer(307, {"Location": f"{other.url}/v1/metrics"})
        with OtlpReceiver(lambda push: moved) as receiver:
            pushes = pusher(lambda: running, receiver.url, clock)
            receiver.wait_for(lambda found: found)
            pushes.finish()
            assert not pushes.wait(60.0)
        assert other.pushes == []


@pytest.mark.parametrize(
    ("date", "ahead_secs"),
    [("Tue, 14 Nov 2023 22:23:20 GMT", 600), ("Tue, 14 Nov 2023 22:03:20 GMT", -600), ("nonsense", 0)],
)
def test_the_receivers_clock_counts(date: str, ahead_secs: float, running: RunStatus, clock) -> None:
    """The first push already is dated by the receiver's clock: a receiver refuses what is from the future, and after
    it, what is from now; the alert rules take a push of minutes ago for the last of a dead training."""
    with OtlpReceiver(lambda push: Answer(headers={"Date": date})) as receiver:
        pushes = pusher(lambda: running, receiver.url, clock)
        (push,) = receiver.wait_for(lambda found: found)
        assert {each.millis for each in push.samples} == {round((clock.wall() + ahead_secs) * 1000)}
        pushes.finish()
        assert pushes.wait(60.0)


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 01 Jan 1969 00:00:00 GMT"])
def test_a_time_that_cannot_be_is_not_the_receivers(date: str, running: RunStatus, clock) -> None:
    """One such answer would be in the way of all later pushes: they could not be dated."""
    with OtlpReceiver(lambda push: Answer(headers={"Date": date})) as receiver:
        pushes = pusher(lambda: running, receiver.url, clock, 0.001)
        found = receiver.wait_for(lambda found: len(found) >= 2)
        pushes.finish()
        assert pushes.wait(60.0)
        assert {each.millis for push in found for each in push.samples} == {round(clock.wall() * 1000)}


def test_a_forked_child_pushes_nothing(receiver: OtlpReceiver, running: RunStatus, clock, caplog) -> None:
    """A data loader's worker that ends its copy of the training: no push, nothing to wait for, nothing to say."""
    pushes = pusher(lambda: running, receiver.url, clock)
    receiver.wait_for(lambda found: found)

    def end(answers) -> None:
        caplog.clear()
        pushes.finish()
        answers.put((pushes.wait(600.0), caplog.text))

    forked = multiprocessing.get_context("fork")
    answers = forked.SimpleQueue()
    child = forked.Process(target=end, args=(answers,))
    child.start()
    assert answers.get() == (False, "")
    child.join()
    assert len(receiver.full) == 1
    pushes.finish()
    assert pushes.wait(60.0) and len(receiver.full) == 2


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://p:9090/api/v1/otlp", "http://p:9090/api/v1/otlp/v1/metrics"),
        ("http://p:9090/api/v1/otlp/v1/metrics/", "http://p:9090/api/v1/otlp/v1/metrics"),
        (" https://otlp.example.org ", "https://otlp.example.org/v1/metrics"),
        ("https://[::1]:4318/?tenant=a#x", "https://[::1]:4318/v1/metrics?tenant=a"),
    ],
)
def test_an_endpoint_is_a_base_or_whole(endpoint: str, url: str) -> None:
    """As OpenTelemetry's own variable has it, without ``/v1/metrics``, or with that."""
    assert metrics_url(endpoint) == url


@pytest.mark.parametrize(
    "endpoint", [f"p:9090/{SECRET}", f"ftp://{SECRET}", "http://", f"http://p:x/{SECRET}", f"http://p/a {SECRET}"]
)
def test_what_is_no_endpoint_is_an_error(endpoint: str) -> None:
    """A typing error must not leave a run unwatched; the text names the variable, and does not show what it holds."""
    with pytest.raises(OptionsError, match=r"^THE_VARIABLE is not the URL of an OTLP receiver .* expected") as found:
        metrics_url(endpoint, "THE_VARIABLE")
    assert SECRET not in str(found.value)


def test_what_is_not_installed_is_said(running: RunStatus, clock, caplog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes on without pushes; the log has the command that installs what they need, and no more."""
    monkeypatch.setitem(sys.modules, "supervisor_core.metrics.otlp", None)
    pushes = MetricsPusher((RunCollector(lambda: [running], clock=clock),), "http://127.0.0.1:1", instance="node-1:a")
    assert not pushes.start()
    assert not pushes.wait(60.0)
    (record,) = caplog.records
    assert_says(
        record, "Metrics are not pushed (training continues): ", r"install .*opentelemetry-exporter-otlp-proto-http"
    )

"""What a message says: of one event everything, of many what they have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from pasting import paste

from supervisor_core.base.log import command_line
from supervisor_core.notify.event import Topic
from supervisor_core.notify.message import MOST_LINES, message_of
from tests.notify.samples import event, restart


def test_one_event_word_for_word() -> None:
    """The title is the event's text; the body has what to do, when and where, and the links that are configured."""
    found = event(
        action="tb-supervisor inspect /runs/tuning",
        labels={"user": "ada", "team": "vision"},
        runbook_url="https://wiki.example/alerts#supervisortraininglost",
        tab_url="https://tab.example/#supervisor",
    )
    message = message_of([found])
    assert message.title == "tuning: lost at step 2,500 on gpu-7"
    assert message.body.splitlines() == [
        "tb-supervisor inspect /runs/tuning",
        "2027-01-15 08:00:00 UTC on gpu-7, /runs/tuning, team=vision, user=ada",
        "Runbook: https://wiki.example/alerts#supervisortraininglost",
        "Tab: https://tab.example/#supervisor",
    ]
    assert (message.severity, message.apprise_type) == ("page", "failure")


def test_several_events_of_one_run_say_what_to_do_and_where() -> None:
    """As a restart and the loop that it is the last of: the worst says what to do."""
    found = [restart(at=1_800_000_000.0), event(kind="restart_loop", action="tb-supervisor inspect", host=None)]
    assert message_of(found).body.splitlines()[2:] == [
        "tb-supervisor inspect",
        "2027-01-15 08:00:00 UTC on gpu-7, /runs/tuning",
    ]


def test_what_is_not_configured_is_left_out() -> None:
    """There are neither empty lines nor names without values."""
    assert message_of([restart(host=None)]).body == "2027-01-15 08:00:00 UTC, /runs/tuning"


def test_fifty_deaths_are_one_sentence() -> None:
    """Runs that died together are said together, with where."""
    message = message_of([event(f"r{number:02}", at=1_800_000_000.0 + number / 5) for number in range(50)])
    assert message.title == "50 runs were lost within 10 s, all on gpu-7. Runs: r00, r01, r02, r03, r04 and 45 more."
    assert message.body == "2027-01-15 08:00:00 to 2027-01-15 08:00:09 UTC"
    assert len(message.events) == 50


def test_the_worst_is_said_first() -> None:
    """A page stands before what is good to know; an end before a restart; each is a line of the body."""
    message = message_of([restart("a"), restart("b"), event("c"), restart("d", kind="completed", topic="end")])
    assert message.title == "c: lost at step 2,500 on gpu-7 (and 3 more)"
    assert [line.partition(":")[0] for line in message.body.splitlines()[:4]] == ["c", "d", "a", "b"]
    assert message.severity == "page"


def test_a_planned_stop_is_said_after_a_failure() -> None:
    """The title says why the run had failed, as that rank 0 was killed, not that it was stopped after it."""
    failed = restart(text="tuning: failed at step 119: SIGKILL on rank 0; restarted after 18 s")
    stopped = restart(kind="stopped", topic="end", text="tuning: stopped after 2 min by SIGTERM")
    message = message_of([failed, stopped])
    assert message.title == f"{failed.text} (and 1 more)"
    assert message.body.splitlines()[:2] == [failed.text, stopped.text]


def test_a_long_message_counts_the_rest() -> None:
    """At most ten lines, and the number of what is left out."""
    found = [event(f"r{number}", kind=f"kind{number}") for number in range(30)]
    lines = message_of(found, more=7, since=1_800_000_000.0 - 3600.0).body.splitlines()
    assert len(lines) == MOST_LINES + 2
    assert lines[MOST_LINES] == "And 27 more since 07:00 UTC."


def test_several_runs_with_another_finding_are_one_line() -> None:
    """Kinds without words of their own are grouped as well; the first is quoted."""
    found = [event(f"r{number}", topic="warn", kind="read_error", text=f"r{number}: unreadable") for number in range(4)]
    assert message_of(found).title == "4 runs within 1 s, all on gpu-7: r0, r1, r2, r3. The first: r0: unreadable"


def test_a_long_text_is_cut_in_the_title_only() -> None:
    """A title is a line of at most 200 characters; nothing of the text is lost."""
    text = f"tuning: {'very ' * 60}long"
    message = message_of([event(text=text)])
    assert len(message.title) == 200 and message.title.endswith(" ...")
    assert message.body.splitlines()[0] == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a: <!channel> fell!", "a: <\u200d!\u200dchannel> fell!"),
        ("a: hi @everyone, @all_", "a: hi @\u200deveryone, @\u200dall_"),
        ("a: <@U123> at user@hereford", "a: <\u200d@\u200dU123> at user@\u200dhereford"),
        ("a: \x1b[2J\nforged \u200d", "a: \\x1b[2J\\nforged \\u200d"),
        ("a: in <module>, x < 3", "a: in <module>, x < 3"),
        ("a: @**all** <users/all> <at id=all>", "a: @\u200d**all** <\u200dusers/all> <\u200dat id=all>"),
        ("a: [log in](https://evil) <https://evil>", "a: [log in]\u200d(https://evil) <\u200dhttps://evil>"),
        ("a: x[0] (8 <b 3) x != 3", "a: x[0] (8 <b 3) x != 3"),
    ],
)
def test_what_a_program_wrote_calls_nobody(text: str, shown: str) -> None:
    """No text mentions all members of a chat, and none holds control characters."""
    assert message_of([event(text=text)]).title == shown


@pytest.mark.parametrize("at", [1e300, -1e300, 1e17, 1e12, -1e12])
def test_a_time_that_no_calendar_has_costs_no_message(at: float) -> None:
    """An events file may hold any number: what other runs say in the same message is said."""
    message = message_of([event(at=at), event("other")], more=3, since=at)
    assert "other: lost" in message.body


@pytest.mark.parametrize("name", ["@everyone", "my run @all", "<!here> it's @815", "a](b"])
def test_a_command_calls_nobody(name: str, tmp_path: Path) -> None:
    """A shell takes it as it was: an empty word stands in it for a joiner."""
    words = ["tb-supervisor", "inspect", "--", f"/runs/{name}"]
    first = message_of([event(action=command_line(*words))]).body.splitlines()[0]
    assert first != command_line(*words)
    assert paste([first], tmp_path) == [words]


def test_a_command_with_escapes_that_would_call_somebody_is_left_out() -> None:
    """Nothing can be put into a word of escapes."""
    found = event(action=command_line("tb-supervisor", "inspect", "/runs/\x1b@everyone"), logdir="/runs/@everyone")
    assert message_of([found]).body == "2027-01-15 08:00:00 UTC on gpu-7, /runs/@\u200deveryone"


@pytest.mark.parametrize(
    ("topic", "what", "severity", "kind", "expected"),
    [
        ("page", "begins", "page", "lost", "failure"),
        ("page", "is_over", "page", "stalled", "success"),
        ("warn", "begins", "warn", "slow", "warning"),
        ("end", "happened", "info", "completed", "success"),
        ("end", "happened", "info", "stopped", "info"),
    ],
)
def test_how_urgent_it_looks(topic: Topic, what: str, severity: str, kind: str, expected: str) -> None:
    """Services choose colours by it; what is over, and a completed run, is good news."""
    found = event(topic=topic, what=what, severity=severity, kind=kind)
    assert message_of([found]).apprise_type == expected

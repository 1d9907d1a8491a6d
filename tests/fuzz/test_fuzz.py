"""Everything that is kept for fuzzing goes through its target; and what judges a promise there can say no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz import events, http, page, seeds
from fuzz.json_mutator import mutated
from fuzz.targets import HERE, TARGETS, kept_inputs
from supervisor_core.checkpoint import ledger
from supervisor_core.events import event_format
from supervisor_core.events.vector_decode import Layout
from tests.cases import each

KEPT = [(name, path) for name, target in TARGETS.items() for path in kept_inputs(target)]
MOST_BYTES = 100_000


@each("name, path", KEPT)
def test_the_promise_holds(name: str, path: Path) -> None:
    """Each input that fuzzing begins with, and each that broke the promise once."""
    TARGETS[name].check()(path.read_bytes())


@each("name", list(TARGETS))
def test_fuzzing_begins_with_what_is_written_today(name: str) -> None:
    """A format that has changed changes the corpus: `python -m fuzz.seeds`."""
    kept = {path.name: path.read_bytes() for path in TARGETS[name].corpus.iterdir()}
    assert dict(getattr(seeds, f"of_{name}")()) == kept


def test_what_is_kept_is_small() -> None:
    """Each target has inputs to begin with, none longer than what is tried, and together they stay small."""
    assert {name for name, _ in KEPT} == set(TARGETS)
    assert all(path.stat().st_size <= TARGETS[name].max_bytes for name, path in KEPT)
    assert sum(path.stat().st_size for _, path in KEPT) < MOST_BYTES
    assert {
        path.parent.name for path in HERE.glob("*/*/*") if path.parent.parent.name in ("corpus", "findings")
    } == set(TARGETS)


def test_an_error_of_the_code_under_test_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the documented exceptions are let pass."""
    (data,) = (path.read_bytes() for name, path in KEPT if name == "ledger" and path.name == "page")

    def fail(data: bytes) -> ledger.LedgerPage:
        raise KeyError("v")

    monkeypatch.setattr(ledger, "decode", fail)
    with pytest.raises(KeyError):
        TARGETS["ledger"].check()(data)


def test_readers_that_differ_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vectorised reader that returns other steps than the one that goes record by record breaks the promise."""
    steps = Layout.steps
    monkeypatch.setattr(Layout, "steps", lambda self, rows: steps(self, rows) + 1)
    with pytest.raises(AssertionError, match="is not"):
        events.check_events((TARGETS["events"].corpus / "scalars").read_bytes())


def test_checksums_are_put_right() -> None:
    """An altered record counts as whole again, unless its length asks for wrong checksums."""
    record = event_format.frame(events_payload := b"\x09" + bytes(8) + b"\x10\x05")
    altered = record[:8] + b"?" + record[9:].replace(b"\x10\x05", b"\x10\x06")
    assert events.mended(altered) == event_format.frame(events_payload[:-1] + b"\x06")
    for place in (6, 7):
        asked = altered[:place] + b"\x01" + altered[place + 1 :]
        assert events.mended(asked + record)[: len(record)] != event_format.frame(events_payload[:-1] + b"\x06")


@each(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nX: a\nInjected: b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\r\nX: 2\r\n\r\n",
        b"HTTP/1.1 twohundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_whole_is_seen(answer: bytes) -> None:
    """Bodies shorter or longer than announced, split headers and repeated ones are no answer."""
    with pytest.raises(AssertionError):
        http.statuses_of(answer, b"GET / HTTP/1.1\r\n\r\n")


def test_altered_json_is_json() -> None:
    """Nearly every alteration of a record is a record still, with another value; none is longer than what is tried."""
    record = b'he{"v":1,"session":"s","threads":[{"name":"a","ticks":3}],"steps":5}'
    found = {mutated(record, 4096, seed) for seed in range(200)}
    assert len(found) > 100
    for line in (line for data in found for line in data.split(b"\n")):
        json.loads(line[2:])
    assert mutated(record, len(record), 1) in (record, mutated(record, 4096, 1))
    assert mutated(b"no json", 100, 1) == b"no json"


def test_figures_replace_those_of_the_same_target(tmp_path: Path) -> None:
    """Each target has one row, in the order of the targets; what stands above the table stays."""
    path = tmp_path / "security.md"
    path.write_text(f"# Words\n\n{page.MARK}")
    for name, executions in (("task", 5), ("events", 7), ("task", 6_000)):
        row = page.Result(
            target=TARGETS[name], executions=executions, secs=60, processor_secs=50, features=3, corpus=2, broken=()
        )
        page.write_row(row, path)
    text = path.read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert [(row[0], row[3]) for row in rows] == [("| `events`", "7"), ("| `task`", "6,000")]
    assert text.startswith("# Words\n")


def test_the_page_has_a_row_for_each_target() -> None:
    """docs/security.md says of every target what it promises and how many findings were mended, as it is now."""
    rows = {
        line.split("`")[1]: line.split(" | ") for line in page.PAGE.read_text().splitlines() if line.startswith("| `")
    }
    for name, target in TARGETS.items():
        assert name in rows, f"{name} was never fuzzed: make fuzz ARGS='{name} --write'"
        assert (rows[name][1], rows[name][2]) == (target.reads, target.promise)
        assert int(rows[name][8]) == page.mended(target), f"make fuzz ARGS='{name} --write'"

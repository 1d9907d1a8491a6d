"""`Stage`: the trainings of `benchmarks.faults.messages`, their watchers, the receiver, and what was sent of each."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.faults.launcher import TrialError
from benchmarks.faults.message_stories import Due, Script, Story
from benchmarks.faults.restarts import COMMAND as RUN
from benchmarks.faults.small_disk import SmallDisk
from benchmarks.faults.trial import Findings, Outcome
from supervisor_core.notify.secret import without_secrets
from supervisor_core.restarter.processes import descendants
from tests.notify.receivers import Received, web_receiver

Way = Literal["watch", "run"]
WATCH = [*RUN[:-1], "watch"]
START_SECS = 300.0
"""For the start of all, on a machine that is busy."""
QUIET_SECS = 45.0
"""How long after the last message is expected no other may come: a look, and what is gathered."""
STARTS_AT_A_TIME = 4
POLL_SECS = 0.5
ALL_TOPICS = ("--notify-on", "page,warn,info,restart,end", "--notify-limit", "1000")
EARLY_SECS = 1.0


@dataclass(frozen=True)
class Message:
    """What the receiver got."""

    at: float
    path: str
    title: str
    body: str

    def says(self, event: dict[str, Any]) -> int:
        """Return how often it says an event: in a line of its own, or in one about several runs."""
        lines = [self.title, *self.body.splitlines()]
        alone = sum(event["text"] in line for line in lines[1:]) or int(event["text"] in self.title)
        if alone or event["what"] == "is_over":
            return alone
        of_several = f" runs (were )?{event['kind']} .*[:,] {re.escape(event['run'])}[,.]"
        return int(any(re.search(of_several, line) for line in lines))


@dataclass
class Case:
    """A trouble of one training, in one way of watching it."""

    story: Story
    way: Way
    number: int
    home: Path
    stage: Stage = field(repr=False)
    process: subprocess.Popen[bytes] | None = None
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    facts: list[float] = field(default_factory=list)
    went_at: float = 0.0
    ended_at: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def script(self) -> Script:
        """What happens."""
        return self.story.scripts[self.way]

    @property
    def run(self) -> str:
        """The run's path below the directory of its way."""
        parts = [self.story.trouble]
        parts += [str(self.number)] if self.story.copies > 1 else []
        parts += ["tuning"] if self.story.disk_megabytes else []
        return "/".join(parts)

    @property
    def logdir(self) -> Path:
        """Its directory."""
        return self.home / ("watched" if self.way == "watch" else "restarted") / self.run

    @property
    def control(self) -> Path:
        """See `benchmarks.faults.troubled`."""
        return self.home / "control" / f"{self.way}-{self.run.replace('/', '-')}"

    @property
    def path(self) -> str:
        """Where its messages are sent."""
        return "watch" if self.way == "watch" else f"run-{self.story.trouble}"

    @property
    def program(self) -> int:
        """The process id of the program's newest launch."""
        return int((self.control / "launches").read_text().split()[-1])

    def signal(self, signum: int) -> None:
        """Send a signal to the program, or to its restarter."""
        assert self.process is not None
        self.process.send_signal(signum)

    def start(self) -> None:
        """Start the program, under a restarter or not."""
        command = self._command(self.story.trouble)
        if self.way == "run":
            to = [
                "--notify",
                self.stage.received.url(self.path),
                "--on-event",
                f"tee -a {shlex.quote(str(self._events))}",
            ]
            state = ["--state", str(self.control / "state")]
            command = [*RUN, *to, *state, *ALL_TOPICS, *self.script.options, str(self.logdir), "--", *command]
        self.process = self.stage.start_process(command, self.control / "log")

    def start_other(self, program: str, task: str) -> None:
        """Start another process of the training."""
        command = [*self._command(program)[:-1], task]
        self.others.append(self.stage.start_process(command, self.control / f"log-{task}"))

    def _command(self, program: str) -> list[str]:
        words = ["-W", "ignore", "-m", "benchmarks.faults.troubled", program, str(self.logdir), str(self.control)]
        return [sys.executable, *words]

    @property
    def _events(self) -> Path:
        return self.home / "events.jsonl" if self.way == "watch" else self.control / "events.jsonl"

    def events(self) -> list[dict[str, Any]]:
        """Return what the watcher has said of it."""
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        found = [json.loads(line) for line in lines]
        return [event for event in found if self.way == "run" or event["run"] == self.run]

    def all_facts(self) -> list[float]:
        """Return when the thing happened, each time."""
        path = self.control / "facts"
        lines = path.read_text().splitlines() if path.exists() else []
        return sorted([*self.facts, *(float(line.split()[1]) for line in lines)])

    # Its story.

    def play(self) -> None:
        """Let it happen, make it well again, and end it."""
        try:
            self._play()
        except Exception:
            self.problems.append(traceback.format_exc())

    def _play(self) -> None:
        script = self.script
        self.control.mkdir(parents=True)
        self.logdir.parent.mkdir(parents=True, exist_ok=True)
        with self.stage.starting:
            self.start()
            self._until(lambda: (self.control / "launches").exists(), START_SECS, "it did not start")
        if script.before is not None:
            self._until(self.logdir.exists, START_SECS, "it has no directory")
            script.before(self)
        if script.happen is not None:
            self._until((self.control / "ready").exists, START_SECS, "it does not train")
            self.stage.meet(self)
            self.facts.append(time.time())
            script.happen(self)
        said = self._await((), script.first)
        self.went_at = time.time()
        if script.go is not None:
            script.go(self)
        (self.control / "go").touch()
        said = self._await(said, script.then)
        if script.last is not None:
            self.ended_at = time.time()
            (self.control / "end").touch()
            self._await(said, script.last)

    def _await(self, said: tuple[Due, ...], dues: tuple[Due, ...]) -> tuple[Due, ...]:
        """Wait until what is due has been said besides what was; the judge says what is missing."""
        wanted = (*said, *dues)
        secs = max((due.after + due.late for due in dues), default=0.0) + START_SECS
        with suppress(TrialError):
            self._until(lambda: not Counter(due.what for due in wanted) - self._said(), secs, "")
        return wanted

    def _said(self) -> Counter[str]:
        return Counter(f"{event['what']} {event['kind']}" for event in self.events() if self.stage.arrived(self, event))

    def _until(self, is_so: Callable[[], bool], secs: float, what: str) -> None:
        until = time.monotonic() + secs
        while not is_so():
            if time.monotonic() > until or self.stage.over.wait(POLL_SECS):
                raise TrialError(f"{self.run}, {self.way}: {what}")
            is_again = self.script.again and self.way == "watch" and not (self.control / "go").exists()
            if is_again and self.process is not None and self.process.poll() is not None:
                self.start()


class Stage:
    """All cases. Started once; `wait` returns when all are over and nothing else was sent for a while.

    Args:
        home: a directory to make.
        cases: what happens, in which way.
    """

    def __init__(self, home: Path, cases: list[tuple[Story, Way]]) -> None:
        self.home = home
        self.cases = [
            Case(story, way, number, home, self) for story, way in cases for number in range(1, story.copies + 1)
        ]
        self.received = Received()
        self.starting = threading.Semaphore(STARTS_AT_A_TIME)
        self.over = threading.Event()
        self._meetings = {story.trouble: threading.Barrier(story.copies) for story, _ in cases if story.copies > 1}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        self._threads: list[threading.Thread] = []
        self._done = threading.Event()

    def start(self) -> None:
        """Start everything, in the background."""
        for name in ("watched", "restarted", "control"):
            (self.home / name).mkdir(parents=True)
        self.received = self._stack.enter_context(web_receiver())
        for case in self.cases:
            if case.story.disk_megabytes:
                case.logdir.parent.parent.mkdir(exist_ok=True)
                self._stack.enter_context(SmallDisk(case.logdir.parent, case.story.disk_megabytes))
        to = [
            "--notify",
            self.received.url("watch"),
            "--on-event",
            f"tee -a {shlex.quote(str(self.home / 'events.jsonl'))}",
        ]
        state = ["--state", str(self.home / "state")]
        self.start_process([*WATCH, *to, *state, *ALL_TOPICS, str(self.home / "watched")], self.home / "log")
        self._threads = [threading.Thread(target=case.play, daemon=True) for case in self.cases]
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._end, daemon=True).start()

    def wait(self) -> None:
        """Wait for the end."""
        self._done.wait()

    def meet(self, case: Case) -> None:
        """Wait for the other copies of a training."""
        if case.story.trouble in self._meetings:
            self._meetings[case.story.trouble].wait(START_SECS)

    def start_process(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process that ends with the stage."""
        with open(log, "ab") as file:
            environment = {**without_secrets(), "PYTHONFAULTHANDLER": "1"}
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        self._processes.append(process)
        return process

    def _end(self) -> None:
        for thread in self._threads:
            thread.join()
        self.over.wait(QUIET_SECS)
        self.over.set()
        pids = {pid for process in self._processes for pid in self._of(process)}
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._stack.close()
        self._done.set()

    def _of(self, process: subprocess.Popen[bytes]) -> Iterator[int]:
        """Yield a process and what it has started, as far as it is there."""
        if process.poll() is None:
            yield process.pid
            yield from (each.pid for each in descendants(process.pid))

    # What was sent.

    def messages(self, case: Case) -> list[Message]:
        """Return what came where the messages of a case are sent."""
        got = list(zip(self.received.times, self.received.paths, self.received.items, strict=False))
        return [
            Message(at, path, item["title"], item["message"])
            for at, path, item in got
            if path == f"POST /{case.path}" and item is not None
        ]

    def arrived(self, case: Case, event: dict[str, Any]) -> Message | None:
        """Return the message that says an event; None as long as there is none."""
        return next((message for message in self.messages(case) if message.says(event)), None)

    def judged(self, case: Case) -> Outcome:
        """Compare what was sent with what is due."""
        findings = Findings(wrong=list(case.problems))
        script, facts = case.script, case.all_facts()
        dues = [(due, "fact") for due in script.first] + [(due, "go") for due in script.then]
        dues += [(due, "end") for due in script.last or ()]
        left, about = case.events(), list[Message]()
        secs = list[tuple[bool, float]]()
        """Whether it is a finding that begins, and how long after the fact it came."""
        for due, anchor in dues:
            event = next((item for item in left if f"{item['what']} {item['kind']}" == due.what), None)
            if event is None:
                findings.lose(True, f"{case.way}: no message that {due.what}; facts: {facts}, log: {case.control}")
                continue
            left.remove(event)
            message = self.arrived(case, event)
            if message is None:
                findings.lose(True, f"{case.way}: no message says {event['text']!r}")
                continue
            about.append(message)
            times = {"fact": facts, "go": [case.went_at], "end": [case.ended_at]}[anchor]
            at = next((each for each in reversed(times) if each <= message.at), None)
            took = message.at - (at if at is not None else message.at)
            if anchor == "fact":
                secs.append((due.what.startswith("begins"), took))
            findings.fault(at is None, f"{case.way}: {due.what} before anything happened")
            findings.fault(took > due.after + due.late, f"{case.way}: {due.what} came after {took:.0f} s")
            findings.fault(took < due.after - EARLY_SECS, f"{case.way}: {due.what} came after {took:.0f} s already")
        for event in left:
            findings.fault(True, f"{case.way}: a message too many, {event['what']} {event['kind']}: {event['text']}")
        for text, number in Counter(event["text"] for event in case.events()).items():
            event = next(item for item in case.events() if item["text"] == text)
            said = sum(message.says(event) for message in self.messages(case))
            findings.fault(said != number, f"{case.way}: said {said} times: {text}")
        same = [other for other in self.cases if other.story is case.story and other.way == case.way]
        together = {self.arrived(other, event) for other in same for event in other.events()}
        is_apart = case.story.copies > 1 and len(together) != 1
        findings.fault(is_apart, f"{case.way}: {len(together)} messages about {case.story.copies} at the same moment")
        texts = [f"{case.way}: {message.title}\n{message.body}" for message in dict.fromkeys(about)]
        is_begin = any(begins for begins, _ in secs)
        outcome = findings.outcome(min((took for begins, took in secs if begins == is_begin), default=None))
        return Outcome(outcome.lost, outcome.wrong, outcome.secs, "\n".join(texts))

"""Who keeps the newest ticks and spans of all runs shows the whole histories of the one that is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor_core.cli.logdirs import GivenLogdir
from supervisor_core.cli.look import Looking
from supervisor_core.run.watch.logdir_watch import LogdirWatch
from supervisor_core.run.watch.whole_run import WholeRuns
from tb_plugin.backend import ROUTES, start_backend
from tb_plugin.http import Arguments
from tb_plugin.logdirs import Logdir

SAVES = 80


@pytest.fixture
def logs(tmp_path: Path, writing, clock) -> Path:
    """A logdir with a run whose service has ticked five times."""
    file = writing.RunFile(tmp_path / "logs" / "a").ready()
    for number in range(5):
        at = clock.now - 50 + 10 * number
        thread = {"name": "saver", "state": "idle", "ticks": number + 1, "failures": 0, "last_tick_at": at}
        file.beat(at, steps=number, threads=(thread,))
    return tmp_path / "logs"


@pytest.fixture
def saves(tmp_path: Path, writing, clock) -> Path:
    """A logdir with a run that saved eighty times; no file of them is there any more."""
    (tmp_path / "saves" / "a").mkdir(parents=True)
    file = writing.RunFile(tmp_path / "saves" / "a").ready()
    for number in range(SAVES):
        at = clock.now - 900 + 10 * number
        file.beat(at, steps=number + 1).saved(at, str(tmp_path / "saves" / "a" / f"m-{number + 1}"))
    return tmp_path / "saves"


def ticks_of(watched) -> list[int]:
    """How many ticks are known of each thread."""
    return [len(thread.seen_ticks) for thread in watched.run.threads]


def test_the_whole_history(logs: Path, clock) -> None:
    """The histories are those of a reader that keeps all; the rest of the run is what was given."""
    short = LogdirWatch(str(logs), kept_ticks=1, clock=clock).refresh().runs["a"]
    assert ticks_of(short) == [1]
    whole = WholeRuns(clock)
    assert ticks_of(whole.of(short)) == [5]
    assert ticks_of(whole.of(short)) == [5]
    assert whole.of(short).run.name == "a"


@pytest.mark.parametrize(("whole", "ticks"), [("a", [5]), (True, [5]), (None, [1])])
def test_commands_with_a_cache(logs: Path, tmp_path: Path, whole: str | None, ticks: list[int]) -> None:
    """A command has the histories that it asks for, the first time and from the cache."""
    for _ in range(2):
        looking = Looking([GivenLogdir(path=str(logs))], cache=str(tmp_path / "cache"), whole=whole)
        assert ticks_of(looking.look().runs["a"].watched) == ticks
        looking.close()


def test_all_saves(saves: Path, clock) -> None:
    """Who forgets saves shows all of the run that is looked at, those that it kept as it knows them."""
    short = LogdirWatch(str(saves), kept_ticks=1, all_saves=False, clock=clock).refresh().runs["a"]
    assert len(short.run.checkpoints) < SAVES
    found = WholeRuns(clock).of(short).run
    assert len(found.checkpoints) == SAVES
    assert found.checkpoints[-1] is short.run.checkpoints[-1]
    assert len(LogdirWatch(str(saves), kept_ticks=1, clock=clock).refresh().runs["a"].run.checkpoints) == SAVES


def test_saves_and_the_cache(saves: Path, tmp_path: Path) -> None:
    """Who asks for all saves has them, also where another process has cached the runs without."""
    for all_saves in (False, True, False, True):
        looking = Looking(
            [GivenLogdir(path=str(saves))], cache=str(tmp_path / "cache"), all_saves=all_saves, whole=None
        )
        assert (len(looking.look().runs["a"].run.checkpoints) == SAVES) is all_saves
        looking.close()


def test_saves_in_the_tab(saves: Path, tmp_path: Path) -> None:
    """Details, list and marks of a run in the tab have all saves, with a cache too."""
    for cache in (None, str(tmp_path / "cache"), str(tmp_path / "cache")):
        backend = start_backend([Logdir(str(saves))], refresh_secs=60.0, include="", max_bytes=1 << 20, cache=cache)
        try:
            backend._index.view(60.0)
            asked = Arguments({"run": "a"}, {})
            details, page = (json.loads(ROUTES[name](backend, asked).body) for name in ("run", "checkpoints"))
            assert details["checkpoints"]["count"] == page["total"] == SAVES
            marks = ROUTES["checkpoint_marks"](backend, Arguments({"run": "a", "pixels": "600"}, {})).body
            assert f'"saves":{SAVES}'.encode() in marks.replace(b" ", b"")
        finally:
            backend.close()

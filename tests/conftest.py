"""What every test may rely on, however the tests were started, and what the tests of several packages share."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from supervisor_core.storage.filesystem import DirectoryEntry, FileStatus, ReadFile
from supervisor_core.storage.local import LOCAL

# What a shell or nohup starts in the background ignores signals, and so do its children: tests that send one would time
# out.
for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)

# A forked process has none of the threads of OpenMP that its parent had, and would wait for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# An example may take longer than 200 ms on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def _load(path: str) -> ModuleType:
    name = path.removesuffix(".py").replace("/", "_")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(autouse=True, scope="session")
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sessions that a test kills leave their progress pages with the test's other files; no watcher outside of the
    tests keeps one of theirs from its lock."""
    os.environ["SUPERVISOR_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """A command that a test runs in this process sets the levels for the rest of it."""
    loggers = logging.getLogger(), logging.getLogger("supervisor_core")
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


for shared in ("networks.py", "ports.py", "forked.py", "hangs.py", "pasting.py"):
    _load(shared)  # for modules that import it while they are collected


def pytest_configure(config: pytest.Config) -> None:
    """Run failed tests with real processes again in CI: `chance.py`."""
    config.pluginmanager.register(_load("chance.py"))


TORCH = (
    "torch",
    "torch._dynamo",
    "lightning.pytorch:Trainer",
    "transformers:Trainer",
    "supervisor_core.torch.loop",
)
JAX = ("jax.numpy", "orbax.checkpoint", "supervisor_core.jax.loop")
KERAS = ("keras:Sequential",)
# The files that take longest go first, one that mostly waits beside one that computes: at the end one of them would
# keep one processor busy, or none, while the other workers have nothing left.
FIRST = (
    "tests/frameworks/test_torch_nodes.py",
    "tests/monitoring/test_alerts.py",
    "tests/monitoring/test_end_to_end.py",
    "tests/endings/",
    "tests/frameworks/test_begin.py",
    "tests/frameworks/test_keras.py",
    "tests/restarter/test_stop.py",
    "tests/frameworks/test_checkpoint_care.py",
    "tests/frameworks/test_logdirs.py",
    "tests/faults/",
    "tests/examples/test_demo.py",
    "tests/tf1/test_private_symbols.py",
    "tests/tf1/cluster/test_supervisor_cluster.py",
    "tests/tf1/test_session_differential.py",
    "tests/examples/test_cluster.py",
    "tests/browser/",
    "tests/hostile/test_corpus.py",
    "tests/checkpoint/test_retention_kills.py",
)
LONG = (
    "tests/checkpoint/test_retention_kills.py",
    "tests/endings/",
    "tests/examples/test_cluster.py",
    "tests/examples/test_demo.py",
    "tests/faults/",
    "tests/frameworks/test_begin.py",
    "tests/frameworks/test_checkpoint_care.py",
    "tests/frameworks/test_keras.py",
    "tests/frameworks/test_logdirs.py",
    "tests/hostile/test_corpus.py",
    "tests/monitoring/test_end_to_end.py",
    "tests/restarter/test_left_behind.py",
    "tests/restarter/test_processes.py",
    "tests/restarter/test_stop.py",
    "tests/tb_plugin/test_real_tensorboard.py",
    "tests/tf1/cluster/test_adoption.py",
    "tests/tf1/cluster/test_supervisor_cluster.py",
    "tests/tf1/test_one_graph.py",
)
"""Trials with many real processes: whole files that are marked long."""
REAL = (
    *LONG,
    "tests/browser/",
    "tests/checkpoint/test_takeover_processes.py",
    "tests/cli/test_rank_stacks.py",
    "tests/cli/test_stacks.py",
    "tests/docs/test_console.py",
    "tests/engine/test_pauses.py",
    "tests/engine/test_signals.py",
    "tests/examples/",
    "tests/exporter/test_memory.py",
    "tests/frameworks/test_hangs.py",
    "tests/frameworks/test_jax_distributed.py",
    "tests/frameworks/test_lightning_distributed.py",
    "tests/frameworks/test_notify.py",
    "tests/frameworks/test_observed.py",
    "tests/frameworks/test_torch_distributed.py",
    "tests/frameworks/test_torch_loaders.py",
    "tests/frameworks/test_torch_nodes.py",
    "tests/frameworks/test_transformers_distributed.py",
    "tests/hostile/test_locks.py",
    "tests/hostile/test_printed_commands.py",
    "tests/monitoring/test_prometheus.py",
    "tests/notify/test_end_to_end.py",
    "tests/platforms/test_readers.py",
    "tests/process/",
    "tests/restarter/test_nodes.py",
    "tests/tb_plugin/test_collision.py",
    "tests/test_chance.py",
    "tests/tf1/cluster/",
    "tests/training/test_pushed_end.py",
    "tests/training/test_signal_phases.py",
)
"""Files whose tests have real processes, browsers, ranks or clocks. What else is marked ``real``, too: a test with a
fixture of `REAL_FIXTURES`, and one that starts a process itself."""
REAL_FIXTURES = {"browser", "command_server", "fork_server", "holder", "starter_of"}
STARTS_PROCESSES = {"Popen", "fork", "multiprocessing", "subprocess"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for those who change what is shown, and one for tests that take minutes."""
    parser.addoption("--long", action="store_true", help="run the tests that are marked long, too")
    parser.addoption("--renew", action="store_true", help="write the files below tests/metrics/expected again")


@pytest.fixture
def renewed(pytestconfig: pytest.Config) -> Callable[[Path, str], str]:
    """Returns the text that a file of expected output has; with ``--renew`` it is written first."""

    def read(file: Path, shown: str) -> str:
        if pytestconfig.getoption("renew"):
            file.write_text(shown)
        return file.read_text()

    return read


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and have it leave alone what was imported: it would look through all of
    TensorFlow again and again, for which every worker took seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files before all others, which keep their order. Mark what is long and what is real. Skip what
    is long, if not asked for."""
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker(pytest.mark.long)
        names = getattr(getattr(getattr(item, "function", None), "__code__", None), "co_names", ())
        fixtures = getattr(item, "fixturenames", ())
        if item.nodeid.startswith(REAL) or REAL_FIXTURES.intersection(fixtures) or STARTS_PROCESSES.intersection(names):
            item.add_marker(pytest.mark.real)
        if item.get_closest_marker("long") and not config.getoption("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: make test-long runs it"))

    def position(item: pytest.Item) -> int:
        return next((at for at, start in enumerate(FIRST) if item.nodeid.startswith(start)), len(FIRST))

    items.sort(key=position)


@dataclass
class StillClock:
    """A clock both hands of which show what they were set to."""

    now: float

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Storage:
    """Local files, counted; all of them, or those with a text in their paths, can be made to fail or to hang.

    Before each operation ``fault`` is asked, with the operation and the path, and may raise. While ``free`` is not
    set, what has ``hangs_at`` in its path hangs, and sets ``hanging``.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], None] | None = None
        self.hangs_at = ""
        self.hanging = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def stat(self, path: str) -> FileStatus:
        self._ask("stat", path)
        return LOCAL.stat(path)

    def open(self, path: str) -> ReadFile:
        self._ask("open", path)
        return LOCAL.open(path)

    def entries(self, directory: str) -> Iterator[DirectoryEntry]:
        self._ask("list", directory)
        return LOCAL.entries(directory)

    def _ask(self, operation: str, path: str) -> None:
        self.calls.append((operation, path))
        if not self.free.is_set() and self.hangs_at in path:
            self.hanging.set()
            assert self.free.wait(60)
        if self.fault is not None:
            self.fault(operation, path)


@pytest.fixture
def storage() -> Iterator[Storage]:
    """Local files that may fail or hang; let go in the end."""
    made = Storage()
    yield made
    made.free.set()


@pytest.fixture(scope="session")
def clock_at() -> type[StillClock]:
    """Makes a clock that shows a time, wall and monotonic, until it is set to another by its ``now``."""
    return StillClock


@pytest.fixture
def begun_threads() -> Callable[[str], list[threading.Thread]]:
    """Returns a function that returns the threads with something in their names that were begun after the test and have
    not ended: those of an earlier test may still be ending."""
    earlier = set(threading.enumerate())
    return lambda name: [each for each in threading.enumerate() if name in each.name and each not in earlier]


@pytest.fixture(scope="session")
def fork_server() -> Iterator[Any]:
    """Starts programs in processes that have imported tensorflow already: a `ForkServer`, see `forked.py`."""
    made = sys.modules["forked"].ForkServer()
    yield made
    made.close()


@pytest.fixture(scope="session")
def command_server() -> Iterator[Any]:
    """Starts ``tb-supervisor`` in processes that have imported what its commands need: a `ForkServer`."""
    commands = ("supervisor_core.cli.run", "supervisor_core.cli.exporter", "supervisor_core.cli.inspect")
    used = ("supervisor_core.restarter.restarter", "supervisor_core.metrics.web")
    made = sys.modules["forked"].ForkServer((*commands, *used))
    yield made
    made.close()


@pytest.fixture(scope="session")
def starter_of(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Returns a function that returns what starts the programs of a facade: a `Starter`, see `forked.py`. Keras is on
    the backend that is named, by default on the first that is installed."""
    default = next((name for name in ("torch", "jax") if importlib.util.find_spec(name)), "tensorflow")
    made: dict[str, Any] = {}

    def choose(facade: str, backend: str = default) -> Any:
        name = facade.lower()
        if name.startswith("jax"):
            backend = "jax"
        elif name.startswith(("torch", "lightning", "transformers", "sharded")):
            backend = "torch"
        elif not name.startswith("keras"):
            has_tensorflow = importlib.util.find_spec("tensorflow") is not None
            return request.getfixturevalue("fork_server") if has_tensorflow else sys.modules["forked"].Starter()
        if backend not in made:
            modules = {"torch": TORCH, "jax": JAX}.get(backend, ()) + KERAS
            found = [item for item in modules if importlib.util.find_spec(item.partition(".")[0].partition(":")[0])]
            made[backend] = sys.modules["forked"].ForkServer(tuple(found), {"KERAS_BACKEND": backend})
        return made[backend]

    yield choose
    for server in made.values():
        server.close()


@pytest.fixture(scope="session")
def module_at() -> Callable[[str], ModuleType]:
    """Returns a function that loads a module that is no test: ``module_at("hostile/forging.py")``."""

    return _load


@pytest.fixture(scope="session")
def forging(module_at: Callable[[str], ModuleType]) -> ModuleType:
    """The module that forges."""
    return module_at("hostile/forging.py")


@pytest.fixture(scope="session")
def trials(module_at: Callable[[str], ModuleType], starter_of: Callable[[str], Any]) -> ModuleType:
    """The module that trains."""
    module = module_at("frameworks/hostile_trial.py")
    module.starter_of = starter_of  # type: ignore[attr-defined]
    return module


PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Returns a function that finds one of Prometheus's programs, or skips the test, aloud; in CI it must be there."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            missing = f"{name} is not installed (Debian: apt-get install {PACKAGES[name]})"
            assert os.environ.get("CI") != "true", missing
            pytest.skip(missing)
        return path

    return find


@pytest.fixture(scope="session")
def promtool(tool: Callable[[str], str]) -> Callable[..., str]:
    """Returns a function that runs promtool and returns what it says, or fails with that where it is not content."""

    # Its garbage collector, left alone, takes a quarter of its time, and idle threads that look for work a fifth.
    environment = {**os.environ, "GOGC": "400", "GOMAXPROCS": "1"}

    def run(*arguments: str | Path, check: bool = True, given: str | None = None) -> str:
        command = [tool("promtool"), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def rules_test(promtool: Callable[..., str]) -> Callable[..., str]:
    """Returns a function that puts series through rules and queries, by promtool's own clock."""

    def run(
        directory: Path,
        series: Mapping[str, str],
        step: int,
        *,
        rules: Mapping[str, Any] | None = None,
        queries: Iterable[tuple[str, float, Mapping[str, float]]] = (),
        alerts: Iterable[tuple[str, float, Sequence[tuple[Mapping[str, str], Mapping[str, str]]]]] = (),
        check: bool = True,
    ) -> str:
        """Run it; return what promtool prints.

        Args:
            directory: for its files.
            series: name and labels -> values, one each ``step`` seconds.
            step: how often the rules are evaluated, too.
            rules: the file of rules.
            queries: each with its time and what it returns: labels -> value.
            alerts: each with its time and what fires of it: labels and annotations.
            check: whether what is not as expected fails the test.
        """
        test = {
            "interval": f"{step}s",
            "input_series": [{"series": name, "values": text} for name, text in series.items()],
            "promql_expr_test": [
                {
                    "expr": expr,
                    "eval_time": f"{int(at)}s",
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
                }
                for expr, at, samples in queries
            ],
            "alert_rule_test": [
                {
                    "alertname": name,
                    "eval_time": f"{int(at)}s",
                    "exp_alerts": [{"exp_labels": labels, "exp_annotations": texts} for labels, texts in firing],
                }
                for name, at, firing in alerts
            ],
        }
        import yaml

        # In C: in Python this takes as long as promtool itself.
        dump = partial(yaml.dump, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))
        (directory / "rules.yaml").write_text(dump(rules or {"groups": []}))
        order = [group["name"] for group in (rules or {"groups": []})["groups"]]
        asked = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": f"{step}s",
            "group_eval_order": order,
            "tests": [test],
        }
        (directory / "test.yaml").write_text(dump(asked))
        return promtool("test", "rules", directory / "test.yaml", check=check)

    return run

"""How TensorBoard finds and starts the tab, and which logdirs it shows."""

from __future__ import annotations

import argparse
import builtins
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.plugins import base_plugin
from werkzeug.test import Client

from tb_plugin.loader import SupervisorLoader
from tb_plugin.logdirs import Logdir, logdirs_of
from tb_plugin.plugin import SupervisorPlugin
from tb_plugin.tab import FailedPlugin
from tests.cases import each


def flags_of(*arguments: str) -> argparse.Namespace:
    """What TensorBoard's parser makes of a command line."""
    parser = argparse.ArgumentParser()
    SupervisorLoader().define_flags(parser)
    return parser.parse_args(arguments)


def context(logdir: str = "", **flags: Any) -> base_plugin.TBContext:
    """The context that TensorBoard gives a plugin."""
    return base_plugin.TBContext(logdir=logdir, flags=SimpleNamespace(**flags))


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Any]:
    """Returns a function that loads the plugin; what was loaded is closed."""
    plugins = []

    def load(**flags: Any) -> Any:
        plugins.append(SupervisorLoader().load(context(str(tmp_path), **flags)))
        return plugins[-1]

    yield load
    for plugin in plugins:
        if isinstance(plugin, SupervisorPlugin):
            plugin.close()


def test_flags_have_defaults_and_bounds(caplog: pytest.LogCaptureFixture) -> None:
    """Without flags everything has a value; the values of flags are read, not just taken. If somebody else defines a
    flag of ours, TensorBoard starts all the same."""
    defaults = {"refresh_secs": 5.0, "runs": "", "memory_mb": 512, "cache": ""}
    assert vars(flags_of()) == {f"supervisor_{name}": value for name, value in defaults.items()}
    given = vars(flags_of("--supervisor_refresh_secs=0.5", "--supervisor_runs=^a", "--supervisor_memory_mb", "64"))
    changed = {**defaults, "refresh_secs": 0.5, "runs": "^a", "memory_mb": 64}
    assert given == {f"supervisor_{name}": value for name, value in changed.items()}
    parser = argparse.ArgumentParser()
    for _ in range(2):
        SupervisorLoader().define_flags(parser)
    assert "no flags of its own" in caplog.text


@each(
    "flag, value, said",
    [
        ("--supervisor_refresh_secs", "0", "expected seconds from 0.1"),
        ("--supervisor_refresh_secs", "nan", "expected seconds from 0.1"),
        ("--supervisor_refresh_secs", "soon", "expected seconds from 0.1"),
        ("--supervisor_memory_mb", "0", "expected megabytes from 1"),
        ("--supervisor_memory_mb", "inf", "expected megabytes from 1"),
        ("--supervisor_runs", "(", "'(' is no regular expression"),
    ],
)
def test_a_wrong_flag_is_one_clear_line(flag: str, value: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that makes no sense ends TensorBoard with a line that names it, before anything is served."""
    with pytest.raises(SystemExit):
        flags_of(f"{flag}={value}")
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {flag}: " in error
    assert said in error


def test_a_tensorboard_without_our_flags_loads_the_tab(loaded: Any) -> None:
    """A program that makes its own TensorBoard need not know our flags."""
    plugin = loaded()
    assert isinstance(plugin, SupervisorPlugin)
    assert plugin.frontend_metadata().es_module_path == "/index.js"
    assert plugin.frontend_metadata().tab_name == "Supervisor"
    assert "supervisor" in plugin.data_plugin_names()
    assert set(plugin.get_plugin_apps()) >= {"/index.js", "/*"}
    assert plugin.is_active() is False


@each(
    "flags, logdir, said",
    [
        ({}, "", "neither --logdir nor --logdir_spec"),
        ({"supervisor_refresh_secs": 0}, "/runs", "supervisor_refresh_secs is 0"),
        ({"supervisor_memory_mb": "lots"}, "/runs", "invalid literal"),
    ],
)
def test_what_cannot_start_says_why(flags: dict[str, Any], logdir: str, said: str) -> None:
    """A plugin that cannot start is a tab that is there, and every route of which says what is wrong."""
    plugin = SupervisorLoader().load(context(logdir, **flags))
    assert isinstance(plugin, FailedPlugin)
    assert plugin.is_active() is True
    apps = plugin.get_plugin_apps()
    assert said in Client(apps["/index.js"]).get("/").text
    refused = Client(apps["/*"]).get("/")
    assert refused.status_code == 503
    assert said in refused.get_json()["error"]


def test_loading_waits_for_nothing_heavy() -> None:
    """What TensorBoard waits for at its start loads neither the reader nor numpy: that comes when it serves."""
    code = """
import sys, warnings
warnings.simplefilter("ignore")
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
before = set(sys.modules)
import tb_plugin.plugin
added = set(sys.modules) - before
print(sorted(name for name in added if name.startswith(("supervisor_core", "numpy", "google", "prometheus"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_broken_installation_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If a module the plugin needs cannot be imported, the tab names it. If not even what shows the reason can be
    imported, TensorBoard goes on without the tab."""
    monkeypatch.delitem(sys.modules, "tb_plugin.plugin")
    with monkeypatch.context() as changes:
        broken(changes, "tb_plugin.plugin")
        plugin = SupervisorLoader().load(context(str(tmp_path)))
        assert isinstance(plugin, FailedPlugin)
        assert "ImportError: broken" in Client(plugin.get_plugin_apps()["/*"]).get("/").get_json()["error"]
    monkeypatch.delitem(sys.modules, "tb_plugin.tab")
    broken(monkeypatch, "tb_plugin.plugin", "tb_plugin.tab")
    assert SupervisorLoader().load(context(str(tmp_path))) is None


def broken(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the import of modules fail."""
    real = builtins.__import__

    def importing(name: str, *rest: Any, **more: Any) -> Any:
        if name in names:
            raise ImportError(f"broken: {name}")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", importing)


@each(
    "spec",
    [
        "/runs/a",
        "/runs/a,/runs/b",
        "mine:/runs/a,yours:/runs/b,/runs/c",
        "mine:relative/path,other",
        "/path:with:colons",
        "name:/path:with:colons",
        "gs://bucket/a,mine:s3://bucket/b,hdfs.x://c",
        "~/runs,home:~/runs2",
        "a:/same,b:/same",
        "a:/x/../y",
        ":/no/name",
    ],
)
def test_a_spec_is_read_as_tensorboard_reads_it(spec: str) -> None:
    """--logdir_spec means to the tab what it means to TensorBoard, group by group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ingester = pytest.importorskip("tensorboard.backend.event_processing.data_ingester")
    theirs = ingester._parse_event_files_spec(spec)
    ours = logdirs_of("", spec)
    assert {logdir.path: logdir.group for logdir in ours} == theirs
    assert [logdir.path for logdir in ours] == list(theirs)


def test_a_logdir_comes_before_a_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TensorBoard has it, --logdir counts where both are given; a tilde is the home directory."""
    monkeypatch.setenv("HOME", "/home/me")
    assert logdirs_of("~/runs", "a:/x") == (Logdir("/home/me/runs"),)


def test_a_backend_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch, loaded: Any) -> None:
    """When loading the backend fails, the tab shows the error: it is active, every route fails."""
    monkeypatch.setitem(sys.modules, "tb_plugin.backend", None)
    plugin = loaded()
    refused = Client(plugin.get_plugin_apps()["/*"]).get("/data/plugin/supervisor/runs")
    assert (refused.status_code, refused.get_json()["reason"]) == (503, "failed")
    assert "tb_plugin.backend" in refused.get_json()["error"]
    assert plugin.is_active() is True

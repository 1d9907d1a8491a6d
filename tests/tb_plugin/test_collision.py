"""Another project's package of the name ``tb_plugin``: TensorBoard starts, and the log says whose it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from supervisor_core.base.install import DISTRIBUTION
from tests.cases import each

LOADED = """
import sys
from types import SimpleNamespace
from tensorboard.plugins import base_plugin
from supervisor_core.base.tensorboard_tab import SupervisorLoader
assert issubclass(SupervisorLoader, base_plugin.TBLoader)
plugin = SupervisorLoader().load(base_plugin.TBContext(logdir=sys.argv[1], flags=SimpleNamespace()))
print(type(plugin).__name__)
if plugin is not None:
    plugin.close()
"""


def load(logdir: Path, *first: Path) -> tuple[str, str]:
    """Load the tab as TensorBoard does, with these directories first on Python's path; what is printed, what logged."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*first, Path(__file__).parents[2])))}
    command = [sys.executable, "-P", "-c", LOADED] if sys.version_info >= (3, 11) else [sys.executable, "-c", LOADED]
    done = subprocess.run(
        [*command, str(logdir)], env=environment, cwd=logdir, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_our_own_package_is_taken(tmp_path: Path) -> None:
    """Without a collision there is the tab, and nothing to say."""
    assert load(tmp_path) == ("SupervisorPlugin", "")


@each("source", ["", "raise OSError('not for you')"])
def test_another_distributions_package_is_named(tmp_path: Path, source: str) -> None:
    """The error names the distribution whose package it is, where that lies, and what to type."""
    site = tmp_path / "site"
    (site / "tb_plugin").mkdir(parents=True)
    (site / "tb_plugin" / "__init__.py").write_text(source)
    (site / "other_profiler-1.0.dist-info").mkdir()
    (site / "other_profiler-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other-profiler\n")
    (site / "other_profiler-1.0.dist-info" / "top_level.txt").write_text("tb_plugin\n")
    plugin, said = load(tmp_path, site)
    assert plugin == "NoneType"
    assert "TensorBoard has no Supervisor tab: the package tb_plugin that Python finds first" in said
    assert ("not for you" if source else str(site / "tb_plugin")) in said
    assert f"It comes from other-profiler. To get the tab: remove that, then install {DISTRIBUTION} again" in said

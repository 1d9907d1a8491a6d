"""examples/monitoring: the files that docs/watch-runs.md starts are ones that their programs take."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from supervisor_core import __version__
from supervisor_core.cli import main
from supervisor_core.metrics.config_files import rule_groups
from supervisor_core.metrics.table import ALL_METRICS

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "monitoring"
TUTORIAL = (ROOT / "docs" / "watch-runs.md").read_text("utf-8")
HOW_TO = (ROOT / "docs" / "set-up-alerts.md").read_text("utf-8")
ALERTS = {rule["alert"] for group in rule_groups()["groups"] for rule in group["rules"] if "alert" in rule}


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a language on a page, those within lists included."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def loaded(name: str) -> Any:
    """A YAML file of the directory."""
    return yaml.safe_load((HERE / name).read_text("utf-8"))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing")
@pytest.mark.parametrize("source", ["file", "page"])
def test_prometheus_takes_its_configuration(tmp_path: Path, source: str) -> None:
    """promtool accepts it, with the rules where it looks for them."""
    text = (HERE / "prometheus.yml").read_text("utf-8") if source == "file" else blocks(HOW_TO, "yaml")[0]
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "supervisor.rules.yaml").write_text(json.dumps(rule_groups()))
    checked = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "1 rule files found" in checked.stdout


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing")
def test_one_of_several_prometheus_servers_takes_its_files(tmp_path: Path) -> None:
    """promtool accepts its configuration with the rules of a shard, and those of the ruler above; no label of its own
    is one that a metric has."""
    text = (HERE / "several" / "prometheus.yml").read_text("utf-8")
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "shard.rules.yaml").write_text(json.dumps(rule_groups(level="shard")))
    (tmp_path / "fleet.rules.yaml").write_text(json.dumps(rule_groups(level="fleet")))
    for words in (("config", "prometheus.yml"), ("rules", "fleet.rules.yaml")):
        done = subprocess.run(["promtool", "check", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    external = yaml.safe_load(text)["global"]["external_labels"].keys()
    assert not {label for metric in ALL_METRICS for label in metric.labels} & external
    for line in re.findall(r"tb-supervisor (rules --level \w+)", text):
        main.make_context("tb-supervisor", line.split())


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is missing")
@pytest.mark.parametrize("source", ["file", "page"])
def test_alertmanager_takes_its_configuration(tmp_path: Path, source: str) -> None:
    """amtool accepts it; critical alerts go to the pager, others do not, and the alerts that it names exist."""
    text = (HERE / "alertmanager.yml").read_text("utf-8") if source == "file" else blocks(HOW_TO, "yaml")[1]
    file = tmp_path / "alertmanager.yml"
    file.write_text(text)
    subprocess.run(["amtool", "check-config", str(file)], capture_output=True, check=True)
    for severity, receiver in (("critical", "on-call"), ("warning", "chat"), ("info", "chat")):
        command = ["amtool", "config", "routes", "test", f"--config.file={file}", f"severity={severity}"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == receiver
    named = set(re.findall(r"Supervisor\w+", text))
    assert named and named <= ALERTS


def test_compose_mounts_what_is_there_or_was_printed() -> None:
    """Each file that a service mounts is in the directory, or is written by a command of the tutorial."""
    services = loaded("compose.yaml")["services"]
    assert set(services) == {"exporter", "tensorboard", "prometheus", "alertmanager", "grafana"}
    mounted = [volume.split(":")[0] for service in services.values() for volume in service["volumes"]]
    printed = re.findall(r"> (generated/\S+)", TUTORIAL)
    files = [path.removeprefix("./") for path in mounted if not path.startswith("${RUNS")]
    assert len(files) == 6
    assert [path for path in files if not (HERE / path).exists() and path not in printed] == []
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert all(services["tensorboard"][key] == services["exporter"][key] for key in ("image", "build"))
    build = services["exporter"]["build"]
    assert (HERE / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    targets = loaded("prometheus.yml")["scrape_configs"][0]["static_configs"][0]["targets"]
    assert [target.split(":")[0] for target in targets] == ["exporter"]


def test_grafana_finds_its_dashboard() -> None:
    """The provider's directory is where the dashboard is mounted; the page shows the same provider."""
    provider = loaded("grafana/dashboards.yaml")
    path = provider["providers"][0]["options"]["path"]
    assert any(f":{path}/" in volume for volume in loaded("compose.yaml")["services"]["grafana"]["volumes"])
    assert provider in [yaml.safe_load(block) for block in blocks(HOW_TO, "yaml")]
    assert loaded("grafana/datasources.yaml")["datasources"][0]["type"] == "prometheus"


def instructions() -> list[tuple[str, str]]:
    """The image's instructions, each with its arguments."""
    text = re.sub(r"\\\n *", "", (HERE / "Containerfile").read_text("utf-8"))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line and line[0] != "#"]


def test_the_image_starts_the_exporter() -> None:
    """Entry point and command are a call that the command line takes; as all commands, they need no shell."""
    given = dict(instructions())
    known = {"ARG", "FROM", "COPY", "RUN", "LABEL", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert set(given) <= known
    for name, text in instructions():
        if name in ("RUN", "HEALTHCHECK", "ENTRYPOINT", "CMD"):
            assert json.loads(text[text.index("[") :]), text
    program, command, *arguments = json.loads(given["ENTRYPOINT"]) + json.loads(given["CMD"])
    found = main.get_command(click.Context(main), command)
    assert program == "tb-supervisor" and found is not None
    params = found.make_context(command, arguments).params
    assert params["address"] == f"0.0.0.0:{given['EXPOSE'].split()[0]}"


def test_the_image_is_of_what_is_locked() -> None:
    """What is downloaded has its hash in the lock; nothing runs as root, and the version is that of the project."""
    downloads = [text for name, text in instructions() if name == "RUN" and '"install"' in text]
    assert len(downloads) == 2
    assert all("--require-hashes" in text or "--no-index" in text for text in downloads)
    given = dict(instructions())
    assert given["USER"] == "65534:65534"
    assert f'version="{__version__}"' in given["LABEL"]
    assert loaded("compose.yaml")["services"]["exporter"]["image"].endswith(f":{__version__}")

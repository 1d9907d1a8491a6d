"""``tb-supervisor dashboard`` and ``manifests``: what is printed, and options that are refused in one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from click.testing import Result

from supervisor_core import __version__
from supervisor_core.metrics.config_files import Deployed, manifests
from supervisor_core.run.model.thresholds import Thresholds
from tests.cases import each


def printed(result: Result) -> list[Any]:
    """What was printed, as kubectl reads it."""
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def test_the_manifests_are_printed(run: Callable[..., Result]) -> None:
    """Without options, with the defaults that are documented."""
    where = Deployed(image=f"tb-supervisor:{__version__}", namespace="default", logdir="/logs", claim="training-logs")
    assert printed(run("manifests")) == manifests(where)


def test_every_option_arrives(run: Callable[..., Result]) -> None:
    """Names, places, labels, thresholds and the runbook are those that are given."""
    result = run(
        *("manifests", "--image", "registry:5000/x@sha256:0f", "--logdir", "gs://bucket/logs", "--namespace", "ml"),
        *("--claim", "disk", "--label", "release=prometheus", "--label", "team.example.org/name=a_b"),
        *("--interval", "30s", "--runbook-base", "https://wiki.example.org/alerts"),
        *("--prometheus-namespace", "observed", "--by", "run,team", "--shards", "4"),
    )
    where = Deployed(
        image="registry:5000/x@sha256:0f",
        namespace="ml",
        logdir="gs://bucket/logs",
        claim="disk",
        prometheus_namespace="observed",
        labels={"release": "prometheus", "team.example.org/name": "a_b"},
        shards=4,
    )
    base = "https://wiki.example.org/alerts"
    expected = manifests(where, Thresholds(interval_secs=30), runbook_base=base, by=("run", "team"))
    assert printed(result) == expected


def test_kustomize_gets_two_bases(run: Callable[..., Result], tmp_path: Path) -> None:
    """One for each namespace, which names none, and one for Prometheus's; together they are what is printed."""
    result = run("manifests", "--kustomize", str(tmp_path / "kubernetes"))
    assert (result.exit_code, result.stdout) == (0, "")
    found: list[Any] = []
    for part in ("base", "prometheus"):
        listing = yaml.safe_load((tmp_path / "kubernetes" / part / "kustomization.yaml").read_text())
        for name in listing["resources"]:
            found += yaml.safe_load_all((tmp_path / "kubernetes" / part / name).read_text())
    assert [item["metadata"].get("namespace") for item in found] == [None] * 6 + ["monitoring"] * 3
    assert [item["metadata"].setdefault("namespace", "default") for item in found]
    assert found == printed(run("manifests"))


def test_only_its_own_files_are_written(run: Callable[..., Result], tmp_path: Path) -> None:
    """Into a directory of others, too: a pipe is not waited for, and what a link leads to stays as it is."""
    (tmp_path / "base").mkdir()
    os.mkfifo(tmp_path / "base" / "kustomization.yaml")
    (tmp_path / "other").write_text("other")
    (tmp_path / "base" / "tb-supervisor.yaml").symlink_to("../other")
    assert run("manifests", "--kustomize", str(tmp_path)).exit_code == 0
    assert (tmp_path / "base" / "kustomization.yaml").is_file()
    assert (tmp_path / "other").read_text() == "other"


@each(
    "arguments, complaint",
    [
        (("--namespace", "Not Good"), "--namespace is 'Not Good'; expected a name of small letters"),
        (("--prometheus-namespace", "A"), "--prometheus-namespace is 'A'; expected a name of small letters"),
        (("--claim", ""), "--claim is ''; expected a name"),
        (("--image", "a b"), "--image is 'a b'; expected one like"),
        (("--logdir", "logs"), "--logdir is 'logs'; expected an absolute path or an address"),
        (("--label", "release"), "--label is 'release'; expected KEY=VALUE"),
        (("--label", "a=b c"), "--label is 'a=b c'; expected KEY=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Callable[..., Result], arguments: tuple[str, ...], complaint: str) -> None:
    """One clear line, status 2, and no manifests."""
    result = run("manifests", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr.splitlines()[-1]


def test_what_cannot_be_written_is_said(run: Callable[..., Result], tmp_path: Path) -> None:
    """One line names the file and the option."""
    (tmp_path / "base").write_text("")
    result = run("manifests", "--kustomize", str(tmp_path))
    assert result.exit_code == 2
    assert "base' cannot" in result.stderr.replace("/kustomization.yaml", "") and "--kustomize" in result.stderr

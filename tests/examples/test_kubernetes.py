"""examples/kubernetes: the overlays are ones that Kustomize builds from what ``tb-supervisor manifests`` writes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from supervisor_core.cli import main

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="for development only")

HERE = Path(__file__).parents[2] / "examples" / "kubernetes"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The overlays, beside the bases that the command writes."""
    return written(tmp_path)


def written(directory: Path, *options: str) -> Path:
    """The overlays, beside the bases that the command writes with these options."""
    shutil.copytree(HERE / "overlays", directory / "overlays")
    assert CliRunner().invoke(main, ["manifests", *options, "--kustomize", str(directory)]).exit_code == 0
    return directory


def loaded(path: Path) -> list[Any]:
    """The documents of a file."""
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def merged(overlay: Path) -> list[Any]:
    """The objects of an overlay; of what Kustomize knows, as much as the overlays use."""
    (kustomization,) = loaded(overlay / "kustomization.yaml")
    found: list[Any] = []
    for name in kustomization["resources"]:
        path = (overlay / name).resolve()
        found += merged(path) if path.is_dir() else loaded(path)
    for item in found:
        if "namespace" in kustomization and item["kind"] != "PersistentVolume":
            item["metadata"]["namespace"] = kustomization["namespace"]
        for container in item.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            for image in kustomization.get("images", ()):
                name, tag = container["image"].split(":")
                container["image"] = f"{image['newName']}:{tag}" if name == image["name"] else container["image"]
        for patch in kustomization.get("patches", ()):
            has = {"kind": item["kind"], "name": item["metadata"]["name"]}
            if all(re.fullmatch(wanted, has[field]) for field, wanted in patch["target"].items()):
                for change in yaml.safe_load(patch["patch"]):
                    patched(item, change)
    return found


def patched(item: Any, change: dict[str, Any]) -> None:
    """Apply one operation of a JSON patch; ``replace`` needs what it replaces."""
    *way, last = change["path"].strip("/").split("/")
    for key in way:
        item = item[int(key) if isinstance(item, list) else key]
    assert set(change) == {"op", "path", "value"}
    assert (change["op"] == "replace") == (last in item)
    item[last] = change["value"]


def by_name(objects: list[Any]) -> dict[tuple[str, str], Any]:
    """Objects by kind and name."""
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


@pytest.mark.parametrize(("overlay", "namespace"), [("team-a", "team-a"), ("all-teams", "training-logs")])
def test_kubernetes_takes_an_overlay(directory: Path, overlay: str, namespace: str) -> None:
    """Every object is valid; both Deployments are in the namespace of their claim, and have the image and the claim."""
    objects = merged(directory / "overlays" / overlay)
    for item in objects:
        kubernetes_validate.validate(item, "1.30", strict=True)
    deployments = [item for item in objects if item["kind"] == "Deployment"]
    assert len(deployments) == 2
    (claim,) = {
        item["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] for item in deployments
    }
    assert claim == {"team-a": "team-a-runs", "all-teams": "all-runs"}[overlay]
    assert {item["metadata"]["namespace"] for item in deployments} == {namespace}
    for item in deployments:
        (container,) = item["spec"]["template"]["spec"]["containers"]
        assert container["image"].startswith("registry.example.org/tb-supervisor:")


def test_an_overlay_is_of_shards_too(tmp_path: Path) -> None:
    """What it sets of a Deployment it sets of the StatefulSet that divides the runs."""
    found = by_name(merged(written(tmp_path, "--shards", "3") / "overlays" / "team-a"))
    exporter = found["StatefulSet", "tb-supervisor-exporter"]
    kubernetes_validate.validate(exporter, "1.30", strict=True)
    (volume,) = exporter["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == "team-a-runs"


def test_volumes_of_two_namespaces_lead_to_one_export(directory: Path) -> None:
    """Each volume is for one claim, which asks for it; what a team writes is below what the exporter reads."""
    overlay = directory / "overlays" / "all-teams"
    exports = []
    for name in ("volume.yaml", "team-a.yaml"):
        volume, claim = loaded(overlay / name)
        kubernetes_validate.validate(volume, "1.30", strict=True)
        kubernetes_validate.validate(claim, "1.30", strict=True)
        reference = {key: claim["metadata"][key] for key in ("namespace", "name")}
        assert volume["spec"]["claimRef"] == reference
        assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
        assert claim["spec"]["accessModes"] == volume["spec"]["accessModes"]
        exports.append(volume["spec"]["nfs"])
    every, one = exports
    assert one["server"] == every["server"]
    assert one["path"] == f"{every['path']}/team-a"
    assert every["readOnly"]


def test_the_page_names_what_is_there(directory: Path) -> None:
    """What docs/kubernetes.md applies is in the repository, or is written by the command before it."""
    page = (HERE.parents[1] / "docs" / "kubernetes.md").read_text("utf-8")
    named = set(re.findall(r"-[kf] examples/kubernetes/(\S+)", page))
    assert named == {"prometheus", "overlays/team-a", "overlays/all-teams", "overlays/all-teams/team-a.yaml"}
    assert all((directory / path).exists() for path in named)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")
@pytest.mark.parametrize("part", ["overlays/team-a", "overlays/all-teams", "prometheus"])
def test_kustomize_builds_it(directory: Path, part: str) -> None:
    """It builds the same objects as these tests."""
    built = subprocess.run(["kubectl", "kustomize", str(directory / part)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert by_name(list(yaml.safe_load_all(built.stdout))) == by_name(merged(directory / part))

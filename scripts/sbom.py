#!/usr/bin/env python3
"""Write what a wheel is made of and what it needs, as CycloneDX 1.6.

    scripts/sbom.py WHEEL [OUTPUT]

Run by the Python of the environment in which the wheel was made: the Python packages that the wheel needs, directly or
not, are listed in the versions installed there. So are the packages of the tab that the wheel holds, which the tab's
build writes down in it, and, as excluded from the wheel, what built them. The same wheel gives the same document.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import uuid
import zipfile
from collections.abc import Iterator
from datetime import datetime, timezone
from email.message import Message
from email.parser import BytesParser
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
BUNDLED = "tb_plugin/static/packages.json"
"""What of others the tab's program holds; written by frontend/build.mjs."""
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


def main() -> None:
    """Write the document for a wheel."""
    wheel = Path(sys.argv[1])
    text = document(wheel, json.loads((ROOT / "frontend/package-lock.json").read_text()))
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    else:
        print(text)


def document(wheel: Path, frontend_lock: dict[str, Any]) -> str:
    """Return the document.

    Args:
        wheel: the file.
        frontend_lock: the frontend's ``package-lock.json``, for the checksums of its packages.
    """
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(path))
        bundled = json.loads(archive.read(BUNDLED))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    ours = component("pypi", metadata["Name"], metadata["Version"], metadata["License-Expression"])
    ours.type, ours.hashes = ComponentType.LIBRARY, [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, digest))
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    bom.metadata.component = ours
    needed = dict(python_packages(metadata))
    found = {name: python_component(name) for name in needed}
    tab = [npm_component(item["name"], item["version"], frontend_lock) for item in bundled]
    bom.components.update([*found.values(), *tab, *build_tools(frontend_lock, {item["name"] for item in bundled})])
    bom.register_dependency(ours, [*(found[name] for name in direct(metadata)), *tab])
    for name, needs in needed.items():
        bom.register_dependency(found[name], [found[other] for other in needs])
    return str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"


def direct(metadata: Message, extras: tuple[str, ...] = ("",)) -> list[str]:
    """Return the names of the packages that a distribution needs here, in these of its extras."""
    names = []
    for text in metadata.get_all("Requires-Dist") or ():
        asked = Requirement(text)
        if asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in extras):
            names.append(canonicalize_name(asked.name))
    return sorted(set(names))


def python_packages(metadata: Message) -> Iterator[tuple[str, list[str]]]:
    """Yield every package that a distribution needs, directly or not, with what that needs itself."""
    seen: set[str] = set()
    left = direct(metadata)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        needs = direct(distribution(name).metadata)  # type: ignore[arg-type]
        left += needs
        yield name, needs


def python_component(name: str) -> Component:
    """Return an installed package."""
    about = distribution(name).metadata
    return component("pypi", name, about["Version"], about.get("License-Expression") or about.get("License"))


def npm_component(name: str, version: str, lock: dict[str, Any]) -> Component:
    """Return a package of the frontend, as its lock has it."""
    locked = lock["packages"][f"node_modules/{name}"]
    if locked["version"] != version:
        raise SystemExit(f"sbom: {name} {version} is in the tab, and {locked['version']} in package-lock.json")
    found = component("npm", name, version, locked.get("license"))
    algorithm, _, digest = locked["integrity"].partition("-")
    known = {"sha512": HashAlgorithm.SHA_512, "sha256": HashAlgorithm.SHA_256}[algorithm]
    found.hashes = [HashType(alg=known, content=base64.b64decode(digest).hex())]
    return found


def build_tools(lock: dict[str, Any], bundled: set[str]) -> Iterator[Component]:
    """Yield what built the tab and is not in it."""
    for name, version in lock["packages"][""]["dependencies"].items():
        if name not in bundled:
            tool = npm_component(name, version, lock)
            tool.scope = ComponentScope.EXCLUDED
            tool.properties = [Property(name="supervisor:purpose", value="builds the tab")]
            yield tool


def component(kind: str, name: str, version: str, licence: str | None) -> Component:
    """Return a package of an index; without a licence where none is stated in a line."""
    namespace, _, plain = name.rpartition("/")
    url = PackageURL(kind, namespace or None, plain, version)
    stated = licence if licence and "\n" not in licence and len(licence) < 100 else None
    return Component(
        type=ComponentType.LIBRARY,
        name=plain,
        group=namespace or None,
        version=version,
        purl=url,
        bom_ref=str(url),
        licenses=[LicenseFactory().make_from_string(stated)] if stated else [],
    )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Write the published JSON Schemas: of the records in the events file, of ``tb-supervisor inspect --json``, and of the
events of messages.

All come from the fields of the classes.

scripts/schema.py            write docs/events.schema.json, docs/inspect.schema.json and docs/event.schema.json
scripts/schema.py --check    exit status 1 where one is not what this would write
"""

from __future__ import annotations

import json
import sys
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from supervisor_core.cli.inspect import SCHEMA_VERSION as INSPECT_VERSION
from supervisor_core.events.telemetry import KINDS, SCHEMA_VERSION
from supervisor_core.notify.event import SCHEMA_VERSION as EVENT_VERSION
from supervisor_core.notify.event import Event
from supervisor_core.run.judge.finding import Finding
from supervisor_core.run.judge.run_json import OF_READING, shown
from supervisor_core.run.model.program_launch import ProgramLaunch
from supervisor_core.run.model.run import Run, WorkerHistory, WorkerSpan
from supervisor_core.run.model.snapshot import WatchedRun

DOCS = Path(__file__).resolve().parents[1] / "docs"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def events_schema() -> dict[str, Any]:
    """Return one definition for each kind of record, and for what is within one."""
    _, found = msgspec.json.schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    for cls in KINDS.values():
        record = found[cls.__name__]
        record["properties"] = {"v": {"const": SCHEMA_VERSION}, **record["properties"]}
        record["required"] = ["v", *record["required"]]
    return {
        "$schema": DIALECT,
        "title": "Telemetry of a training: the JSON of a summary with the tag supervisor/<kind>",
        "properties": {kind: {"$ref": f"#/$defs/{cls.__name__}"} for kind, cls in KINDS.items()},
        "$defs": found,
    }


def inspect_schema() -> dict[str, Any]:
    """Return the schema of the object, and of each part of a run in it."""
    schema = InspectSchema()
    schema.of(Run)
    run = schema.parts["Run"]
    added = {name: schema.of(hint_of(WatchedRun, attribute)) for name, attribute in OF_READING.items()}
    added |= {"findings": schema.of(tuple[Finding, ...]), "checkpoint_age_secs": schema.of(float | None)}
    run["properties"] |= added
    run["required"] += added
    for cls, name, hint in (
        (ProgramLaunch, "last_words", str | None),
        (WorkerHistory, "spans", tuple[WorkerSpan, ...]),
    ):
        schema.parts[cls.__name__]["properties"][name] = schema.of(hint)
    whole = {
        "v": {"const": INSPECT_VERSION},
        "logdir": schema.of(str),
        "logdirs": schema.of(tuple[str, ...]),
        "at": schema.of(float),
        "problems": schema.of(tuple[str, ...]),
        "runs": schema.of(tuple[Run, ...]),
    }
    return {
        "$schema": DIALECT,
        "title": "What tb-supervisor inspect --json prints",
        "type": "object",
        "properties": whole,
        "required": list(whole),
        "$defs": schema.parts,
    }


def event_schema() -> dict[str, Any]:
    """Return the schema of one event, as a command or a callable gets it."""
    schema = InspectSchema()
    schema.of(Event)
    event = schema.parts.pop("Event")
    event["properties"]["at"] = {"type": "number"}
    return {
        "$schema": DIALECT,
        "title": "An event: what --on-event and on_event get",
        "type": "object",
        "properties": {"v": {"const": EVENT_VERSION}, **event["properties"]},
        "required": ["v", *event["required"]],
        "$defs": schema.parts,
    }


class InspectSchema:
    """Collects the definitions of the classes that are shown."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        """Return the schema of an annotation; that of a class is a reference to its definition."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.of(arguments[0])
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(each) for each in arguments]}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is tuple:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in (Mapping, Counter):
            return {"type": "object", "additionalProperties": self.of(arguments[-1])}
        if is_dataclass(hint) and isinstance(hint, type):
            return self._reference(hint)
        # A number that JSON cannot hold is null.
        simple = {float: ["number", "null"], int: "integer", bool: "boolean", str: "string", type(None): "null"}
        return {"type": simple[hint]}

    def _reference(self, cls: type) -> dict[str, Any]:
        if cls.__name__ not in self.parts:
            part: dict[str, Any] = {"type": "object"}
            self.parts[cls.__name__] = part
            names = shown(cls)
            part["properties"] = {name: self.of(hint_of(cls, attribute)) for name, attribute in names.items()}
            part["required"] = list(names)
        return {"$ref": f"#/$defs/{cls.__name__}"}


def hint_of(cls: type, attribute: str) -> Any:
    """Return the annotation of a field, or of what a property returns."""
    item = getattr(cls, attribute, None)
    return get_type_hints(item.fget)["return"] if isinstance(item, property) else get_type_hints(cls)[attribute]


def main() -> int:
    """Write them, or check them."""
    status = 0
    schemas = {"events": events_schema(), "inspect": inspect_schema(), "event": event_schema()}
    for name, found in schemas.items():
        path = DOCS / f"{name}.schema.json"
        definitions = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.pop("$defs").items())
        more = f',\n"$defs": {{\n{definitions}\n}}' if definitions else ""
        text = f"{json.dumps(found)[:-1]}{more}}}\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"docs/{path.name} is out of date; run: python scripts/schema.py", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())

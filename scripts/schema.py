#!/usr/bin/env python3
"""Write docs/events.schema.json, the JSON Schema of the records in the events file, from their fields.

scripts/schema.py            write it
scripts/schema.py --check    exit status 1 where it is not what this would write
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from supervisor_core.events.telemetry import KINDS, SCHEMA_VERSION

PATH = Path(__file__).resolve().parents[1] / "docs" / "events.schema.json"


def schema() -> dict[str, Any]:
    """Return one definition for each kind of record, and for what is within one."""
    _, found = msgspec.json.schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    for cls in KINDS.values():
        record = found[cls.__name__]
        record["properties"] = {"v": {"const": SCHEMA_VERSION}, **record["properties"]}
        record["required"] = ["v", *record["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Telemetry of a training: the JSON of a summary with the tag supervisor/<kind>",
        "properties": {kind: {"$ref": f"#/$defs/{cls.__name__}"} for kind, cls in KINDS.items()},
        "$defs": found,
    }


def main() -> int:
    """Write it, or check it."""
    found = schema()
    definitions = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.pop("$defs").items())
    text = f'{json.dumps(found)[:-1]},\n"$defs": {{\n{definitions}\n}}}}\n'
    if "--check" not in sys.argv[1:]:
        PATH.write_text(text)
    elif not PATH.exists() or PATH.read_text() != text:
        print("docs/events.schema.json is out of date; run: python scripts/schema.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

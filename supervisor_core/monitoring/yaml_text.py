"""YAML as people read it: keys in the order given, expressions of several lines as blocks."""

from __future__ import annotations

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """A dumper of its own, so that other users of PyYAML in the process keep theirs as it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def to_yaml(*documents: Any) -> str:
    """Return one YAML text that holds the documents, in order."""
    text: str = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True, explicit_start=len(documents) > 1
    )
    return text

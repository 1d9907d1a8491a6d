"""The scalar tags of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor_core.run.plain import plain
from tb_plugin.scalar_store import TagFacts


def tag_list(tags: Mapping[str, TagFacts]) -> dict[str, Any]:
    """Return the tags by name, with how much each holds and where it stands."""
    return {
        "v": 1,
        "tags": [
            plain(
                {
                    "tag": tag,
                    "points": facts.points,
                    "first_step": facts.first_step,
                    "last_step": facts.last_step,
                    "last_value": facts.last_value,
                }
            )
            for tag, facts in sorted(tags.items())
        ],
    }

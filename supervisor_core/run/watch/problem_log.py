"""`ProblemLog`: logs what could not be read: what is new at each look, and that all is well again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

_LOG = logging.getLogger("supervisor_core")

MAX_LOGGED = 100
"""Limit of the new problems that are logged of one look: each run may have a different one at each look."""


class ProblemLog:
    """The problems of repeated looks. Used by one thread at a time."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()

    def look_had(self, problems: Sequence[str]) -> None:
        """Log the problems of a look that the one before did not have; if there are none any more, that."""
        known, self._known = self._known, frozenset(problems)
        new = [text for text in dict.fromkeys(problems) if text not in known]
        for text in new[:MAX_LOGGED]:
            _LOG.warning("%s", text)
        if len(new) > MAX_LOGGED:
            _LOG.warning("... and %s more problems, which are not logged", f"{len(new) - MAX_LOGGED:,}")
        if known and not problems:
            _LOG.info("Everything can be read again")

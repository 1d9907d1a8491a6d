"""What is known of one process, from inside and from outside, without its logdir: identity, and files in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.process.progress_page import PageReading, read_page

__all__ = ["PageReading", "read_page"]

__getattr__, __dir__ = lazy_names(__name__, {"process.progress_page": "PageReading read_page"})

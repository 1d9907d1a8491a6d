"""What is known about a run, as plain frozen values: no threads, no I/O, no clock. `RunFold` is public."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.run.fold.run_fold import RunFold

__all__ = ["RunFold"]

__getattr__, __dir__ = lazy_names(__name__, {"run.fold.run_fold": "RunFold"})

"""Keras 3, on TensorFlow, JAX and PyTorch: `SupervisorCallback` makes ``model.fit`` one supervised session of a run.

    from supervisor_core.keras import SupervisorCallback

    model.fit(x, y, epochs=3, callbacks=[SupervisorCallback("/runs/mnist")])

Needs the extra ``keras`` (docs/install.md), and a backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.keras.callback import SupervisorCallback

__all__ = ["SupervisorCallback"]

__getattr__, __dir__ = lazy_names(__name__, {"keras.callback": "SupervisorCallback"})

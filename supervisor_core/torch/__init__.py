"""PyTorch: `supervised` makes a training loop one supervised session of a run.

    from supervisor_core.torch import supervised

    with supervised(loader, "/runs/mnist", epochs=3, model=model, optimizer=optimizer) as loop:
        for batch in loop:
            loss = train_step(batch)

Needs the extra ``torch`` (docs/install.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.torch.api import supervised
    from supervisor_core.torch.loop import SupervisedLoop

__all__ = ["SupervisedLoop", "supervised"]

__getattr__, __dir__ = lazy_names(__name__, {"torch.api": "supervised", "torch.loop": "SupervisedLoop"})

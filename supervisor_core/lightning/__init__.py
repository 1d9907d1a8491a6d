"""Lightning: `SupervisorCallback` makes each ``Trainer.fit`` one supervised session of a run.

    from supervisor_core.lightning import SupervisorCallback

    trainer = Trainer(max_epochs=3, callbacks=[SupervisorCallback("/runs/mnist")])
    trainer.fit(model, loader)

Needs the extra ``lightning`` (docs/install.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.lightning.callback import SupervisorCallback

__all__ = ["SupervisorCallback"]

__getattr__, __dir__ = lazy_names(__name__, {"lightning.callback": "SupervisorCallback"})

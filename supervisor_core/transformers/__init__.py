"""Hugging Face Transformers: `SupervisorCallback` makes each call of ``Trainer.train`` one supervised session of a run.

    from supervisor_core.transformers import SupervisorCallback

    supervisor = SupervisorCallback()
    trainer = Trainer(model, args, train_dataset=data, callbacks=[supervisor])
    trainer.train(resume_from_checkpoint=supervisor.resume_from())

Needs the extra ``transformers`` (docs/install.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.lazy import lazy_names

if TYPE_CHECKING:
    from supervisor_core.transformers.callback import SupervisorCallback

__all__ = ["SupervisorCallback"]

__getattr__, __dir__ = lazy_names(__name__, {"transformers.callback": "SupervisorCallback"})

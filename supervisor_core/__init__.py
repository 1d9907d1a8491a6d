"""The successor of ``tf.train.Supervisor``: trainings that run for days stay alive, and can be watched.

    import supervisor_core

    sv = supervisor_core.Supervisor(logdir="/my/training/directory")
    with sv.managed_session() as sess:
        while not sv.should_stop():
            sess.run(train_op)

Importing this loads neither tensorflow nor tensorboard: each name below loads its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from supervisor_core.events.file_writer import FileWriter
    from supervisor_core.options import Options
    from supervisor_core.tf1.coordinator import Coordinator, LooperThread
    from supervisor_core.tf1.session_manager import SessionManager
    from supervisor_core.tf1.supervisor import Supervisor

__version__ = "0.1.0"

__all__ = ["Coordinator", "FileWriter", "LooperThread", "Options", "SessionManager", "Supervisor", "__version__"]

_MODULES = {
    "Coordinator": "tf1.coordinator",
    "FileWriter": "events.file_writer",
    "LooperThread": "tf1.coordinator",
    "Options": "options",
    "SessionManager": "tf1.session_manager",
    "Supervisor": "tf1.supervisor",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(
            f"supervisor_core.{name} needs TensorFlow, which is not installed: "
            "pip install 'tensorboard-plugin-supervisor[tensorflow]'"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

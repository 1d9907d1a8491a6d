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

from supervisor_core.log import make_plain

if TYPE_CHECKING:
    from supervisor_core.events.file_writer import FileWriter
    from supervisor_core.options import Options
    from supervisor_core.tf1.cluster.cluster_task import ClusterTask
    from supervisor_core.tf1.coordinator import Coordinator, LooperThread
    from supervisor_core.tf1.monitored.checkpoint_saver_hook import CheckpointSaverHook
    from supervisor_core.tf1.monitored.global_step_waiter_hook import GlobalStepWaiterHook
    from supervisor_core.tf1.monitored.monitored_session import MonitoredSession, SingularMonitoredSession
    from supervisor_core.tf1.monitored.profiler_hook import ProfilerHook
    from supervisor_core.tf1.monitored.reused import (
        CheckpointSaverListener,
        FeedFnHook,
        FinalOpsHook,
        LoggingTensorHook,
        NanLossDuringTrainingError,
        NanTensorHook,
        Scaffold,
        SessionCreator,
        SessionRunArgs,
        SessionRunContext,
        SessionRunHook,
        SessionRunValues,
    )
    from supervisor_core.tf1.monitored.session_creator import ChiefSessionCreator, WorkerSessionCreator
    from supervisor_core.tf1.monitored.step_counter_hook import StepCounterHook
    from supervisor_core.tf1.monitored.stop_at_step_hook import StopAtStepHook
    from supervisor_core.tf1.monitored.summary_saver_hook import SummarySaverHook
    from supervisor_core.tf1.monitored.training_session import MonitoredTrainingSession
    from supervisor_core.tf1.session_manager import SessionManager
    from supervisor_core.tf1.supervisor import Supervisor

__version__ = "0.1.0"

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "ClusterTask",
    "Coordinator",
    "FeedFnHook",
    "FileWriter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "LooperThread",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "Options",
    "ProfilerHook",
    "Scaffold",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "WorkerSessionCreator",
    "__version__",
]

_MODULES = {
    "CheckpointSaverHook": "tf1.monitored.checkpoint_saver_hook",
    "CheckpointSaverListener": "tf1.monitored.reused",
    "ChiefSessionCreator": "tf1.monitored.session_creator",
    "ClusterTask": "tf1.cluster.cluster_task",
    "Coordinator": "tf1.coordinator",
    "FeedFnHook": "tf1.monitored.reused",
    "FileWriter": "events.file_writer",
    "FinalOpsHook": "tf1.monitored.reused",
    "GlobalStepWaiterHook": "tf1.monitored.global_step_waiter_hook",
    "LoggingTensorHook": "tf1.monitored.reused",
    "LooperThread": "tf1.coordinator",
    "MonitoredSession": "tf1.monitored.monitored_session",
    "MonitoredTrainingSession": "tf1.monitored.training_session",
    "NanLossDuringTrainingError": "tf1.monitored.reused",
    "NanTensorHook": "tf1.monitored.reused",
    "Options": "options",
    "ProfilerHook": "tf1.monitored.profiler_hook",
    "Scaffold": "tf1.monitored.reused",
    "SessionCreator": "tf1.monitored.reused",
    "SessionManager": "tf1.session_manager",
    "SessionRunArgs": "tf1.monitored.reused",
    "SessionRunContext": "tf1.monitored.reused",
    "SessionRunHook": "tf1.monitored.reused",
    "SessionRunValues": "tf1.monitored.reused",
    "SingularMonitoredSession": "tf1.monitored.monitored_session",
    "StepCounterHook": "tf1.monitored.step_counter_hook",
    "StopAtStepHook": "tf1.monitored.stop_at_step_hook",
    "SummarySaverHook": "tf1.monitored.summary_saver_hook",
    "Supervisor": "tf1.supervisor",
    "WorkerSessionCreator": "tf1.monitored.session_creator",
}


make_plain()


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

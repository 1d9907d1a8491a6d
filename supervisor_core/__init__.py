"""The successor of ``tf.train.Supervisor``: trainings that run for days stay alive, and can be watched.

    import supervisor_core

    sv = supervisor_core.Supervisor(logdir="/my/training/directory")
    with sv.managed_session() as sess:
        while not sv.should_stop():
            sess.run(train_op)

Importing this loads neither tensorflow nor tensorboard: a name, other than an error, loads its module on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor_core.base.errors import (
    CheckpointError,
    DamagedCheckpointError,
    EventsError,
    EventsWriteError,
    LogdirInUseError,
    NoUsableCheckpointError,
    OptionsError,
    RanksError,
    RunFinishedError,
    SaveFailedError,
    ServiceError,
    StalledError,
    SupervisorError,
    UnlistedCheckpointsError,
    UnreadableCheckpointError,
    WaitTimeoutError,
    WriterClosedError,
)
from supervisor_core.base.lazy import lazy_names
from supervisor_core.base.log import make_plain

if TYPE_CHECKING:
    from supervisor_core.base.options import Options
    from supervisor_core.events.file_writer import FileWriter
    from supervisor_core.history.recorded_run import RecordedRun, RecordedRuns, open_run, open_runs
    from supervisor_core.tf1.cluster.task import ClusterTask
    from supervisor_core.tf1.monitored.api import MonitoredSession, MonitoredTrainingSession, SingularMonitoredSession
    from supervisor_core.tf1.monitored.checkpoint_hook import CheckpointSaverHook
    from supervisor_core.tf1.monitored.hooks import (
        CheckpointSaverListener,
        FeedFnHook,
        FinalOpsHook,
        GlobalStepWaiterHook,
        LoggingTensorHook,
        NanLossDuringTrainingError,
        NanTensorHook,
        ProfilerHook,
        Scaffold,
        SessionCreator,
        SessionRunArgs,
        SessionRunContext,
        SessionRunHook,
        SessionRunValues,
        StepCounterHook,
        StopAtStepHook,
        SummarySaverHook,
    )
    from supervisor_core.tf1.monitored.session_creator import ChiefSessionCreator, WorkerSessionCreator
    from supervisor_core.tf1.services import Coordinator, LooperThread
    from supervisor_core.tf1.session_manager import SessionManager
    from supervisor_core.tf1.supervisor import Supervisor
    from supervisor_core.training.api import supervise
    from supervisor_core.training.run import Run

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "ClusterTask",
    "Coordinator",
    "DamagedCheckpointError",
    "EventsError",
    "EventsWriteError",
    "FeedFnHook",
    "FileWriter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LogdirInUseError",
    "LoggingTensorHook",
    "LooperThread",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "NoUsableCheckpointError",
    "Options",
    "OptionsError",
    "ProfilerHook",
    "RanksError",
    "RecordedRun",
    "RecordedRuns",
    "Run",
    "RunFinishedError",
    "SaveFailedError",
    "Scaffold",
    "ServiceError",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StalledError",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "SupervisorError",
    "UnlistedCheckpointsError",
    "UnreadableCheckpointError",
    "WaitTimeoutError",
    "WorkerSessionCreator",
    "WriterClosedError",
    "__version__",
    "open_run",
    "open_runs",
    "supervise",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "events.file_writer": "FileWriter",
        "history.recorded_run": "RecordedRun RecordedRuns open_run open_runs",
        "base.options": "Options",
        "tf1.cluster.task": "ClusterTask",
        "tf1.services": "Coordinator LooperThread",
        "tf1.monitored.api": "MonitoredSession MonitoredTrainingSession SingularMonitoredSession",
        "tf1.monitored.checkpoint_hook": "CheckpointSaverHook",
        "tf1.monitored.hooks": "CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook "
        "NanLossDuringTrainingError NanTensorHook ProfilerHook Scaffold SessionCreator SessionRunArgs "
        "SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook",
        "tf1.monitored.session_creator": "ChiefSessionCreator WorkerSessionCreator",
        "tf1.session_manager": "SessionManager",
        "tf1.supervisor": "Supervisor",
        "training.api": "supervise",
        "training.run": "Run",
    },
)

make_plain()

"""What keeps a training running, whatever framework it uses: threads, their stop, their health."""

from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.service import LooperThread, Policy, ServiceRegistry, ServiceThread
from supervisor_core.runtime.signals import SignalWatch
from supervisor_core.runtime.step_lock import StepLock

__all__ = [
    "Coordinator",
    "LooperThread",
    "Policy",
    "ServiceRegistry",
    "ServiceThread",
    "SignalWatch",
    "StepLock",
]

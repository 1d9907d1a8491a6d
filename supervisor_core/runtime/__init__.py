"""What keeps a training running, whatever framework it uses: threads, their stop, their health."""

from supervisor_core.runtime.coordinator import Coordinator
from supervisor_core.runtime.gate import Gate
from supervisor_core.runtime.looper import LooperThread
from supervisor_core.runtime.policy import Policy
from supervisor_core.runtime.registry import ServiceRegistry
from supervisor_core.runtime.service import ServiceThread
from supervisor_core.runtime.signals import SignalWatch

__all__ = [
    "Coordinator",
    "Gate",
    "LooperThread",
    "Policy",
    "ServiceRegistry",
    "ServiceThread",
    "SignalWatch",
]

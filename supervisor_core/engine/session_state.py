"""`SessionState`: the session under way, or the last one, as a facade, `ending` and `stop_signals` share it.

The facade sets what it consists of, when it begins, is ready and recovers; `Ending` and `StopSignals` why it ends.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from supervisor_core.engine.coordinator import Coordinator
from supervisor_core.engine.deadline import StopDeadline
from supervisor_core.engine.saving import Checkpoints
from supervisor_core.engine.session_recorder import SessionRecorder

if TYPE_CHECKING:
    from supervisor_core.notify.callable import EventCalls


@dataclass
class StopReason:
    """What has been seen so far of one session's end; `Ending` decides what it amounts to."""

    signum: int | None = None
    """The signal that asked for the end."""
    body_error: BaseException | None = None
    """What the training loop raised."""
    handled_before: int = 0
    """The ``id`` of the exception that was being handled when the session began: none of its own."""
    stop_was_requested: bool = False
    """Whether a stop had been requested before the training loop ended."""
    exhausted: bool = False
    """Whether the training loop ended because the input did, and no error is to be raised for that."""
    had_finished: bool = False
    """Whether there was nothing to do: the run had finished when this process came."""
    gave_up: bool = False
    """Whether it ended while it waited for the cluster, because a stop was requested."""
    ignores_live_threads: bool = False
    """Whether a thread that does not end is only named in the log, and fails nothing."""
    save_error: BaseException | None = None
    """Why the final checkpoint was given up after a signal."""
    final_checkpoint: str | None = None
    final_checkpoint_step: int | None = None


@dataclass(kw_only=True)
class SessionState:
    """One session, and then the next; plain data."""

    coord: Coordinator
    """The coordinator of its threads."""
    logdir: str | None
    """The run's directory; None where nothing is written."""
    writer: Any
    """The summary writer, or None."""
    deadline: StopDeadline
    """Until when its end has time."""
    checkpoints: Checkpoints | None = None
    """Saves its checkpoints; None where none are saved, and where another run owns the logdir."""
    recorder: SessionRecorder | None = None
    """Records it; None before the first one, and where the logdir was refused."""
    event_calls: EventCalls | None = None
    """Calls `Options.on_event` with its events; None where that is not set."""
    tf_session: Any = None
    """The TensorFlow session; None before it is ready, while it is recovered, and for other frameworks."""
    is_ready: bool = False
    """Whether it was said to be ready."""
    is_not_owner: bool = False
    """Whether the logdir belongs to another process's run: then nothing is written there but what the program adds to
    its events file itself."""
    reason: StopReason = field(default_factory=StopReason)
    """Why it ends, as far as is known."""
    has_left_loop: threading.Event = field(default_factory=threading.Event)
    """Set when the loop's thread has come to `Ending.stop`."""
    ending: str | None = None
    """What its end waits for now, for the log; None before the end."""

"""One supervised session, from its begin to its end, whatever the framework; none is imported here.

Who trains, and what is recorded:
    environment        what a session finds: options, metrics server, runtime directory
    session_recorder   telemetry, heartbeats, metrics of one session
    logdir_hold        one live chief per logdir; session_history: what it learns of the sessions before
    lifecycle          begins a session, says that it is ready
    liveness_writer    keeps the liveness file of a process
    worker_registry    the workers that the chief sees; chief_status: whether they may go on
    checkpoint_stats   the saves so far; tf_config: which task this process is

Whether it is stuck:
    progress           the present step and phase, how far and how fast; when the process itself did not run
    timeouts           the hang timeouts and the stop timeout that are in effect
    monitor            checks once a second: stalls, heartbeats, silences; which rank is slow
    hangs              which hangs there are, of threads, too; what is said of one, and what is done about it
    hang_stacks        where its stacks go, also while Python cannot run

Threads:
    coordinator        asks them to stop; service: threads that are restarted; retry: after which errors
    step_lock          keeps snapshots out of steps; blocking_call: a call that may be left behind

How it ends:
    signal_watch       sees a signal, in a thread of its own; signal_safe_event: for handlers
    deadline           the time that all of the end shares
    ending             the session, why it ends, its end in the order in which it happens; what signals do to it
    saving             the newest checkpoint, the record of a save, the last save: retried, given up at the deadline
    open_sessions      the process's sessions: at its exit, after an exception that left one open, in a notebook
    loop_exit          how a ``for`` loop over a session was left: by ``break``, or by an exception
"""

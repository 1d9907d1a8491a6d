"""One supervised session, whatever the framework; none is imported here.

session_state   the session under way, and why it ends, as far as is known
stop_signals    what SIGTERM, Ctrl-C, SIGHUP and SIGQUIT do to it
ending          its end, in the order in which it happens
final_save      its last checkpoint: retried while there is time, given up at the deadline
open_sessions   the process's sessions: at its exit, after an exception that left one open, in a notebook
loop_exit       how a ``for`` loop over a session was left: by ``break``, or by an exception
"""

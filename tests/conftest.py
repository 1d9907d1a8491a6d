"""What every test may rely on, however the tests were started."""

from __future__ import annotations

import signal

# What a shell starts in the background ignores SIGINT, and so do its children: who sends one would wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

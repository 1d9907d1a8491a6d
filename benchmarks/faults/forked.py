"""What a child does that a training forks in the middle of its loop."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading

KINDS = ("raises", "exits", "leaves", "stays", "pool")


def act(kind: str) -> bool:
    """Fork. Returns True in a child that is to leave the training's block; False in the parent.

    ``raises``: the child raises in the block. ``exits``: it calls ``sys.exit(0)``. ``leaves``: it leaves the block as
    at the end of the training. ``stays``: it lives on for as long as the parent, as a data loader's worker does.
    ``pool``: a `multiprocessing` pool of two, by the start method fork, does some work and is closed.
    """
    from benchmarks.faults.training import say

    if kind == "pool":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            say("pool", sum(pool.map(abs, range(-10, 10))))
        return False
    pid = os.fork()
    if pid == 0:
        if kind == "raises":
            raise ValueError("in the forked child")
        if kind == "exits":
            sys.exit(0)
        if kind == "stays":
            signal.pause()
        return True
    say("forked", pid)
    if kind != "stays":
        threading.Thread(target=lambda: say("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))).start()
    return False

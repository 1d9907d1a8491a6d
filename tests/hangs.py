"""Hangs for tests, as code for a process of its own, which is killed then."""

from __future__ import annotations

HOLD_LOCK_OF_INTERPRETER = """
import ctypes

def hold_lock_of_interpreter():
    "Never return, in native code that holds the interpreter's lock. A signal does not end it, as it would a sleep."
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # the line that hangs
"""
"""Defines ``hold_lock_of_interpreter()``."""
HANGING_LINE = 1 + HOLD_LOCK_OF_INTERPRETER.split("\n").index(
    "    library.pthread_mutex_lock(mutex)  # the line that hangs"
)
"""The number of its line that hangs, in a program that begins with it."""

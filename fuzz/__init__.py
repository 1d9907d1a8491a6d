"""Coverage-guided fuzzing of everything that reads what others wrote; ``make fuzz``, docs/security.md.

    python -m fuzz [TARGET ...] [--secs 60] [--write]

`targets` lists what is fuzzed; each target is a function of bytes that returns where the documented promise holds and
raises where it does not. ``corpus/<target>`` holds the inputs that fuzzing begins with, ``findings/<target>`` those
that once broke a promise; the tests give all of them to their targets, without a fuzzer.
"""

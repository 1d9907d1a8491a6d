"""Checkpoints without tensorflow: list, verify, keep and delete them, and let only one process write them.

    store       the checkpoints of a logdir            bundle        reads and verifies one checkpoint
    listing     which there are                        bundle_writer writes one
    recovery    which to resume from                   state_file    the ``checkpoint`` state file
    retention   which to keep                          ledger        what a killed save leaves to be finished
    logdir_lock one live chief per logdir              guard         the check before each change

Nothing here loads tensorflow; TensorBoard is loaded for paths that are not local (`supervisor_core.storage`).
"""

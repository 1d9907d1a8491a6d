"""Checkpoints without tensorflow: which there are, whether they are whole, which to keep, and who may write them.

    bundle      reads and verifies one checkpoint        store       finds, commits and deletes those of a logdir
    state       the ``checkpoint`` state file            retention   decides which to keep
    lease       one live chief per logdir

The rest are their parts. Nothing here loads tensorflow; TensorBoard is loaded for paths that are not local.
"""

"""The file layer of events and checkpoints: local files by the operating system, all others by TensorBoard's gfile.

    local     the interfaces, and local files        remote    object stores and other file systems

Importing this loads neither tensorflow nor TensorBoard; `remote` is loaded for paths that are not local.
"""

"""The file layer of events and checkpoints: local files by the operating system, all others by fsspec or TensorFlow.

    filesystem  the interface    local    local files, and which file system a path is on
    opening     how local files are opened    trees, directory    local directories
    remote      object stores and others      remote_source       their events: listings, ranges fetched ahead

Importing this loads neither tensorflow nor fsspec; `remote` and `remote_source` are loaded for paths that are not
local.
"""

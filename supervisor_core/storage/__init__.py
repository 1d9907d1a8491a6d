"""The file layer of events and checkpoints: local files by the operating system, all others by TensorBoard's gfile.

    local    the interfaces of checkpoints and of writing, local files    remote           object stores and others
    source   the interfaces of reading what grows                         remote_source    their listings, fetched ahead

Importing this loads neither tensorflow nor TensorBoard; the modules on the right are loaded for paths that are not
local.
"""

"""`merge_run_options`: one ``RunOptions`` that gives everybody what they asked for."""

from __future__ import annotations

from typing import Any

_LARGEST = ("trace_level", "timeout_in_ms", "inter_op_thread_pool")
_EITHER = ("output_partition_graphs", "report_tensor_allocations_upon_oom")


def merge_run_options(options: Any, wanted: Any) -> None:
    """Add what is wanted to ``options``, in place: numbers become the larger one, flags are or-ed, watches added.

    Args:
        options: a ``RunOptions``.
        wanted: another.
    """
    for name in _LARGEST:
        setattr(options, name, max(getattr(options, name), getattr(wanted, name)))
    for name in _EITHER:
        setattr(options, name, getattr(options, name) or getattr(wanted, name))
    debug, more = options.debug_options, wanted.debug_options
    debug.debug_tensor_watch_opts.extend(more.debug_tensor_watch_opts)
    debug.reset_disk_byte_usage = debug.reset_disk_byte_usage or more.reset_disk_byte_usage

"""`SupervisorLoader`: what TensorBoard finds by the entry point. It must not fail, and must cost nothing.

An error while TensorBoard imports this module, or asks it for flags, would end TensorBoard. So this imports only the
class that it has to extend, and whatever else there is, is loaded in `load`, where an error can be caught and shown.
"""

from __future__ import annotations

import argparse
import logging
import math
import re

from tensorboard.plugins import base_plugin

_LOG = logging.getLogger("supervisor_core")

REFRESH_SECS = 5.0
MEMORY_MB = 512


class SupervisorLoader(base_plugin.TBLoader):
    """Makes the tab, or one that says why there is none."""

    def define_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags; docs/tensorboard.md describes them."""
        try:
            group = parser.add_argument_group("supervisor")
            group.add_argument(
                "--supervisor_refresh_secs",
                metavar="SECS",
                type=_secs,
                default=REFRESH_SECS,
                help=f"How often the tab looks for new events, in seconds (default: {REFRESH_SECS:g}).",
            )
            group.add_argument(
                "--supervisor_runs",
                metavar="REGEX",
                type=_regex,
                default="",
                help="Read only runs whose names match this regular expression (default: all).",
            )
            group.add_argument(
                "--supervisor_memory_mb",
                metavar="MB",
                type=_megabytes,
                default=MEMORY_MB,
                help=f"How much memory the tab may hold scalars in, in megabytes (default: {MEMORY_MB}).",
            )
            group.add_argument(
                "--supervisor_cache",
                metavar="DIR",
                default="",
                help="Keep in DIR what the tab has read, so that the next start reads what is new (default: "
                "$SUPERVISOR_CACHE, else nothing is kept).",
            )
        except argparse.ArgumentError:  # somebody else's flags of that name; the defaults do
            _LOG.exception("The Supervisor tab has no flags of its own")

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """Return the plugin; where it cannot start, one that says what is wrong."""
        try:
            from tb_plugin.plugin import SupervisorPlugin

            return SupervisorPlugin(context)
        except Exception as error:
            _LOG.exception("The Supervisor tab could not start; TensorBoard continues")
            return _failed(error)


def _failed(error: Exception) -> base_plugin.TBPlugin | None:
    try:
        from tb_plugin.tab import FailedPlugin

        return FailedPlugin(f"{type(error).__name__}: {error}")
    except Exception:  # not even that: TensorBoard without the tab
        _LOG.exception("The Supervisor tab cannot show why it did not start")
        return None


def _secs(text: str) -> float:
    return _number(text, "seconds", 0.1, 86_400)


def _megabytes(text: str) -> int:
    return int(_number(text, "megabytes", 1, 1_048_576))


def _number(text: str, unit: str, low: float, high: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected {unit} from {low} to {high}")
    return number


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error
    return text

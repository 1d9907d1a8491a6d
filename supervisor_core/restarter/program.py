"""How a restarter starts the program: its environment, the directory for its progress pages, its keeper."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from supervisor_core.engine.timeouts import HANG_TIMEOUT_VARIABLE, STOP_TIMEOUT_VARIABLE
from supervisor_core.log import error_text
from supervisor_core.notify.secret import without_secrets
from supervisor_core.process.outside import TRACER_VARIABLE
from supervisor_core.process.runtime_directory import VARIABLE as RUNTIME_DIRECTORY_VARIABLE
from supervisor_core.process.runtime_directory import private_directory
from supervisor_core.restarter.child import Child
from supervisor_core.restarter.launch import Display, LaunchFacts, RestarterOptions
from supervisor_core.restarter.policy import ChildEnd


def directory_for_pages(display: Display) -> Path | None:
    """Return the directory for progress pages; say aloud where there is none, or not the one that was asked for."""

    def warn(what: str, error: OSError) -> None:
        display.line(f"warning: {what}: {error_text(error)}")

    try:
        return private_directory(partial(warn, f"{RUNTIME_DIRECTORY_VARIABLE} is not used for progress pages"))
    except OSError as error:
        warn("no directory for progress pages: a hang of the program is not seen", error)
        return None


def start_program(
    options: RestarterOptions,
    pages_in: Path | None,
    facts: LaunchFacts,
    spared: Callable[[], Collection[int]] = frozenset,
) -> Child | None:
    """Start a launch; None where its keeper could not be started, which the facts say then.

    Args:
        options: what the command line says.
        pages_in: the directory for progress pages.
        facts: the launch.
        spared: see `Child`.

    Raises:
        FileNotFoundError: without a Python interpreter.
    """
    try:
        return Child(options.command, _environment(options, pages_in), spared)
    except FileNotFoundError:
        raise
    except OSError as error:  # no more processes, no memory: counted, and tried again
        facts.ended_at = time.time()
        facts.end = ChildEnd(exit_code=1, stderr=f"The keeper could not be started: {error_text(error)}".encode())
        return None


def _environment(options: RestarterOptions, pages_in: Path | None) -> dict[str, str]:
    return {
        **without_secrets(),  # without the URLs of services: the program sends no messages
        **({} if pages_in is None else {RUNTIME_DIRECTORY_VARIABLE: str(pages_in)}),
        **({} if options.hang_timeout_secs is None else {HANG_TIMEOUT_VARIABLE: f"{options.hang_timeout_secs:g}"}),
        STOP_TIMEOUT_VARIABLE: f"{options.stop_timeout_secs:g}",
        TRACER_VARIABLE: str(os.getpid()),
    }

"""`Config`: what `training` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the program trains, and what it does to itself."""

    logdir: str
    facade: str = "supervisor"
    """Or ``monitored``."""
    resource: bool = True
    """Resource variables, or ref variables."""
    floats: int = 4096
    """In each of the four variables."""
    by_process: bool = False
    """Whether the saver process writes these small checkpoints, and another one is tried at once."""
    save_secs: float = 0.05
    keep: int = 5
    steps: int | None = None
    """How many to do in this session; None: until it is stopped."""
    loop: str = "asks"
    """``asks`` whether to stop; ``never`` asks; ``hangs`` in a run that does not return, from the tenth step on."""
    hang: str | None = None
    """How it hangs at the eightieth step, when its hang timeout is a learned one; see `hanging`."""
    pause_secs: float = 0.001
    """Between two steps, to leave the machine to others."""
    flush_every: int = 5
    options: dict[str, Any] = field(default_factory=dict)
    stop_grace_secs: float = 120.0
    lockless_host: str | None = None
    """``flock`` fails with ENOLCK, and this is the host's name."""
    clock_secs: float = 0.0
    """How far the wall clock is set off."""
    clock_jump: tuple[int, float] | None = None
    """From which step of the session on it is set off by how much."""
    fork: str | None = None
    """What a child does that is forked at the twentieth step; see `forks`."""
    kill_at_removal: int | None = None
    """Kills itself just before this removal of a checkpoint's file, counted from 1."""
    kill_after_removal: bool = False
    """Just after it instead."""

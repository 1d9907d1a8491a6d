"""`LazyGroup`: commands whose modules are loaded when they are asked for, so that each starts as fast as it can.

What they refuse is shown as text: the names in it may be anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from supervisor_core.log import printable_lines


class LazyGroup(click.Group):
    """A group of commands, each the object in a module that bears its name.

    Args:
        modules: name of the command -> name of its module.

    Example:
        >>> group = LazyGroup(modules={"verify": "supervisor_core.cli.verify"})
        >>> group.get_command(click.Context(group), "verify").name
        'verify'
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = printable_lines(error.message)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the alphabet."""
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, loading it; None for one that does not exist."""
        if cmd_name not in self._modules:
            return None
        command: click.Command = getattr(import_module(self._modules[cmd_name]), cmd_name)
        return command

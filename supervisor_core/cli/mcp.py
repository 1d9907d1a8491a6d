"""``tb-supervisor mcp``: answers an assistant's questions about runs, over the Model Context Protocol."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import click

from supervisor_core.cli import WrongInput
from supervisor_core.cli.logdirs import cache, existing, filters, logdirs
from supervisor_core.cli.look import Looking
from supervisor_core.errors import SupervisorError
from supervisor_core.install import DISTRIBUTION, install_command

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from supervisor_core.cli.answers import Answers


@click.command(
    short_help="Answer an assistant's questions about runs.",
    epilog="\b\nExample:\n  tb-supervisor mcp --logdir /runs",
)
@logdirs()
@filters
@cache
def mcp(logdirs: tuple[str, ...], include: str | None, exclude: str | None, cache: str | None) -> None:
    """Answer questions about the runs in and below each LOGDIR, on standard input and output, for an assistant that
    speaks the Model Context Protocol. Ends with its input.

    Reads what `inspect` reads, and writes nothing into a logdir. Texts from logs are marked as such.

    Exit status: 0 when the input ends; 2 if LOGDIR is not a directory, or the package mcp is missing.
    """
    from supervisor_core.cli.answers import Answers

    try:
        import_module("mcp.server").MCPServer  # noqa: B018 - which mcp 1 does not have
    except (ImportError, AttributeError) as error:
        raise WrongInput(f"mcp 2 is not installed ({error}). Install it: {install_command('mcp')}") from error
    if sys.stdin.isatty():
        click.echo("Waiting for an assistant's questions on standard input. Ctrl-C ends this.", err=True)

    try:
        looking = Looking(existing(logdirs), include, exclude, cache=cache, whole=None)
    except SupervisorError as error:
        raise WrongInput(str(error)) from error
    answers = Answers(looking)
    try:
        server(answers).run("stdio")
    finally:
        answers.close()


def server(answers: Answers) -> MCPServer:
    """Return the server whose tools are questions to `Answers`: the names, arguments and texts are those of its
    methods. Each only reads."""
    from mcp.server import MCPServer
    from mcp_types import ToolAnnotations

    from supervisor_core import __version__
    from supervisor_core.cli.marking import NOTE

    made = MCPServer(
        name=DISTRIBUTION,
        version=__version__,
        instructions="Training runs: which need somebody, why, and what to do. Begin with the tool runs. " + NOTE,
        log_level="WARNING",
    )
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for question in (answers.runs, answers.why, answers.findings, answers.compare, answers.scalars, answers.stacks):
        text = inspect.getdoc(question) or ""
        made.add_tool(_said(question), description=text, annotations=reads, structured_output=False)
    return made


def _said(question: Callable[..., str]) -> Callable[..., str]:
    """Return a question whose `NoAnswer` becomes an error of the protocol, with the same text."""
    from mcp.server.mcpserver.exceptions import ToolError

    from supervisor_core.cli.answers import NoAnswer

    @functools.wraps(question)
    def asked(*args: object, **given: object) -> str:
        try:
            return question(*args, **given)
        except NoAnswer as error:
            raise ToolError(str(error)) from error

    return asked

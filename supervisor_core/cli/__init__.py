"""``tb-supervisor``: the command line. Its commands are described in docs/cli.md."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click

from supervisor_core.cli.lazy_group import LazyGroup

DISTRIBUTION = "tensorboard-plugin-supervisor"


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    try:
        number = version(DISTRIBUTION)
    except PackageNotFoundError:
        number = "(not installed: running from the sources)"
    click.echo(f"tb-supervisor {number}")
    context.exit()


COMMANDS = {
    "dashboard": "supervisor_core.cli.render",
    "exporter": "supervisor_core.cli.exporter",
    "inspect": "supervisor_core.cli.inspect",
    "manifests": "supervisor_core.cli.render",
    "rules": "supervisor_core.cli.render",
    "verify": "supervisor_core.cli.verify",
}
"""Every command, and the module that it is in."""


@click.group(
    cls=LazyGroup,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  tb-supervisor inspect /runs\n  tb-supervisor inspect --help",
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Inspect, verify and monitor training runs. Works without TensorFlow."""

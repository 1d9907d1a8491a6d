"""``tb-supervisor dashboard``: prints the Grafana dashboard."""

from __future__ import annotations

import json

import click


@click.command(
    short_help="Print a dashboard for Grafana.",
    epilog="\b\nExample:\n  tb-supervisor dashboard > supervisor.dashboard.json",
)
def dashboard() -> None:
    """Print the Grafana dashboard as JSON, for Grafana 11 and later.

    Exit status: 0 if it was printed; 2 if an argument is wrong.
    """
    from supervisor_core.monitoring.dashboard import dashboard as content

    click.echo(json.dumps(content(), indent=2))

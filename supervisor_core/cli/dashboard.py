"""``tb-supervisor dashboard``: prints the Grafana dashboard."""

from __future__ import annotations

import json

import click


@click.command()
def dashboard() -> None:
    """Print the Grafana dashboard as JSON, for Grafana 11 and later.

    Exit status: 0 if it was printed; 2 if the call is wrong.
    """
    from supervisor_core.monitoring.dashboard import dashboard as content

    click.echo(json.dumps(content(), indent=2))

"""``tb-supervisor rules``: prints the rule file for Prometheus."""

from __future__ import annotations

from typing import Any

import click

from supervisor_core.cli.parameters import by_option
from supervisor_core.cli.rule_options import checked_url, limits_of, rule_options, runbook_option


@click.command(
    short_help="Print alert and recording rules for Prometheus.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor rules > supervisor.rules.yaml\n"
    "  tb-supervisor rules --hold 5m --by run,namespace",
)
@rule_options
@by_option
@runbook_option()
def rules(runbook_base: str, by: tuple[str, ...], **limits: Any) -> None:
    """Print the recording and alert rules, a rule file for Prometheus.

    Exit status: 0 if they were printed; 2 if an option is wrong.
    """
    from supervisor_core.monitoring.rules import rule_groups, to_yaml

    text = to_yaml(rule_groups(limits_of(limits), runbook_base=checked_url(runbook_base), by=by))
    click.echo(f"# Printed by `tb-supervisor rules`; what each alert means: {runbook_base}\n{text}", nl=False)

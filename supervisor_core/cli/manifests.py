"""``tb-supervisor manifests``: prints manifests for Kubernetes and the Prometheus operator."""

from __future__ import annotations

import re
from typing import Any

import click

from supervisor_core import __version__
from supervisor_core.cli.parameters import WrongInput, by_option, directories
from supervisor_core.cli.rule_options import checked_url, limits_of, rule_options, runbook_option

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


@click.command(
    short_help="Print manifests for Kubernetes.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor manifests --image registry.example.org/tb-supervisor:1 | kubectl apply -f -\n"
    "  tb-supervisor manifests --claim training-logs --namespace monitoring",
)
@click.option(
    "--image",
    default=f"tb-supervisor:{__version__}",
    show_default=True,
    metavar="IMAGE",
    help="An image with tb-supervisor installed. None is published.",
)
@click.option(
    "--logdir",
    default="/logs",
    show_default=True,
    metavar="DIR",
    shell_complete=directories,
    help="Where the runs are: a directory, or a URL like gs://bucket/logs.",
)
@click.option(
    "--claim",
    default="training-logs",
    show_default=True,
    metavar="NAME",
    help="The persistent volume claim to mount there, read-only.",
)
@click.option(
    "--namespace", default="monitoring", show_default=True, metavar="NAME", help="The namespace of the objects."
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Add a label to every object. Repeatable.")
@rule_options
@by_option
@runbook_option(None)
def manifests(
    image: str,
    logdir: str,
    claim: str,
    namespace: str,
    labels: tuple[str, ...],
    runbook_base: str | None,
    by: tuple[str, ...],
    **limits: Any,
) -> None:
    """Print Kubernetes manifests: the exporter, and monitors and rules for the Prometheus operator.

    Prometheus scrapes training pods with the label app.kubernetes.io/component: supervised-training and a container
    port named metrics.

    Exit status: 0 if they were printed; 2 if an option is wrong.
    """
    from supervisor_core.monitoring.manifests import Deployed
    from supervisor_core.monitoring.manifests import manifests as objects
    from supervisor_core.monitoring.rules import to_yaml

    for option, name in (("namespace", namespace), ("claim", claim)):
        if not _NAME.fullmatch(name):
            raise WrongInput(f"--{option} is {name!r}; expected a name of small letters, digits and dashes.")
    if not image or re.search(r"\s", image):
        raise WrongInput(f"--image is {image!r}; expected one like registry.example.org/tb-supervisor:1.")
    if not re.fullmatch(r"/[^\s:]+|[a-z0-9+.-]+://\S+", logdir):
        raise WrongInput(f"--logdir is {logdir!r}; expected an absolute path or an address like gs://bucket/logs.")
    where = Deployed(image=image, namespace=namespace, logdir=logdir, claim=claim, labels=dict(map(_label, labels)))
    base = None if runbook_base is None else checked_url(runbook_base)
    click.echo(to_yaml(*objects(where, limits_of(limits), runbook_base=base, by=by)), nl=False)


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
        raise WrongInput(f"--label is {text!r}; expected KEY=VALUE, as Kubernetes has them.")
    return key, value

"""``tb-supervisor dashboard``, ``rules``, ``manifests``: print the files for Grafana, Prometheus and Kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from supervisor_core import __version__
from supervisor_core.base.log import printable
from supervisor_core.base.shard import MAX_SHARDS
from supervisor_core.cli import Duration, WrongInput, by_option, writing
from supervisor_core.cli.logdirs import logdirs, one_logdir
from supervisor_core.run.model.thresholds import DEFAULT_RUNBOOK_BASE, KUBERNETES_RUN_LABELS, Thresholds, duration
from supervisor_core.storage.local import LOCAL

if TYPE_CHECKING:
    from supervisor_core.metrics.config_files import Level

Command = TypeVar("Command", bound=Callable[..., Any])

_USUAL = Thresholds()

_SECS, _COUNT, _SHARE = Duration(), click.INT, click.FLOAT
_Options: TypeAlias = "Mapping[str, tuple[click.ParamType[Any], str]]"  # generic from click 8.4 on only
_OF_RULES: _Options = {
    "interval": (_SECS, "How often Prometheus evaluates the rules. Use the scrape interval."),
    "hold": (_SECS, "How long a logdir must be unread, or a shard missing, before an alert fires."),
    "unanswered": (_SECS, "How long a trainer without an exporter may not answer before it is lost."),
    "forget": (_SECS, "After how long a trainer or an exporter that is gone counts as removed."),
    "behind": (_SECS, "How old an exporter's data may be. At least twice its refresh interval."),
    "many": (_COUNT, "How many runs that die within 5 minutes are also one alert."),
    "goodput-below": (_SHARE, "Goodput is low below this share of the sessions' time."),
}
_OF_FINDINGS: _Options = {
    "hold": (_SECS, "How long a condition must last before it is held, where no other option says so."),
    "stall-hold": (_SECS, "How long a run must be stalled, silent or gone from the disk."),
    "dead-hold": (_SECS, "How long a run must be down."),
    "save-hold": (_SECS, "How long saves, or event writes, must fail."),
    "worker-hold": (_SECS, "How long a worker must be lost."),
    "worker-wait": (_SECS, "How long a worker may wait, or make no progress, while its chief trains."),
    "silent": (_SECS, "How long a run of another program that is silent is said."),
    "slow-window": (_SECS, "The time over which speed is averaged. It is compared with the speed before."),
    "slow-below": (_SHARE, "A training is slow below this share of its usual speed."),
    "checkpoint-intervals": (_SHARE, "How many checkpoint intervals old the newest checkpoint may be."),
    "restarts": (_COUNT, "How many unplanned restarts within one hour are a loop."),
    "recoveries": (_COUNT, "How many lost TensorFlow sessions within half an hour are a loop."),
}
"""Option -> its type, and what its threshold is; `Thresholds` has the field and the usual value."""


def _with_options(command: Command, options: _Options) -> Command:
    for name, (kind, text) in reversed(list(options.items())):
        field = _field(name, kind)
        usual, metavar = getattr(_USUAL, field), None if kind is _SECS else "NUMBER"
        default = duration(usual) if kind is _SECS else usual
        command = click.option(f"--{name}", field, type=kind, default=default, metavar=metavar, help=text)(command)
    return command


def rule_options(command: Command) -> Command:
    """Give a command the options of the rules; it gets them as keyword arguments, for `limits_of`."""
    return _with_options(command, _OF_RULES)


def finding_options(command: Command) -> Command:
    """Give a command the options of findings; it gets them as keyword arguments, for `limits_of`."""
    return _with_options(command, _OF_FINDINGS)


def runbook_option(default: str | None = DEFAULT_RUNBOOK_BASE) -> Callable[[Command], Command]:
    """Return the option for the URL of docs/alerts.md.

    Args:
        default: shown as it is; None lets the command choose, and say how in its own description.
    """
    return click.option(
        "--runbook-base",
        default=default,
        metavar="URL",
        callback=checked_address,
        help="URL of the page of alerts. A runbook_url is this and the alert's anchor.",
    )


def screens_option(name: str) -> Callable[[Command], Command]:
    """Return an option for the address of something to link to."""
    text = {
        "tensorboard-url": "URL of a TensorBoard with the Supervisor tab, to link to the run there.",
        "dashboard-url": "URL of the dashboard in Grafana, to link to the run there.",
    }[name]
    return click.option(f"--{name}", metavar="URL", callback=checked_address, help=text)


def checked_address(context: click.Context, param: click.Parameter, url: str | None) -> str | None:
    """Check that an option is an http or https address."""
    is_text = url is None or (url.isprintable() and not any(mark in url for mark in (" ", "#", "{", "$")))
    if not is_text or not (url is None or url.startswith(("http://", "https://"))):
        raise click.BadParameter(f"{url!r}; expected a URL like https://wiki.example.org/alerts, without '#'.")
    return url


def limits_of(given: dict[str, Any]) -> Thresholds:
    """Return the thresholds that the options give.

    Raises:
        WrongInput: if one makes no sense.
    """
    try:
        return Thresholds(**given)
    except ValueError as error:
        field, _, rest = str(error).partition(" ")
        raise WrongInput(f"--{field.removesuffix('_secs').replace('_', '-')} {rest}.") from error


def _field(option: str, kind: click.ParamType[Any]) -> str:
    return option.replace("-", "_") + ("_secs" if kind is _SECS else "")


def _pairs(context: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or not sign or not value.isprintable() or "{{" in value:
            raise click.BadParameter(f"{each!r}; expected {param.metavar}.")
        found[name] = value
    return found


@click.command(
    short_help="Print a dashboard for Grafana.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor dashboard > supervisor.dashboard.json\n"
    "  tb-supervisor dashboard --fleet > fleet.dashboard.json",
)
@by_option(KUBERNETES_RUN_LABELS)
@screens_option("tensorboard-url")
@click.option("--fleet", is_flag=True, help="That of all runs together. It needs what tb-supervisor rules records.")
def dashboard(by: tuple[str, ...], tensorboard_url: str | None, fleet: bool) -> None:
    """Print the Grafana dashboard as JSON, for Grafana 11 and later.

    Exit status: 0 if it was printed; 2 if an argument is wrong.
    """
    from supervisor_core.metrics.config_files import Screens
    from supervisor_core.metrics.config_files import dashboard as content

    click.echo(json.dumps(content(Screens(tensorboard_url=tensorboard_url), by=by, fleet=fleet), indent=2))


@click.command(
    short_help="Print alert and recording rules for Prometheus.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor rules > supervisor.rules.yaml\n"
    "  tb-supervisor rules --hold 5m --by run,namespace",
)
@rule_options
@by_option()
@runbook_option()
@click.option(
    "--severity",
    "severities",
    multiple=True,
    metavar="KIND=SEVERITY",
    callback=_pairs,
    help="Severity of the alerts of a kind of finding, as lost=warning. Repeatable.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="A further label of every alert, as team=vision. Repeatable.",
)
@screens_option("tensorboard-url")
@screens_option("dashboard-url")
@click.option(
    "--level",
    type=click.Choice(["all", "shard", "fleet"]),
    default="all",
    help="Of several Prometheus servers, shard is for each, fleet for Thanos or Mimir above them.",
)
def rules(
    runbook_base: str,
    by: tuple[str, ...],
    severities: dict[str, str],
    labels: dict[str, str],
    tensorboard_url: str | None,
    dashboard_url: str | None,
    level: Level,
    **limits: Any,
) -> None:
    """Print the recording and alert rules, a rule file for Prometheus.

    Exit status: 0 if they were printed; 2 if an option is wrong.
    """
    from supervisor_core.metrics.config_files import Screens, rule_groups, to_yaml
    from supervisor_core.run.judge.finding import KINDS

    if unknown := sorted({*severities} - {*KINDS}):
        raise WrongInput(f"--severity is of {unknown[0]!r}; expected a kind of finding, as in docs/model.md.")
    if taken := sorted({*labels} & {"alertname", "severity", "kind", *by}):
        raise WrongInput(f"--label is of {taken[0]!r}, which each alert has already; expected another name.")
    found = rule_groups(
        limits_of(limits),
        runbook_base=runbook_base,
        by=by,
        severities=severities,
        labels=labels,
        screens=Screens(tensorboard_url=tensorboard_url, dashboard_url=dashboard_url),
        level=level,
    )
    text = to_yaml(found)
    click.echo(f"# Printed by `tb-supervisor rules`; what each alert means: {runbook_base}\n{text}", nl=False)


_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


@click.command(
    short_help="Print manifests for Kubernetes.",
    epilog="\b\nExamples:\n"
    "  tb-supervisor manifests --image registry.example.org/tb-supervisor:1 | kubectl apply -f -\n"
    "  tb-supervisor manifests --namespace team-a --claim training-logs\n"
    "  tb-supervisor manifests --kustomize kubernetes",
)
@click.option(
    "--image",
    default=f"tb-supervisor:{__version__}",
    metavar="IMAGE",
    help="An image with tb-supervisor installed. None is published.",
)
@logdirs("Where the runs are: a directory, or a URL like gs://bucket/logs. Default: /logs.", default="/logs")
@click.option(
    "--claim",
    default="training-logs",
    metavar="NAME",
    help="The persistent volume claim to mount there, read-only.",
)
@click.option(
    "--namespace", default="default", metavar="NAME", help="The namespace of the trainings and of their claim."
)
@click.option(
    "--prometheus-namespace",
    default="monitoring",
    metavar="NAME",
    help="The namespace of Prometheus: monitors and rules belong there, and only it reaches the exporter.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, MAX_SHARDS),
    default=1,
    metavar="N",
    help="Divide the runs among N exporters, a StatefulSet.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Add a label to every object. Repeatable.")
@click.option(
    "--kustomize",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write them into DIR/base and DIR/prometheus, for Kustomize, instead of printing them.",
)
@rule_options
@by_option(KUBERNETES_RUN_LABELS)
@runbook_option(None)
@screens_option("tensorboard-url")
@screens_option("dashboard-url")
def manifests(
    image: str,
    logdirs: tuple[str, ...],
    claim: str,
    namespace: str,
    prometheus_namespace: str,
    shards: int,
    labels: tuple[str, ...],
    kustomize: Path | None,
    runbook_base: str | None,
    by: tuple[str, ...],
    tensorboard_url: str | None,
    dashboard_url: str | None,
    **limits: Any,
) -> None:
    """Print Kubernetes manifests: exporter and TensorBoard of the runs in LOGDIR; monitors and rules for Prometheus.

    Prometheus scrapes training pods with the label app.kubernetes.io/component: supervised-training and a container
    port named metrics.

    Exit status: 0 if they were printed or written; 2 if an option is wrong.
    """
    from supervisor_core.metrics.config_files import Deployed, Screens, kustomization, to_yaml
    from supervisor_core.metrics.config_files import manifests as objects

    logdir = one_logdir(logdirs)
    names = {"namespace": namespace, "prometheus-namespace": prometheus_namespace, "claim": claim}
    for option, name in names.items():
        if not _NAME.fullmatch(name):
            raise WrongInput(f"--{option} is {name!r}; expected a name of small letters, digits and dashes.")
    if not image or re.search(r"\s", image):
        raise WrongInput(f"--image is {image!r}; expected one like registry.example.org/tb-supervisor:1.")
    if not re.fullmatch(r"/[^\s:]+|[a-z0-9+.-]+://\S+", logdir):
        raise WrongInput(f"--logdir is {logdir!r}; expected an absolute path or an address like gs://bucket/logs.")
    where = Deployed(
        image=image,
        namespace=namespace,
        logdir=logdir,
        claim=claim,
        prometheus_namespace=prometheus_namespace,
        shards=shards,
        labels=dict(map(_label, labels)),
    )
    screens = Screens(tensorboard_url=tensorboard_url, dashboard_url=dashboard_url)
    found = objects(where, limits_of(limits), runbook_base=runbook_base, by=by, screens=screens)
    if kustomize is None:
        click.echo(to_yaml(*found), nl=False)
    else:
        _write_below(kustomize, kustomization(found))


def _write_below(directory: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = directory / name
        with writing(repr(str(path)), "Give --kustomize a directory that can be."):
            path.parent.mkdir(parents=True, exist_ok=True)
            LOCAL.replace(str(path), text.encode())
        click.echo(f"wrote {printable(str(path))}", err=True)


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
        raise WrongInput(f"--label is {text!r}; expected KEY=VALUE, as Kubernetes has them.")
    return key, value

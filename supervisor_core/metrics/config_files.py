"""What Prometheus, Grafana and Kubernetes are configured with: rules, dashboard, manifests.

``rules.yaml``, beside this file, is what Prometheus records, and when it alerts; thresholds are filled in. In the
text of an alert no name can be more than a name. Whoever makes a directory, or writes an events file, chooses labels.
An alert's text ends in a chat, a page or a mail, and people paste commands from there. So every label is shown by the
template ``shown``, and what is to be done, which may be a command, is as it is or not there (``action``).

``fleet_rules.yaml`` has what is recorded of a fleet, for ``fleet_dashboard.json``.

``dashboard.json``, beside it, is the Grafana dashboard: the fleet, one run and its cluster, the exporter. It asks for
what is served, not for what the rules record, so it works without them. Trainer and exporter serve the same names:
every query takes the maximum by run, or it would show both. To change it, import the file into Grafana, edit it there,
and export it as JSON.

``manifests.yaml``, beside it, is the exporter, and what the Prometheus operator needs for it, the trainers and the
rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from supervisor_core.base.log import INVISIBLE
from supervisor_core.base.session_labels import RESERVED
from supervisor_core.run.judge.finding import KINDS, SEVERITIES
from supervisor_core.run.model.thresholds import (
    DEFAULT_RUNBOOK_BASE,
    KUBERNETES_RUN_LABELS,
    RUN_LABELS,
    Thresholds,
    duration,
)

Level = Literal["all", "shard", "fleet"]
"""``all``: by one Prometheus that scrapes everything. ``shard``: by each of several; ``fleet``: by what sees the series
of all of these."""
_FLEET = "supervisor-fleet"
_OF_ALL_EXPORTERS = ("SupervisorShardMissing",)

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_KEY = re.compile(r"\b(by|on) \(run\b")
"""Where a query of a dashboard names the labels that identify a run."""
_OWNER = ("host", "team", "user", "project", "job_id")
"""Labels of a run that its alerts have, besides those that identify it: by these alerts are routed and grouped."""

_MARKUP = [rf"\x{ord(character):02x}" for character in "<>&@[]`"]
"""What begins a mention, a link or an element in Slack, Mattermost, Telegram, Markdown or HTML; as escapes."""
_FRAMES = "module|lambda|listcomp|genexpr|string|stdin"
"""What Python writes within angle brackets as the name of a frame: no chat takes these for a mention or a link."""
_NO_MARK = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in INVISIBLE)
_UNUSUAL = rf"\pC\p{{Zl}}\p{{Zp}}{_NO_MARK}\\{''.join(_MARKUP)}"
"""Control and invisible characters, the backslash, and markup; within brackets of an expression."""

_TEMPLATES = {
    # %q has control, bidirectional and most invisible characters as escapes.
    "shown": rf'{{{{ printf "%q" . | reReplaceAll `^"|"$` `` | reReplaceAll `[{_NO_MARK}]` "\ufffd"'
    + "".join(f" | reReplaceAll `{code}` `{code}`" for code in _MARKUP)
    + rf" | reReplaceAll `\\x3c({_FRAMES})\\x3e` `<$1>`"
    + " }}",
    # An action may be a command: as it is, for a shell, or not at all.
    "action": rf"{{{{ if match `^[^{_UNUSUAL}]+$` . }}}}{{{{ . }}}}{{{{ else }}}}see the runbook.{{{{ end }}}}",
}

_SHOWN = re.compile(r"\{\{\s*((?:\$labels\.\w+|\.(?=[\s}]))[^{}]*?)\s*\}\}")
"""An action whose output is a label."""
_WHOSE = (
    "{{ with printf `supervisor_run_info{run=%[1]q}` $labels.run | query }}{{ $sign := ` Labels: ` }}"
    "{{ range $name, $value := (. | first).Labels }}"
    f"{{{{ if not (match `^(__name__|exported_.*|{'|'.join(sorted({*RESERVED, *KUBERNETES_RUN_LABELS}))})$` $name) }}}}"
    '{{ $sign }}{{ $name }}={{ template "shown" $value }}{{ $sign = `, ` }}{{ end }}{{ end }}'
    "{{ if eq $sign `, ` }}.{{ end }}{{ end }}"
)
"""Whose a run is and where it runs, before what to do first; nothing where it has no labels."""
_SINCE = ' Since {{ (. | first | value | toTime).Format "2006-01-02 15:04:05" }} UTC.{{ end }}'
_FIRST_DEATH = "min(supervisor_finding_since_timestamp_secondsDEAD > time() - ${many_window_secs})"
_SERIES = 'supervisor_finding_${part}{run=%[1]q,kind="${kind}"${urgent}}'
_SAID = "{{ with printf `" + _SERIES + " or on (run) ${kept}` $labels.run | query }}"
_TEXT = _SAID.replace("${kept}", f"topk(1, max_over_time(timestamp({_SERIES})[1h:1m]))").replace("${part}", "text_info")
_BEGIN_OF = _SAID.replace("${kept}", f"last_over_time({_SERIES}[1h])${{answered}}").replace(
    "${part}", "since_timestamp_seconds"
)
"""As it is served, or was within the hour: an exporter that does not answer serves no text, and its alerts go on."""
_ANSWERED = " or on (run) run:supervisor_answered:timestamp_seconds{run=%[1]q}"
"""Since when a training process without an exporter is lost: nothing serves a finding of it."""
_OF_FINDING = {
    "text": f'{_TEXT}{{{{ . | first | label "text" }}}}{{{{ else }}}}${{when}}{{{{ end }}}}',
    "first": f'{_TEXT}{{{{ template "action" . | first | label "action" }}}}{{{{ else }}}}see the runbook.'
    "{{ end }}",
    "since": _BEGIN_OF + _SINCE,
}
"""What is said of a finding: its own text and action; where nothing serves it any more, what its kind is."""
_NOT_ALIVE = (
    "\n  unless on (${by}) (run:supervisor_answered:timestamp_seconds > time() - ${late_secs})"
    '\n  unless on (${by}) supervisor_run_state{state="running"} == 1'
)
"""Of several sources, one that knows the run alive outweighs one that does not."""
_DEATHS = ("lost", "failed", "unreachable")
_UNANSWERED = "\n  or time() - run:supervisor_answered:timestamp_seconds > ${unanswered_secs}"
"""A training process without an exporter that has died, hangs, or cannot be reached; or whose pushes have stopped."""
_SELECTOR, _SELECTED = "{run=%[1]q", re.compile(r"\$labels\.run(?=\s*\|\s*query\b)")
"""Where a text asks for series of the run, and for which run."""


@dataclass(frozen=True, kw_only=True)
class Screens:
    """Where a run can be looked at. An alert's annotations and the dashboard link there."""

    tensorboard_url: str | None = None
    """The address of a TensorBoard with the Supervisor tab, for example ``http://tensorboard.example.org:6006``."""
    dashboard_url: str | None = None
    """The address of the dashboard in Grafana, for example ``https://grafana.example.org/d/tb-supervisor``."""

    def annotations(self, by: Sequence[str] = RUN_LABELS) -> dict[str, str]:
        """Return the annotations of an alert of a run: links to it, at the time of the alert.

        Args:
            by: the labels that identify a run.
        """
        found = {}
        if self.tensorboard_url is not None:
            found["tensorboard_url"] = f"{_tab_of(self.tensorboard_url)}{_TAB_STATE}"
        if self.dashboard_url is not None:
            of_the_run = "".join(f"var-{label}={{{{ urlquery $labels.{label} }}}}&" for label in by)
            start = "&" if "?" in self.dashboard_url else "?"
            found["dashboard_url"] = f"{self.dashboard_url}{start}{of_the_run}{_DASHBOARD_TIME}"
        return found


def _tab_of(tensorboard_url: str) -> str:
    return f"{tensorboard_url.rstrip('/')}/#supervisor&p.supervisor.s="


_BEGIN, _END = "time() - 3600", "time() + 300"
"""What a link to a run shows: the last hour, and a little more."""
_TAB_STATE = (
    '{{ printf "run=%s&x=wall&zoom=%.0f~%.0f" (urlquery $labels.run) '
    f'(query "{_BEGIN}" | first | value) (query "{_END}" | first | value) | urlquery }}}}'
)
"""The tab's own part of an address is a query, within one value of TensorBoard's."""
_DASHBOARD_TIME = (
    f'from={{{{ query "1000 * ({_BEGIN})" | first | value | printf "%.0f" }}}}'
    f'&to={{{{ query "1000 * ({_END})" | first | value | printf "%.0f" }}}}'
)


def rule_groups(
    limits: Thresholds | None = None,
    *,
    runbook_base: str = DEFAULT_RUNBOOK_BASE,
    by: Sequence[str] = RUN_LABELS,
    severities: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    screens: Screens | None = None,
    level: Level = "all",
) -> dict[str, Any]:
    """Return the rule file as Prometheus and the operator's ``PrometheusRule`` know it: ``{"groups": [...]}``.

    Args:
        limits: what is compared with. Default: `Thresholds()`.
        runbook_base: where docs/alerts.md is published; each alert's ``runbook_url`` is this, ``#``, and its name in
            lower case.
        by: the labels that identify a run, ``run`` first. Every alert of a run has them, and those of the run.
        severities: the ``severity`` of the alerts of some kinds of findings, by the kind.
        labels: further labels of every alert.
        screens: what the alerts of a run link to. Default: nothing.
        level: where they are evaluated; see `Level`.

    Example:
        >>> [group["name"] for group in rule_groups()["groups"]]
        ['supervisor', 'supervisor-trends', 'supervisor-shard', 'supervisor-fleet']
    """
    severity = {kind: SEVERITIES[of.severity] for kind, of in KINDS.items()} | dict(severities or {})
    # A run's own labels are on its findings alone: what joins other series must do without.
    known = [label for label in by if label not in _OWNER]
    values = _values(limits or Thresholds()) | {
        "runbook_base": runbook_base,
        "by": ", ".join(known),
        "besides": ", ".join(known[1:]),
        "labels": ", ".join(dict.fromkeys((*by, *_OWNER))),
    }
    content: dict[str, Any] = yaml.safe_load(_text_of("rules.yaml"))
    fleet = yaml.safe_load(_text_of("fleet_rules.yaml"))["groups"]
    for group in content["groups"]:
        group["rules"] = [each for rule in group["rules"] for each in _of_kinds(rule, severity)]
    parts = {**_of_kind("notice"), "whose": _WHOSE, "first_death": f"{_of_dead(_FIRST_DEATH, known[1:])} }}}}{_SINCE}"}
    content = _filled(_filled(content, parts), values)
    for rule in (rule for group in fleet for rule in group["rules"]):
        rule["expr"] = _KEY.sub(rf"\1 ({values['by']}", rule["expr"])
    for rule in (rule for group in content["groups"] for rule in group["rules"] if "alert" in rule):
        of_a_run = "$labels.run" in rule["annotations"]["summary"]
        texts = _filled(rule["annotations"], {"held_since": _since_active(rule["alert"], of_a_run)})
        rule["annotations"] = {name: annotation(text, known) for name, text in texts.items()}
        rule["annotations"] |= screens.annotations(known) if screens is not None and of_a_run else {}
        rule["labels"] = {**(labels or {}), **rule["labels"]}
    content["groups"] = _of_level([*content["groups"], *fleet], level)
    return content


def _of_kinds(rule: dict[str, Any], severity: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return an alert for each kind of finding of the one that stands for all of them; any other rule as it is."""
    if rule.get("alert") != "${alert}":
        return [rule]
    return [
        _filled(rule, {**_of_kind(name), "alert": kind.alert, "severity": severity[name]})
        for name, kind in KINDS.items()
        if kind.alert is not None and name != "notice"
    ]


def _of_kind(name: str) -> dict[str, str]:
    """Return what stands for the parts of an alert that depend on its kind."""
    kind = KINDS[name]
    when = f"{kind.when[0].upper()}{kind.when[1:]}."
    found = {"kind": name, "when": when, "urgent": "" if kind.severity == "info" else ',severity!="info"'}
    found["answered"] = _ANSWERED if name == "lost" else ""
    found |= {part: _filled(text, found) for part, text in _OF_FINDING.items()}
    unless = (_NOT_ALIVE if name in _DEATHS else "") + (_UNANSWERED if name == "lost" else "")
    return {**found, "unless": unless, "anchor": (kind.alert or "").lower()}


def _since_active(alert: str, of_a_run: bool) -> str:
    """Return what says since when that holds which only Prometheus sees."""
    of_run, of_exporter = "{run=%[1]q", "{job=%q,instance=%q,logdir=%q"
    labels = ("run",) if of_a_run else ("job", "instance", "logdir")
    series = f'ALERTS_FOR_STATE{of_run if of_a_run else of_exporter},alertname="{alert}"}}'
    return f"{{{{ with printf `{series}` {' '.join(f'$labels.{label}' for label in labels)} | query }}}}{_SINCE}"


def _of_level(groups: list[dict[str, Any]], level: Level) -> list[dict[str, Any]]:
    """Return the groups of a level; above several Prometheus servers, with the alerts that need all exporters."""
    if level == "all":
        return groups
    of_all = [rule for group in groups for rule in group["rules"] if rule.get("alert") in _OF_ALL_EXPORTERS]
    if level == "fleet":
        (fleet,) = (group for group in groups if group["name"] == _FLEET)
        return [{**fleet, "rules": [*fleet["rules"], *of_all]}]
    return [
        {**group, "rules": [rule for rule in group["rules"] if rule not in of_all]}
        for group in groups
        if group["name"] != _FLEET
    ]


def annotation(text: str, by: Sequence[str]) -> str:
    """Return an annotation as Prometheus gets it.

    Args:
        text: as in ``rules.yaml``: its labels are bare, ``${where}`` is the run's other labels, as far as it has them,
            and ``${hosts}`` some runs that died.
        by: the labels that identify a run, ``run`` first.

    Example:
        >>> annotation("{{ $labels.run }} is lost.", ("run",)).partition("{{ end }}")[2]
        '{{ template "shown" $labels.run }} is lost.'
    """
    where = "".join(
        f"{{{{ if $labels.{label} }}}} in {label} {{{{ $labels.{label} }}}}{{{{ end }}}}" for label in by[1:]
    )
    text = text.replace("${where}", where).replace("${hosts}", _hosts(by[1:]))
    text = _SHOWN.sub(r'{{ template "shown" \1 }}', text)
    selector = ",".join(f"{label}=%[{number}]q" for number, label in enumerate(by, 1))
    text = text.replace(_SELECTOR, f"{{{selector}")
    text = _SELECTED.sub(" ".join(f"$labels.{label}" for label in by), text)
    used = (name for name in _TEMPLATES if f'template "{name}"' in text)
    return "".join(f'{{{{ define "{name}" }}}}{_TEMPLATES[name]}{{{{ end }}}}' for name in used) + text


def _of_dead(query: str, besides: Sequence[str]) -> str:
    """Return what begins with the answer to a query; ``DEAD`` in it selects the dead runs of the alert."""
    selector = "".join(f",{label}=%[{number}]q" for number, label in enumerate(besides, 1))
    query = query.replace("DEAD", f'{{kind=~"lost|failed",severity!="info"{selector}}}')
    arguments = "".join(f" $labels.{label}" for label in besides)
    return f"{{{{ with {f'printf `{query}`{arguments} | query' if besides else f'query `{query}`'}"


def _hosts(besides: Sequence[str]) -> str:
    """Return what lists the first ten dead runs, with their hosts."""
    dead = _of_dead("topk(10, max by (run, host) (run:supervisor_finding:knownDEAD))", besides)
    return (
        f'{dead} | sortByLabel "run" }}}} Among them:{{{{ range $index, $found := . }}}}'
        '{{ if $index }},{{ end }} {{ template "shown" $found.Labels.run }}'
        "{{ with $found.Labels.host }} on {{ . }}{{ end }}{{ end }}.{{ end }}"
    )


def to_yaml(*documents: Any) -> str:
    """Return one YAML text that holds the documents, in order; keys stay as given, long expressions are blocks."""
    text: str = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True, explicit_start=len(documents) > 1
    )
    return text


def _values(limits: Thresholds) -> dict[str, str]:
    """Return what stands for each ``${name}``: ``hold_secs`` is a number, ``hold`` a duration of Prometheus."""
    values = {name: f"{value:.10g}" for name, value in vars(limits).items()}
    values |= {
        name.removesuffix("_secs"): duration(value) for name, value in vars(limits).items() if name.endswith("_secs")
    }
    return values | {
        "late_secs": f"{3 * limits.interval_secs:.10g}",
        "trend_interval": duration(max(limits.interval_secs, min(60.0, 4 * limits.interval_secs))),
        "goodput_least_secs": f"{limits.goodput_window_secs / 3:.10g}",
    }


def _filled(part: Any, values: Mapping[str, str]) -> Any:
    if isinstance(part, dict):
        return {key: _filled(value, values) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), part) if isinstance(part, str) else part


def _text_of(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """A dumper of its own, so that other users of PyYAML in the process keep theirs as it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dashboard(
    screens: Screens | None = None, *, by: Sequence[str] = KUBERNETES_RUN_LABELS, fleet: bool = False
) -> dict[str, Any]:
    """Return the dashboard, as Grafana imports it (11 and later).

    Args:
        screens: its TensorBoard is what the dashboard links to. Default: none.
        by: the labels that identify a run, ``run`` first. Each is a variable; one that no series has is empty.
        fleet: whether it is that of all runs together, which asks for what `rule_groups` records.

    Example:
        >>> dashboard()["title"], dashboard(fleet=True)["title"]
        ('Supervised training', 'Supervised fleet')
    """
    content: dict[str, Any] = json.loads(_text_of("fleet_dashboard.json" if fleet else "dashboard.json"))
    besides = by[1:]
    selector = "".join(f',{label}=~"${label}"' for label in besides)

    def told_apart(expr: str) -> str:
        return _KEY.sub(rf"\1 ({', '.join(by)}", expr).replace('run="$run"', f'run="$run"{selector}')

    for panel in content["panels"]:
        for target in panel.get("targets", ()):
            of_runs = _KEY.search(target["expr"]) is not None
            target["expr"] = told_apart(target["expr"])
            if of_runs and target["legendFormat"] != "__auto":
                target["legendFormat"] += "".join(f" {{{{{label}}}}}" for label in besides)
        for step in panel.get("transformations", ()):
            if step["id"] == "filterFieldsByName":
                step["options"]["include"]["names"] += besides
        for override in panel.get("fieldConfig", {}).get("overrides", ()):
            for link in (link for each in override["properties"] if each["id"] == "links" for link in each["value"]):
                link["url"] += "".join(f"&var-{label}=${{__data.fields.{label}:percentencode}}" for label in besides)
    for annotation in content["annotations"]["list"]:
        annotation["expr"] = told_apart(annotation["expr"])
    if fleet:
        return content
    source, run = content["templating"]["list"]
    content["templating"]["list"] = [source, *(_variable(label, run) for label in besides), run]
    run["query"]["query"] = run["query"]["query"].replace(
        ", run)", f"{{{selector[1:]}}}, run)" if besides else ", run)"
    )
    if screens is not None and screens.tensorboard_url is not None:
        url = f"{_tab_of(screens.tensorboard_url)}run%3D${{run:percentencode}}"
        content["links"] = [{"title": "The run in TensorBoard", "type": "link", "url": url, "targetBlank": True}]
    return content


def _variable(label: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dashboard's variable of a label, all of whose values are chosen first: also where it has none."""
    query = {**run["query"], "query": run["query"]["query"].replace(", run)", f", {label})"), "refId": label}
    every = {"includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {**run, "name": label, "label": label.capitalize(), "query": query, **every}


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """Where things run."""

    image: str
    """An image in which ``tb-supervisor`` is the entry point, or on the path."""
    namespace: str
    """The namespace of the trainings and of their volume: exporter and TensorBoard run there."""
    logdir: str
    """A directory, which becomes the mount point of `claim`; or an address such as ``gs://bucket/logs``."""
    claim: str
    """The persistent volume claim that holds a local logdir."""
    prometheus_namespace: str = "monitoring"
    """Prometheus runs in it, and what the operator reads belongs there. No other namespace reaches the exporter."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further labels of every object, by which a Prometheus may select what it takes."""
    shards: int = 1
    """Among how many exporters the runs are divided."""

    @property
    def is_local(self) -> bool:
        """Whether the logdir is in a volume."""
        return "://" not in self.logdir

    @property
    def runbook_base(self) -> str:
        """The page of alerts that the exporter serves, as seen within the cluster."""
        return f"http://tb-supervisor-exporter.{self.namespace}.svc:10988/alerts"


def manifests(
    where: Deployed,
    limits: Thresholds | None = None,
    *,
    runbook_base: str | None = None,
    by: Sequence[str] = KUBERNETES_RUN_LABELS,
    screens: Screens | None = None,
) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are best applied.

    Args:
        where: names and places.
        limits: what the alerts compare with. Default: `Thresholds()`.
        runbook_base: where docs/alerts.md is to be read. Default: the exporter's own page.
        by: see `rule_groups`.
        screens: see `rule_groups`.
    """
    limits = limits or Thresholds()
    values = {**vars(where), "interval": duration(limits.interval_secs)}
    objects: list[dict[str, Any]] = _filled(list(yaml.safe_load_all(_text_of("manifests.yaml"))), values)
    rules = objects[-1]
    if where.shards > 1:
        _divide(objects[0], where.shards)
    templates = [each["spec"]["template"] for each in objects if "template" in each.get("spec", ())]
    for each in (*objects, *templates):
        each["metadata"]["labels"] |= where.labels
    if not where.is_local:
        for template in templates:
            _drop_volume(template["spec"])
        for each in objects:
            if each["kind"] == "NetworkPolicy":
                each["spec"]["policyTypes"].remove("Egress")
    rules["spec"] = rule_groups(limits, runbook_base=runbook_base or where.runbook_base, by=by, screens=screens)
    return objects


def _divide(exporter: dict[str, Any], shards: int) -> None:
    """Make a set of the exporter: one pod for each shard, which takes its number from the end of its name."""
    (container,) = exporter["spec"]["template"]["spec"]["containers"]
    container["args"].append(f"--shard=$(POD_NAME)/{shards}")
    container["env"] = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    exporter["kind"] = "StatefulSet"
    exporter["spec"] |= {
        "replicas": shards,
        "serviceName": exporter["metadata"]["name"],
        "podManagementPolicy": "Parallel",
    }


def _drop_volume(pod: dict[str, Any]) -> None:
    """Take the volume of the logdir out of a pod."""
    for holder, field_name in ((pod, "volumes"), (pod["containers"][0], "volumeMounts")):
        holder[field_name] = [volume for volume in holder[field_name] if volume["name"] != "logs"]
        if not holder[field_name]:
            del holder[field_name]


def kustomization(objects: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the files of two directories for Kustomize, by their paths.

    ``base`` is for each namespace with trainings, and names none: an overlay does. ``prometheus`` is there once.

    Args:
        objects: `manifests`.
    """
    parts: dict[str, list[dict[str, Any]]] = {"base": [], "prometheus": []}
    for each in objects:
        is_of_operator = each["apiVersion"].startswith("monitoring.coreos.com/")
        if is_of_operator:
            parts["prometheus"].append(each)
        else:
            metadata = {key: value for key, value in each["metadata"].items() if key != "namespace"}
            parts["base"].append({**each, "metadata": metadata})
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    listing = to_yaml({**head, "resources": ["tb-supervisor.yaml"]})
    found = {f"{part}/kustomization.yaml": listing for part in parts}
    return found | {f"{part}/tb-supervisor.yaml": to_yaml(*documents) for part, documents in parts.items()}

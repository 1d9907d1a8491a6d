"""Kubernetes manifests: the exporter, and what the Prometheus operator needs for it, the trainers and the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervisor_core.monitoring.config_files import rule_groups
from supervisor_core.monitoring.thresholds import Thresholds, duration

NAME = "tb-supervisor-exporter"
"""The exporter's Deployment, Service and ServiceMonitor."""

PORT = 10988

TRAINER_LABEL = ("app.kubernetes.io/component", "supervised-training")
"""What a training pod must be labelled with to be scraped, at its container port named ``metrics``."""

_SELECTOR = {"app.kubernetes.io/name": NAME}
_OPERATOR = "monitoring.coreos.com/v1"


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """Where things run."""

    image: str
    """An image in which ``tb-supervisor`` is the entry point, or on the path."""
    namespace: str
    logdir: str
    """A directory, which becomes the mount point of `claim`; or an address such as ``gs://bucket/logs``."""
    claim: str
    """The persistent volume claim that holds a local logdir."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further labels of every object, by which a Prometheus may select what it takes."""

    @property
    def is_local(self) -> bool:
        """Whether the logdir is in a volume."""
        return "://" not in self.logdir

    @property
    def runbook_base(self) -> str:
        """The page of alerts that the exporter serves, as seen within the cluster."""
        return f"http://{NAME}.{self.namespace}.svc:{PORT}/alerts"


def manifests(
    where: Deployed,
    limits: Thresholds | None = None,
    *,
    runbook_base: str | None = None,
    by: Sequence[str] = ("run",),
) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are best applied.

    Args:
        where: names and places.
        limits: what the alerts compare with. Default: `Thresholds()`.
        runbook_base: where docs/alerts.md is to be read. Default: the exporter's own page.
        by: see `rule_groups`.
    """
    limits = limits or Thresholds()
    groups = rule_groups(limits, runbook_base=runbook_base or where.runbook_base, by=by)
    interval = duration(limits.interval_secs)
    key, value = TRAINER_LABEL
    return [
        _object(where, "apps/v1", "Deployment", NAME, _deployment(where)),
        _object(
            where,
            "v1",
            "Service",
            NAME,
            {"selector": _SELECTOR, "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}]},
        ),
        _object(
            where,
            _OPERATOR,
            "ServiceMonitor",
            NAME,
            {"selector": {"matchLabels": _SELECTOR}, "endpoints": [{"port": "metrics", "interval": interval}]},
        ),
        _object(
            where,
            _OPERATOR,
            "PodMonitor",
            "tb-supervisor-trainers",
            {
                "selector": {"matchLabels": {key: value}},
                "namespaceSelector": {"any": True},
                "podMetricsEndpoints": [{"port": "metrics", "interval": interval}],
            },
        ),
        _object(where, _OPERATOR, "PrometheusRule", "tb-supervisor", groups),
    ]


def _object(where: Deployed, version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": where.namespace, "labels": {**_SELECTOR, **where.labels}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _deployment(where: Deployed) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "exporter",
        "image": where.image,
        "command": ["tb-supervisor", "exporter"],
        "args": [f"--logdir={where.logdir}", f"--web.listen-address=0.0.0.0:{PORT}"],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/-/healthy", "port": "metrics"}, "periodSeconds": 30},
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "metrics"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    if where.is_local:
        container["volumeMounts"] = [{"name": "logs", "mountPath": where.logdir, "readOnly": True}]
        pod["volumes"] = [{"name": "logs", "persistentVolumeClaim": {"claimName": where.claim, "readOnly": True}}]
    return {
        "replicas": 1,
        "selector": {"matchLabels": _SELECTOR},
        "template": {"metadata": {"labels": {**_SELECTOR, **where.labels}}, "spec": pod},
    }

"""The manifests are ones that Kubernetes and the Prometheus operator take.

Deployment and Service are checked against Kubernetes's own schemas. The operator publishes no package of its schemas:
of its three kinds, the part that is used here is written down below, after its API reference, and no more is allowed.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from supervisor_core.metrics.config_files import Deployed, manifests, rule_groups, to_yaml

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="for development only")
jsonschema = pytest.importorskip("jsonschema", reason="comes with kubernetes-validate")

WHERE = Deployed(
    image="tb-supervisor:1", namespace="ml", logdir="/logs", claim="logs", labels={"release": "prometheus"}
)


def closed(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    """The schema of an object that has these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
SELECTOR = closed((), matchLabels=TEXTS)
ENDPOINTS = {"type": "array", "minItems": 1, "items": closed(("port",), port=TEXT, interval=DURATION)}
RULE = closed(
    ("expr",),
    record={"type": "string", "pattern": r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"},
    alert=TEXT,
    expr=TEXT,
    labels=TEXTS,
    annotations=TEXTS,
    **{"for": DURATION},
)
GROUP = closed(("name", "rules"), name=TEXT, interval=DURATION, rules={"type": "array", "items": RULE})
OPERATOR = {
    "ServiceMonitor": closed(("selector", "endpoints"), selector=SELECTOR, endpoints=ENDPOINTS),
    "PodMonitor": closed(
        ("selector", "podMetricsEndpoints"),
        selector=SELECTOR,
        namespaceSelector=closed((), any={"type": "boolean"}),
        podMetricsEndpoints=ENDPOINTS,
    ),
    "PrometheusRule": closed((), groups={"type": "array", "items": GROUP}),
}


def objects(where: Deployed = WHERE) -> dict[str, Any]:
    """The manifests by kind, as read from the YAML that is printed."""
    return {item["kind"]: item for item in yaml.safe_load_all(to_yaml(*manifests(where)))}


@pytest.mark.parametrize("kind", ["Deployment", "Service"])
@pytest.mark.parametrize("logdir", ["/logs", "gs://bucket/logs"])
def test_kubernetes_takes_them(kind: str, logdir: str) -> None:
    """Deployment and Service are as Kubernetes's schemas ask, and hold nothing that those do not know."""
    where = Deployed(image="i", namespace="ml", logdir=logdir, claim="logs")
    kubernetes_validate.validate(objects(where)[kind], "1.30", strict=True)


@pytest.mark.parametrize("kind", OPERATOR)
def test_the_operator_takes_them(kind: str) -> None:
    """Each of the operator's kinds has the fields that the operator knows, and no other."""
    item = objects()[kind]
    assert item["apiVersion"] == "monitoring.coreos.com/v1"
    jsonschema.validate(item["spec"], OPERATOR[kind])


def test_every_kind_is_checked() -> None:
    """No object goes unchecked."""
    assert set(objects()) == {"Deployment", "Service", *OPERATOR}


def test_the_parts_find_each_other() -> None:
    """The Service selects the exporter's pods, the ServiceMonitor the Service, and ports are called what they are."""
    found = objects()
    pod = found["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert found["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    chosen = found["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= found["Service"]["metadata"]["labels"].items()
    assert found["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == found["Service"]["spec"]["ports"][0]["name"]
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert {probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")} == {"metrics"}
    assert str(container["ports"][0]["containerPort"]) in container["args"][1]


def test_the_logdir_is_only_read() -> None:
    """A local logdir is a volume, read-only on both sides; a remote one needs none. Nothing runs as root."""
    spec = objects()["Deployment"]["spec"]["template"]["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "logs", "readOnly": True}
    assert spec["containers"][0]["volumeMounts"] == [{"name": "logs", "mountPath": "/logs", "readOnly": True}]
    assert (
        spec["securityContext"]["runAsNonRoot"] and spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    )
    remote = Deployed(image="i", namespace="ml", logdir="gs://bucket/logs", claim="logs")
    assert "volumes" not in objects(remote)["Deployment"]["spec"]["template"]["spec"]


def test_the_rules_are_the_rules() -> None:
    """The PrometheusRule holds what `tb-supervisor rules` prints; its runbook is the exporter's page in the cluster."""
    base = "http://tb-supervisor-exporter.ml.svc:10988/alerts"
    assert objects()["PrometheusRule"]["spec"] == rule_groups(runbook_base=base)


def test_labels_are_on_every_object() -> None:
    """A Prometheus that selects what it takes by a label finds every object."""
    assert all(item["metadata"]["labels"]["release"] == "prometheus" for item in objects().values())
    assert all(item["metadata"]["namespace"] == "ml" for item in objects().values())

"""The manifests are ones that Kubernetes and the Prometheus operator take.

Deployment, Service and NetworkPolicy are checked against Kubernetes's own schemas. The operator publishes no package of
its schemas: of its three kinds, the part that is used here is written down below, after its API reference, and no more
is allowed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from supervisor_core.base.shard import RunShard
from supervisor_core.metrics.config_files import Deployed, manifests, rule_groups, to_yaml
from tests.cases import each

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
RELABELING = closed(
    ("sourceLabels", "targetLabel"), sourceLabels={"type": "array", "items": TEXT}, separator=TEXT, targetLabel=TEXT
)
ENDPOINT = closed(("port",), port=TEXT, interval=DURATION, relabelings={"type": "array", "items": RELABELING})
ENDPOINTS = {"type": "array", "minItems": 1, "items": ENDPOINT}
NAMESPACES = closed((), any={"type": "boolean"})
RULE = closed(
    ("expr",),
    record={"type": "string", "pattern": r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"},
    alert=TEXT,
    expr=TEXT,
    labels=TEXTS,
    annotations=TEXTS,
    keep_firing_for=DURATION,
    **{"for": DURATION},
)
GROUP = closed(("name", "rules"), name=TEXT, interval=DURATION, rules={"type": "array", "items": RULE})
OPERATOR = {
    "ServiceMonitor": closed(
        ("selector", "endpoints"), selector=SELECTOR, namespaceSelector=NAMESPACES, endpoints=ENDPOINTS
    ),
    "PodMonitor": closed(
        ("selector", "podMetricsEndpoints"),
        selector=SELECTOR,
        namespaceSelector=NAMESPACES,
        podMetricsEndpoints=ENDPOINTS,
    ),
    "PrometheusRule": closed((), groups={"type": "array", "items": GROUP}),
}


EXPORTER, TENSORBOARD = "tb-supervisor-exporter", "tb-supervisor-tensorboard"
POLICY = "NetworkPolicy"


def objects(where: Deployed = WHERE) -> dict[tuple[str, str], Any]:
    """The manifests by kind and name, as read from the YAML that is printed."""
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(to_yaml(*manifests(where)))}


def of_operator(where: Deployed = WHERE) -> dict[str, Any]:
    """Those that only the Prometheus operator knows, by kind."""
    return {kind: item for (kind, _), item in objects(where).items() if kind in OPERATOR}


@each("logdir", ["/logs", "gs://bucket/logs"])
def test_kubernetes_takes_them(logdir: str) -> None:
    """What is not the operator's is as Kubernetes's schemas ask, and holds nothing that those do not know."""
    where = Deployed(image="i", namespace="ml", logdir=logdir, claim="logs")
    found = [item for (kind, _), item in objects(where).items() if kind not in OPERATOR]
    for item in found:
        kubernetes_validate.validate(item, "1.30", strict=True)
    assert sorted(item["kind"] for item in found) == sorted(("Deployment", POLICY, "Service") * 2)


@each("kind", OPERATOR)
def test_the_operator_takes_them(kind: str) -> None:
    """Each of the operator's kinds has the fields that the operator knows, and no other."""
    item = of_operator()[kind]
    assert item["apiVersion"] == "monitoring.coreos.com/v1"
    jsonschema.validate(item["spec"], OPERATOR[kind])


@each("name", [EXPORTER, TENSORBOARD])
def test_the_parts_find_each_other(name: str) -> None:
    """Deployment, Service and NetworkPolicy select the pods; ports are called what they are."""
    found = objects()
    pod = found["Deployment", name]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (port,) = container["ports"]
    assert found["Deployment", name]["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert found["Service", name]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert found[POLICY, name]["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert found["Service", name]["spec"]["ports"][0]["targetPort"] == port["name"]
    probes = [probe for key, probe in container.items() if key.endswith("Probe")]
    assert len(probes) == 2
    assert {(probe.get("httpGet") or probe["tcpSocket"])["port"] for probe in probes} == {port["name"]}
    assert str(port["containerPort"]) in " ".join(container["args"])


def test_prometheus_finds_the_exporters_of_all_namespaces() -> None:
    """What the operator reads is in the namespace of Prometheus, and selects the Services wherever they are."""
    found, service = of_operator(), objects()["Service", EXPORTER]
    monitor = found["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert all(found[kind]["spec"]["namespaceSelector"] == {"any": True} for kind in ("ServiceMonitor", "PodMonitor"))
    assert {item["metadata"]["namespace"] for item in found.values()} == {"monitoring"}


def test_exporters_of_several_namespaces_have_a_job_each() -> None:
    """Alerts about a logdir have its job: two namespaces may both have /logs."""
    (relabeling,) = of_operator()["ServiceMonitor"]["spec"]["endpoints"][0]["relabelings"]
    assert (relabeling["sourceLabels"], relabeling["targetLabel"]) == (["namespace", "service"], "job")


def test_only_prometheus_reaches_the_exporter() -> None:
    """Ingress is from the namespace of Prometheus, to one port, and to TensorBoard from nowhere; neither calls out."""
    where = Deployed(image="i", namespace="ml", logdir="/logs", claim="logs", prometheus_namespace="observed")
    found = objects(where)
    exporter, tensorboard = (found[POLICY, name]["spec"] for name in (EXPORTER, TENSORBOARD))
    (rule,) = exporter["ingress"]
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observed"}}}
    assert rule == {"from": [selector], "ports": [{"port": "metrics"}]}
    assert "ingress" not in tensorboard
    for spec in (exporter, tensorboard):
        assert spec["policyTypes"] == ["Ingress", "Egress"] and "egress" not in spec


def test_an_object_store_can_be_asked() -> None:
    """Egress is free where the logdir is an address, and there is no volume for it."""
    found = objects(Deployed(image="i", namespace="ml", logdir="gs://bucket/logs", claim="logs"))
    for name, volumes in ((EXPORTER, None), (TENSORBOARD, [{"name": "tmp", "emptyDir": {}}])):
        assert found[POLICY, name]["spec"]["policyTypes"] == ["Ingress"]
        assert found["Deployment", name]["spec"]["template"]["spec"].get("volumes") == volumes


@each("name", [EXPORTER, TENSORBOARD])
def test_the_logdir_is_only_read(name: str) -> None:
    """A local logdir is a volume, read-only on both sides. Nothing runs as root, nor writes to its image."""
    spec = objects()["Deployment", name]["spec"]["template"]["spec"]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "logs", "readOnly": True}
    assert spec["containers"][0]["volumeMounts"][0] == {"name": "logs", "mountPath": "/logs", "readOnly": True}
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_shards_are_a_set() -> None:
    """Each pod is started at once, has the end of its name as its shard, and is found by the Service that there is."""
    found = objects(replace(WHERE, shards=3))
    one, three = objects()["Deployment", EXPORTER]["spec"], found["StatefulSet", EXPORTER]["spec"]
    kubernetes_validate.validate(found["StatefulSet", EXPORTER], "1.30", strict=True)
    assert ("Deployment", EXPORTER) not in found and ("Service", three["serviceName"]) in found
    assert (three["replicas"], three["podManagementPolicy"], three["selector"]) == (3, "Parallel", one["selector"])
    (container,) = three["template"]["spec"]["containers"]
    (option,) = set(container["args"]) - set(one["template"]["spec"]["containers"][0]["args"])
    (variable,) = container["env"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    for index in range(3):
        text = option.removeprefix("--shard=").replace(f"$({variable['name']})", f"{EXPORTER}-{index}")
        assert RunShard.parse(text) == RunShard(index, 3)
    assert three["template"]["metadata"]["labels"] == one["template"]["metadata"]["labels"]


def test_shards_of_an_object_store_have_no_volume() -> None:
    """As one exporter."""
    found = objects(Deployed(image="i", namespace="ml", logdir="gs://bucket/logs", claim="logs", shards=2))
    assert "volumes" not in found["StatefulSet", EXPORTER]["spec"]["template"]["spec"]


def test_the_rules_are_the_rules() -> None:
    """They are what `tb-supervisor rules` prints, by namespace too; their runbook is the exporter's page."""
    base = "http://tb-supervisor-exporter.ml.svc:10988/alerts"
    expected = rule_groups(runbook_base=base, by=("run", "namespace", "cluster"))
    assert of_operator()["PrometheusRule"]["spec"] == expected


def test_labels_are_on_every_object() -> None:
    """A Prometheus that selects what it takes by a label finds every object."""
    assert all(item["metadata"]["labels"]["release"] == "prometheus" for item in objects().values())
    assert {item["metadata"]["namespace"] for item in objects().values()} == {"ml", "monitoring"}

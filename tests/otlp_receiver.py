"""An OTLP receiver for tests: takes metrics over HTTP, translates them as Prometheus does, and can hand them on to a
real Prometheus by remote write, with their own times. Debian builds Prometheus without the receiver that it has."""

from __future__ import annotations

import gzip
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from supervisor_core.base.wire import delimited, encode_varint

STALE = 0x7FF0000000000002
"""The bits of the value that ends a series."""


@dataclass(frozen=True)
class Pushed:
    """One sample, as Prometheus keeps it."""

    labels: dict[str, str]
    bits: bytes
    """The value, as eight bytes: some are no numbers, and differ."""
    millis: int

    @property
    def value(self) -> float:
        (value,) = struct.unpack("<d", self.bits)
        return float(value)

    @property
    def is_end(self) -> bool:
        """Whether it ends its series."""
        return int.from_bytes(self.bits, "little") == STALE


@dataclass
class Push:
    """One request."""

    path: str
    headers: dict[str, str]
    samples: list[Pushed]

    def values(self) -> dict[str, float]:
        """The samples as in Prometheus' text format, without job and instance."""
        return {_text(each.labels): each.value for each in self.samples if not each.is_end}

    def ended(self) -> set[str]:
        """The series that it ends."""
        return {_text(each.labels) for each in self.samples if each.is_end}


@dataclass
class Answer:
    """What a receiver answers."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class OtlpReceiver:
    """Receives at a port of 127.0.0.1, from entering to leaving.

    Args:
        answer: called for each push; what to answer. It may wait.
        remote_write: the URL of a Prometheus that gets each push.
    """

    def __init__(
        self, answer: Callable[[Push], Answer] = lambda push: Answer(), *, remote_write: str | None = None
    ) -> None:
        self.pushes: list[Push] = []
        self.arrived = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                push = Push(self.path, dict(self.headers), list(samples_of(body)))
                if remote_write is not None and push.samples:
                    hand_on(remote_write, push.samples)
                with outer.arrived:
                    outer.pushes.append(push)
                    outer.arrived.notify_all()
                said = answer(push)
                self.send_response_only(said.status)  # without the time, but as said
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait_for(self, condition: Callable[[list[Push]], Any], timeout_secs: float = 60.0) -> list[Push]:
        """Wait until what has arrived, without requests that hold nothing, is as it should be; return it."""
        with self.arrived:
            found = self.arrived.wait_for(lambda: condition(self.full), timeout_secs)
            assert found, f"waited in vain; {len(self.full)} pushes came"
            return self.full

    @property
    def full(self) -> list[Push]:
        """The pushes that hold something."""
        return [push for push in self.pushes if push.samples]

    def __enter__(self) -> OtlpReceiver:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def samples_of(body: bytes) -> Iterator[Pushed]:
    """What Prometheus keeps of a request."""
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        about = _attributes(resource.resource.attributes)
        job = "/".join(filter(None, (about.get("service.namespace"), about["service.name"])))
        target = {"job": job, "instance": about["service.instance.id"]}
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for name, labels, value, nanos in _samples(metric):
                named = {"__name__": name, **{key: text for key, text in labels.items() if text}, **target}
                yield Pushed(named, struct.pack("<d", value), nanos // 1_000_000)


def _samples(metric: Metric) -> Iterator[tuple[str, dict[str, str], float, int]]:
    assert metric.unit == ""  # else Prometheus adds it to the name
    name = "_".join(filter(None, metric.name.split("_")))
    kind = metric.WhichOneof("data")
    if kind == "histogram":
        for point in metric.histogram.data_points:
            labels, at, total = _attributes(point.attributes), point.time_unix_nano, 0
            for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
                total += count
                yield f"{name}_bucket", {**labels, "le": f"{bound:g}"}, total, at
            yield f"{name}_bucket", {**labels, "le": "+Inf"}, point.count, at
            yield f"{name}_sum", labels, point.sum, at
            yield f"{name}_count", labels, point.count, at
        return
    if kind == "sum":
        assert metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2  # cumulative
        name = name.replace("_total", "") + "_total"
    for point in getattr(metric, kind or "").data_points:
        value = point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)
        yield name, _attributes(point.attributes), value, point.time_unix_nano


def _attributes(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}


def _text(labels: dict[str, str]) -> str:
    shown = sorted(item for item in labels.items() if item[0] not in ("__name__", "job", "instance"))
    return labels["__name__"] + ("{" + ",".join(f'{name}="{value}"' for name, value in shown) + "}" if shown else "")


def hand_on(url: str, samples: list[Pushed]) -> None:
    """Give samples to a Prometheus by remote write: a protocol-buffer message in a Snappy block of literals."""
    series = b"".join(
        delimited(
            1,
            b"".join(
                delimited(1, delimited(1, name.encode()) + delimited(2, each.labels[name].encode()))
                for name in sorted(each.labels)
            )
            + delimited(2, b"\x09" + each.bits + b"\x10" + encode_varint(each.millis)),
        )
        for each in samples
    )
    block = encode_varint(len(series))
    for at in range(0, len(series), 65536):
        piece = series[at : at + 65536]
        block += b"\xf4" + (len(piece) - 1).to_bytes(2, "little") + piece
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    urllib.request.urlopen(urllib.request.Request(url, block, headers), timeout=60).close()

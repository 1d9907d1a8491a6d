"""The exposition formats, for thousands of runs: what prometheus_client's encoders write, byte for byte, and fast.

Text 0.0.4 and OpenMetrics differ in the lines above a metric's samples and in the last line of all; the samples are the
same. So one run's samples are written once, for both, and put together for each scrape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite

from prometheus_client.exposition import choose_encoder
from prometheus_client.exposition import gzip_accepted as gzip_accepted  # for all that serve metrics
from prometheus_client.registry import Collector

from supervisor_core.metrics.metric import Metric, Sample

_CONTENT_TYPE = re.compile(r"[A-Za-z0-9/.;=+ -]+")
END = b"# EOF\n"
"""What an OpenMetrics text ends in."""


@dataclass(frozen=True)
class Format:
    """One of the two formats."""

    openmetrics: bool
    content_type: str


TEXT = Format(False, "text/plain; version=0.0.4; charset=utf-8")
OPENMETRICS = Format(True, "application/openmetrics-text; version=1.0.0; charset=utf-8")


def choose_encoding(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return prometheus_client's encoder for what a client's ``Accept`` asks for, and what it writes; text for none.

    The library repeats the version that was asked for in what it writes, whatever characters that has: one that could
    not be in a header of ours asks for none.
    """
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # a version that is no number
        return choose_encoder("")
    return (encode, content_type) if _CONTENT_TYPE.fullmatch(content_type) else choose_encoder("")


def choose_format(accept: str) -> Format:
    """Return the format that a client's ``Accept`` asks for, as prometheus_client understands it; text for none.

    Example:
        >>> choose_format("application/openmetrics-text;version=1.0.0,text/plain;q=0.5").openmetrics
        True
    """
    _, content_type = choose_encoding(accept)
    return Format(content_type.startswith("application/openmetrics-text"), content_type)


@lru_cache(maxsize=256)
def header(metric: Metric, openmetrics: bool) -> bytes:
    """Return the lines that stand above a metric's samples."""
    name, kind = metric.name, str(metric.type)
    if openmetrics:
        name = name.removesuffix({"counter": "_total", "info": "_info"}.get(kind, ""))
    elif kind == "info":
        kind = "gauge"
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    text = f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
    if openmetrics:
        text = text.replace('"', r"\"") + (f"# UNIT {name} {metric.unit}\n" if metric.unit else "")
    return text.encode()


def lines(metric: Metric, samples: Iterable[Sample]) -> bytes:
    """Return the lines of a metric's samples, in either format.

    Raises:
        TypeError, ValueError: if a value is no number.
    """
    return "".join(
        [
            f"{metric.name}{suffix}{{{_labels(labels)}}} {_number(value)}\n"
            if labels
            else f"{metric.name}{suffix} {_number(value)}\n"
            for labels, value, suffix in samples
        ]
    ).encode()


def label_text(label: str) -> str:
    """Return the label as something UTF-8 can hold: directories may be named in bytes that are no text."""
    return label if label.isascii() else label.encode("utf-8", "backslashreplace").decode("utf-8")


def _labels(labels: dict[str, str]) -> str:
    return ",".join([f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)])


@lru_cache(maxsize=4096)
def _escaped(label: str) -> str:
    return label_text(label).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    """Return a number as Go writes it: exponents from a million on, and the infinities by their Prometheus names."""
    value = float(value)
    if not isfinite(value):
        return {inf: "+Inf", -inf: "-Inf"}.get(value, "NaN")
    text = repr(value)
    point = text.find(".")
    if value > 0 and point > 6:
        digits = (text[0] + "." + text[1:point] + text[point + 1 :]).rstrip("0.")
        return f"{digits}e+{point - 1:02d}"
    return text

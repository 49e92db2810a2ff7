"""Export of metrics to an OpenTelemetry receiver, by OTLP over HTTP.

The same metrics are sent that Prometheus reads; OpenTelemetry's own instruments are not used, since
they count in one process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family

from longline.core.errors import LonglineError
from longline.core.redaction import redact_url

_TIMEOUT = 10.0  # seconds, retries included
_NANOSECONDS = 1_000_000_000
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}


class ExportRefused(LonglineError):
    """The receiver did not accept the metrics."""

    url: str
    message = "the metrics could not be sent to {url}"
    hint = "Check that an OTLP receiver listens there; otlp_url ends with /v1/metrics."


class OtlpExporter:
    """Sends metrics to `url`; `OTEL_EXPORTER_OTLP_HEADERS` may add headers, such as a token."""

    def __init__(self, url: str) -> None:
        self._url = url
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # `ExportRefused` says it
        self._exporter = OTLPMetricExporter(endpoint=url, timeout=_TIMEOUT)
        self._resource = Resource.create({"service.name": "longline"})
        self._scope = InstrumentationScope("longline", version("longline"))

    async def send(self, families: Iterable[Family], at: float) -> None:
        """Send metrics that were read at a time.

        Raises:
            ExportRefused: the receiver is not there, or did not accept them.
        """
        data = MetricsData(
            [
                ResourceMetrics(
                    self._resource,
                    [ScopeMetrics(self._scope, list(_metrics(families, at)), "")],
                    "",
                )
            ]
        )
        result = await asyncio.to_thread(self._exporter.export, data)
        if result is not MetricExportResult.SUCCESS:
            raise ExportRefused(redact_url(self._url))

    async def close(self) -> None:
        """Close its connection."""
        await asyncio.to_thread(self._exporter.shutdown)


def _metrics(families: Iterable[Family], at: float) -> Iterator[Metric]:
    now = int(at * _NANOSECONDS)
    for family in families:
        if not family.samples:
            continue
        unit = _UNITS.get(family.name.removesuffix("_total").rpartition("_")[2], "")
        yield Metric(family.name, family.documentation, unit, _data(family, now))


def _data(family: Family, now: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        points = list(_histogram_points(family, now))
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    numbers = [
        # The counters began with the database; when is not known, which is written as 0.
        NumberDataPoint(dict(one.labels), 0, now, float(one.value))
        for one in family.samples
    ]
    if family.type == "counter":
        return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _histogram_points(family: Family, now: int) -> Iterator[HistogramDataPoint]:
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for one in family.samples:
        labels: Mapping[str, Any] = {key: text for key, text in one.labels.items() if key != "le"}
        place = tuple(sorted(labels.items()))
        if one.name.endswith("_bucket"):
            buckets.setdefault(place, []).append((float(one.labels["le"]), one.value))
        elif one.name.endswith("_sum"):
            sums[place] = one.value
    for place, found in buckets.items():
        counts = [0.0, *(count for _, count in sorted(found))]
        yield HistogramDataPoint(
            attributes=dict(place),
            start_time_unix_nano=0,
            time_unix_nano=now,
            count=int(counts[-1]),
            sum=sums.get(place, 0.0),
            bucket_counts=[int(later - earlier) for earlier, later in pairwise(counts)],
            explicit_bounds=sorted(bound for bound, _ in found)[:-1],
            min=None,  # type: ignore[arg-type]  # not known; the message may leave it out
            max=None,  # type: ignore[arg-type]  # the same
        )

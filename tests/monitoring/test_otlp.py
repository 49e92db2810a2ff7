"""Metrics for OpenTelemetry, as a receiver on this machine decodes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from longline.monitoring.otlp import ExportRefused, OtlpExporter
from tests.monitoring.otlp_receiver import Receiver, receiving
from tests.virtual import EPOCH


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def families() -> list[Any]:
    counter = CounterMetricFamily("longline_requests_total", "Requests.", labels=["source"])
    counter.add_metric(["shop"], 7)
    gauge = GaugeMetricFamily("longline_freshness_seconds", "Freshness.", labels=["source"])
    gauge.add_metric(["shop"], 1.5)
    times = HistogramMetricFamily("longline_times_seconds", "Times.", labels=["source"])
    times.add_metric(["shop"], [("0.5", 2), ("1", 3), ("+Inf", 5)], 9.5)
    return [counter, gauge, times, GaugeMetricFamily("longline_empty", "Nothing.")]


@pytest.mark.real_time
async def test_counters_gauges_and_histograms_arrive(receiver: Receiver) -> None:
    exporter = OtlpExporter(receiver.url)
    await exporter.send(families(), EPOCH)
    await exporter.close()

    (request,) = receiver.received
    (scope,) = request.resource_metrics[0].scope_metrics
    counter, gauge, times = scope.metrics
    point = times.histogram.data_points[0]
    assert (counter.name, counter.sum.is_monotonic) == ("longline_requests", True)
    assert counter.sum.data_points[0].as_double == 7
    assert counter.sum.data_points[0].time_unix_nano == EPOCH * 1e9
    assert counter.sum.data_points[0].attributes[0].value.string_value == "shop"
    assert (gauge.unit, gauge.gauge.data_points[0].as_double) == ("s", 1.5)
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([2, 1, 2], [0.5, 1.0])
    assert (point.count, point.sum, point.HasField("min")) == (5, 9.5, False)
    resource = request.resource_metrics[0].resource.attributes
    assert {one.key: one.value.string_value for one in resource}["service.name"] == "longline"


@pytest.mark.real_time
async def test_a_refusal_of_the_receiver_is_an_error(receiver: Receiver) -> None:
    receiver.status = 400
    exporter = OtlpExporter(receiver.url)

    with pytest.raises(ExportRefused) as caught:
        await exporter.send(families(), EPOCH)

    await exporter.close()
    assert caught.value.url == receiver.url

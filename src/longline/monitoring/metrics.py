"""Metrics for Prometheus, made of the totals of a home.

Nothing is counted in a process, since there are many: every value is read from the database, so any
process can report all of them, and counters survive restarts. Labels never hold URLs, keys or ids
of jobs. A new metric is an entry in `METRICS`, and a row in docs/monitoring.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import accumulate
from typing import Literal

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from longline.core.model import OPEN_STATES, RESPONSE_TIMES, STATUS_CLASSES
from longline.storage.events.subscribers import Subscriber
from longline.storage.monitoring.totals import HomeTotals, SourceTotals

Sample = tuple[Sequence[str], float]
_MAX_SUBSCRIBERS = 50
_LONGEST_LABEL = 100
_IN_URLS = re.compile(r"://|[@?]")
_ENDS = ("complete", "partial", "failed", "cancelled")
_OUTCOMES = ("stored", "unchanged", "skipped", "deferred", "failed", "quarantined")


@dataclass(frozen=True, slots=True)
class Measurement:
    """The totals of a home, and the memory in bytes of its processes here, by component."""

    home: HomeTotals
    memory: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric, and how its samples are read: the values of its labels, and its value."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...]
    samples: Callable[[Measurement], Iterable[Sample]]


def _by_source(read: Callable[[SourceTotals], float | None]) -> Callable[..., Iterator[Sample]]:
    def samples(measured: Measurement) -> Iterator[Sample]:
        for source, one in measured.home.sources.items():
            if (value := read(one)) is not None:
                yield (source,), value

    return samples


def _by_source_and(
    read: Callable[[SourceTotals], Mapping[str, float]],
) -> Callable[..., Iterator[Sample]]:
    def samples(measured: Measurement) -> Iterator[Sample]:
        for source, one in measured.home.sources.items():
            for name, value in read(one).items():
                yield (source, name), value

    return samples


def _counter(name: str) -> Callable[..., Iterator[Sample]]:
    return _by_source(lambda one: one.counters.get(name, 0.0))


def _by_domain(name: str) -> Callable[..., Iterator[Sample]]:
    def samples(measured: Measurement) -> Iterator[Sample]:
        for domain, one in measured.home.domains.items():
            if (value := getattr(one, name)) is not None:
                yield (domain,), float(value)

    return samples


def _single(read: Callable[[HomeTotals], float]) -> Callable[..., Iterator[Sample]]:
    def samples(measured: Measurement) -> Iterator[Sample]:
        yield (), read(measured.home)

    return samples


def _by_name(read: Callable[[HomeTotals], Mapping[str, float]]) -> Callable[..., Iterator[Sample]]:
    def samples(measured: Measurement) -> Iterator[Sample]:
        for name, value in read(measured.home).items():
            yield (name,), value

    return samples


def _age(home: HomeTotals, since: float | None) -> float:
    return 0.0 if since is None else max(0.0, home.at - since)


def _ages(name: str, *, missing: float | None) -> Callable[..., Iterator[Sample]]:
    """Return the seconds since a time of each source; `missing` is the value without that time."""

    def samples(measured: Measurement) -> Iterator[Sample]:
        for source, one in measured.home.sources.items():
            since = getattr(one, name)
            value = missing if since is None else _age(measured.home, since)
            if value is not None:
                yield (source,), value

    return samples


def _lags(read: Callable[[HomeTotals, Subscriber], float]) -> Callable[..., Iterator[Sample]]:
    def samples(measured: Measurement) -> Iterator[Sample]:
        for one in measured.home.subscribers[:_MAX_SUBSCRIBERS]:
            yield (one.name,), read(measured.home, one)

    return samples


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


RESPONSE_DURATION = "longline_response_duration_seconds"
"""The only histogram."""
RESPONSE_DURATION_MEANING = "Time from sending a request to the end of its response."
METRICS: tuple[MetricDefinition, ...] = (
    MetricDefinition(
        "longline_build_info",
        "gauge",
        "Always 1; the label is the version of longline.",
        ("version",),
        lambda _measured: [((version("longline"),), 1.0)],
    ),
    # ---------------- Sources
    MetricDefinition(
        "longline_jobs",
        "gauge",
        "Jobs that have not ended, by state.",
        ("source", "state"),
        _by_source_and(lambda one: {state: one.open_jobs[state] for state in OPEN_STATES}),
    ),
    MetricDefinition(
        "longline_runs_total",
        "counter",
        "Ended runs by final state.",
        ("source", "state"),
        _by_source_and(lambda one: {state: one.runs[state] for state in _ENDS}),
    ),
    MetricDefinition(
        "longline_items_total",
        "counter",
        "Outcomes of attempts at items.",
        ("source", "state"),
        _by_source_and(
            lambda one: {state: one.counters.get(f"items/{state}", 0.0) for state in _OUTCOMES}
        ),
    ),
    MetricDefinition(
        "longline_item_seconds_total",
        "counter",
        "Time spent on items, waits included.",
        ("source",),
        _counter("item_seconds"),
    ),
    MetricDefinition(
        "longline_requests_total",
        "counter",
        "Requests sent, including those without a response.",
        ("source",),
        _counter("requests"),
    ),
    MetricDefinition(
        "longline_responses_total",
        "counter",
        "Responses by status class.",
        ("source", "status"),
        _by_source_and(
            lambda one: {
                name: value
                for name in STATUS_CLASSES
                if (value := one.counters.get(f"status/{name}")) is not None
            }
        ),
    ),
    MetricDefinition(
        "longline_retries_total",
        "counter",
        "Requests that were repeated after a failure.",
        ("source",),
        _counter("retries"),
    ),
    MetricDefinition(
        "longline_rate_limited_responses_total",
        "counter",
        "Responses with status 429.",
        ("source",),
        _counter("rate_limited"),
    ),
    MetricDefinition(
        "longline_proxied_requests_total",
        "counter",
        "Requests sent through proxies.",
        ("source",),
        _counter("proxied"),
    ),
    MetricDefinition(
        "longline_proxy_failures_total",
        "counter",
        "Requests through proxies that failed, or may have failed through their fault.",
        ("source",),
        _counter("proxy_failures"),
    ),
    MetricDefinition(
        "longline_proxy_bans_total",
        "counter",
        "Ban pages that requests through proxies received.",
        ("source",),
        _counter("proxy_bans"),
    ),
    MetricDefinition(
        "longline_rate_limit_waits_total",
        "counter",
        "Requests that waited for the rate limit.",
        ("source",),
        _counter("waits"),
    ),
    MetricDefinition(
        "longline_rate_limit_wait_seconds_total",
        "counter",
        "Time that requests waited for the rate limit.",
        ("source",),
        _counter("waited"),
    ),
    MetricDefinition(
        "longline_received_bytes_total",
        "counter",
        "Decompressed size of response bodies.",
        ("source",),
        _counter("received_bytes"),
    ),
    MetricDefinition(
        "longline_cached_responses_total",
        "counter",
        "Responses from the HTTP cache that needed no request.",
        ("source",),
        _counter("cached"),
    ),
    MetricDefinition(
        "longline_queue_items",
        "gauge",
        "Items of open jobs that are queued or leased.",
        ("source",),
        _by_source(lambda one: one.open_items),
    ),
    MetricDefinition(
        "longline_oldest_due_item_seconds",
        "gauge",
        "Time since a running job that has due items finished an item or was started.",
        ("source",),
        _ages("waiting_since", missing=0.0),
    ),
    MetricDefinition(
        "longline_freshness_seconds",
        "gauge",
        "Time since the last complete run; absent before the first.",
        ("source",),
        _ages("last_good_at", missing=None),
    ),
    MetricDefinition(
        "longline_field_coverage_min_ratio",
        "gauge",
        "Share of records with a value, in the field where it is smallest.",
        ("source",),
        _by_source(lambda one: min(one.coverage, default=None)),
    ),
    MetricDefinition(
        "longline_field_coverage_mean_ratio",
        "gauge",
        "Share of records with a value, mean over all fields.",
        ("source",),
        _by_source(lambda one: _mean(one.coverage)),
    ),
    MetricDefinition(
        "longline_drifted_fields",
        "gauge",
        "Fields that differ from earlier runs and were not accepted.",
        ("source",),
        _by_source(lambda one: one.drift),
    ),
    MetricDefinition(
        "longline_records",
        "gauge",
        "Records that are not gone.",
        ("source",),
        _by_source(lambda one: one.records),
    ),
    MetricDefinition(
        "longline_exports_total",
        "counter",
        "Exports of the records of a job, by result.",
        ("source", "result"),
        _by_source_and(lambda one: {name: one.exports[name] for name in ("written", "failed")}),
    ),
    MetricDefinition(
        "longline_hidden_sources",
        "gauge",
        "Sources beyond the limit, which are summed as the source `other`.",
        (),
        _single(lambda home: home.hidden_sources),
    ),
    # ---------------- Domains
    MetricDefinition(
        "longline_domains",
        "gauge",
        "Domains with a known limit, breaker, ban or problem.",
        (),
        _single(lambda home: home.all_domains["domains"]),
    ),
    MetricDefinition(
        "longline_open_breakers",
        "gauge",
        "Domains whose circuit breaker is open.",
        (),
        _single(lambda home: home.all_domains["open"]),
    ),
    MetricDefinition(
        "longline_breaker_trips_total",
        "counter",
        "How often a circuit breaker has opened.",
        (),
        _single(lambda home: home.all_domains["trips"]),
    ),
    MetricDefinition(
        "longline_bans_total",
        "counter",
        "Bans and challenges of all domains.",
        (),
        _single(lambda home: home.all_domains["bans"]),
    ),
    MetricDefinition(
        "longline_refusals_total",
        "counter",
        "How often a site has refused requests because of its rate limit.",
        (),
        _single(lambda home: home.all_domains["refusals"]),
    ),
    MetricDefinition(
        "longline_domain_breaker_open",
        "gauge",
        "1 if the circuit breaker of the domain is open, else 0.",
        ("domain",),
        _by_domain("is_open"),
    ),
    MetricDefinition(
        "longline_domain_bans_total",
        "counter",
        "Bans and challenges of the domain.",
        ("domain",),
        _by_domain("bans"),
    ),
    MetricDefinition(
        "longline_domain_refusals_total",
        "counter",
        "How often the domain has refused requests because of its rate limit.",
        ("domain",),
        _by_domain("refusals"),
    ),
    MetricDefinition(
        "longline_domain_rate_limit",
        "gauge",
        "Requests per second: the learned, published or pinned limit of the domain.",
        ("domain",),
        _by_domain("rate"),
    ),
    MetricDefinition(
        "longline_hidden_domains",
        "gauge",
        "Domains beyond the limit, which have no metrics of their own.",
        (),
        _single(lambda home: home.hidden_domains),
    ),
    # ---------------- Launches, schedules, flows, events
    MetricDefinition(
        "longline_launches",
        "gauge",
        "Launches by state.",
        ("state",),
        _by_name(lambda home: {"queued": 0, "running": 0, **home.launches}),
    ),
    MetricDefinition(
        "longline_oldest_due_launch_seconds",
        "gauge",
        "How long the oldest launch that is due has waited.",
        (),
        _single(lambda home: _age(home, home.due_since)),
    ),
    MetricDefinition(
        "longline_flow_runs",
        "gauge",
        "Runs of flows by state.",
        ("state",),
        _by_name(lambda home: home.flows),
    ),
    MetricDefinition(
        "longline_recent_occurrences",
        "gauge",
        "Occurrences of schedules that were decided in the last hour, by fate.",
        ("fate",),
        _by_name(lambda home: home.occurrences),
    ),
    MetricDefinition(
        "longline_schedule_lag_seconds",
        "gauge",
        "Longest delay of an occurrence that was decided in the last hour.",
        (),
        _single(lambda home: home.schedule_lag),
    ),
    MetricDefinition(
        "longline_oldest_queued_occurrence_seconds",
        "gauge",
        "How long the oldest queued occurrence has waited for an earlier run.",
        (),
        _single(lambda home: _age(home, home.queued_since)),
    ),
    MetricDefinition(
        "longline_events_total",
        "counter",
        "Events appended to the event log.",
        (),
        _single(lambda home: home.newest_event),
    ),
    MetricDefinition(
        "longline_subscriber_lag_events",
        "gauge",
        "Events since the first one that a subscriber has not handled.",
        ("subscriber",),
        _lags(lambda _home, one: one.lag),
    ),
    MetricDefinition(
        "longline_subscriber_lag_seconds",
        "gauge",
        "Age of the first event that a subscriber has not handled.",
        ("subscriber",),
        _lags(lambda home, one: _age(home, one.waiting_since)),
    ),
    # ---------------- Processes, alerts, database
    MetricDefinition(
        "longline_workers",
        "gauge",
        "Registered workers of the cluster: alive, or late with their heartbeat.",
        ("state",),
        _by_name(
            lambda home: {
                "alive": home.workers.get(True, 0),
                "late": home.workers.get(False, 0),
            }
        ),
    ),
    MetricDefinition(
        "longline_proxies",
        "gauge",
        "Proxies of the pool by state: alive, unchecked, quarantined, dead.",
        ("state",),
        _by_name(lambda home: home.proxies),
    ),
    MetricDefinition(
        "longline_processes",
        "gauge",
        "Processes of this home on this machine.",
        ("component",),
        lambda measured: [((one,), len(sizes)) for one, sizes in measured.memory.items()],
    ),
    MetricDefinition(
        "longline_process_memory_bytes",
        "gauge",
        "Resident memory of the processes of this home on this machine.",
        ("component",),
        lambda measured: [((one,), sum(sizes)) for one, sizes in measured.memory.items()],
    ),
    MetricDefinition(
        "longline_alerts_firing",
        "gauge",
        "Alerts that are firing.",
        ("rule", "severity"),
        lambda measured: list(measured.home.alerts.items()),
    ),
    MetricDefinition(
        "longline_database_size_bytes",
        "gauge",
        "Size of the database.",
        (),
        _single(lambda home: home.size_bytes),
    ),
)


def metric_families(measured: Measurement) -> Iterator[Metric]:
    """Yield all metrics as prometheus-client has them."""
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    for one in METRICS:
        family = kinds[one.kind](one.name, one.meaning, labels=one.labels)
        for labels, value in one.samples(measured):
            family.add_metric([_safe_label(label) for label in labels], value)
        yield family
    yield _response_durations(measured.home)


def render_metrics(measured: Measurement, accept: str = "") -> tuple[bytes, str]:
    """Return all metrics as text and its media type, in the format that `accept` prefers."""
    encode, media_type = choose_encoder(accept)
    return encode(_Families(list(metric_families(measured)))), media_type


class _Families(Collector):
    """Metrics that have been read already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _response_durations(home: HomeTotals) -> Metric:
    family = HistogramMetricFamily(RESPONSE_DURATION, RESPONSE_DURATION_MEANING, labels=("source",))
    bounds = [f"{bound:g}" for bound in RESPONSE_TIMES]
    for source, one in home.sources.items():
        if "time/sum" not in one.counters:
            continue
        counts = [one.counters.get(f"time/{bound}", 0.0) for bound in (*bounds, "inf")]
        buckets = list(zip((*bounds, "+Inf"), accumulate(counts), strict=True))
        family.add_metric([_safe_label(source)], buckets, one.counters["time/sum"])
    return family


def _safe_label(text: str) -> str:
    """Return the value of a label: a name as it is, or a hash of what may be a URL."""
    if len(text) <= _LONGEST_LABEL and text.isprintable() and not _IN_URLS.search(text):
        return text
    return f"hash-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

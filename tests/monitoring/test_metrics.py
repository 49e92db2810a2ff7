"""Metrics: parsed by the parser of Prometheus, named by its rules, bounded, and without secrets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from longline.core.model import OutcomeAction, Usage
from longline.monitoring.metrics import (
    METRICS,
    RESPONSE_DURATION,
    RESPONSE_DURATION_MEANING,
    Measurement,
    render_metrics,
)
from longline.storage.events.events import EventFilter, event_row
from longline.storage.jobs import NewJob
from longline.storage.store import Store, open_store
from tests.storage.given import complete, ended, leased, queued, stored
from tests.virtual import EPOCH

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "monitoring"
SECRET = "hunter2-s3cret"  # noqa: S105  # planted
NAMES = {one.name for one in METRICS} | {
    f"{RESPONSE_DURATION}_{part}" for part in ("bucket", "sum", "count")
}
LABELS = {
    *("source", "state", "status", "result", "domain", "fate", "subscriber", "component"),
    *("rule", "severity", "version", "le"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "longline.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    with open_store(f"sqlite:///{path}") as store:
        yield store


async def run_job(store: Store) -> None:
    """Run a job with a stored, a failed and a deferred item."""
    job = await queued(store, "a", "b", "c", is_last=True)
    first, second, third = await leased(store, job, 3)
    usage = Usage(requests=2, retries=1, waits=1, waited=0.5, proxied=2, proxy_failures=1)
    usage.add_response(429, 10, 0.01)
    usage.add_response(200, 1000, 0.3)
    await complete(store, stored(first, usage=usage))
    await complete(store, ended(second, OutcomeAction.FAIL, reason="no price"))
    await complete(store, ended(third, OutcomeAction.DEFER, due=EPOCH + 60))


async def read(store: Store, at: float = EPOCH + 100) -> str:
    measured = Measurement(await store.totals.read(at), {"server": [1000], "job": [10, 20]})
    return render_metrics(measured)[0].decode()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, tuple(sorted(labels.items()))]


async def test_a_run_is_seen_in_the_metrics(store: Store) -> None:
    await run_job(store)

    text = await read(store)

    shop = {"source": "shop"}
    assert value(text, "longline_items_total", state="stored", **shop) == 1
    assert value(text, "longline_items_total", state="deferred", **shop) == 1
    assert value(text, "longline_responses_total", status="4xx", **shop) == 1
    assert value(text, "longline_rate_limited_responses_total", **shop) == 1
    assert value(text, "longline_rate_limit_wait_seconds_total", **shop) == 0.5
    assert value(text, "longline_proxied_requests_total", **shop) == 2
    assert value(text, "longline_proxy_failures_total", **shop) == 1
    assert value(text, "longline_received_bytes_total", **shop) == 1010
    assert value(text, "longline_queue_items", **shop) == 1
    assert value(text, "longline_jobs", state="running", **shop) == 1
    assert value(text, "longline_process_memory_bytes", component="job") == 30
    assert value(text, "longline_processes", component="job") == 2


async def test_the_buckets_of_response_times_are_cumulative(store: Store) -> None:
    await run_job(store)

    text = await read(store)

    found = {
        dict(labels)["le"]: count
        for (name, labels), count in samples(text).items()
        if name == f"{RESPONSE_DURATION}_bucket"
    }
    assert (found["0.05"], found["0.25"], found["0.5"], found["+Inf"]) == (1, 1, 2, 2)
    assert value(text, f"{RESPONSE_DURATION}_sum", source="shop") == pytest.approx(0.31)


async def test_counters_never_decrease_over_restarts(path: Path) -> None:
    counters: list[dict[Any, float]] = []
    for _ in range(3):
        with open_store(f"sqlite:///{path}") as store:
            await run_job(store)
            counters.append(samples(await read(store)))

    kinds = {one.name for one in METRICS if one.kind == "counter"}
    earlier, later = counters[0], counters[2]
    decreased = [one for one in earlier if one[0] in kinds and later[one] < earlier[one]]
    assert decreased == []
    requests = ("longline_requests_total", (("source", "shop"),))
    assert [one[requests] for one in counters] == [2, 4, 6]


async def test_both_text_formats_can_be_parsed(store: Store) -> None:
    await run_job(store)
    measured = Measurement(await store.totals.read(EPOCH))

    plain, plain_type = render_metrics(measured)
    modern, modern_type = render_metrics(measured, "application/openmetrics-text; version=1.0.0")

    families = list(text_string_to_metric_families(plain.decode()))
    assert len(families) == len(METRICS) + 1
    newer = list(read_openmetrics(modern.decode()))  # type: ignore[no-untyped-call]  # it has no types
    assert len(newer) == len(METRICS) + 1
    assert plain_type.startswith("text/plain")
    assert modern_type.startswith("application/openmetrics-text")


def test_names_follow_the_rules_of_prometheus() -> None:
    wrong = [one.name for one in METRICS if not re.fullmatch(r"longline(_[a-z]+)+", one.name)]
    is_total = {one.name: one.name.endswith("_total") == (one.kind == "counter") for one in METRICS}
    units = {"seconds", "bytes", "ratio"}
    others = {"minutes", "hours", "days", "milliseconds", "ms", "kilobytes", "mb", "percent"}
    words = {one.name: set(one.name.split("_")) for one in METRICS}

    assert wrong == []
    assert [name for name, is_right in is_total.items() if not is_right] == []
    assert [name for name, found in words.items() if found & others] == []
    misplaced = [
        name
        for name, found in words.items()
        if found & units and name.removesuffix("_total").rpartition("_")[2] not in units
    ]
    assert misplaced == []


def test_labels_are_of_a_fixed_set() -> None:
    assert {label for one in METRICS for label in one.labels} <= LABELS


@pytest.mark.rows_without_events
async def test_ten_thousand_domains_stay_under_five_thousand_series(store: Store) -> None:
    for place in range(120):
        job = await store.jobs.create(NewJob(f"source-{place}", {}, {}, EPOCH + place))
        names = [f"status/{name}" for name in ("1xx", "2xx", "3xx", "4xx", "5xx", "other")]
        await store.events.add_statistics(job.id, dict.fromkeys([*names, "time/sum"], 1.0))
        profile: dict[str, Any] = {
            "source": f"source-{place}",
            "records": 1,
            "invalid": 0,
            "coverage": {"a": 1.0},
        }
        sound: dict[str, Any] = {"is_sound": True, "drift": []}
        profiled = event_row(job.id, EPOCH, "source.profiled", **profile, **sound)
        await store.events.append(profiled, event_row(job.id, EPOCH, "job.complete", reason=None))
    rows = [
        event_row(None, EPOCH + one, "limit.learned", domain=f"{one}.test", rate=2.0)
        for one in range(10_000)
    ]
    await store.events.append(*rows)

    text = await read(store)

    assert value(text, "longline_hidden_domains") == 9800
    assert value(text, "longline_hidden_sources") == 40
    assert 4000 < len(samples(text)) < 5000


async def test_no_secret_and_no_url_is_in_the_metrics(store: Store) -> None:
    url = f"https://user:{SECRET}@shop.test/?token={SECRET}"
    job = await store.jobs.create(NewJob(url, {"headers": {"x": SECRET}}, {}, EPOCH))
    await store.jobs.start(job.id, EPOCH)
    await store.subscribers.add(f"hook {url}", EventFilter(), EPOCH, 0)
    blocked = event_row(
        job.id, EPOCH, "domain.blocked", domain="shop.test", evidence=url, until=EPOCH
    )
    opened = event_row(
        job.id, EPOCH, "breaker.opened", domain=f"u:{SECRET}@shop.test", reason=url, until=EPOCH
    )
    await store.events.append(blocked, opened)
    other = await queued(store, SECRET)
    (lease,) = await leased(store, other)
    await complete(store, ended(lease, OutcomeAction.FAIL, reason=url))

    text = await read(store)

    assert SECRET not in text
    assert "://" not in "".join(line for line in text.splitlines() if line[0] != "#")
    assert job.id not in text
    assert value(text, "longline_domain_bans_total", domain="shop.test") == 1


async def test_hostile_names_leave_the_text_readable(store: Store) -> None:
    await store.jobs.create(NewJob('a"} 1\nlongline_fake 5\n\x1b[2J', {}, {}, EPOCH))

    text = await read(store)

    assert "longline_fake" not in {name for name, _ in samples(text)}
    assert "\x1b" not in text


def test_every_metric_is_documented() -> None:
    table = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    histogram = (RESPONSE_DURATION, "histogram", ("source",), RESPONSE_DURATION_MEANING)
    expected = [(one.name, one.kind, one.labels, one.meaning) for one in METRICS]
    missing = [
        row
        for name, kind, labels, meaning in [*expected, histogram]
        if (row := f"| `{name}` | {kind} | {_label_text(labels)} | {meaning} |") not in table
    ]

    assert missing == []
    assert set(re.findall(r"^\| `(longline_\w+)`", table, re.MULTILINE)) == {
        *(one.name for one in METRICS),
        RESPONSE_DURATION,
    }


def _label_text(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def expressions() -> Iterator[tuple[str, str]]:
    """Yield all queries of the example dashboard and rules."""
    dashboard = orjson.loads((EXAMPLES / "grafana-dashboard.json").read_bytes())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    rules = yaml.safe_load((EXAMPLES / "prometheus-rules.yaml").read_text("utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]


def test_the_examples_query_only_metrics_that_exist() -> None:
    used = {
        (where, name)
        for where, expression in expressions()
        for name in re.findall(r"\blongline_\w+", expression)
    }

    assert len({where for where, _ in used}) > 20
    assert [one for one in used if one[1] not in NAMES] == []


def test_the_examples_select_and_group_by_labels_that_exist() -> None:
    known = {one.name: set(one.labels) for one in METRICS}
    known |= {f"{RESPONSE_DURATION}_bucket": {"source", "le"}}
    wrong = [
        (where, name, label)
        for where, expression in expressions()
        for name, selected in re.findall(r"\b(longline_\w+)\{([^}]*)\}", expression)
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected)
        if label not in known[name]
    ]
    wrong += [
        (where, names[0], label)
        for where, expression in expressions()
        for group in re.findall(r"\bby \(([^)]*)\)", expression)
        for label in re.findall(r"\w+", group)
        if (names := re.findall(r"\blongline_\w+", expression))
        and not any(label in known[name] for name in names)
    ]

    assert wrong == []


def test_the_panels_of_the_dashboard_are_unique_and_do_not_overlap() -> None:
    dashboard = orjson.loads((EXAMPLES / "grafana-dashboard.json").read_bytes())
    panels = dashboard["panels"]
    places = [one["gridPos"] for one in panels]
    cells = [
        (x, y)
        for one in places
        for x in range(one["x"], one["x"] + one["w"])
        for y in range(one["y"], one["y"] + one["h"])
    ]
    targets = [(panel["id"], one["refId"]) for panel in panels for one in panel.get("targets", ())]
    sources = {panel["datasource"]["uid"] for panel in panels if "datasource" in panel}

    assert len({one["id"] for one in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24  # the columns of Grafana
    assert len(set(targets)) == len(targets)
    assert sources == {"${datasource}"}


def test_every_rule_of_the_examples_says_what_to_do() -> None:
    rules = yaml.safe_load((EXAMPLES / "prometheus-rules.yaml").read_text("utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]

    assert all(rule["labels"]["severity"] in ("warning", "critical") for rule in alerts)
    assert all({"summary", "description"} <= rule["annotations"].keys() for rule in alerts)

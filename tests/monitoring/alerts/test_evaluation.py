"""Each rule fires when something is wrong, with the right subject, and ends when it is over."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from longline.monitoring.alerts.conditions import AlertCondition
from longline.monitoring.alerts.evaluation import EvaluationCache, evaluate
from longline.monitoring.alerts.rules import (
    RULE_KINDS,
    Rule,
    RuleValues,
    default_rules,
    make_rules,
)
from longline.monitoring.alerts.state_checks import DiskSpace, HomeState, check_state
from longline.storage.events.events import EventFilter, event_row
from longline.storage.events.webhooks import Webhook
from longline.storage.monitoring.alert_inputs import RunCache
from longline.storage.queue.queue import PAUSED_BY_USER
from longline.storage.scheduling.flows import FlowState, NewFlowRun
from longline.storage.scheduling.launches import SOURCE, NewLaunch
from longline.storage.scheduling.schedules import DecidedOccurrence, Wanted
from longline.storage.store import Store, open_store
from tests.monitoring.alerts.simulated_runs import (
    BAD,
    USUAL,
    Numbers,
    close_breaker,
    finish_run,
    log_lines,
    open_breaker,
    start_run,
)
from tests.virtual import EPOCH

DAY, HOUR, MINUTE = 86_400.0, 3600.0, 60.0
_DATABASES = count(1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    address = f"sqlite:///{tmp_path / 'any.sqlite'}"
    if request.param == "postgres":
        postgres = request.getfixturevalue("postgres_server")
        name = f"evaluation_{next(_DATABASES)}"
        postgres.execute(f"CREATE DATABASE {name}")
        address = postgres.url(name)
    with open_store(address) as opened:
        yield opened


async def conditions(
    store: Store, at: float, rules: list[Rule] | None = None
) -> list[AlertCondition]:
    return await evaluate(store, default_rules() if rules is None else rules, at)


async def found(store: Store, at: float) -> dict[str, str]:
    """Return the subject of each condition by its rule."""
    return {one.rule: one.subject for one in await conditions(store, at)}


async def usual_runs(store: Store, source: str, runs: int = 7) -> float:
    """Write usual runs, one each day; return the time of the next one."""
    for day in range(runs):
        await finish_run(store, source, EPOCH + day * DAY, USUAL)
    return EPOCH + runs * DAY


@pytest.mark.parametrize("kind", BAD)
async def test_a_rule_about_runs_fires_and_a_good_run_ends_it(store: Store, kind: str) -> None:
    at = await usual_runs(store, "shop")
    before = await found(store, at)
    job = await finish_run(store, "shop", at, BAD[kind])
    (fired,) = [one for one in await conditions(store, at) if one.rule == kind]
    for day in (1, 2):  # after many changes, the next run changes as many back
        await finish_run(store, "shop", at + day * DAY, USUAL)

    assert before == {}
    assert fired.subject == "source/shop"
    assert fired.evidence["job"] == job
    assert fired.severity == RULE_KINDS[kind].severity
    assert fired.since is not None
    assert "longline " in fired.action
    assert await found(store, at + 2 * DAY) == {}


async def test_sources_of_both_databases_are_told_apart(any_store: Store) -> None:
    for kind in ("few-records", "http-errors", "log-errors"):
        at = await usual_runs(any_store, kind, 6)
        await finish_run(any_store, kind, at, BAD[kind])
    await usual_runs(any_store, "quiet", 7)

    subjects = {(one.rule, one.subject) for one in await conditions(any_store, at)}

    assert subjects >= {(kind, f"source/{kind}") for kind in ("few-records", "http-errors")}
    assert ("log-errors", "source/log-errors") in subjects
    assert not [one for one in subjects if one[1] == "source/quiet"]


async def test_a_failed_run_is_reported_with_how_many_in_a_row(store: Store) -> None:
    at = await usual_runs(store, "shop", 2)
    for day in range(2):
        await finish_run(store, "shop", at + day * DAY, Numbers(records=0, failed=3))
    (failed,) = await conditions(store, at + DAY)
    await finish_run(store, "shop", at + 2 * DAY, USUAL)

    assert (failed.rule, failed.subject) == ("run-failed", "source/shop")
    assert failed.evidence["failed_in_a_row"] == 2
    assert failed.since == at
    assert await found(store, at + 2 * DAY) == {}


async def test_a_source_that_cannot_be_started_is_reported(any_store: Store) -> None:
    launch = await any_store.launches.place(NewLaunch(SOURCE, "shop", {}, "schedule/daily", EPOCH))
    await any_store.launches.lease_one(launch, "me", EPOCH, EPOCH + 60)
    await any_store.launches.finish(launch, "me", EPOCH, result="failed", reason="no such file")
    before = await found(any_store, EPOCH)
    await finish_run(any_store, "shop", EPOCH + HOUR, USUAL)

    assert before == {"run-failed": "source/shop"}
    assert await found(any_store, EPOCH + HOUR) == {}


async def test_few_runs_say_nothing_about_what_is_learned(store: Store) -> None:
    at = await usual_runs(store, "shop", 3)
    await finish_run(store, "shop", at, replace(USUAL, records=5, seconds=90_000))

    assert await found(store, at) == {}


async def test_a_trial_with_a_limit_neither_fires_nor_heals(store: Store) -> None:
    at = await usual_runs(store, "shop")
    await finish_run(store, "shop", at, BAD["few-records"])
    trial = Numbers(records=2, settings={"limit": 2})
    await finish_run(store, "shop", at + HOUR, trial)
    (still,) = [one for one in await conditions(store, at + HOUR) if one.rule == "few-records"]
    await finish_run(store, "shop", at + DAY, USUAL)
    await finish_run(store, "shop", at + DAY + HOUR, trial)

    assert still.evidence["observed"] == 2
    assert await found(store, at + DAY + HOUR) == {}


async def test_a_corrected_manifest_ends_what_the_old_one_caused(store: Store) -> None:
    old, new = {"manifest": {"fields": "old"}}, {"manifest": {"fields": "new"}}
    for day in range(8):
        await finish_run(store, "shop", EPOCH + day * DAY, replace(USUAL, settings=old))
    bad = replace(BAD["field-coverage"], settings=old)
    await finish_run(store, "shop", EPOCH + 8 * DAY, bad)
    before = await found(store, EPOCH + 8 * DAY)
    fixed = replace(USUAL, settings=new, coverage={"title": 1.0})
    await finish_run(store, "shop", EPOCH + 9 * DAY, fixed)

    assert "field-coverage" in before
    assert await found(store, EPOCH + 9 * DAY) == {}


async def test_accepting_a_run_makes_it_usual(store: Store) -> None:
    at = await usual_runs(store, "shop")
    job = await finish_run(store, "shop", at, BAD["few-records"])
    await store.events.append(event_row(job, at, "drift.accepted"))
    await finish_run(store, "shop", at + DAY, BAD["few-records"])

    assert await found(store, at + DAY) == {}


async def test_warnings_of_an_accepted_run_are_normal(store: Store) -> None:
    runs = [replace(USUAL, warnings=(f"{count} links are alike",)) for count in (3, 4, 5)]
    job = await finish_run(store, "shop", EPOCH, runs[0])
    first = await found(store, EPOCH)
    await finish_run(store, "shop", EPOCH + DAY, runs[1])
    second = await found(store, EPOCH + DAY)
    await store.events.append(event_row(job, EPOCH + DAY, "drift.accepted"))
    await finish_run(store, "shop", EPOCH + 2 * DAY, runs[2])
    accepted = await found(store, EPOCH + 2 * DAY)
    await finish_run(store, "shop", EPOCH + 3 * DAY, replace(USUAL, warnings=("a list ended",)))

    assert first == second == {"run-warnings": "source/shop"}
    assert accepted == {}
    assert await found(store, EPOCH + 3 * DAY) == {"run-warnings": "source/shop"}


async def test_warnings_of_many_runs_in_a_row_are_normal(store: Store) -> None:
    warned = replace(USUAL, warnings=("elements without a link were left out",))
    fired = []
    for day in range(12):
        await finish_run(store, "shop", EPOCH + day * DAY, warned)
        fired.append("run-warnings" in await found(store, EPOCH + day * DAY))

    assert fired == [True] * 10 + [False] * 2


async def test_slow_decay_of_a_field_is_found(store: Store) -> None:
    for day in range(12):
        await finish_run(store, "shop", EPOCH + day * DAY, USUAL)
    fired_on = None
    for day in range(12, 24):
        coverage = {"title": 1.0, "price": 0.9 - 0.025 * (day - 11)}
        await finish_run(store, "shop", EPOCH + day * DAY, replace(USUAL, coverage=coverage))
        if fired_on is None and "field-coverage" in await found(store, EPOCH + day * DAY):
            fired_on = day - 11

    assert fired_on is not None
    assert 2 < fired_on <= 10


async def test_a_growing_quarantine_is_found(store: Store) -> None:
    at = await usual_runs(store, "shop")
    for day in range(3):
        await finish_run(store, "shop", at + day * DAY, replace(USUAL, quarantined=8))
    grown = await conditions(store, at + 2 * DAY)
    await finish_run(store, "shop", at + 3 * DAY, USUAL)

    (fired,) = [one for one in grown if one.rule == "quarantine-growing"]
    assert fired.evidence["waiting"] == 24
    assert await found(store, at + 3 * DAY) == {}


# ---------------- What is wrong now


async def test_a_running_job_that_takes_too_long_is_found(store: Store) -> None:
    at = await usual_runs(store, "shop")
    job = await start_run(store, "shop", at, USUAL)
    early = await found(store, at + 5 * MINUTE)
    late = {one.rule: one for one in await conditions(store, at + 3 * HOUR)}
    await store.jobs.cancel(job.id, at + 3 * HOUR, "enough")

    assert early == {}
    assert late.keys() == {"long-run", "no-progress"}
    assert late["long-run"].evidence["job"] == job.id
    assert late["no-progress"].since == at
    assert await found(store, at + 3 * HOUR) == {}


async def test_a_paused_job_that_nothing_continues_is_found(any_store: Store) -> None:
    job = await start_run(any_store, "shop", EPOCH, USUAL)
    await any_store.jobs.pause(job.id, EPOCH + 60, "shop.test has banned us")
    (waiting,) = await conditions(any_store, EPOCH + HOUR)
    await any_store.jobs.start(job.id, EPOCH + HOUR)
    resumed = await found(any_store, EPOCH + HOUR)
    await any_store.jobs.pause(job.id, EPOCH + HOUR, PAUSED_BY_USER)

    assert (waiting.rule, waiting.subject) == ("job-waiting", "source/shop")
    assert waiting.since == EPOCH + 60
    assert resumed == {}
    assert await found(any_store, EPOCH + 2 * HOUR) == {}


async def test_data_beyond_its_limit_is_stale(any_store: Store) -> None:
    await finish_run(any_store, "shop", EPOCH, USUAL)
    await any_store.schedules.judge_freshness("shop", HOUR, EPOCH + 2 * HOUR)
    (stale,) = await conditions(any_store, EPOCH + 2 * HOUR)
    await finish_run(any_store, "shop", EPOCH + 3 * HOUR, USUAL)
    await any_store.schedules.judge_freshness("shop", HOUR, EPOCH + 3 * HOUR)

    assert (stale.rule, stale.subject) == ("stale-data", "source/shop")
    assert (stale.evidence["observed"], stale.evidence["limit"]) == (2 * HOUR, HOUR)
    assert await found(any_store, EPOCH + 3 * HOUR) == {}


async def test_a_source_that_no_longer_runs_as_often_is_stale(store: Store) -> None:
    at = await usual_runs(store, "shop")

    assert await found(store, at + HOUR) == {}
    assert await found(store, at + 2 * DAY) == {"stale-data": "source/shop"}
    assert await found(store, at + 40 * DAY) == {}  # it is not run any more


async def test_a_ban_is_found_until_the_site_responds(any_store: Store) -> None:
    job = await finish_run(any_store, "shop", EPOCH, USUAL)
    await open_breaker(any_store, job, EPOCH, "shop.test", is_ban=True)
    (ban,) = await conditions(any_store, EPOCH + 1)
    await close_breaker(any_store, job, EPOCH + HOUR, "shop.test")

    assert (ban.rule, ban.subject) == ("ban", "domain/shop.test")
    assert (ban.severity, ban.evidence["source"]) == ("critical", "shop")
    assert await found(any_store, EPOCH + HOUR) == {}


async def test_a_breaker_is_found_once_it_is_open_for_long(store: Store) -> None:
    job = await finish_run(store, "shop", EPOCH, USUAL)
    await open_breaker(store, job, EPOCH, "shop.test", is_ban=False)
    await open_breaker(store, job, EPOCH + 25 * MINUTE, "shop.test", is_ban=False)  # a probe failed

    assert await found(store, EPOCH + 29 * MINUTE) == {}
    assert await found(store, EPOCH + 31 * MINUTE) == {"breaker-open": "domain/shop.test"}
    await close_breaker(store, job, EPOCH + HOUR, "shop.test")
    assert await found(store, EPOCH + HOUR) == {}


async def test_a_missed_occurrence_is_found_until_the_next_one(any_store: Store) -> None:
    schedules = any_store.schedules
    await schedules.save("daily", {"name": "daily", "source": "shop", "every": "1d"}, EPOCH)
    for hours, fate in ((1, "missed"), (2, "skipped")):
        decided = DecidedOccurrence(EPOCH + hours * HOUR, "scheduled", fate, "it was too late")
        await schedules.decide({"daily": Wanted()}, lambda _, one=decided: [one], EPOCH + HOUR)  # type: ignore[misc]  # the default binds the value
    missed = await found(any_store, EPOCH + 2 * HOUR)
    launch = NewLaunch(SOURCE, "shop", {}, "schedule/daily", EPOCH, key="daily 3")
    fired = DecidedOccurrence(EPOCH + 3 * HOUR, "scheduled", "fired", launch=launch)
    await schedules.decide({"daily": Wanted()}, lambda _: [fired], EPOCH + 3 * HOUR)

    assert missed == {"missed-schedule": "schedule/daily"}
    assert await found(any_store, EPOCH + 3 * HOUR) == {}


async def test_a_flow_that_waits_for_a_person_is_found(any_store: Store) -> None:
    flows = any_store.flows
    new = NewFlowRun("nightly", {}, "hash", ["ask"], {}, "command", EPOCH)
    run = await flows.create(new)
    (leased,) = await flows.lease("me", EPOCH, EPOCH + 60)
    await flows.change_state(leased.lease, FlowState.WAITING, EPOCH)
    early = await found(any_store, EPOCH + 30 * MINUTE)
    late = await found(any_store, EPOCH + 2 * HOUR)

    assert early == {}
    assert late == {"flow-waiting": f"flow/{run.id}"}


async def test_a_flow_that_needs_attention_is_found_immediately(store: Store) -> None:
    new = NewFlowRun("nightly", {}, "hash", ["ask"], {}, "command", EPOCH)
    run = await store.flows.create(new)
    (leased,) = await store.flows.lease("me", EPOCH, EPOCH + 60)
    await store.flows.change_state(leased.lease, FlowState.NEEDS_ATTENTION, EPOCH, reason="why")

    assert await found(store, EPOCH + 1) == {"flow-waiting": f"flow/{run.id}"}


async def test_a_lost_worker_is_found_until_it_starts_again(any_store: Store) -> None:
    owner = "host:12:boot:word"
    await any_store.workers.renew("w1", owner, EPOCH, EPOCH + 60)
    await any_store.workers.remove_lost(EPOCH + HOUR, [owner], with_expired=False)
    lost = await found(any_store, EPOCH + HOUR)
    await any_store.workers.renew("w1", "host:13:boot:word", EPOCH + HOUR, EPOCH + 2 * HOUR)

    assert lost == {"worker-gone": "worker/w1"}
    assert await found(any_store, EPOCH + HOUR) == {}


async def test_a_subscriber_that_is_behind_is_found(any_store: Store) -> None:
    await any_store.subscribers.add("archive", EventFilter(("custom.*",)), EPOCH, None)
    await any_store.events.append(event_row(None, EPOCH, "custom.one"))
    early = await found(any_store, EPOCH + MINUTE)
    late = await found(any_store, EPOCH + HOUR)
    subscriber = await any_store.subscribers.claim(
        "archive", "me", at=EPOCH, until=EPOCH + HOUR, dead=()
    )
    assert subscriber is not None
    newest = await any_store.events.newest()
    await any_store.subscribers.advance("archive", "me", cursor=newest, at=EPOCH, until=EPOCH)

    assert early == {}
    assert late == {"event-lag": "subscriber/archive"}
    assert await found(any_store, EPOCH + HOUR) == {}


async def test_a_disabled_webhook_is_found(store: Store) -> None:
    await store.webhooks.add(Webhook("ops", "https://a.test", (), created_at=EPOCH), EventFilter())
    await store.webhooks.disable("ops", "it returned 410", EPOCH)
    disabled = await found(store, EPOCH)
    await store.webhooks.enable("ops")

    assert disabled == {"event-lag": "subscriber/webhook/ops"}
    assert "event-lag" not in await found(store, EPOCH)


async def test_a_full_disk_is_found(store: Store, tmp_path: Path) -> None:
    (rule,) = [one for one in default_rules() if one.kind == "disk-low"]
    inputs = await store.alert_inputs.read(EPOCH, RunCache())
    state = HomeState(EPOCH, inputs, {}, disk=DiskSpace(total=1000, free=40))

    (full,) = check_state(rule, state)

    assert (full.subject, full.evidence["observed"]) == ("home", 0.04)
    assert check_state(rule, replace(state, disk=DiskSpace(1000, 60))) == []
    every = make_rules({"disk-low": RuleValues.model_validate({"min": 1})})
    real = await evaluate(store, every, EPOCH, home=tmp_path)
    assert [one.subject for one in real] == ["home"]


# ---------------- Rules of a file, and the cache


async def test_rules_of_a_file_set_limits_for_some_sources(store: Store) -> None:
    await finish_run(store, "large", EPOCH, USUAL)
    await finish_run(store, "small", EPOCH, USUAL)
    stated = {
        "few-large": {"kind": "few-records", "only": "lar*", "min": 100, "severity": "warning"},
        "field-coverage": {"fields": {"price": "95%"}, "except": ["large"]},
        "long-run": {"max": "30s", "only": ["none"]},
    }
    rules = make_rules({name: RuleValues.model_validate(one) for name, one in stated.items()})

    subjects = {
        (one.rule, one.subject, one.severity) for one in await conditions(store, EPOCH, rules)
    }

    assert subjects == {
        ("few-large", "source/large", "warning"),
        ("field-coverage", "source/small", "warning"),
    }


async def test_a_disabled_rule_finds_nothing(store: Store) -> None:
    await finish_run(store, "shop", EPOCH, Numbers(records=0, failed=3))
    rules = make_rules({"run-failed": RuleValues(enabled=False)})

    assert [one for one in await conditions(store, EPOCH, rules) if one.rule == "run-failed"] == []


async def test_the_cache_gives_the_same_as_reading_everything(any_store: Store) -> None:
    cache, rules = EvaluationCache(), default_rules()
    for day in range(9):
        at = EPOCH + day * DAY
        for name in ("a", "b"):
            is_bad = name == "a" and day == 8
            await finish_run(any_store, name, at, BAD["few-records"] if is_bad else USUAL)
        with_cache = await evaluate(any_store, rules, at + HOUR, cache=cache)
        assert with_cache == await evaluate(any_store, rules, at + HOUR)
    again = await evaluate(any_store, rules, at + HOUR, cache=cache)

    assert again == with_cache
    assert "few-records" in {one.rule for one in again}


async def test_the_cache_notices_log_lines_that_are_stored_late(store: Store) -> None:
    cache, rules = EvaluationCache(), default_rules()
    job = await finish_run(store, "shop", EPOCH, USUAL)
    early = await evaluate(store, rules, EPOCH + 1, cache=cache)
    await log_lines(store, job, "shop", EPOCH, {logging.CRITICAL: 1})

    assert early == []
    assert [one.rule for one in await evaluate(store, rules, EPOCH + 30, cache=cache)] == [
        "log-critical"
    ]

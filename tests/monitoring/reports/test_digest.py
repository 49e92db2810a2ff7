"""Digests of a seeded history equal what was computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.monitoring.alerts.alerting import Alerting, Findings
from longline.monitoring.alerts.configuration import AlertFile, AlertSettings
from longline.monitoring.reports.digest import (
    Digest,
    Period,
    digest_from,
    find_troubled_domains,
    last_days,
    period_before,
    read_digest,
)
from longline.monitoring.reports.digest_page import digest_page, digest_state
from longline.monitoring.reports.page import Level
from longline.storage.events.events import event_row
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState
from longline.storage.scheduling.flows import FlowState, NewFlowRun
from longline.storage.store import Store
from tests.monitoring.reports.seeded_runs import SeededRun, seed
from tests.virtual import VirtualClock

SOFIA = ZoneInfo("Europe/Sofia")
HOUR = 3600.0
DAY = 24 * HOUR


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = utc("2026-11-18T12:00")


async def digest_of(
    store: Store, *, end: float = NOON, days: int = 1, zone: ZoneInfo = SOFIA
) -> Digest:
    period = last_days(end, days, zone)
    return await read_digest(store, period, days=days, zone=zone, now=end)


async def seed_history(store: Store) -> None:
    """Two sources over two days: shop runs three times, news twice."""
    for run in (
        SeededRun("shop", NOON - 30 * HOUR, {"a": "1", "b": "1", "c": "1"}, seconds=100),
        SeededRun("news", NOON - 26 * HOUR, {"x": "1"}, seconds=10),
        # Of the last day: b changed, d is new, c is gone.
        SeededRun("shop", NOON - 20 * HOUR, {"a": "1", "b": "2", "d": "1"}, seconds=200),
        SeededRun("news", NOON - 3 * HOUR, bad={"x": "503"}, seconds=20, requests=3),
        SeededRun("shop", NOON - 2 * HOUR, {"a": "1"}, {"b": "503"}, {"d": "bad"}, seconds=300),
    ):
        await seed(store, run)


async def test_the_sums_of_a_day_are_those_of_its_runs(store: Store) -> None:
    await seed_history(store)

    digest = await digest_of(store)

    now, before = digest.totals, digest.before
    assert (now.runs, now.states) == (3, {"partial": 1, "failed": 1, "complete": 1})
    assert (now.items, now.ok, now.bad) == (3 + 1 + 3, 3 + 1, 1 + 2)
    assert (now.new, now.changed, now.gone) == (1, 1, 1)
    assert (now.requests, now.seconds) == (3 + 3 + 3, 520.0)
    assert now.success == pytest.approx(4 / 7)
    assert (before.runs, before.new, before.changed, before.gone) == (2, 4, 0, 0)


async def test_each_source_has_its_runs_and_the_worst_comes_first(sqlite_store: Store) -> None:
    await seed_history(sqlite_store)

    digest = await digest_of(sqlite_store)

    news, shop = digest.sources
    assert (news.source, news.ends, news.totals.bad) == ("news", ("failed",), 1)
    assert (shop.source, shop.ends) == ("shop", ("complete", "partial"))
    assert (shop.totals.new, shop.totals.changed, shop.totals.gone) == (1, 1, 1)
    assert sum(one.totals.runs for one in digest.sources) == digest.totals.runs
    assert sum(one.totals.items for one in digest.sources) == digest.totals.items


async def test_the_parts_of_a_period_add_up_to_its_runs(sqlite_store: Store) -> None:
    await seed_history(sqlite_store)

    digest = await digest_of(sqlite_store)
    week = await digest_of(sqlite_store, days=7)

    assert len(digest.buckets) == 24
    assert sum(sum(one.states.values()) for one in digest.buckets) == 3
    assert sum(one.changed for one in digest.buckets) == 3
    assert len(week.buckets) == 7
    assert sum(sum(one.states.values()) for one in week.buckets) == week.totals.runs == 5


async def test_only_the_latest_state_needs_a_person(sqlite_store: Store) -> None:
    await seed_history(sqlite_store)

    needs = (await digest_of(sqlite_store)).needs
    await seed(sqlite_store, SeededRun("news", NOON - HOUR, {"x": "1"}))
    later = (await digest_of(sqlite_store)).needs

    assert [(one.subject, one.kind, one.level) for one in needs] == [
        ("source/news", "failed", Level.BAD),
        ("source/shop", "partial", Level.WARNING),
    ]
    assert [one.subject for one in later] == ["source/shop"]


async def test_items_that_are_only_quarantined_are_named_so(sqlite_store: Store) -> None:
    await seed(sqlite_store, SeededRun("shop", NOON - HOUR, {"a": "1"}, held={"b": "no price"}))

    (need,) = (await digest_of(sqlite_store)).needs

    assert (need.kind, need.level) == ("quarantined", Level.WARNING)
    assert need.action.startswith("longline quarantine list shop-")


async def test_a_paused_and_an_abandoned_job_need_a_person(sqlite_store: Store) -> None:
    store = sqlite_store
    paused = await seed(store, SeededRun("shop", NOON - HOUR, {"a": "1"}, is_open=True))
    await store.jobs.pause(paused.id, NOON - HOUR, "the site is down")
    abandoned = await seed(store, SeededRun("news", NOON - HOUR, {"a": "1"}, is_open=True))

    needs = (await digest_of(store)).needs

    assert [(one.subject, one.kind, one.action) for one in needs] == [
        ("source/news", "abandoned", f"longline resume {abandoned.id}"),
        ("source/shop", "paused", f"longline resume {paused.id}"),
    ]


async def test_a_firing_alert_joins_what_its_source_needs(store: Store) -> None:
    await seed(store, SeededRun("shop", NOON - HOUR, {"a": "1"}, held={"b": "no price"}))
    alert = Alert(
        rule="coverage",
        subject="source/shop",
        state=AlertState.FIRING,
        severity="critical",
        summary="price is empty",
        evidence={},
        action="longline drift shop",
        since=NOON - 2 * HOUR,
        seen_at=NOON,
    )
    other = replace(alert, subject="home", summary="the disk is full")
    await store.alerts.change(lambda _open: [AlertChange(alert), AlertChange(other)], NOON)

    home, shop = (await digest_of(store)).needs

    assert (shop.kind, shop.level, shop.since) == ("alert", Level.BAD, NOON - 2 * HOUR)
    assert shop.details == ("quarantined: 1 of 2 items was quarantined",)
    assert (home.subject, home.summary) == ("home", "the disk is full")


async def test_late_data_and_a_paused_schedule_need_a_person(store: Store) -> None:
    await seed(store, SeededRun("shop", NOON - 10 * HOUR, {"a": "1"}))
    await store.schedules.judge_freshness("shop", 6 * HOUR, NOON)
    definition = {"name": "s", "source": "shop", "cron": "0 6 * * *", "pause_after_failures": 1}
    await store.schedules.save("s", definition, NOON)
    await store.schedules.pause("s", NOON, "1 run in a row has failed")

    needs = (await digest_of(store)).needs

    # A person has paused the schedule: it has no failures.
    assert [(one.subject, one.kind) for one in needs] == [("source/shop", "late")]


async def test_domains_in_trouble_are_listed(sqlite_store: Store) -> None:
    opened: dict[str, Any] = {
        "domain": "shop.test",
        "reason": "10 failures in a row",
        "until": NOON + 60,
    }
    await sqlite_store.events.append(event_row(None, NOON - HOUR, "breaker.opened", **opened))
    rows = [
        {**_domain("old.test"), "bans": 1, "banned_at": NOON - 3 * DAY, "ban_evidence": "captcha"},
        {**_domain("new.test"), "bans": 1, "banned_at": NOON - HOUR, "ban_evidence": "captcha"},
    ]

    digest = await digest_of(sqlite_store)
    found = [*find_troubled_domains(rows, NOON - DAY, NOON)]

    assert [(one.domain, one.level) for one in digest.domains] == [("shop.test", Level.BAD)]
    assert [(one.domain, one.problem) for one in found] == [("new.test", "ban: captcha")]


@pytest.mark.parametrize(("until", "phase"), [(NOON + 60, "open"), (NOON - 60, "half-open")])
def test_a_breaker_whose_time_has_passed_is_half_open(until: float, phase: str) -> None:
    opened = {"breaker": "open", "breaker_reason": "503", "breaker_until": until}

    [one] = find_troubled_domains([_domain("a.test") | opened], NOON - DAY, NOON)

    assert one.problem == f"circuit breaker {phase}: 503"


def _domain(name: str) -> dict[str, Any]:
    names = ("breaker_reason", "banned_at", "ban_evidence", "refused_at", "auth_problem")
    nothing = dict.fromkeys((*names, "robots_problem"))
    return {"domain": name, "breaker": "closed", "changed_at": NOON, "refusals": 0, **nothing}


async def test_missed_and_next_runs_are_listed(sqlite_store: Store) -> None:
    await sqlite_store.schedules.save(
        "s", {"name": "s", "source": "shop", "cron": "0 */6 * * *"}, NOON
    )

    digest = await digest_of(sqlite_store)

    (coming,) = digest.next_runs
    assert (coming.schedule, coming.target, coming.count) == ("s", "shop", 4)
    assert coming.starts_at == utc("2026-11-18T18:00")


async def test_rules_that_are_not_evaluated_need_a_person(
    sqlite_store: Store, clock: VirtualClock
) -> None:
    async def nothing(_settings: AlertSettings, _now: float) -> Findings:
        return Findings([], {})

    async def fail(_settings: AlertSettings, _now: float) -> Findings:
        raise RuntimeError("no such column")

    now = clock.now()
    works = Alerting(sqlite_store, clock, AlertFile(), nothing)
    await works.tick()
    await works.close()
    early = await digest_of(sqlite_store, end=now + 60)
    (late,) = (await digest_of(sqlite_store, end=now + 2 * HOUR)).needs
    await Alerting(sqlite_store, clock, AlertFile(), fail).tick()
    (failed,) = (await digest_of(sqlite_store, end=now + 60)).needs

    assert early.needs == ()
    assert (late.subject, late.level, late.since) == ("home", Level.WARNING, now)
    assert (failed.subject, failed.level, failed.since) == ("home", Level.BAD, now)


async def test_an_empty_period_says_so(sqlite_store: Store) -> None:
    digest = await digest_of(sqlite_store)

    page = digest_page(digest)

    assert (digest.totals.runs, digest.needs, digest.sources) == (0, (), ())
    assert page.level is Level.GOOD
    assert digest_state(digest) == "Nothing ran, and nothing needs attention"


async def test_a_digest_survives_json(sqlite_store: Store) -> None:
    await seed_history(sqlite_store)
    digest = await digest_of(sqlite_store)

    again = digest_from(orjson.loads(orjson.dumps(digest.as_dict())))

    assert again == digest
    assert digest_page(again) == digest_page(digest)


async def test_deleted_events_make_changes_unknown(sqlite_store: Store) -> None:
    await seed_history(sqlite_store)
    await sqlite_store.events.prune(before=NOON + DAY)

    digest = await digest_of(sqlite_store)

    assert (digest.totals.runs, digest.totals.items) == (3, 7)
    assert (digest.totals.new, digest.totals.changed, digest.totals.gone) == (None, None, None)


# ---------------- Periods


async def test_a_run_belongs_to_the_period_in_which_it_ended(store: Store) -> None:
    await seed(store, SeededRun("shop", NOON - DAY, {"a": "1"}, seconds=5 * HOUR))
    await seed(store, SeededRun("shop", NOON, {"a": "1"}, seconds=5 * HOUR))

    today = await digest_of(store, zone=ZoneInfo("UTC"))
    tomorrow = await digest_of(store, end=NOON + DAY, zone=ZoneInfo("UTC"))

    assert (today.totals.runs, today.before.runs) == (1, 0)
    assert (tomorrow.totals.runs, tomorrow.before.runs) == (1, 1)


@pytest.mark.parametrize(
    ("end", "zone", "hours"),
    [  # written by hand; `end` is 07:00 in the zone
        ("2026-03-29T04:00", "Europe/Sofia", 23),  # 03:00 becomes 04:00
        ("2026-10-25T05:00", "Europe/Sofia", 25),  # 04:00 becomes 03:00
        ("2026-11-01T12:00", "America/New_York", 25),
        ("2026-10-03T20:00", "Australia/Lord_Howe", 23.5),  # 02:00 becomes 02:30
        ("2026-11-18T01:30", "Asia/Kolkata", 24),
    ],
)
def test_a_day_begins_at_the_same_time_of_the_day(end: str, zone: str, hours: float) -> None:
    period = last_days(utc(end), 1, ZoneInfo(zone))

    start = datetime.fromtimestamp(period.start, ZoneInfo(zone))
    assert (start.hour, start.minute) == (7, 0)
    assert period.seconds == hours * HOUR


@given(
    st.integers(0, 400),
    st.sampled_from([1, 7]),
    st.sampled_from(["UTC", "Europe/Sofia", "America/New_York", "Pacific/Chatham"]),
)
def test_periods_follow_each_other_without_gap_or_overlap(day: int, days: int, zone: str) -> None:
    there = ZoneInfo(zone)
    later = last_days(utc("2026-01-01T12:00") + day * DAY, days, there)

    before = period_before(later, days, there)

    assert before.end == later.start
    assert abs(before.seconds - days * DAY) <= HOUR


def test_a_period_of_given_times_is_compared_with_one_as_long() -> None:
    before = period_before(Period(1000.0, 4000.0), None, SOFIA)

    assert before == Period(-2000.0, 1000.0)


# ---------------- Flows


def flow_run(
    flow: str, at: float, *, steps: Sequence[str] = ("one",), root: str | None = None
) -> NewFlowRun:
    asking = [{"name": name, "approve": {"message": f"{name}?"}} for name in steps]
    return NewFlowRun(
        flow=flow,
        definition={"spec": {"steps": asking}},
        hash="h",
        steps=steps,
        params={},
        origin="command",
        at=at,
        root=root,
    )


async def test_a_flow_that_waits_for_approval_needs_a_person(store: Store) -> None:
    run = await store.flows.create(flow_run("nightly", NOON - HOUR))
    (leased,) = await store.flows.lease("me", NOON - HOUR, NOON)
    await store.flows.wait_for_approval(leased.lease, "one", NOON - HOUR, None)
    await store.flows.change_state(leased.lease, FlowState.WAITING, NOON - HOUR)

    (need,) = (await digest_of(store)).needs

    assert (need.subject, need.kind, need.summary) == ("flow/nightly", "waits", "one?")
    assert (need.target, need.step, need.since) == (run.id, "one", NOON - HOUR)
    assert need.action == f"longline flow approve {run.id}"


async def test_a_contained_flow_that_waits_for_approval_needs_a_person(store: Store) -> None:
    outer = await store.flows.create(flow_run("nightly", NOON - HOUR))
    inner = await store.flows.create(flow_run("publish", NOON - HOUR, root=outer.id))
    leased = {one.id: one for one in await store.flows.lease("me", NOON - HOUR, NOON)}
    await store.flows.wait_for_approval(leased[inner.id].lease, "one", NOON - HOUR, None)

    (need,) = (await digest_of(store)).needs

    assert (need.subject, need.kind) == ("flow/nightly", "waits")
    assert (need.target, need.step) == (inner.id, "one")


async def test_of_several_waiting_steps_the_first_is_decided_first(store: Store) -> None:
    run = await store.flows.create(flow_run("nightly", NOON - HOUR, steps=("one", "two")))
    (leased,) = await store.flows.lease("me", NOON - HOUR, NOON)
    await store.flows.wait_for_approval(leased.lease, "two", NOON - HOUR, None)
    await store.flows.wait_for_approval(leased.lease, "one", NOON, None)

    (need,) = (await digest_of(store)).needs

    assert (need.target, need.step, need.details) == (run.id, "two", ("waits: one?",))


async def test_only_the_newest_run_of_a_flow_counts(sqlite_store: Store) -> None:
    store = sqlite_store
    for state, at in ((FlowState.FAILED, NOON - 2 * HOUR), (FlowState.COMPLETE, NOON - HOUR)):
        for name in ("healed", "broken") if state is FlowState.FAILED else ("healed",):
            await store.flows.create(flow_run(name, at))
            (leased,) = await store.flows.lease("me", at, at + 60)
            await store.flows.change_state(leased.lease, state, at, reason="503")

    needs = (await digest_of(store)).needs

    assert [(one.subject, one.kind) for one in needs] == [("flow/broken", "failed")]

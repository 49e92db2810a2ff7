"""Quarantine, drift and duplicates in the API."""

from __future__ import annotations

import json

from longline.analysis.duplicates import find_duplicates
from longline.core.clock import SystemClock
from longline.core.errors import FailureKind
from longline.core.model import Job, Outcome, OutcomeAction
from longline.drift.profiles import Profile
from longline.storage.access import Role
from longline.storage.profiles import DriftResult
from tests.analysis.ads import HOMES, IMOTI, RULES, flat, put
from tests.server.web.api.test_schedules import API, read, read_pages, refusals
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import HOSTILE
from tests.storage.given import attempt, leased, queued
from tests.virtual import EPOCH

# ---------------- Quarantine


async def quarantine(dashboard: Dashboard, *reasons: str) -> Job:
    """Return an ended job with an item in quarantine for each reason."""
    store = dashboard.store
    job = await queued(store, *(str(one) for one in range(len(reasons))), is_last=True)
    leases = await leased(store, job, len(reasons))
    for lease, reason in zip(leases, reasons, strict=True):
        outcome = Outcome(
            OutcomeAction.QUARANTINE,
            kind=FailureKind.INVALID,
            reason=reason,
            raw={"results": {"page": {"price": HOSTILE}}, "layers": {"page": "ok"}},
        )
        await store.queue.complete_all([attempt(lease, outcome, EPOCH)])
    await store.jobs.finish(job.id, EPOCH + len(reasons))
    return job


async def test_reasons_are_grouped_by_job_in_pages(dashboard: Dashboard) -> None:
    first = await quarantine(dashboard, "a", "b", "b", "c")
    second = await quarantine(dashboard, "a", "d")

    found = await read_pages(dashboard, "/quarantine?limit=2")
    own = await read_pages(dashboard, f"/quarantine?limit=1&job={first.id}")
    none = await read(dashboard, "/quarantine?source=other")

    groups = {(one["job"], one["reason"]): one["count"] for one in found}
    assert len(found) == 5
    assert groups == {
        (first.id, "b"): 2,
        (first.id, "a"): 1,
        (first.id, "c"): 1,
        (second.id, "a"): 1,
        (second.id, "d"): 1,
    }
    assert [one["reason"] for one in own] == ["b", "a", "c"]
    assert none["items"] == []


async def test_held_items_have_what_they_were_made_of(dashboard: Dashboard) -> None:
    job = await quarantine(dashboard, "price: bad", "title: bad", "price: bad")

    found = await read_pages(dashboard, f"/quarantine/items?job={job.id}&limit=1&reason=PRICE")

    assert [one["key"] for one in found] == ["0", "2"]
    assert found[0]["raw"] == {"page": {"price": HOSTILE}}
    assert (found[0]["layers"], found[0]["problems"]) == ({"page": "ok"}, ["price: bad"])


async def test_a_wrong_query_of_the_quarantine_is_refused(dashboard: Dashboard) -> None:
    found = await refusals(
        dashboard,
        ("GET", "/quarantine?job=none"),
        ("GET", "/quarantine/items?job=none"),
        ("GET", "/quarantine/items"),
        ("GET", "/quarantine/items?job=none&limit=101"),
    )

    assert found == [(404, "UnknownJob"), (404, "UnknownJob"), (422, None), (422, None)]


# ---------------- Drift


async def end_run(dashboard: Dashboard) -> Job:
    """Return a job that has ended with drift."""
    job = await queued(dashboard.store, is_last=True)
    profile = {**Profile().as_json(), "records": 3, "drift": {"price": "price is lost"}}
    result = DriftResult(profile, drift=("price is lost",))
    await dashboard.store.jobs.finish(job.id, EPOCH, result)
    return job


async def test_the_last_run_of_a_source_is_compared(dashboard: Dashboard) -> None:
    job = await end_run(dashboard)

    listed = await read_pages(dashboard, "/drift?limit=1")
    found = await read(dashboard, "/drift/shop")

    assert [(one["source"], one["job"], one["drift"]) for one in listed] == [
        ("shop", job.id, ["price is lost"])
    ]
    assert (found["is_sound"], found["baseline"]) == (False, {"runs": 0, "records": 0})


async def test_the_last_run_is_accepted_as_the_baseline(dashboard: Dashboard) -> None:
    job = await end_run(dashboard)

    answer = await dashboard.api("POST", f"{API}/drift/shop/accept", role=Role.OPERATE)

    kept = await dashboard.store.profiles.find(job.id)
    assert json.loads(answer.text) == {"source": "shop", "job": job.id}
    assert kept is not None
    assert kept.is_accepted


async def test_the_drift_of_an_unknown_source_is_not_found(dashboard: Dashboard) -> None:
    found = await refusals(dashboard, ("GET", "/drift/a/b"), ("POST", "/drift/a/b/accept"))

    assert found == [(404, "NoRunEnded")] * 2


# ---------------- Duplicates


async def find_pairs(dashboard: Dashboard, count: int) -> None:
    """Store pairs of ads for the same flats, and find them."""
    for number in range(count):
        changes = {"price_eur": 100_000.0 + 50_000 * number, "area_m2": 50.0 + 20 * number}
        for source in (IMOTI, HOMES):
            await put(dashboard.store.records, source, f"{number}", flat(**changes))
    await find_duplicates(dashboard.store.matches, RULES, clock=SystemClock())


async def test_duplicates_are_listed_in_pages(dashboard: Dashboard) -> None:
    await find_pairs(dashboard, 3)

    found = await read_pages(dashboard, f"/duplicates?kind={RULES.match}&limit=2")
    all_kinds = await read_pages(dashboard, "/duplicates?limit=1")

    assert [one["records"] for one in found] == [
        [f"{IMOTI}/{number}", f"{HOMES}/{number}"] for number in range(3)
    ]
    assert all_kinds == found


async def test_a_duplicate_is_explained_and_rejected(dashboard: Dashboard) -> None:
    await find_pairs(dashboard, 1)
    left, right = f"{IMOTI}/0", f"{HOMES}/0"
    body = {"kind": RULES.match, "left": left, "right": right, "decision": "rejected"}

    found = await read(dashboard, f"/duplicates/one?kind={RULES.match}&record={left}")
    answer = await dashboard.api("POST", f"{API}/duplicates/decisions", json=body)
    after = await read(dashboard, f"/duplicates/one?kind={RULES.match}&record={left}")

    assert [one["record"] for one in found["records"]] == [left, right]
    assert found["pairs"][0]["is_match"]
    assert (answer.status, json.loads(answer.text)) == (200, body)
    assert [one["record"] for one in after["records"]] == [left]


async def test_an_unusable_decision_is_refused(dashboard: Dashboard) -> None:
    await find_pairs(dashboard, 1)
    body = {"kind": RULES.match, "left": f"{IMOTI}/0", "right": f"{HOMES}/0"}
    changes = [
        {"kind": "none"},
        {"left": "nothing"},
        {"left": f"{IMOTI}/none"},
        {"left": f"{HOMES}/0"},
        {"decision": "maybe"},
    ]
    path = f"{API}/duplicates/decisions"

    answers = [
        await dashboard.api("POST", path, json={**body, "decision": "confirmed", **one})
        for one in changes
    ]

    assert [one.status for one in answers] == [422, 422, 404, 422, 422]


async def test_an_unknown_duplicate_is_refused(dashboard: Dashboard) -> None:
    await find_pairs(dashboard, 1)

    found = await refusals(
        dashboard,
        ("GET", "/duplicates?kind=none"),
        ("GET", f"/duplicates/one?kind={RULES.match}&record={IMOTI}/none"),
        ("GET", f"/duplicates/one?kind={RULES.match}"),
    )

    assert found == [(422, "BadOption"), (404, "UnknownRecord"), (422, None)]

"""Jobs, items, failures, launches and sources over the HTTP API."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from longline.storage.access import Role
from tests.server.web.api.filled import Filled
from tests.server.web.conftest import Answer, Dashboard

API = "/api/v1"


async def get(dashboard: Dashboard, path: str, **query: Any) -> Any:
    answer = await dashboard.api("GET", API + path, role=Role.READ, params=query)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


async def post(dashboard: Dashboard, path: str, body: Any = None, key: str = "") -> Answer:
    headers = {"Idempotency-Key": key} if key else {}
    options: dict[str, Any] = {} if body is None else {"json": body}
    return await dashboard.api("POST", API + path, role=Role.OPERATE, headers=headers, **options)


async def all_of(dashboard: Dashboard, path: str, **query: Any) -> list[Any]:
    """Return the entries of all pages of a list."""
    page = await get(dashboard, path, **query)
    found: list[Any] = page["items"]
    while page["next"] is not None:
        page = await get(dashboard, path, **query, cursor=page["next"])
        found += page["items"]
    return found


# ---------------- Sources


async def test_sources_are_listed_by_name(dashboard: Dashboard, filled: Filled) -> None:
    found = {one["name"]: one for one in await all_of(dashboard, "/sources", limit=1)}

    assert list(found) == sorted(found)
    assert (found["shop"]["kind"], found["shop"]["last_job"]) == ("html", filled.open_job)
    assert (found["broken"]["kind"], found["n8n"]["kind"]) == ("invalid", "python")
    assert found["broken"]["problem"]


async def test_a_source_is_returned_by_name(dashboard: Dashboard, filled: Filled) -> None:
    valid, broken = [await get(dashboard, f"/sources/{one}") for one in ("shop", "broken")]

    assert (valid["about"], valid["last_job"]) == ("Quotes of a test.", filled.open_job)
    assert (broken["kind"], broken["last_job"]) == ("invalid", None)


async def test_an_unknown_source_is_not_found(dashboard: Dashboard) -> None:
    names = ("nothing", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "")

    answers = [await dashboard.api("GET", f"{API}/sources/{one}") for one in names]

    assert [one.status for one in answers] == [404] * 4
    assert {json.loads(one.text)["kind"] for one in answers} == {"NoSuchSource"}


# ---------------- Creating jobs


async def test_a_job_is_submitted_as_a_launch(dashboard: Dashboard, filled: Filled) -> None:
    body = {"source": "shop", "limit": 3, "rate": 0.5, "set": {"a": 1}, "priority": 7}

    answer = await post(dashboard, "/jobs", {**body, "set": {}})

    launch = json.loads(answer.text)
    stored = await dashboard.store.launches.get(launch["id"])
    assert (answer.status, launch["state"], launch["priority"]) == (202, "queued", 7)
    assert stored is not None
    assert (stored.spec["limit"], stored.spec["rate"], stored.origin) == (3, 0.5, "command")
    assert filled.ended_job


async def test_impossible_jobs_are_refused(dashboard: Dashboard, filled: Filled) -> None:
    bodies: list[tuple[dict[str, Any], int]] = [
        ({"source": "nothing"}, 404),
        ({"source": "/etc/passwd"}, 404),
        ({"source": f"{dashboard.settings.sources[0]}/shop.yaml"}, 404),
        ({"source": "os:system"}, 404),
        ({"source": "broken"}, 422),
        ({"source": "shop", "limit": 0}, 422),
        ({"source": "shop", "rate": -1}, 422),
        ({"source": "shop", "set": {"nothing": 1}}, 422),
        ({"source": "shop", "unknown": 1}, 422),
        ({"source": "a\x00b"}, 422),
        ({}, 422),
    ]
    before = await dashboard.store.launches.list()

    answers = [await post(dashboard, "/jobs", body) for body, _ in bodies]

    assert [one.status for one in answers] == [status for _, status in bodies]
    assert {one.headers["Content-Type"] for one in answers} == {"application/problem+json"}
    assert await dashboard.store.launches.list() == before
    assert filled.ended_job


@pytest.mark.parametrize(
    ("body", "kind", "clue"),
    [
        ('{"source": ', "application/json", "not valid JSON"),
        ('{"source": "shop"}', "application/x-www-form-urlencoded", "Content-Type"),
        ("[]", "application/json", "JSON object"),
        ('{"source": "a\\u0000b"}', "application/json", "NUL"),
    ],
)
async def test_a_malformed_body_is_explained(
    dashboard: Dashboard, body: str, kind: str, clue: str
) -> None:
    headers = {"Content-Type": kind}

    answer = await dashboard.api("POST", f"{API}/jobs", data=body, headers=headers)

    assert answer.status == 422
    assert clue in json.loads(answer.text)["detail"]


async def test_a_repeated_request_creates_one_job(dashboard: Dashboard, filled: Filled) -> None:
    first = await post(dashboard, "/jobs", {"source": "shop"}, key="one")
    again = await post(dashboard, "/jobs", {"source": "shop"}, key="one")
    other = await post(dashboard, "/jobs", {"source": "shop", "limit": 1}, key="one")

    assert (first.status, again.status, other.status) == (202, 202, 422)
    assert json.loads(first.text) == json.loads(again.text)
    assert again.headers["idempotency-replayed"] == "true"
    assert len(await dashboard.store.launches.list()) == 3
    assert filled.ended_job


async def test_concurrent_repetitions_create_one_job(dashboard: Dashboard, filled: Filled) -> None:
    await dashboard.api("GET", "/", role=Role.OPERATE)  # creates the token
    same = [post(dashboard, "/jobs", {"source": "shop"}, key="one") for _ in range(8)]
    answers = await asyncio.gather(*same)

    created = {json.loads(one.text)["id"] for one in answers if one.status == 202}
    assert len(created) == 1
    assert {one.status for one in answers} <= {202, 409}
    assert len(await dashboard.store.launches.list()) == 3
    assert filled.ended_job


async def test_a_crash_between_requests_creates_one_job(
    dashboard: Dashboard, filled: Filled
) -> None:
    first = await post(dashboard, "/jobs", {"source": "shop"}, key="one")
    # As if the server had been killed after it had placed the launch.
    await dashboard.store.idempotency_keys.abandon("test-operate", "one")

    again = await post(dashboard, "/jobs", {"source": "shop"}, key="one")

    assert "idempotency-replayed" not in again.headers
    assert json.loads(first.text)["id"] == json.loads(again.text)["id"]
    assert filled.ended_job


async def test_keys_of_other_callers_are_others(dashboard: Dashboard, filled: Filled) -> None:
    await post(dashboard, "/jobs", {"source": "shop"}, key="one")

    headers = {"Idempotency-Key": "one"}
    body = {"source": "shop"}
    answer = await dashboard.api("POST", f"{API}/jobs", headers=headers, json=body)

    assert answer.status == 202
    assert len(await dashboard.store.launches.list()) == 4
    assert filled.ended_job


async def test_malformed_keys_are_refused(dashboard: Dashboard) -> None:
    answers = [
        await post(dashboard, "/jobs", {"source": "x"}, key) for key in ("x" * 201, "ü", "a b")
    ]

    assert [one.status for one in answers] == [422] * 3


# ---------------- Jobs


async def test_jobs_are_listed_newest_first(dashboard: Dashboard, filled: Filled) -> None:
    found = await all_of(dashboard, "/jobs", limit=1)

    assert [one["id"] for one in found] == [filled.open_job, filled.ended_job]
    assert found[0]["items"] == {"open": 2, "unchanged": 2, "failed": 1, "quarantined": 1}


async def test_jobs_are_filtered(dashboard: Dashboard, filled: Filled) -> None:
    queries = [
        ({"source": "shop"}, 2),
        ({"source": "other"}, 0),
        ({"state": "open"}, 1),
        ({"state": "running"}, 1),
        ({"state": "partial", "source": "shop"}, 1),
    ]

    found = [len(await all_of(dashboard, "/jobs", limit=1, **query)) for query, _ in queries]

    assert found == [count for _, count in queries]
    assert filled.ended_job


async def test_a_job_has_settings_without_secrets(dashboard: Dashboard, filled: Filled) -> None:
    job = await get(dashboard, f"/jobs/{filled.ended_job}")

    assert job["state"] == "partial"
    assert job["settings"]["source"].endswith("shop.yaml")
    assert job["statistics"]["requests"] == 3


async def test_a_prefix_names_a_job_if_only_one_has_it(
    dashboard: Dashboard, filled: Filled
) -> None:
    unique = await get(dashboard, f"/jobs/{filled.ended_job[:-1]}")
    several = await dashboard.api("GET", f"{API}/jobs/shop-")

    assert unique["id"] == filled.ended_job
    assert several.status == 404


async def test_a_job_is_paused_resumed_and_cancelled(dashboard: Dashboard, filled: Filled) -> None:
    steps = [
        json.loads((await post(dashboard, f"/jobs/{filled.open_job}/{one}")).text)
        for one in ("pause", "resume", "cancel")
    ]

    assert [one["job"]["state"] for one in steps] == ["paused", "paused", "cancelled"]
    assert [one["launch"] and one["launch"]["target"] for one in steps] == [
        None,
        filled.open_job,
        None,
    ]


async def test_an_ended_job_is_neither_paused_nor_resumed(
    dashboard: Dashboard, filled: Filled
) -> None:
    answers = [
        await post(dashboard, f"/jobs/{filled.ended_job}/{one}")
        for one in ("pause", "resume", "cancel")
    ]

    assert [one.status for one in answers] == [409] * 3


@pytest.mark.parametrize(
    ("body", "queued"),
    [(None, ["c", "d"]), ({"kind": "server"}, ["d"]), ({"state": "quarantined"}, ["c"])],
)
async def test_failed_items_are_attempted_again(
    dashboard: Dashboard, filled: Filled, body: Any, queued: list[str]
) -> None:
    answer = await post(dashboard, f"/jobs/{filled.ended_job}/retry", body)

    found = await all_of(dashboard, f"/jobs/{filled.ended_job}/items", state="queued")
    assert json.loads(answer.text)["launch"]["target"] == filled.ended_job
    assert [one["key"] for one in found] == queued


async def test_without_such_items_there_is_no_retry(dashboard: Dashboard, filled: Filled) -> None:
    answer = await post(dashboard, f"/jobs/{filled.ended_job}/retry", {"key": "a"})

    assert answer.status == 409


# ---------------- Items and failures


async def test_items_are_listed_by_key(dashboard: Dashboard, filled: Filled) -> None:
    queries = [
        ({}, "abcd"),
        ({"state": "stored"}, "ab"),
        ({"kind": "server"}, "d"),
        ({"kind": "invalid", "state": "quarantined"}, "c"),
        ({"kind": "invalid", "state": "failed"}, ""),
    ]
    path = f"/jobs/{filled.ended_job}/items"

    found = [await all_of(dashboard, path, limit=1, **query) for query, _ in queries]

    assert ["".join(one["key"] for one in some) for some in found] == [keys for _, keys in queries]


async def test_failed_attempts_are_listed(dashboard: Dashboard, filled: Filled) -> None:
    path = f"/jobs/{filled.ended_job}/failures"

    [failure] = await all_of(dashboard, path, kind="server")
    others = await all_of(dashboard, path, kind="gone")

    assert (failure["key"], failure["kind"], failure["status"]) == ("d", "server", 503)
    assert others == []


# ---------------- Launches


async def test_launches_are_listed_newest_first(dashboard: Dashboard, filled: Filled) -> None:
    await dashboard.store.launches.cancel(1, 1.0, "test")

    everything = await all_of(dashboard, "/launches", limit=1)
    still_open = await all_of(dashboard, "/launches", open="true")
    other = await all_of(dashboard, "/launches", origin="schedule/daily")

    assert [one["id"] for one in everything] == [2, 1]
    assert [one["id"] for one in still_open] == [2]
    assert other == []
    assert filled.ended_job


async def test_a_launch_is_cancelled(dashboard: Dashboard, filled: Filled) -> None:
    answer = await post(dashboard, "/launches/1/cancel")

    launch = await get(dashboard, "/launches/1")
    assert json.loads(answer.text) == launch
    assert (launch["state"], launch["result"]) == ("ended", "cancelled")
    assert filled.ended_job


async def test_unknown_launches_are_refused(dashboard: Dashboard) -> None:
    launches = ("99", "x", "9" * 30)

    answers = [await dashboard.api("GET", f"{API}/launches/{one}") for one in launches]

    assert [one.status for one in answers] == [404, 422, 422]

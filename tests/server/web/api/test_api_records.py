"""Records, exports and tokens over the HTTP API."""

from __future__ import annotations

import json
from typing import Any

from longline.core.clock import SystemClock
from longline.distributed.task_runner import ExportRunner, is_export_to
from longline.export.tasks import exports_folder
from longline.storage.access import Role
from longline.storage.queue.tasks import TaskKind
from tests.server.web.api.filled import Filled
from tests.server.web.api.test_api_jobs import API, all_of, get, post
from tests.server.web.conftest import Dashboard

# ---------------- Records


async def test_records_are_queried(dashboard: Dashboard, filled: Filled) -> None:
    queries: list[tuple[dict[str, Any], str]] = [
        ({}, "ba"),
        ({"source": "shop"}, "ab"),
        ({"source": "shop", "key": "b"}, "b"),
        ({"source": "other"}, ""),
        ({"search": "changed"}, "a"),
        ({"where": "price>2"}, "a"),
        ({"state": "gone"}, ""),
        ({"state": "any", "source": "shop"}, "ab"),
        ({"since": "2001-01-01", "min_score": 50}, ""),
    ]

    found = [await all_of(dashboard, "/records", limit=1, **query) for query, _ in queries]

    assert ["".join(one["key"] for one in some) for some in found] == [keys for _, keys in queries]
    assert filled.ended_job


async def test_records_of_a_job_are_queried(dashboard: Dashboard, filled: Filled) -> None:
    newer = await all_of(dashboard, "/records", job=filled.open_job)
    older = await all_of(dashboard, "/records", job=filled.ended_job)

    assert len(newer) == 2
    assert older == []


async def test_malformed_queries_are_refused(dashboard: Dashboard) -> None:
    queries = [
        ({"key": "a"}, 422),
        ({"job": "nothing"}, 404),
        ({"where": "<b>"}, 422),
        ({"since": "x"}, 422),
        ({"min_score": "nan"}, 422),
        ({"search": "a\x00b"}, 422),
        ({"cursor": "WzFd", "source": "shop"}, 422),
        ({"cursor": "W251bGxd"}, 422),
    ]

    answers = [await dashboard.api("GET", f"{API}/records", params=one) for one, _ in queries]

    assert [one.status for one in answers] == [status for _, status in queries]
    assert {one.headers["Content-Type"] for one in answers} == {"application/problem+json"}


async def test_a_record_has_its_versions(dashboard: Dashboard, filled: Filled) -> None:
    [row] = await all_of(dashboard, "/records", source="shop", key="a")

    versions = await all_of(dashboard, f"/records/{row['id']}/history", limit=1)

    assert await get(dashboard, f"/records/{row['id']}") == row
    assert [one["version"] for one in versions] == [*range(row["version"], 0, -1)]
    assert [one["until"] is None for one in versions] == [True] + [False] * (len(versions) - 1)
    assert filled.ended_job


async def test_versions_are_compared(dashboard: Dashboard, filled: Filled) -> None:
    first = await get(dashboard, "/records/1/diff", older=1, newer=2)
    default = await get(dashboard, "/records/1/diff")
    unknown = await dashboard.api("GET", f"{API}/records/1/diff?older=1&newer=99")

    assert {one["field"] for one in first["differences"]} == {"title", "price"}
    assert default["newer"] - default["older"] == 1
    assert unknown.status == 422
    assert filled.ended_job


async def test_an_unknown_record_is_not_found(dashboard: Dashboard) -> None:
    paths = ("/records/99", "/records/99/history", "/records/99/diff")

    answers = [await dashboard.api("GET", API + path) for path in paths]

    assert [one.status for one in answers] == [404] * 3


# ---------------- Exports


async def test_a_job_is_exported_to_a_file(dashboard: Dashboard, filled: Filled) -> None:
    body = {"job": filled.open_job, "file": "shop.csv", "columns": ["key", "title"]}
    folder = exports_folder(dashboard.settings.home)
    runner = ExportRunner(dashboard.store, SystemClock())

    queued = json.loads((await post(dashboard, "/exports", body)).text)
    task = await runner.claim(TaskKind.EXPORT, is_wanted=is_export_to(folder))
    running = await get(dashboard, f"/exports/{filled.open_job}/shop.csv")
    assert task is not None
    await runner.export(task)
    [written] = await all_of(dashboard, "/exports", job=filled.open_job)

    assert [queued["state"], running["state"], written["state"]] == ["queued", "running", "written"]
    assert written["records"] == 2
    assert (folder / "shop.csv").read_text().startswith("key,title")


async def test_a_later_export_replaces_one_that_waits(dashboard: Dashboard, filled: Filled) -> None:
    body = {"job": filled.open_job, "file": "shop.csv"}

    await post(dashboard, "/exports", {**body, "columns": ["key"]})
    await post(dashboard, "/exports", {**body, "columns": ["title"]})

    [task] = await dashboard.store.tasks.of_job(filled.open_job)
    assert task.what["columns"] == ["title"]


async def test_impossible_exports_are_refused(dashboard: Dashboard, filled: Filled) -> None:
    changes: list[tuple[dict[str, Any], int]] = [
        ({"file": "../x.csv"}, 422),
        ({"file": "/etc/x.csv"}, 422),
        ({"file": ".csv"}, 422),
        ({"file": "x.exe"}, 422),
        ({"file": "x.csv\n"}, 422),
        ({"columns": ["@nothing"]}, 422),
        ({"job": "nothing"}, 404),
    ]
    body = {"job": filled.open_job, "file": "x.csv"}

    answers = [await post(dashboard, "/exports", {**body, **one}) for one, _ in changes]

    assert [one.status for one in answers] == [status for _, status in changes]
    assert await dashboard.store.tasks.of_job(filled.open_job) == []


async def test_an_unknown_export_is_not_found(dashboard: Dashboard, filled: Filled) -> None:
    answer = await dashboard.api("GET", f"{API}/exports/{filled.open_job}/x.csv")

    assert answer.status == 404


# ---------------- Tokens


async def test_a_token_works_until_it_is_revoked(dashboard: Dashboard) -> None:
    body = {"name": "ci", "role": "read", "seconds": 60}
    created = await dashboard.api("POST", f"{API}/tokens", json=body)
    token = json.loads(created.text)
    dashboard.tokens[Role.READ] = token["secret"]

    before = await dashboard.api("GET", f"{API}/jobs", role=Role.READ)
    revoked = await dashboard.api("DELETE", f"{API}/tokens/{token['id']}")
    after = await dashboard.api("GET", f"{API}/jobs", role=Role.READ)
    again = await dashboard.api("DELETE", f"{API}/tokens/{token['id']}")

    assert (created.status, revoked.status, again.status) == (201, 200, 404)
    assert (before.status, after.status) == (200, 401)
    assert json.loads(revoked.text)["revoked_at"] is not None


async def test_tokens_are_listed_without_secrets(dashboard: Dashboard) -> None:
    for name in ("one", "two"):
        await dashboard.api("POST", f"{API}/tokens", json={"name": name})

    answer = await dashboard.api("GET", f"{API}/tokens", params={"limit": 1})
    page = json.loads(answer.text)
    rest = await dashboard.api("GET", f"{API}/tokens", params={"cursor": page["next"]})

    names = [one["name"] for one in (*page["items"], *json.loads(rest.text)["items"])]
    assert names == ["two", "one", "test-admin"]
    assert "ll_" not in answer.text + rest.text


async def test_a_name_is_used_by_one_valid_token(dashboard: Dashboard) -> None:
    answers = [await dashboard.api("POST", f"{API}/tokens", json={"name": "ci"}) for _ in range(2)]

    assert [one.status for one in answers] == [201, 422]

"""Health: what is wrong with a running home, how bad it is, and what it never depends on."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.monitoring.alerts.alerting import Alerting, Evaluate, Findings
from longline.monitoring.alerts.configuration import AlertFile, AlertSettings
from longline.scheduling.schedule import make_schedule
from longline.services.background import heartbeat_path, process_memory
from longline.services.doctor.findings import CheckContext, Finding, Verdict
from longline.services.health import (
    CHECKS,
    READINESS,
    HealthReport,
    HealthState,
    alerts,
    all_checks,
    certificates,
    check_health,
    check_readiness,
    executor,
    waiting_work,
)
from longline.services.programs import Advisory
from longline.storage.events.events import EventFilter, event_row
from longline.storage.scheduling.launches import NewLaunch
from longline.storage.store import Store, open_store
from tests.certificates import Authority
from tests.servers import RedisServer, free_port
from tests.storage.given import queued
from tests.virtual import EPOCH

PLUGIN = """
from longline.services.doctor.findings import ok, warning


def tunnel(context):
    yield ok("tunnel", f"found in {context.settings.home.name}")
    yield warning("tunnel", "only 3 are left", "add some")


def broken(context):
    raise RuntimeError("no such table")


def odd(context):
    return ["fine"]


number = 5
"""
ENTRIES = """
[longline.health]
tunnel = checks_code:tunnel
broken = checks_code:broken
odd = checks_code:odd
number = checks_code:number
missing = checks_code:missing
"""


WORK = ("schedules", "launches", "event lag", "due items")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = Settings(home=tmp_path / "home")
    prepare_home(settings)
    return settings


def filled(settings: Settings, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> None:
    async def fill() -> None:
        with open_store(settings.database) as store:
            await work(store)

    asyncio.run(fill())


def states(findings: Any) -> dict[str, Verdict]:
    return {one.about: one.verdict for one in findings}


def test_a_new_home_is_healthy(settings: Settings) -> None:
    report = check_health(settings)

    assert report.state is HealthState.OK
    assert {one["check"] for one in report.as_dict()["checks"]} >= {"home", "disk", "database"}


def test_a_site_in_trouble_is_not_a_failure(settings: Settings) -> None:
    async def trouble(store: Store) -> None:
        job = await queued(store, "a")
        trouble: dict[str, Any] = {"domain": "shop.test", "until": EPOCH + 600}
        opened = event_row(job.id, EPOCH, "breaker.opened", reason="down", **trouble)
        blocked = event_row(job.id, EPOCH, "domain.blocked", evidence="403", **trouble)
        await store.events.append(opened, blocked)
        await store.jobs.pause(job.id, EPOCH, "every site is down")

    filled(settings, trouble)

    assert check_health(settings).state is HealthState.OK


def test_a_damaged_database_has_failed(settings: Settings) -> None:
    (settings.home / "longline.sqlite").write_bytes(b"not a database" * 100)

    report = check_health(settings)

    assert report.state is HealthState.FAILED
    assert states(report.findings)["database"] is Verdict.PROBLEM


def test_a_database_that_another_process_locks_is_not_ready(settings: Settings) -> None:
    filled(settings, lambda store: store.now())
    context = CheckContext(settings, write_timeout=0.01)
    checks = {name: CHECKS[name] for name in READINESS}
    with closing(sqlite3.connect(settings.home / "longline.sqlite")) as other:
        other.execute("BEGIN IMMEDIATE")
        locked = check_health(settings, checks, context)

    assert locked.state is HealthState.FAILED
    assert states(locked.findings)["database"] is Verdict.PROBLEM
    assert check_health(settings, checks, context).state is HealthState.OK


async def test_a_full_disk_is_not_ready(settings: Settings) -> None:
    context = CheckContext(settings, free_bytes=lambda _: 1000)
    checks = {name: CHECKS[name] for name in READINESS}

    full = check_health(settings, checks, context)

    assert full.state is HealthState.FAILED
    assert (await check_readiness(settings)).state is HealthState.OK


def test_a_server_that_hangs_has_failed(settings: Settings) -> None:
    beat = heartbeat_path(settings.home, os.getpid())
    beat.parent.mkdir()
    beat.touch()

    works = states(executor(CheckContext(settings)))
    hangs = states(executor(CheckContext(settings, now=lambda: time.time() + 100)))

    assert works == {"executor": Verdict.OK}
    assert hangs == {"executor": Verdict.PROBLEM}


def test_the_file_of_a_dead_server_is_ignored(settings: Settings) -> None:
    beat = heartbeat_path(settings.home, 2**22 + 1)
    beat.parent.mkdir()
    beat.touch()

    found = states(executor(CheckContext(settings, now=lambda: time.time() + 100)))

    assert found == {"executor": Verdict.OK}


def test_the_memory_of_servers_is_measured(settings: Settings) -> None:
    beat = heartbeat_path(settings.home, os.getpid())
    beat.parent.mkdir()
    beat.touch()

    (size,) = process_memory(settings.home)["server"]

    assert size > 10_000_000


def test_rules_that_are_not_evaluated_are_degraded(settings: Settings) -> None:
    async def fail(_settings: AlertSettings, _now: float) -> Findings:
        raise RuntimeError("no such column")

    async def nothing(_settings: AlertSettings, _now: float) -> Findings:
        return Findings([], {})

    async def evaluate(store: Store, how: Evaluate) -> None:
        alerting = Alerting(store, SystemClock(), AlertFile(), how)
        await alerting.tick()
        await alerting.close()

    def check(after: float) -> dict[str, Verdict]:
        return states(alerts(CheckContext(settings, now=lambda: time.time() + after)))

    filled(settings, lambda store: evaluate(store, nothing))
    assert check(1000) == {"alerts": Verdict.OK}  # without a server, nothing is expected

    beat = heartbeat_path(settings.home, os.getpid())
    beat.parent.mkdir()
    beat.touch()
    assert (check(100), check(1000)) == ({"alerts": Verdict.OK}, {"alerts": Verdict.WARNING})

    filled(settings, lambda store: evaluate(store, fail))
    assert check(100) == {"alerts": Verdict.WARNING}


def test_invalid_settings_of_alerts_are_degraded(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longline.yaml").write_text("alerts: {notify: ['mail:nobody']}\n")

    assert Verdict.WARNING in states(alerts(CheckContext(settings))).values()
    assert check_health(settings).state is HealthState.DEGRADED


def test_late_work_is_degraded(settings: Settings) -> None:
    async def place(store: Store) -> None:
        await queued(store, "a")
        await store.launches.place(NewLaunch("source", "shop", {}, "test", EPOCH))
        await store.subscribers.add("mine", EventFilter(), EPOCH, 0)
        frequent = make_schedule({"name": "frequent", "source": "n8n", "every": "1m"})
        await store.schedules.save("frequent", frequent.stated(), EPOCH)

    filled(settings, place)

    early = states(waiting_work(CheckContext(settings, now=lambda: EPOCH + 100)))
    late = states(waiting_work(CheckContext(settings, now=lambda: EPOCH + 1000)))

    assert early == dict.fromkeys(WORK, Verdict.OK)
    assert late == dict.fromkeys(WORK, Verdict.WARNING)


@pytest.mark.parametrize(
    ("days", "verdict"), [(0, Verdict.OK), (25, Verdict.WARNING), (60, Verdict.WARNING)]
)
def test_own_authorities_that_expire_are_degraded(
    settings: Settings, tmp_path: Path, days: int, verdict: Verdict
) -> None:
    authority = Authority.make(tmp_path)
    settings = settings.model_copy(update={"ca_file": authority.file})

    found = certificates(CheckContext(settings, now=lambda: time.time() + days * 86400))

    assert states(found) == {"certificates": verdict}


def test_a_file_without_certificates_has_failed(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    settings = settings.model_copy(update={"ca_file": file})

    assert states(certificates(CheckContext(settings))) == {"certificates": Verdict.PROBLEM}


def test_plugins_add_checks(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "checks-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: checks\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "checks_code.py").write_text(PLUGIN)
    added = {name: one for name, one in all_checks().items() if name not in CHECKS}

    report = check_health(settings, added)

    found: dict[str, list[Finding]] = {name: [] for name in added}
    for one in report.findings:
        found[one.about].append(one)
    assert [one.verdict for one in found["tunnel"]] == [Verdict.OK, Verdict.WARNING]
    assert found["tunnel"][0].sentence == "found in home"
    broken = [found[name][0].verdict for name in ("broken", "odd", "number", "missing")]
    assert broken == [Verdict.PROBLEM] * 4
    assert "checks 1.0" in found["missing"][0].sentence


def test_known_problems_of_a_version_are_left_to_the_doctor(
    settings: Settings, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    advisory = Advisory("CVE-0", "old", {"redis": ("99.0",), "valkey": ("99.0",)})
    monkeypatch.setattr("longline.services.doctor.servers.advisories_for", lambda *_: [advisory])
    settings = settings.model_copy(update={"redis_url": redis_server.url})

    found = check_health(settings, {"redis": CHECKS["redis"]})

    assert found.state is HealthState.OK
    assert len(found.findings) == 1


def test_a_redis_that_does_not_respond_has_failed(settings: Settings) -> None:
    settings = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{free_port()}/0"})

    assert check_health(settings, {"redis": CHECKS["redis"]}).state is HealthState.FAILED


def test_the_worst_finding_decides() -> None:
    good = Finding("a", Verdict.OK, "works")
    slow = Finding("b", Verdict.WARNING, "is slow", "wait")
    bad = replace(slow, verdict=Verdict.PROBLEM)

    assert HealthReport([]).state is HealthState.OK
    assert HealthReport([good, slow]).state is HealthState.DEGRADED
    assert HealthReport([good, bad, slow]).state is HealthState.FAILED

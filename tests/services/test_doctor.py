"""The doctor: what is wrong becomes a finding with a remedy, and never a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from longline.cli.commands.tools import doctor_command
from longline.config.settings import Settings
from longline.core.model import Item
from longline.engine.owner import this_host
from longline.services.doctor.doctor import (
    CHECKS,
    browser,
    diagnose,
    disk,
    examine,
    home,
    proxies,
    secrets,
    sources,
    variables,
)
from longline.services.doctor.findings import CheckContext, Finding, Verdict, ok
from longline.services.doctor.servers import (
    abandoned_jobs,
    database,
    file_system,
    own_services,
    workers,
)
from longline.services.processes import ProcessEntry, ServicesState, StateFile
from longline.storage.database import NEWEST
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import open_store
from tests.servers import free_port

MANIFEST = """
manifest: html
name: shop
start: https://shop.test/
items: h3 a
transport: browser
auth: {kind: bearer, token: env:SHOP_TOKEN, hosts: [shop.test]}
fields: {title: h1}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", sources=(tmp_path / "sources",))


@pytest.fixture
def context(settings: Settings) -> CheckContext:
    settings.home.mkdir()
    return CheckContext(settings, environment={})


def only(check: Any, context: CheckContext) -> Finding:
    (found,) = check(context)
    assert isinstance(found, Finding)
    return found


def test_a_new_installation_has_no_problem(context: CheckContext) -> None:
    found = examine(context, CHECKS)

    assert [one for one in found if one.verdict is Verdict.PROBLEM] == []
    assert {"packages", "home", "disk", "database", "redis", "clocks"} <= {o.about for o in found}


def test_checks_create_no_files(settings: Settings) -> None:
    examine(CheckContext(settings), CHECKS)

    assert not settings.home.exists()


def test_a_check_that_fails_is_a_finding(context: CheckContext) -> None:
    def fail(_context: CheckContext) -> Iterator[Finding]:
        raise ZeroDivisionError("by zero")

    (found,) = examine(context, {"sums": fail})

    assert found.verdict is Verdict.PROBLEM
    assert "ZeroDivisionError: by zero" in found.sentence


def test_a_check_that_hangs_is_a_finding(context: CheckContext) -> None:
    held = threading.Event()

    def hang(_context: CheckContext) -> Iterator[Finding]:
        held.wait(60)
        yield ok("late", "too late")

    (found,) = examine(context, {"wait": hang}, seconds=0.05)
    held.set()

    assert (found.about, found.verdict) == ("wait", Verdict.PROBLEM)
    assert "0.05 s" in found.sentence


def test_problems_come_last(context: CheckContext) -> None:
    full = CheckContext(context.settings, {"LONGLINE_HOMME": "x"}, free_bytes=lambda _folder: 5)

    found = examine(full, {"disk": disk, "variables": variables, "home": home})

    assert [one.verdict.value for one in found] == ["ok", "warning", "problem"]


def test_invalid_settings_are_the_only_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "longline.yaml").write_text("concurency: 3\n")

    (found,) = diagnose()

    assert found.verdict is Verdict.PROBLEM
    assert "longline.yaml:1:1" in found.sentence
    assert "concurrency" in found.sentence


@pytest.mark.parametrize(
    ("free", "verdict", "amount"),
    [
        (5_000_000_000, Verdict.OK, "5.0 GB"),
        (999_999_999, Verdict.WARNING, "1.0 GB"),
        (99_999_999, Verdict.PROBLEM, "100 MB"),
    ],
)
def test_free_disk_space_decides_the_verdict(
    context: CheckContext, free: int, verdict: Verdict, amount: str
) -> None:
    found = only(disk, CheckContext(context.settings, {}, free_bytes=lambda _folder: free))

    assert found.verdict is verdict
    assert amount in found.sentence


def test_an_unknown_variable_is_reported_with_the_nearest_setting(context: CheckContext) -> None:
    given = {"LONGLINE_DATABASE_ULR": "x", "LONGLINE_HOME": "y", "PATH": "z"}

    found = only(variables, CheckContext(context.settings, given))

    assert found.verdict is Verdict.WARNING
    assert "LONGLINE_DATABASE_ULR" in found.sentence
    assert "LONGLINE_DATABASE_URL" in (found.remedy or "")


def test_a_home_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    assert only(home, CheckContext(Settings(home=tmp_path / "home"))).verdict is Verdict.PROBLEM


def test_a_damaged_database_file_is_a_problem(context: CheckContext) -> None:
    file = context.settings.home / "longline.sqlite"
    file.write_bytes(b"not a database" * 100)

    found = only(database, context)

    assert found.verdict is Verdict.PROBLEM
    assert str(file) in found.sentence


def test_a_database_is_described(context: CheckContext) -> None:
    open_store(context.settings.database).close()

    found = only(database, context)

    assert found.verdict is Verdict.OK
    assert NEWEST in re.findall(r"\d+", found.sentence)


def test_a_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = {"/": "ext4", str(tmp_path.resolve()): "nfs4"}

    assert file_system(tmp_path / "home", mounts) == "nfs4"
    assert file_system(Path("/nowhere"), mounts) == "ext4"


def test_missing_secrets_and_browsers_are_reported(
    context: CheckContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "shop.yaml").write_text(MANIFEST)
    monkeypatch.delenv("SHOP_TOKEN", raising=False)
    chosen = context.settings.model_copy(update={"chromium": "/no/such/browser"})
    context = CheckContext(chosen, {})

    assert "SHOP_TOKEN" in only(secrets, context).sentence
    missing = only(browser, context)
    assert (missing.about, missing.verdict) == ("browser", Verdict.PROBLEM)
    assert "shop" in missing.sentence
    assert "LONGLINE_CHROMIUM" in (missing.remedy or "")
    assert only(sources, context).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("written", "verdict", "word"),
    [
        ("false", Verdict.OK, "no manifest or job file"),
        ("true", Verdict.OK, "stays the same"),
        ("{per_proxy: true}", Verdict.WARNING, "each proxy"),
    ],
)
def test_what_proxies_change_is_said(
    context: CheckContext, tmp_path: Path, written: str, verdict: Verdict, word: str
) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "shop.yaml").write_text(f"{MANIFEST}proxies: {written}\n")

    found = only(proxies, context)

    assert (found.verdict, word in found.sentence) == (verdict, True)


def test_a_broken_manifest_is_a_problem(context: CheckContext, tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "shop.yaml").write_text(MANIFEST.replace("fields", "feilds"))

    found = only(sources, context)

    assert found.verdict is Verdict.PROBLEM
    assert "shop.yaml:" in found.sentence


@pytest.mark.real_time
async def test_an_abandoned_job_is_found(context: CheckContext) -> None:
    with open_store(context.settings.database) as store:
        now = await store.now()
        job = await store.jobs.create(NewJob("shop", {}, {}, now))
        await store.jobs.start(job.id, now)
        await store.queue.enqueue(Discovered(job.id, [Item("a", "https://shop.test")], now))
        dead = f"{this_host()}:999999999:1.00:word"
        await store.queue.lease(Claim(job.id, dead, 1, now, now + 60))

    found = examine(context, {"jobs": abandoned_jobs})[0]

    assert found.verdict is Verdict.WARNING
    assert found.remedy is not None
    assert f"`longline resume {job.id}`" in found.remedy


@pytest.mark.real_time
async def test_doctor_reports_jobs_without_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(Settings(home=tmp_path).database) as store:
        for _ in range(2):
            job = await store.jobs.create(NewJob("shop", {}, {}, 0.0))
            await store.jobs.start(job.id, 0.0, engine="celery")

    done = await asyncio.to_thread(
        CliRunner().invoke, doctor_command, ["--json", "--home", str(tmp_path)]
    )

    assert done.exit_code == 1
    (found,) = [one for one in json.loads(done.stdout) if one["about"] == "workers"]
    assert found["verdict"] == "problem"
    assert "2" in found["sentence"]
    assert "`longline up`" in found["remedy"]
    assert "`longline worker`" in found["remedy"]


def test_a_home_without_a_cluster_needs_no_workers(context: CheckContext) -> None:
    open_store(context.settings.database).close()

    assert list(workers(context)) == []


def test_the_doctor_works_without_optional_packages_and_names_them(tmp_path: Path) -> None:
    block = "; ".join(f"sys.modules[{name!r}] = None" for name in ("redis", "psycopg", "celery"))
    program = f"import sys; {block}; from longline.cli.main import main; main()"
    urls = {"LONGLINE_REDIS_URL": "redis://h/0", "LONGLINE_DATABASE_URL": "postgresql://h/name"}

    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json", "--home", str(tmp_path)],
        env={**os.environ, **urls},
        stdout=subprocess.PIPE,
        check=False,
    )

    problems = [one for one in json.loads(done.stdout) if one["verdict"] == "problem"]
    assert {one["about"] for one in problems} == {"redis", "database"}
    assert "longline[postgres]" in str(problems)
    assert "longline[cluster]" in str(problems)


def entry(name: str, pid: int, port: int | None) -> ProcessEntry:
    started = psutil.Process(pid).create_time() if psutil.pid_exists(pid) else 1.0
    return ProcessEntry(name, pid, started, ("sleep",), port, "some.log")


def test_dead_and_unresponsive_services_are_reported(context: CheckContext) -> None:
    closed = free_port()
    gone, here = entry("worker-1", 999_999_999, None), entry("redis", os.getpid(), closed)
    StateFile(context.settings.home).write(ServicesState(processes=(gone, here)))

    first, second = own_services(context)

    assert (first.verdict, second.verdict) == (Verdict.WARNING, Verdict.PROBLEM)
    assert "worker-1" in first.sentence
    assert "999999999" in first.sentence
    assert str(closed) in second.sentence

"""The server: its parts run apart, and settings are applied completely or not at all."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings, load_settings, prepare_home
from longline.core.clock import Clock
from longline.core.errors import BadFile, StoreGone, StoreUnreachable
from longline.export.tasks import enqueue_file_export, exports_folder
from longline.scheduling.launch_groups import group_result
from longline.server.serve import Server, keep_running
from longline.storage.events.events import EventFilter
from longline.storage.events.webhooks import Webhook
from longline.storage.jobs import NewJob
from longline.storage.monitoring.logs import LogFilter
from longline.storage.scheduling.launches import LaunchLimits, NewLaunch
from longline.storage.store import Store, open_store
from tests.server.served_home import ServedHome
from tests.servers import free_port
from tests.servers import until as until_true
from tests.virtual import VirtualClock


class Part:
    """A part that counts its calls, and fails as scripted."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.settings: list[Settings] = []
        self.is_closed = False

    def make(self, _store: Store, _clock: Clock, settings: Settings) -> dict[str, Any]:
        self.settings.append(settings)
        return {"part": self}

    async def tick(self) -> float | None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return 1.0

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of a home; no job is run, so no process is prepared."""

    async def prepare_nothing(_jobs: object) -> None:
        return

    monkeypatch.setattr("longline.server.job_process.JobProcesses.prepare", prepare_nothing)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "longline.yaml"
    file.write_text("executor_jobs: 2\n")
    return file


@asynccontextmanager
async def serving(part: Part) -> AsyncIterator[Server]:
    server = Server(load_settings(), load=load_settings, make_tickers=part.make)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        try:
            yield server
        finally:
            server.stop()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(3600):
        while not is_true():  # noqa: ASYNC110  # the parts run apart
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("file")
async def test_a_part_that_fails_is_started_again(logged: list[str]) -> None:
    part = Part(ZeroDivisionError(), ZeroDivisionError())

    async with serving(part):
        await until(lambda: part.calls > 5)

    assert part.is_closed
    assert len([text for text in logged if "part" in text]) == 2


@pytest.mark.usefixtures("file")
async def test_an_outage_of_the_database_is_logged_once(logged: list[str]) -> None:
    part = Part(*[StoreGone("postgresql://x", "refused", 60)] * 5)

    async with serving(part):
        await until(lambda: part.calls > 6)

    assert len([text for text in logged if "part" in text]) == 1


@pytest.mark.usefixtures("file")
async def test_running_once_does_not_wait_for_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGLINE_DATABASE_URL", f"postgresql://127.0.0.1:{free_port()}/none")
    server = Server(load_settings(), load=load_settings, make_tickers=Part().make)

    with pytest.raises(StoreUnreachable):
        await server.run(is_once=True)


@pytest.mark.usefixtures("file")
async def test_running_once_ends_when_the_database_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_due(_launches: object, _now: float) -> bool:
        raise StoreGone("postgresql://x", "refused", 60)

    part = Part(*[StoreGone("postgresql://x", "refused", 60)] * 1000)
    monkeypatch.setattr("longline.storage.scheduling.launches.Launches.is_due", is_due)
    server = Server(load_settings(), load=load_settings, make_tickers=part.make)

    with pytest.raises(StoreGone):
        await server.run(is_once=True)


@pytest.mark.parametrize(
    "text",
    [
        "alerts: {notify: ['webhook:none']}\n",
        "alerts: {escalate: {after: 5m, to: 'webhook:none'}}\n",
        "reports: {daily: {to: 'webhook:none'}}\n",
    ],
)
async def test_a_server_needs_the_webhooks_of_its_file(file: Path, text: str) -> None:
    file.write_text(text)
    server = Server(load_settings(), load=load_settings, make_tickers=Part().make)

    with pytest.raises(BadFile, match="longline webhooks add none"):
        await server.run()


@pytest.mark.usefixtures("file")
async def test_exports_into_the_home_are_written() -> None:
    settings = load_settings()
    folder = exports_folder(settings.home)
    prepare_home(settings)
    with open_store(settings.database) as store:
        job = await store.jobs.create(NewJob("shop", {"source": "shop"}, {}, 1.0))
        await enqueue_file_export(store, job, folder, "shop.csv")

    async with serving(Part()):
        await until((folder / "shop.csv").exists)


async def test_a_part_that_fails_again_and_again_waits_longer() -> None:
    clock, times = VirtualClock(), []

    async def part() -> None:
        times.append(clock.now())
        if len(times) < 10:
            raise ZeroDivisionError

    await keep_running("part", part, clock)

    waits = [round(after - before) for before, after in itertools.pairwise(times)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_a_changed_file_is_applied_completely(file: Path) -> None:
    part = Part()

    async with serving(part):
        await until(lambda: part.calls > 0)
        file.write_text("executor_jobs: 17\ntimeout: 5\n")
        await until(lambda: len(part.settings) == 2)

    assert (part.settings[1].executor_jobs, part.settings[1].timeout) == (17, 5)


@pytest.mark.parametrize(
    "text",
    [
        "executor_jobs: 17\ntimeout: -1\n",
        "executor_jobs: [",
        "executor_jobs: 17\nhome: other\n",
        "executor_jobs: 17\nschedules: {daily: {source: shop, cron: nonsense}}\n",
        "executor_jobs: 17\nalerts: {notify: ['webhook:none']}\n",
    ],
)
async def test_a_file_that_cannot_be_applied_changes_nothing(
    file: Path, text: str, logged: list[str]
) -> None:
    part = Part()

    async with serving(part):
        await until(lambda: part.calls > 0)
        file.write_text(text)
        await until(lambda: any("not applied" in one for one in logged))
        before = part.calls
        await until(lambda: part.calls > before + 5)

    assert [one.executor_jobs for one in part.settings] == [2]


async def test_a_file_is_applied_when_the_webhook_that_it_names_exists(
    file: Path, logged: list[str]
) -> None:
    part = Part()

    async with serving(part):
        await until(lambda: part.calls > 0)
        file.write_text("executor_jobs: 17\nalerts: {notify: ['webhook:chat']}\n")
        await until(lambda: any("not applied" in one for one in logged))
        with open_store(part.settings[0].database) as store:
            hook = Webhook("chat", "http://127.0.0.1:1/", ("env:HOOK",), created_at=0.0)
            await store.webhooks.add(hook, EventFilter(("custom.*",)))
        await until(lambda: len(part.settings) == 2)

    assert part.settings[1].executor_jobs == 17
    assert sum("not applied" in one for one in logged) == 1


async def test_warnings_of_the_server_are_stored(file: Path, logged: list[str]) -> None:
    part = Part()

    async with serving(part):
        await until(lambda: part.calls > 0)
        file.write_text("executor_jobs: [")
        await until(lambda: any("not applied" in one for one in logged))

    with open_store(Settings(home=file.parent / ".longline").database) as store:
        (line,), _ = await store.logs.search(LogFilter())
    assert (line.logger, line.level) == ("longline.server.serve", logging.WARNING)


def test_a_schedule_is_fired_and_its_job_runs(tmp_path: Path) -> None:
    home = ServedHome(tmp_path)
    (tmp_path / "longline.yaml").write_text(
        f"schedules:\n  often: {{source: {home.source}, every: 2s}}\n"
    )

    with home.serving():
        until_true(lambda: len(home.versions()) == 12, "the records of the schedule")

    launches = home.read(lambda store: store.launches.list())
    assert {one.origin for one in launches} == {"schedule/often"}


async def test_launches_of_one_origin_have_one_result(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}")
    states = []
    for name, result in (("a", "complete"), ("b", "failed")):
        launch = await store.launches.place(NewLaunch("source", name, {}, "flow/1/all", 0.0))
        states.append((await group_result(store, "flow/1/all")).state)
        await store.launches.lease("me", 0.0, 15.0, LaunchLimits())
        states.append((await group_result(store, "flow/1/all")).state)
        await store.launches.finish(launch, "me", 1.0, result=result, reason=None)
        states.append((await group_result(store, "flow/1/all")).state)
    group = await group_result(store, "flow/1/all")
    store.close()

    assert states == ["queued", "running", "complete", "running", "running", "partial"]
    assert group.results == {"complete": 1, "failed": 1}

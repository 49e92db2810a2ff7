"""`longline serve`: one process that runs launches, fires schedules, and delivers events.

Its parts do not know each other. Each is restarted after an error, and waits while the database
does not respond; what is to be done is in the database, so that several servers share it, and a
killed one loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from longline.config.settings import Settings, prepare_home, settings_file
from longline.core.clock import Clock, SharedClock, backoff, sleep_or_wake
from longline.core.errors import LonglineError, StoreDamaged, StoreError, StoreUnreachable
from longline.core.files import make_private_folder
from longline.core.logging import LogOptions, keep_rotating_logs
from longline.distributed.task_runner import ExportRunner, is_export_to
from longline.export.tasks import exports_folder
from longline.monitoring.alerts.alerting import make_alerting
from longline.monitoring.log_store import prune_logs, storing_logs
from longline.monitoring.reports.definitions import ReportFile, check_settings_file
from longline.monitoring.reports.maker import ReportMaker
from longline.scheduling.definitions import read_definitions
from longline.scheduling.executor import Executor, Runner, limits_of
from longline.scheduling.scheduler import Scheduler
from longline.server.flow_part import FlowLaunches, FlowPart
from longline.server.job_process import JobProcesses
from longline.server.proxy_part import ProxyKeeper, run_proxy_tasks
from longline.services.background import heartbeat_path
from longline.storage.queue.tasks import TaskKind
from longline.storage.scheduling.launches import FLOW, SOURCE
from longline.storage.store import Store, open_store
from longline.wiring import open_event_deliveries

_LOG = logging.getLogger(__name__)

_LONGEST_BACKOFF = 60.0  # seconds before a part is restarted
_STABLE = 60.0  # seconds after which a part counts as running without errors
_LONGEST_TICK = 30.0  # seconds between two ticks; other processes may have changed something
_IDLE_TICK = 5.0  # seconds before the next tick, if nothing is known to be due
_RETENTION = 3600.0  # seconds between two deletions of old events and log lines
_EXPORT_POLL = 1.0  # seconds between two polls for exports
_FILE_POLL = 2.0  # seconds between two polls at the settings file
_OUTAGE_POLL = 5.0  # seconds between two attempts to open the database
_IDLE_POLL = 0.2  # seconds between two checks whether everything is done
_FIXED = ("home", "database_url")  # settings that only a restart changes


class Ticker(Protocol):
    """A part that is called from time to time, such as the scheduler."""

    async def tick(self) -> float | None:
        """Do what is due; return the seconds until the next call, None if unknown."""

    async def close(self) -> None:
        """Release what it holds, so that another server can continue immediately."""


MakeTickers = Callable[[Store, Clock, Settings], Mapping[str, Ticker]]
MakeRunners = Callable[[Store, Clock, Settings], Mapping[str, Runner]]


def make_scheduling(store: Store, clock: Clock, settings: Settings) -> Mapping[str, Ticker]:
    """Return the parts that fire schedules, perform flows, keep alerts, reports and proxies."""
    return {
        "scheduler": Scheduler(store, clock, settings),
        "flows": FlowPart(store, clock, settings),
        "alerts": make_alerting(store, clock, settings),
        "reports": ReportMaker(store, clock, ReportFile()),
        "proxies": ProxyKeeper(store, clock, settings),
    }


def make_flow_runner(store: Store, clock: Clock, settings: Settings) -> Mapping[str, Runner]:
    """Return what runs launches of flows."""
    return {FLOW: FlowLaunches(store, clock, settings)}


class Server:
    """Runs the parts of a home until it is stopped.

    Args:
        settings: those at the start.
        load: returns the settings again, after their file has changed.
        log: how much the processes of jobs log.
        make_tickers: returns the parts that are called from time to time, by their names.
        make_runners: returns what runs launches of other kinds than sources.
        listener: the socket of the web interface; None: without it.
        has_executor: run launches, schedules, alerts and deliveries; False: only the web interface.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[[], Settings],
        log: LogOptions | None = None,
        make_tickers: MakeTickers = make_scheduling,
        make_runners: MakeRunners = make_flow_runner,
        listener: socket.socket | None = None,
        has_executor: bool = True,
    ) -> None:
        self._settings = settings
        self._load = load
        self._log = log or LogOptions()
        self._make_tickers = make_tickers
        self._make_runners = make_runners
        self._listener = listener
        self._has_executor = has_executor
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._unticked: set[str] | None = None  # parts that were not called yet
        self._lost: StoreError | None = None  # what ended a run that is not to wait

    def stop(self) -> None:
        """End: jobs save their state, and their launches are released."""
        self._stop.set()

    async def run(
        self, *, is_once: bool = False, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        """Run all parts until `stop` is called; with `is_once`, until nothing is due.

        Raises:
            StoreError: the database cannot be used; one that does not respond is waited for, but
                not with `is_once`.
            BadFile: the settings of alerts or reports are invalid.
        """
        prepare_home(self._settings)
        async with self._opened_store(is_once=is_once) as store:
            if store is None:
                return
            await check_settings_file(store)
            clock = SharedClock()
            await clock.follow(store)
            with (
                storing_logs(store, self._settings, clock),
                _heartbeat_file(self._settings.home) as beat,
            ):
                await self._run_parts(store, clock, beat, is_once=is_once, on_ready=on_ready)
            if self._lost is not None:
                raise self._lost

    @contextlib.asynccontextmanager
    async def _opened_store(self, *, is_once: bool) -> AsyncIterator[Store | None]:
        """Open the database; wait for a server that does not respond, unless `is_once`.

        None: stopped before.
        """
        store, address = None, self._settings.database
        is_server, is_known = not address.startswith("sqlite"), False
        while store is None and not self._stop.is_set():
            try:
                store = open_store(address, is_stopping=self._stop.is_set)
            except StoreUnreachable as error:
                if is_once or not is_server or isinstance(error, StoreDamaged):
                    raise
                if not is_known:
                    _LOG.warning("waiting for the database: %s", error)
                is_known = True
                await sleep_or_wake(_OUTAGE_POLL, self._stop)
        try:
            yield store
        finally:
            if store is not None:
                store.close()

    async def _run_parts(
        self,
        store: Store,
        clock: SharedClock,
        beat: Callable[[], None],
        *,
        is_once: bool,
        on_ready: Callable[[], None],
    ) -> None:
        settings = self._settings
        if not self._has_executor:
            await self._run_web_only(store, clock, on_ready)
            return
        jobs = JobProcesses(settings, self._log, settings.home / "logs" / "launches")
        runners = {SOURCE: jobs, **self._make_runners(store, clock, settings)}
        executor = Executor(store, clock, runners, limits=limits_of(settings), on_beat=beat)
        await jobs.prepare()
        async with contextlib.aclosing(jobs), asyncio.TaskGroup() as group:
            executing = group.create_task(keep_running("executor", executor.run, clock))
            others = [
                group.create_task(clock.keep_following(store)),
                group.create_task(self._run_reloadable(store, clock)),
                group.create_task(keep_rotating_logs(settings.home / "logs")),
                group.create_task(self._reload_settings(store, executor, jobs)),
            ]
            if is_once:
                others.append(group.create_task(self._stop_when_idle(store, clock, executor)))
            on_ready()
            await self._stop.wait()
            executor.stop()
            await executing
            for one in others:
                one.cancel()

    async def _run_web_only(
        self, store: Store, clock: SharedClock, on_ready: Callable[[], None]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            others = [
                group.create_task(clock.keep_following(store)),
                group.create_task(keep_running("web", self._serve_web(clock), clock)),
            ]
            on_ready()
            await self._stop.wait()
            for one in others:
                one.cancel()

    def _serve_web(self, clock: Clock) -> Callable[[], Awaitable[None]]:
        # Libraries that a server without the web interface need not load.
        from longline.server.web.part import WebPart  # noqa: PLC0415

        assert self._listener is not None  # noqa: S101  # the callers have checked it
        return WebPart(self._settings, clock, self._listener).run

    async def _stop_when_idle(self, store: Store, clock: Clock, executor: Executor) -> None:
        # The query fails if the server of the database does not respond for a minute.
        try:
            is_idle = False
            while await _is_due(store, clock) or not is_idle:
                await clock.sleep(_IDLE_POLL)
                is_idle = self._unticked == set() and not executor.running
        except StoreError as error:
            self._lost = error
        self.stop()

    # ---------------- parts that are started again with new settings

    async def _run_reloadable(self, store: Store, clock: Clock) -> None:
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as group:
                parts = [
                    group.create_task(keep_running(name, part, clock))
                    for name, part in self._reloadable(store, clock).items()
                ]
                await self._changed.wait()
                for one in parts:
                    one.cancel()

    def _reloadable(self, store: Store, clock: Clock) -> dict[str, Callable[[], Awaitable[None]]]:
        settings = self._settings

        async def deliver() -> None:
            async with open_event_deliveries(settings, store, clock) as deliveries:
                await deliveries.run()

        async def prune() -> None:
            while True:
                days, count = settings.event_max_days, settings.event_max_count
                await store.events.prune_old(clock.now(), max_days=days, max_count=count)
                await prune_logs(store, settings, clock.now())
                await clock.sleep(_RETENTION)

        async def export() -> None:
            runner, is_ours = (
                ExportRunner(store, clock),
                is_export_to(exports_folder(settings.home)),
            )
            while True:
                task = await runner.claim(TaskKind.EXPORT, is_wanted=is_ours)
                if task is None:
                    await clock.sleep(_EXPORT_POLL)
                else:
                    await runner.export(task)

        def ticking(name: str, ticker: Ticker) -> Callable[[], Awaitable[None]]:
            async def run() -> None:
                try:
                    while True:
                        seconds = await ticker.tick()
                        unticked.discard(name)
                        wait = _IDLE_TICK if seconds is None else min(seconds, _LONGEST_TICK)
                        await clock.sleep(max(wait, 0.0))
                finally:
                    with contextlib.suppress(StoreError):  # what it holds expires
                        await ticker.close()

            return run

        tickers = self._make_tickers(store, clock, settings)
        unticked = self._unticked = set(tickers)
        ticks = {name: ticking(name, ticker) for name, ticker in tickers.items()}
        monitoring = _monitoring(store, clock, settings)
        web = {} if self._listener is None else {"web": self._serve_web(clock)}
        always: dict[str, Callable[[], Awaitable[None]]] = {
            "deliveries": deliver,
            "exports": export,
            "proxy tasks": partial(run_proxy_tasks, store, clock, settings),
            "retention": prune,
        }
        return {**always, **monitoring, **web, **ticks}

    # ---------------- the settings file

    async def _reload_settings(self, store: Store, executor: Executor, jobs: JobProcesses) -> None:
        """Apply a changed settings file, completely or not at all; running jobs keep theirs."""
        known = _stamp()
        reported = ""
        while True:
            await asyncio.sleep(_FILE_POLL)
            if (stamp := _stamp()) == known:
                continue
            try:
                new = self._load()
                await check_settings_file(store)
                if (path := settings_file()) is not None:
                    read_definitions(path)  # its schedules
            except StoreError:
                continue  # it is tried again
            except LonglineError as error:
                # It is tried again, since what the file names, such as a webhook, may be added.
                if str(error) != reported:
                    reported = str(error)
                    _LOG.warning("the changed settings are not applied: %s", error)
                continue
            known, reported = stamp, ""
            fixed = [one for one in _FIXED if getattr(new, one) != getattr(self._settings, one)]
            if fixed:
                names = ", ".join(fixed)
                _LOG.warning("the changed settings are not applied: restart to change %s", names)
            elif new != self._settings:
                self._settings = jobs.settings = new
                executor.limits = limits_of(new)
                self._changed.set()
                _LOG.info("the changed settings are applied")


def _monitoring(
    store: Store, clock: Clock, settings: Settings
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the endpoint of metrics and health, and the export of metrics, if they are set."""
    if settings.monitoring_address is None and settings.otlp_url is None:
        return {}
    # Libraries that a server without them need not load.
    from longline.server.monitoring_part import MonitoringPart  # noqa: PLC0415

    return MonitoringPart(store, clock, settings).runs()


async def keep_running(name: str, part: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a part until it returns; after an error, start it again with a growing delay."""
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        began = loop.time()
        try:
            await part()
        except LonglineError as error:
            if not failures or not isinstance(error, StoreError):
                _LOG.warning("%s waits: %s", name, error)
        except Exception:  # noqa: BLE001  # the edge of a part
            _LOG.exception("%s failed and is started again", name)
        else:
            return
        failures = 1 if loop.time() - began > _STABLE else failures + 1
        await clock.sleep(backoff(failures, base=1.0, ceiling=_LONGEST_BACKOFF))


async def _is_due(store: Store, clock: Clock) -> bool:
    return await store.launches.is_due(clock.now()) or await store.flows.is_active()


def _stamp() -> tuple[str, int, int] | None:
    """Return what changes when the settings file does; None when there is none."""
    path = settings_file()
    with contextlib.suppress(OSError):
        if path is not None:
            found = path.stat()
            return str(path), found.st_mtime_ns, found.st_size
    return None


@contextlib.contextmanager
def _heartbeat_file(home: Path) -> Iterator[Callable[[], None]]:
    """Keep the file of this process that shows that it is alive; yield what touches it."""
    path = heartbeat_path(home, os.getpid())
    make_private_folder(path.parent)

    def touch() -> None:
        with contextlib.suppress(OSError):  # a full disk; the database reports it
            path.touch(0o600)

    try:
        yield touch
    finally:
        path.unlink(missing_ok=True)

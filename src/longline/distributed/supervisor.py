"""The supervisor of `longline worker`: keeps a Celery worker alive, sweeps, announces itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from contextlib import AsyncExitStack

from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.core.clock import SharedClock, sleep_or_wake
from longline.core.errors import LonglineError, StoreError, StoreTooNew, StoreUnreachable
from longline.core.logging import keep_rotating_logs
from longline.core.model import Job
from longline.core.output import count_text
from longline.core.threads import Threads
from longline.distributed.app import QUEUES, Messages
from longline.distributed.processes import CeleryProcess, WorkerOptions
from longline.distributed.registry import (
    BrokerUnreachable,
    Mirror,
    Presence,
    Presences,
    open_progress_redis,
)
from longline.distributed.sweeper import WORKER_LEASE, Children, Sweeper
from longline.engine.owner import this_host, this_run
from longline.engine.progress import progress_of
from longline.engine.runtime import first_error, handling_signals
from longline.limits.backends.redis import open_redis_backends, permanent_cause
from longline.monitoring.log_store import storing_logs
from longline.storage.store import Store, open_store

_LOG = logging.getLogger(__name__)

INTERRUPTED = 130
"""The exit code after a second signal: everything was stopped immediately."""

_LOG_INTERVAL = 10.0  # seconds between two messages about the same outage
_POLL = 0.2  # seconds between two checks of the Celery worker
_SWEEP_INTERVAL = 2.0  # seconds
_REGISTRATION_INTERVAL = 5.0  # seconds between two renewals of the worker in the database
_DRAIN = 20.0  # seconds to finish items in flight; other workers repeat what takes longer
_SETTLED = 10.0  # seconds after which a start counts as successful
_LONGEST_PAUSE = 30.0
_THREADS = 4
_BLOCKED_AFTER = 5.0  # seconds without a report of a child's loop
_REFUSALS = ("password", "authentication", "does not exist", "permission denied", "no pg_hba")


class OutageLog:
    """Logs outages by name: when they begin, every ten seconds, and when they end."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def report(self, name: str, text: str) -> None:
        """Log an outage, unless that was done just before."""
        now = time.monotonic()
        if now - self._logged.get(name, -_LOG_INTERVAL) >= _LOG_INTERVAL:
            self._logged[name] = now
            _LOG.warning("%s; waiting", text)

    def end(self, name: str, text: str) -> None:
        """Log the end of an outage, if there was one."""
        if self._logged.pop(name, None) is not None:
            _LOG.warning(text)


def is_permanent(error: Exception) -> bool:
    """Return whether waiting does not help: a password, a version or a name is wrong."""
    if isinstance(error, BrokerUnreachable):
        cause: BaseException | None = error.__cause__
        while cause is not None and not isinstance(cause, RedisError):
            cause = cause.__cause__  # Kombu wraps the error
        return isinstance(cause, RedisError) and permanent_cause(cause) is not None
    if isinstance(error, StoreUnreachable):
        # A file exists or not; a server may still start.
        is_file = error.address.startswith("sqlite")
        return is_file or any(one in error.problem for one in _REFUSALS)
    return isinstance(error, StoreTooNew)


class Supervisor:
    """Runs one worker until it is stopped; one object per run."""

    def __init__(self, settings: Settings, options: WorkerOptions) -> None:
        self._settings = settings
        self._options = options
        self._clock = SharedClock()
        self._outages = OutageLog()
        self._stop = asyncio.Event()
        self._celery: CeleryProcess | None = None
        self._started_at = 0.0
        self._chunks = 0  # claimed by Celery workers that have ended
        self._waiting = 0
        self._pause = 0.0
        self._grace = _SWEEP_INTERVAL  # seconds to close the database and release the leadership
        self._owner = this_run()
        self._registration_due = 0.0

    async def run(self) -> int:
        """Work until a signal comes; return the exit code.

        Raises:
            LonglineError: it cannot work, and waiting would not change that.
        """
        # Python waits for its own threads at exit, whatever they wait for.
        asyncio.get_running_loop().set_default_executor(Threads(_THREADS, "longline-supervisor"))
        message = "finishing items in flight; a second signal stops immediately"
        try:
            with handling_signals(self._stop.set, lambda: _LOG.info(message)):
                await self._supervise()
        except asyncio.CancelledError:
            _LOG.info("stopped immediately; other workers repeat the items in flight")
            return INTERRUPTED
        finally:
            if self._celery is not None:
                self._celery.close()
        return 0

    async def _supervise(self) -> None:
        async with AsyncExitStack() as closing:
            presences = await closing.enter_async_context(Presences.open(self._settings))
            store = await self._wait_for_servers(presences)
            if store is None:
                return
            closing.push_async_callback(self._close_store, store)
            closing.enter_context(
                storing_logs(store, self._settings, self._clock, worker=self._options.name)
            )
            self._started_at = self._clock.now()
            processes = count_text(self._options.processes, "process", "processes")
            _LOG.info("%s: starting %s", self._options.name, processes)
            async with asyncio.TaskGroup() as group:
                sweeping = group.create_task(self._keep_sweeping(store, presences))
                rotating = group.create_task(keep_rotating_logs(self._settings.home / "logs"))
                try:
                    await self._keep_consuming()
                    await self._drain_celery()
                except asyncio.CancelledError:
                    self._grace = 0.0
                    raise
                sweeping.cancel()
                rotating.cancel()
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(self._grace):
                    await store.workers.stop(self._options.name, self._owner, self._clock.now())
            with contextlib.suppress(BrokerUnreachable):
                await presences.withdraw(self._options.name)
        _LOG.info("%s has ended", self._options.name)

    async def _close_store(self, store: Store) -> None:
        """Close the database; not for long if its server is unavailable."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                while not store.close(within=0.0):  # noqa: ASYNC110  # threads set no event
                    await asyncio.sleep(_POLL / 4)

    async def _wait_for_servers(self, presences: Presences) -> Store | None:
        """Return the database once it and Redis are available; None when stopped before.

        Raises:
            LonglineError: waiting would not help.
        """
        while not self._stop.is_set():
            try:
                await presences.check()
                if self._settings.redis:
                    # Stores the Redis epoch: until then, sites are begun slowly.
                    async with open_redis_backends(
                        self._settings.redis, self._clock, max_wait=_SWEEP_INTERVAL
                    ):
                        pass
                store = await asyncio.to_thread(
                    open_store, self._settings.database, is_stopping=self._stop.is_set
                )
            except (BrokerUnreachable, StoreError) as error:
                if is_permanent(error):
                    raise
                self._outages.report("start", str(error))
                await sleep_or_wake(_SWEEP_INTERVAL, self._stop)
                continue
            self._outages.end("start", "Redis and the database respond")
            return store
        return None

    # ------------------------------------------------------------ the Celery worker

    async def _keep_consuming(self) -> None:
        """Run a Celery worker until stopped; start another when one ends."""
        celery = self._start()
        while not await sleep_or_wake(_POLL, self._stop):
            now = self._clock.now()
            celery.read_reports(now)
            # The items in flight of a hanging child have killed it, and become suspects.
            limit = self._settings.hard_limit
            for pid in celery.reports.silent(now, limit):
                _LOG.warning(f"process {pid} has been blocked for {limit:g} s and is killed")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = celery.exit_code()
            if code is not None:
                cause = f"signal {-code}" if code < 0 else f"exit code {code}"
                celery = await self._restart(celery, f"has ended ({cause})")
            elif celery.is_deaf(now, self._waiting):
                celery = await self._restart(celery, "does not take messages")

    def _start(self) -> CeleryProcess:
        self._celery = CeleryProcess(self._settings, self._options, self._clock.now())
        return self._celery

    async def _restart(self, celery: CeleryProcess, reason: str) -> CeleryProcess:
        is_settled = self._clock.now() - celery.started_at > _SETTLED
        self._pause = 0.0 if is_settled else min(max(1.0, 2 * self._pause), _LONGEST_PAUSE)
        _LOG.warning(f"the Celery worker {reason}; another one starts in {self._pause:g} s")
        self._chunks += celery.reports.chunks
        self._celery = None
        celery.close()
        is_stopped = await sleep_or_wake(self._pause, self._stop)
        return celery if is_stopped else self._start()

    async def _drain_celery(self) -> None:
        """Let the Celery worker finish items in flight, for some seconds at most."""
        celery = self._celery
        if celery is None:
            return
        celery.drain()
        try:
            async with asyncio.timeout(_DRAIN):
                while celery.exit_code() is None:  # noqa: ASYNC110  # it is another process
                    await asyncio.sleep(_POLL / 4)
        except TimeoutError:
            _LOG.warning(
                f"some items did not finish within {_DRAIN:g} s; other workers will retry them"
            )

    # ------------------------------------------------------------ sweeping and presence

    async def _keep_sweeping(self, store: Store, presences: Presences) -> None:
        """Sweep and announce the worker until cancelled; then let another sweeper lead."""
        async with open_progress_redis(self._settings) as redis:
            mirror = Mirror(redis)

            async def on_job(job: Job) -> bool:
                try:
                    await mirror.write(await progress_of(store, job))
                except (RedisError, OSError):
                    return False
                return True

            with contextlib.closing(Messages(self._settings)) as messages:
                sweeper = Sweeper(
                    store, messages, self._clock, self._settings, self._owner, on_job=on_job
                )
                try:
                    while True:
                        await self._sweep(sweeper, store)
                        await self._announce(messages, presences)
                        await asyncio.sleep(_SWEEP_INTERVAL)
                finally:
                    with contextlib.suppress(StoreError, TimeoutError):
                        async with asyncio.timeout(self._grace):
                            await sweeper.release_leadership()

    async def _sweep(self, sweeper: Sweeper, store: Store) -> None:
        children = None
        if self._celery is not None:
            now = self._clock.now()
            self._celery.read_reports(now)  # the last reports of a dead child, too
            reports = self._celery.reports
            blocked = reports.silent(now, _BLOCKED_AFTER)
            children = Children(self._celery.process.pid, blocked, reports.in_flight)
        try:
            await self._clock.follow(store)
            await self._register(store)
            swept = await sweeper.sweep(children)
            for name in swept.lost:
                _LOG.warning(f"the worker {name} is lost")
            if swept.items or swept.quarantined or swept.resent:
                _LOG.warning(
                    f"reclaimed {count_text(swept.items, 'item')}, "
                    f"quarantined {swept.quarantined}, "
                    f"sent {count_text(swept.resent, 'message')} again"
                )
            self._outages.end("database", "the database responds again")
        except StoreError as error:
            self._outages.report("database", str(error))
        except BrokerUnreachable as error:
            self._outages.report("redis", str(error))

    async def _register(self, store: Store) -> None:
        now = self._clock.now()
        if now >= self._registration_due:
            await store.workers.renew(self._options.name, self._owner, now, now + WORKER_LEASE)
            self._registration_due = now + _REGISTRATION_INTERVAL

    async def _announce(self, messages: Messages, presences: Presences) -> None:
        reports = self._celery.reports if self._celery else None
        presence = Presence(
            name=self._options.name,
            host=this_host(),
            pid=os.getpid(),
            processes=self._options.processes,
            queues=self._options.queues,
            started_at=self._started_at,
            chunks=self._chunks + (reports.chunks if reports else 0),
            last_taken_at=reports.last_claimed if reports else None,
        )
        try:
            waiting = await messages.waiting()
            await presences.announce(presence)
        except BrokerUnreachable as error:
            self._waiting = 0  # a worker without Redis is not deaf
            self._outages.report("redis", str(error))
            return
        self._waiting = sum(waiting[QUEUES[queue]] for queue in self._options.queues)
        self._outages.end("redis", "Redis responds again")


async def run_worker(settings: Settings, options: WorkerOptions) -> int:
    """Run a worker until it is stopped; return its exit code.

    Raises:
        LonglineError: it cannot work, and waiting would not change that.
    """
    try:
        return await Supervisor(settings, options).run()
    except* LonglineError as several:
        raise first_error(several) from several

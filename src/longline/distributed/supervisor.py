"""`longline worker` from inside: keeps a Celery worker alive, sweeps, and says that it is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from redis.asyncio import Redis
from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.core.clock import SharedClock, sleep_or_wake
from longline.core.errors import LonglineError, StoreError, StoreTooNew, StoreUnreachable
from longline.core.model import Job
from longline.core.threads import Threads
from longline.distributed.app import QUEUES, Messages
from longline.distributed.processes import Consumer, WorkerOptions
from longline.distributed.registry import BrokerUnreachable, Mirror, Presence, Presences, broker_of
from longline.distributed.sweeper import Children, Sweeper
from longline.engine.owner import this_host, this_run
from longline.engine.progress import Pictures
from longline.engine.runtime import first_error, handling_signals
from longline.limits.backends.redis import open_redis_backends, permanent_cause
from longline.storage.store import Store, open_store

_LOG = logging.getLogger(__name__)

# ---------------- Troubles that pass: told at once, again every ten seconds, and once more when

_EVERY = 10.0  # seconds
_REFUSALS = ("password", "authentication", "does not exist", "permission denied", "no pg_hba")


class Troubles:
    """What does not work at the moment, by name."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def tell(self, name: str, text: str) -> None:
        """Tell of a trouble, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._told.get(name, -_EVERY) >= _EVERY:
            self._told[name] = now
            _LOG.warning("%s; waiting", text)

    def over(self, name: str, text: str) -> None:
        """Tell that a trouble is over, if there was one."""
        if self._told.pop(name, None) is not None:
            _LOG.warning(text)


def is_lasting(error: Exception) -> bool:
    """Say whether waiting does not help: a password, a version or a name is wrong."""
    if isinstance(error, BrokerUnreachable):
        cause: BaseException | None = error.__cause__
        while cause is not None and not isinstance(cause, RedisError):
            cause = cause.__cause__  # Kombu puts an error of its own around it
        return isinstance(cause, RedisError) and permanent_cause(cause) is not None
    if isinstance(error, StoreUnreachable):
        # A file is there or it is not; a server may still come up.
        is_file = error.address.startswith("sqlite")
        return is_file or any(sign in error.problem for sign in _REFUSALS)
    return isinstance(error, StoreTooNew)


INTERRUPTED = 130
"""The exit code after a second signal: everything was ended at once."""

_LOOK = 0.2  # seconds between looks at the Celery worker
_SWEEP = 2.0
_DRAIN = 20.0  # seconds to finish what is in flight; what takes longer is begun anew by others
_SETTLED = 10.0  # seconds after which a start counts as one that went well
_LONGEST_PAUSE = 30.0
_THREADS = 4
_HELD_UP = 5.0  # seconds without a sign of life from a child's loop


class Supervisor:
    """Runs one worker until it is told to stop; one object a run."""

    def __init__(self, settings: Settings, options: WorkerOptions) -> None:
        self._settings = settings
        self._options = options
        self._clock = SharedClock()
        self._troubles = Troubles()
        self._stop = asyncio.Event()
        self._consumer: Consumer | None = None
        self._started_at = 0.0
        self._chunks = 0  # taken by Celery workers that have ended since
        self._waiting = 0
        self._pause = 0.0
        self._grace = _SWEEP  # seconds for what is not to be left undone, if the servers are there

    async def run(self) -> int:
        """Work until a signal comes; return the exit code.

        Raises:
            LonglineError: it cannot work, and waiting would not change that.
        """
        # Python's own threads would be waited for at the end, whatever they wait for.
        asyncio.get_running_loop().set_default_executor(Threads(_THREADS, "longline-supervisor"))
        try:
            with handling_signals(self._stop.set, self._say_that_it_ends):
                await self._run()
        except asyncio.CancelledError:
            _LOG.info("stopped immediately; other workers repeat the items in flight")
            return INTERRUPTED
        finally:
            if self._consumer is not None:
                self._consumer.close()
        return 0

    def _say_that_it_ends(self) -> None:
        _LOG.info("finishing items in flight; a second signal stops immediately")

    async def _run(self) -> None:
        async with AsyncExitStack() as ends:
            presences = await ends.enter_async_context(Presences.open(self._settings))
            store = await self._reached(presences, ends)
            if store is None:
                return
            self._started_at = self._clock.now()
            _LOG.info("%s: %d processes take work", self._options.name, self._options.processes)
            async with asyncio.TaskGroup() as group:
                sweeping = group.create_task(self._sweep_on(store, presences))
                await self._consume()
                sweeping.cancel()
            with contextlib.suppress(BrokerUnreachable):
                await presences.withdraw(self._options.name)
        _LOG.info("%s has ended", self._options.name)

    async def _consume(self) -> None:
        """Have work done until told to stop, and then what is in flight brought to its end."""
        try:
            await self._keep_consuming()
            await self._drain()
        except asyncio.CancelledError:
            self._grace = 0.0
            raise

    async def _leave(self, store: Store) -> None:
        """Close the database; when its server is away, that is no reason to stay."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                while not store.close(within=0.0):  # noqa: ASYNC110  # threads set no event
                    await asyncio.sleep(_LOOK / 4)

    # ------------------------------------------------------------ the beginning

    async def _reached(self, presences: Presences, ends: AsyncExitStack) -> Store | None:
        """Return the database once it and Redis can be used; None when told to stop before.

        Raises:
            LonglineError: waiting would not help.
        """
        while not self._stop.is_set():
            try:
                await presences.check()
                await self._greet()
                store = await asyncio.to_thread(
                    open_store, self._settings.database, is_stopping=self._stop.is_set
                )
            except (BrokerUnreachable, StoreError) as error:
                if is_lasting(error):
                    raise
                self._troubles.tell("start", str(error))
                await sleep_or_wake(_SWEEP, self._stop)
                continue
            self._troubles.over("start", "Redis and the database answer")
            ends.push_async_callback(self._leave, store)
            return store
        return None

    async def _greet(self) -> None:
        """Have Redis remember since when it remembers: until then, sites are begun slowly."""
        if self._settings.redis:
            async with open_redis_backends(self._settings.redis, self._clock, max_wait=_SWEEP):
                pass

    # ------------------------------------------------------------ the Celery worker

    async def _keep_consuming(self) -> None:
        """Have a Celery worker consume until told to stop; start another when one ends."""
        consumer = self._start()
        while not await sleep_or_wake(_LOOK, self._stop):
            now = self._clock.now()
            consumer.listen(now)
            self._kill_hung(consumer, now)
            code = consumer.ended()
            if code is not None:
                consumer = await self._restart(consumer, f"has ended ({_told(code)})")
            elif consumer.is_deaf(now, self._waiting):
                consumer = await self._restart(consumer, "takes no more messages")

    def _kill_hung(self, consumer: Consumer, now: float) -> None:
        """End children that hang: what they have in hand has killed them, and is suspect."""
        for pid in consumer.heard.silent(now, self._settings.hard_limit):
            _LOG.warning(f"process {pid} hangs for {self._settings.hard_limit:g} s and is killed")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self) -> Consumer:
        self._consumer = Consumer(self._settings, self._options, self._clock.now())
        return self._consumer

    async def _restart(self, consumer: Consumer, reason: str) -> Consumer:
        is_settled = self._clock.now() - consumer.started_at > _SETTLED
        self._pause = 0.0 if is_settled else min(max(1.0, 2 * self._pause), _LONGEST_PAUSE)
        _LOG.warning(f"the Celery worker {reason}; another begins in {self._pause:g} s")
        self._chunks += consumer.heard.chunks
        self._consumer = None  # nobody listens to one that is closed
        consumer.close()
        is_over = await sleep_or_wake(self._pause, self._stop)
        return consumer if is_over else self._start()

    async def _drain(self) -> None:
        """Let the Celery worker finish what is in flight, for some seconds at most."""
        consumer = self._consumer
        if consumer is None:
            return
        consumer.drain()
        try:
            async with asyncio.timeout(_DRAIN):
                while consumer.ended() is None:  # noqa: ASYNC110  # it is another process
                    await asyncio.sleep(_LOOK / 4)
        except TimeoutError:
            _LOG.warning(f"some work did not end in {_DRAIN:g} s; others will do it again")

    # ------------------------------------------------------------ sweeping and presence

    async def _sweep_on(self, store: Store, presences: Presences) -> None:
        """Sweep and say that we are there, until cancelled; then let another lead."""
        messages = Messages(self._settings)
        pictures = Pictures(store)
        async with self._mirror() as mirror:

            async def show(job: Job) -> bool:
                try:
                    await mirror.show(await pictures.of(job))
                except (RedisError, OSError):
                    return False  # only onlookers miss it
                return True

            sweeper = Sweeper(store, messages, self._clock, self._settings, this_run(), on_job=show)
            try:
                while True:
                    await self._sweep_once(sweeper, store, messages, presences)
                    await asyncio.sleep(_SWEEP)
            finally:
                with contextlib.suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(self._grace):
                        await sweeper.give_up()
                messages.close()

    async def _sweep_once(
        self, sweeper: Sweeper, store: Store, messages: Messages, presences: Presences
    ) -> None:
        try:
            await self._clock.follow(store)
            swept = await sweeper.sweep(self._children())
            if swept.is_worth_telling:
                _LOG.warning(
                    f"took back {swept.items} items, quarantined {swept.quarantined}, "
                    f"sent {swept.told_again} messages again"
                )
            self._troubles.over("database", "the database answers again")
        except StoreError as error:
            self._troubles.tell("database", str(error))
        except BrokerUnreachable as error:
            self._troubles.tell("redis", str(error))
        await self._be_present(messages, presences)

    def _children(self) -> Children | None:
        if self._consumer is None:
            return None
        now, heard = self._clock.now(), self._consumer.heard
        self._consumer.listen(now)  # what a dead child has told last is to be known
        parent = self._consumer.process.pid
        return Children(parent, heard.silent(now, _HELD_UP), heard.in_flight())

    async def _be_present(self, messages: Messages, presences: Presences) -> None:
        try:
            waiting = await messages.waiting()
            await presences.announce(self._presence())
        except BrokerUnreachable as error:
            self._waiting = 0  # a worker without Redis is not deaf
            self._troubles.tell("redis", str(error))
            return
        self._waiting = sum(waiting[QUEUES[queue]] for queue in self._options.queues)
        self._troubles.over("redis", "Redis answers again")

    def _presence(self) -> Presence:
        heard = self._consumer.heard if self._consumer else None
        return Presence(
            name=self._options.name,
            host=this_host(),
            pid=os.getpid(),
            processes=self._options.processes,
            queues=self._options.queues,
            started_at=self._started_at,
            chunks=self._chunks + (heard.chunks if heard else 0),
            last_taken_at=heard.last_taken if heard else None,
        )

    @asynccontextmanager
    async def _mirror(self) -> AsyncIterator[Mirror]:
        address = self._settings.redis or broker_of(self._settings)
        redis = Redis.from_url(address, socket_timeout=3.0, socket_connect_timeout=3.0)
        try:
            yield Mirror(redis)
        finally:
            await redis.aclose()


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


async def run_worker(settings: Settings, options: WorkerOptions) -> int:
    """Run a worker until it is told to stop; return its exit code.

    Raises:
        LonglineError: it cannot work, and waiting would not change that.
    """
    try:
        return await Supervisor(settings, options).run()
    except* LonglineError as several:
        raise first_error(several) from several

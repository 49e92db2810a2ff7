"""The cluster as a client sees it: a job is handed over, and then only looked at."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.core.clock import Clock, sleep_or_wake
from longline.core.errors import StoreGone, UnknownJob
from longline.core.model import FINAL_STATES, ItemState, Job, JobState
from longline.distributed.app import Messages
from longline.distributed.registry import ENDED, BrokerUnreachable, Mirror, Presences, broker_of
from longline.distributed.supervisor import is_lasting
from longline.engine.discovery import WAITED
from longline.engine.owner import in_words
from longline.engine.progress import SiteProgress, is_over, progress_of
from longline.storage.queue.chunks import ClusterJobStatus
from longline.storage.queue.tasks import Task
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)

# ---------------- A job on a cluster in which nothing is found or ends any more: noticed by

_LONG = 60.0  # seconds in which nothing happens, in a job that has not shown yet how slow it is
_PATIENCE = 2.0  # times the longest that it took between two looks before something had happened
_MOST_NAMED = 3


class Stalls:
    """Watches whether items of one job are found and come to their end; one object a run."""

    def __init__(self, store: Store, clock: Clock, job: str) -> None:
        self._store = store
        self._clock = clock
        self._job = job
        self._ends = _Standstill("nothing has ended")
        self._finds = _Standstill("nothing has been found")

    async def look(self) -> str:
        """Return a sentence while the job stands still, the same one until it moves; or none.

        A job whose items all wait until later does not, nor does one whose discovery only waits,
        for a slow pace or until a site has rested.

        Raises:
            UnknownJob: it is gone.
        """
        now, counts = self._clock.now(), await self._store.queue.counts(self._job)
        standing = await self._store.chunks.status(self._job)
        ended = sum(counts[state] for state in FINAL_STATES)
        unended = self._ends.look(ended, now, await self._where(counts, standing))
        cursor = (await self._store.jobs.get(self._job)).cursor
        waited = (await self._store.events.statistics(self._job)).get(WAITED, 0.0)
        found = (sum(counts.values()), ended, cursor)
        unfound = self._finds.look(found, now - waited, await self._who(standing))
        return unended or unfound

    async def _who(self, standing: ClusterJobStatus) -> str:
        """Say who should find more; nothing when nobody should."""
        if not standing.is_discovering:
            return ""
        if standing.discoverer is None or standing.needs_discoverer(await self._store.now()):
            return "no worker discovers"
        return f"{in_words(standing.discoverer)} discovers"

    async def _where(self, counts: Mapping[ItemState, int], standing: ClusterJobStatus) -> str:
        """Say where the items are that should come to their end; nothing when there are none."""
        if leased := counts[ItemState.LEASED]:
            owners = await self._store.queue.owners(self._job)
            holders = [owner for owner in owners if owner != standing.discoverer]
            return f"{_items(leased)} in hand of {_named(holders)}"
        due = await self._store.queue.next_due(self._job)
        if due is None or due > await self._store.now():
            return ""
        return f"{_items(counts[ItemState.QUEUED])} queued, and no worker takes one"


class _Standstill:
    """How long something has stood still, and whether that is long for it."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._mark: object = None
        self._since = 0.0
        self._slowest = 0.0
        self._told = ""

    def look(self, mark: object, now: float, where: str) -> str:
        """Return a sentence when the `mark` has not changed for long; or none.

        `where` says what holds it up; when nothing does, it does not stand still.
        """
        is_first, has_moved = self._mark is None, mark != self._mark
        if has_moved and not is_first:
            self._slowest = max(self._slowest, now - self._since)
        if has_moved or not where:
            self._mark, self._since, self._told = mark, now, ""
        seconds = now - self._since
        if not self._told and seconds >= max(_LONG, _PATIENCE * self._slowest):
            self._told = f"{self._words} for {seconds:.0f} s: {where}"
        return self._told


def _items(count: int) -> str:
    return "1 item is" if count == 1 else f"{count} items are"


def _named(owners: Sequence[str]) -> str:
    """Return the processes that these are, as a person can find them."""
    names = sorted({in_words(owner) for owner in owners})
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


_LOOK = 0.5  # seconds between looks at the job
_PRESENCE = 10.0  # seconds between looks whether anybody works at all, and gets on
_DRAIN = 30.0  # seconds that workers are given to finish what they have in hand
_NO_WORKER = "no worker is there: start one with `longline up` or `longline worker`"
_NO_ANSWER = "the database does not answer; waiting for it"
_AT_WORK = (JobState.PENDING, JobState.RUNNING)


class ClusterEngine:
    """Has workers run one job; what they do is read from the database."""

    closed_host: str | None = None

    def __init__(
        self,
        store: Store,
        messages: Messages,
        presences: Presences,
        clock: Clock,
    ) -> None:
        self._store = store
        self._messages = messages
        self._presences = presences
        self._clock = clock
        self._trouble = ""
        self._stop_reason: str | None = None
        self._wake = asyncio.Event()

    def stop(self, reason: str) -> None:
        """Have the workers pause the job once what is in flight is committed."""
        self._stop_reason = self._stop_reason or reason
        self._wake.set()

    async def begin(self, job: str) -> None:
        """Wake a worker for a job, and leave it there; whoever sweeps next finds it in any case.

        Raises:
            BrokerUnreachable: Redis cannot be used as it is, and waiting would not change that.
        """
        left = f"{job} is in the database, and begins as soon as a worker finds it"
        await _woken(self._messages.discover(job), self._say, left)

    async def run(self, job: Job) -> JobState:
        """Hand a job over and watch it to its end; return the state it is left in."""
        await _woken(self._messages.discover(job.id), self._say, "waiting")
        looked_at, stalls = self._clock.now(), Stalls(self._store, self._clock, job.id)
        while not self._stop_reason:
            state = await self._state(job.id)
            if state not in _AT_WORK:
                with contextlib.suppress(UnknownJob):  # whoever takes it away has the last word
                    await self._drained(job.id)  # so that the last figures are final
                return state
            if self._clock.now() - looked_at > _PRESENCE:
                looked_at = self._clock.now()
                with contextlib.suppress(StoreGone):  # which is told with the next look
                    await self._look_for_trouble(stalls)
            await sleep_or_wake(_LOOK, self._wake)
        return await self._halt(job.id)

    async def _state(self, job: str) -> JobState:
        """Return the state of a job, as soon as the database says it: workers wait for it, too.

        Raises:
            StoreGone: it went away for long, and we are to stop.
        """
        while True:
            asking = asyncio.ensure_future(self._store.jobs.get(job))
            if not (await asyncio.wait([asking], timeout=_PRESENCE))[0]:
                self._say(_NO_ANSWER)
            try:
                return (await asking).state
            except StoreGone:
                if self._stop_reason:
                    raise
                self._say(_NO_ANSWER)

    async def _look_for_trouble(self, stalls: Stalls) -> None:
        stall = await stalls.look()
        try:
            found = await self._presences.all()
        except BrokerUnreachable as error:
            self._say(f"{error}; waiting")
            return
        self._say(stall if found else _NO_WORKER)

    def _say(self, trouble: str) -> None:
        """Tell of a trouble once, for as long as it lasts."""
        if trouble and trouble != self._trouble:
            _LOG.warning(trouble)
        self._trouble = trouble

    async def _halt(self, job: str) -> JobState:
        await self._store.jobs.halt(job, self._clock.now(), self._stop_reason or "stopped")
        await self._drained(job)
        return (await self._store.jobs.get(job)).state

    async def _drained(self, job: str) -> None:
        """Wait until nobody has an item of a job in hand any more, for some seconds at most."""
        patience = self._clock.now() + _DRAIN
        while (await self._store.chunks.status(job)).leased:
            if self._clock.now() > patience:
                _LOG.warning("workers still hold some items; they will be committed")
                return
            await self._clock.sleep(_LOOK)


async def check_cluster(settings: Settings) -> None:
    """See that workers can be told of work; a Redis that is only away will be waited for.

    Raises:
        BadOption: no Redis is named, or its address makes no sense.
        BrokerUnreachable: it cannot be used as it is, and waiting would not change that.
    """
    async with Presences.open(settings) as presences:
        try:
            await presences.check()
        except BrokerUnreachable as error:
            if is_lasting(error):
                raise


async def have_written(settings: Settings, store: Store, order: Task) -> None:
    """Place an order to write records, and wake a worker for it.

    Raises:
        BadOption: no Redis is named; nothing is placed.
        BrokerUnreachable: Redis cannot be used as it is; nothing is placed.
    """
    await check_cluster(settings)
    messages = Messages(settings)
    try:
        await store.tasks.place(order)
        left = "it is written as soon as a worker finds the order"
        await _woken(messages.export(order.name), _LOG.warning, left)
    finally:
        messages.close()


async def _woken(sending: Awaitable[None], say: Callable[[str], None], left: str) -> None:
    """Wake a worker; what it is about is in the database, so that one finds it without, too.

    That Redis is away for now is told, with what becomes of what is `left` there.

    Raises:
        BrokerUnreachable: it cannot be used as it is, and waiting would not change that.
    """
    try:
        await sending
    except BrokerUnreachable as error:
        if is_lasting(error):
            raise
        say(f"{error}; {left}")


@asynccontextmanager
async def open_cluster(
    settings: Settings, store: Store, clock: Clock
) -> AsyncIterator[ClusterEngine]:
    """Open the way to the workers.

    Raises:
        BadOption: no Redis is named.
    """
    messages = Messages(settings)
    try:
        async with Presences.open(settings) as presences:
            yield ClusterEngine(store, messages, presences, clock)
    finally:
        messages.close()


# ---------------- Many sites on a cluster: started, looked at, and waited for

_POLL = 2.0  # seconds between looks at the pictures in Redis
_TRUTH = 10.0  # and at the database, whatever Redis says
_ANSWER = 3.0  # seconds that Redis has for an answer; then the database is asked


class Sites:
    """Looks at jobs of a cluster; open it with `Sites.open`."""

    def __init__(self, store: Store, redis: Redis, clock: Clock) -> None:
        self._store = store
        self._redis = redis
        self._mirror = Mirror(redis)
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Self]:
        """Open the way to the pictures; that Redis is away does not matter."""
        redis: Redis = Redis.from_url(
            settings.redis or broker_of(settings),
            socket_timeout=_ANSWER,
            socket_connect_timeout=_ANSWER,
        )
        try:
            yield cls(store, redis, clock)
        finally:
            await redis.aclose()

    async def progress(self, job: str) -> SiteProgress:
        """Return how far a job is: the picture in Redis, or what the database says.

        Raises:
            UnknownJob: there is no such job.
        """
        with suppress(RedisError, OSError):
            if picture := await self._mirror.look(job):
                return picture
        return await self._truth(job)

    async def wait(
        self, jobs: Iterable[str], *, seconds: float | None = None
    ) -> dict[str, SiteProgress]:
        """Wait until nobody works on these jobs any more; return how far each is then.

        An end is heard of on a channel; whoever misses that sees it in the pictures, and in any
        case in the database. After `seconds` the jobs are returned as they are.

        Raises:
            UnknownJob: there is no such job.
        """
        names = list(jobs)
        ended: dict[str, SiteProgress] = {}
        await self._look_for_ends(names, ended)
        deadline = None if seconds is None else self._clock.now() + seconds
        truth_at = self._clock.now() + _TRUTH
        async with self._listening() as ends:
            while waiting := [job for job in names if job not in ended]:
                now = self._clock.now()
                if deadline is not None and now >= deadline:
                    break
                told = await self._heard(ends, _POLL if deadline is None else deadline - now)
                is_truth_due = self._clock.now() >= truth_at
                # What was told and what the pictures say is only a reason to ask the database.
                asked = [
                    job
                    for job in waiting
                    if is_truth_due or job == told or await self._is_over_there(job)
                ]
                await self._look_for_ends(asked, ended)
                if is_truth_due:
                    truth_at = self._clock.now() + _TRUTH
        return {job: ended.get(job) or await self._truth(job) for job in names}

    async def _look_for_ends(self, jobs: Iterable[str], ended: dict[str, SiteProgress]) -> None:
        """Note how far those are that nobody works on any more; the others are not counted."""
        for name in jobs:
            job = await self._store.jobs.get(name)
            if is_over(job):
                ended[name] = await progress_of(self._store, job)

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[PubSub]:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as ends:
            yield ends

    async def _heard(self, ends: PubSub, seconds: float) -> str | None:
        """Wait for word of an end, at most until the next look is due."""
        seconds = min(max(seconds, 0.01), _POLL)
        began = self._clock.now()
        try:
            if not ends.subscribed:
                await ends.subscribe(ENDED)
            message: dict[str, Any] | None = await ends.get_message(timeout=seconds)
        except (RedisError, OSError, TimeoutError):
            await asyncio.sleep(max(0.0, seconds - (self._clock.now() - began)))
            return None
        return message["data"].decode() if message else None

    async def _is_over_there(self, job: str) -> bool:
        try:
            picture = await self._mirror.look(job)
        except (RedisError, OSError):
            return False
        return picture is not None and picture.is_over

    async def _truth(self, job: str) -> SiteProgress:
        return await progress_of(self._store, await self._store.jobs.get(job))

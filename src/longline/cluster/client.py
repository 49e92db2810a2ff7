"""The cluster as a client sees it: a job is handed over, and then only looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from longline.clock import Clock, nap
from longline.cluster.messages import Messages
from longline.cluster.presence import Presences
from longline.cluster.stalls import Stalls
from longline.cluster.troubles import is_lasting
from longline.config.settings import Settings
from longline.errors import BrokerUnreachable, StoreGone, UnknownJob
from longline.model import Job, JobState
from longline.stores.orders import Order
from longline.stores.store import Store

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
        on_trouble: Callable[[str], None],
    ) -> None:
        self._store = store
        self._messages = messages
        self._presences = presences
        self._clock = clock
        self._on_trouble = on_trouble
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
            await nap(_LOOK, self._wake)
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
            self._on_trouble(trouble)
        self._trouble = trouble

    async def _halt(self, job: str) -> JobState:
        await self._store.jobs.halt(job, self._clock.now(), self._stop_reason or "stopped")
        await self._drained(job)
        return (await self._store.jobs.get(job)).state

    async def _drained(self, job: str) -> None:
        """Wait until nobody has an item of a job in hand any more, for some seconds at most."""
        patience = self._clock.now() + _DRAIN
        while (await self._store.chunks.standing(job)).leased:
            if self._clock.now() > patience:
                self._on_trouble("some items are still in hand of a worker; they will be committed")
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


async def have_written(
    settings: Settings, store: Store, order: Order, on_trouble: Callable[[str], None]
) -> None:
    """Place an order to write records, and wake a worker for it.

    Raises:
        BadOption: no Redis is named; nothing is placed.
        BrokerUnreachable: Redis cannot be used as it is; nothing is placed.
    """
    await check_cluster(settings)
    messages = Messages(settings)
    try:
        await store.orders.place(order)
        left = "it is written as soon as a worker finds the order"
        await _woken(messages.export(order.name), on_trouble, left)
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
    settings: Settings, store: Store, clock: Clock, on_trouble: Callable[[str], None]
) -> AsyncIterator[ClusterEngine]:
    """Open the way to the workers.

    Raises:
        BadOption: no Redis is named.
    """
    messages = Messages(settings)
    try:
        async with Presences.open(settings) as presences:
            yield ClusterEngine(store, messages, presences, clock, on_trouble)
    finally:
        messages.close()

"""Messages to workers: wake-up calls that carry the id of a row, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from longline.cluster.app import (
    COLLECT,
    DISCOVER,
    EXPORT,
    FINISH,
    QUEUES,
    ROUTES,
    make_app,
    setting_of_broker,
)
from longline.config.settings import Settings
from longline.errors import BrokerRefuses, BrokerUnreachable
from longline.resilience.keepers.redis_causes import lasting_cause, shown

T = TypeVar("T")


class Messages:
    """Sends messages over one application; each call ends within seconds, whatever Redis does."""

    def __init__(self, settings: Settings) -> None:
        """Make the application; nobody is connected to yet.

        Raises:
            BadOption: no Redis is named, or what is named is something else.
        """
        app = make_app(settings)
        # Whoever sends is told soon; Kombu by itself would try for six seconds.
        app.conf.broker_transport_options |= {"max_retries": 1, "interval_max": 0.2}
        self._app = app
        self._address = shown(str(app.conf.broker_url))
        self._setting = setting_of_broker(settings)

    async def discover(self, job: str) -> None:
        """Have somebody find the items of a job.

        Raises:
            BrokerUnreachable: nobody was told.
        """
        await self._send(DISCOVER, [job])

    async def collect(self, chunks: Sequence[int]) -> None:
        """Have chunks worked on, each by whoever is free.

        Raises:
            BrokerUnreachable: nobody was told of some of them.
        """
        if chunks:
            await self._send(COLLECT, chunks)

    async def finish(self, job: str) -> None:
        """Have a job ended whose items are all finished.

        Raises:
            BrokerUnreachable: nobody was told.
        """
        await self._send(FINISH, [job])

    async def export(self, order: str) -> None:
        """Have the records of a job written, as an order in the database says.

        Raises:
            BrokerUnreachable: nobody was told.
        """
        await self._send(EXPORT, [order])

    async def waiting(self) -> dict[str, int]:
        """Return how many messages nobody has taken yet, by queue.

        Raises:
            BrokerUnreachable: Redis does not say.
        """
        return await self._ask(self._lengths)

    def close(self) -> None:
        """Let go of the connections."""
        self._app.close()

    async def _send(self, task: str, ids: Sequence[str | int]) -> None:
        await self._ask(lambda: self._send_now(task, ids))

    def _send_now(self, task: str, ids: Sequence[str | int]) -> None:
        with self._app.producer_or_acquire() as producer:
            for one in ids:
                self._app.send_task(task, [one], queue=ROUTES[task], producer=producer)

    def _lengths(self) -> dict[str, int]:
        with self._app.producer_or_acquire() as producer:
            client: Any = producer.channel.client  # which puts the prefix before every key itself
            return {queue: int(client.llen(queue)) for queue in QUEUES.values()}

    async def _ask(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(call)
        except (KombuError, RedisError, OSError) as error:
            raise unreachable(self._address, error, self._setting) from error


def unreachable(address: str, error: BaseException, setting: str) -> BrokerUnreachable:
    """Return what is wrong with a Redis that cannot be used, in one line; `setting` names it."""
    cause = error if isinstance(error, RedisError) else error.__cause__
    problem = lasting_cause(cause, setting) if isinstance(cause, RedisError) else None
    if problem is not None:
        return BrokerRefuses(address, problem, setting)
    told = " ".join(str(error).split()).removesuffix(".")
    return BrokerUnreachable(address, told or type(error).__name__, setting)

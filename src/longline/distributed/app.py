"""The Celery application: its messages wake processes, and nothing depends on any of them.

The database has all work, its owners and its results. So there is no result backend, no ETA and no
chord, and a message that is lost or duplicated costs time and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from celery import Celery
from kombu.entity import Queue
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.core.redaction import redact_server_url
from longline.distributed.registry import broker_of, setting_of_broker, unreachable

PREFIX = "longline:broker:"
"""Before the name of every key of the broker."""

FETCH, PROCESS, OUTPUT = "longline.fetch", "longline.process", "longline.core.output"
QUEUES = {"fetch": FETCH, "process": PROCESS, "output": OUTPUT}
"""The queues by the names that people use: each may have machines of its own."""

DISCOVER, COLLECT, FINISH = "longline.discover", "longline.collect", "longline.finish"
EXPORT, PROXIES = "longline.export", "longline.proxies"
ROUTES = {DISCOVER: FETCH, COLLECT: FETCH, FINISH: PROCESS, EXPORT: OUTPUT, PROXIES: FETCH}

_TIMEOUT = 5.0  # seconds to connect to Redis
_make_queue: Any = Queue  # which has no types
T = TypeVar("T")


def make_app(settings: Settings) -> Celery:
    """Return the application, not connected yet.

    Raises:
        BadOption: no Redis is named, or its address is invalid.
    """
    app = Celery("longline", broker=broker_of(settings), set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        result_accept_content=["json"],
        task_ignore_result=True,
        result_backend=None,
        task_queues=[_make_queue(name, routing_key=name) for name in QUEUES.values()],
        task_create_missing_queues=False,
        task_default_queue=FETCH,
        task_routes={task: {"queue": queue} for task, queue in ROUTES.items()},
        # Without a named exchange there is no table of bindings in Redis that it could lose.
        task_default_exchange="",
        task_default_exchange_type="direct",
        # The message of a killed worker returns, immediately if only a child was killed.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        # No time limits of Celery: its soft limit is raised inside any running coroutine and
        # swallowed by any `except Exception` there, and its hard limit counts from the message,
        # while a child also does other work. The engine limits items, and the supervisor kills a
        # child that sends no reports (`supervisor.py`).
        broker_transport_options={
            "global_keyprefix": PREFIX,
            # A message in work for longer, as a discovery may be, is delivered twice: harmless.
            "visibility_timeout": max(3600.0, 4 * settings.hard_limit),
            # By default Kombu restores the messages of a dead worker only after 100 s.
            "unacked_restore_interval": 2,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": _TIMEOUT,
            "socket_timeout": 2 * _TIMEOUT,
            "socket_keepalive": True,
            "health_check_interval": 10,  # seconds
        },
        # Children continue while Redis is unavailable: their items are leased in the database, and
        # a message that returns finds its chunk claimed. Ending them would make items suspects.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_enable_prefetch_count_reduction=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # without limit
        broker_connection_timeout=_TIMEOUT,
        broker_pool_limit=2,
        task_publish_retry=False,  # the sweeper sends what was not sent
        # Presence and progress are ours (`registry.py`), so workers do not listen to each other.
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        task_send_sent_event=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_log_color=False,
        worker_proc_alive_timeout=30.0,  # seconds for a child to start on a busy machine
    )
    return app


class Messages:
    """Sends messages that contain the id of a row; each call ends within seconds.

    Every coroutine raises BrokerUnreachable when the message was not sent.
    """

    def __init__(self, settings: Settings) -> None:
        """Make the application, not connected yet.

        Raises:
            BadOption: no Redis is named, or its address is invalid.
        """
        self._app = make_app(settings)
        # By default Kombu retries for six seconds.
        self._app.conf.broker_transport_options |= {"max_retries": 1, "interval_max": 0.2}
        self._address = redact_server_url(str(self._app.conf.broker_url))
        self._setting = setting_of_broker(settings)

    async def discover(self, job: str) -> None:
        """Wake a process to find the items of a job."""
        await self._send_messages(DISCOVER, [job])

    async def collect(self, chunks: Sequence[int]) -> None:
        """Wake a process for each of these chunks."""
        if chunks:
            await self._send_messages(COLLECT, chunks)

    async def finish(self, job: str) -> None:
        """Wake a process to finish a job whose items are all finished."""
        await self._send_messages(FINISH, [job])

    async def export(self, task: str) -> None:
        """Wake a process for an export task."""
        await self._send_messages(EXPORT, [task])

    async def proxies(self, task: str) -> None:
        """Wake a process to check a chunk of candidates for proxies."""
        await self._send_messages(PROXIES, [task])

    async def waiting(self) -> dict[str, int]:
        """Return the number of messages that wait, by queue."""

        def lengths() -> dict[str, int]:
            with self._app.producer_or_acquire() as producer:
                client: Any = producer.channel.client  # which adds the prefix to every key
                return {queue: int(client.llen(queue)) for queue in QUEUES.values()}

        return await self._call_in_thread(lengths)

    def close(self) -> None:
        """Close the connections."""
        self._app.close()

    async def _send_messages(self, task: str, ids: Sequence[str | int]) -> None:
        def send() -> None:
            with self._app.producer_or_acquire() as producer:
                for one in ids:
                    self._app.send_task(task, [one], queue=ROUTES[task], producer=producer)

        await self._call_in_thread(send)

    async def _call_in_thread(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(function)
        except (KombuError, RedisError, OSError) as error:
            raise unreachable(self._address, error, self._setting) from error

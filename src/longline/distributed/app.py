"""The Celery application: it carries wake-up calls, and nothing depends on any of them.

What is to be done, who does it and how it ended stands in the database. So there is no result
backend, no ETA, no chord, and a message that is lost or doubled costs time and nothing else.
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
"""What the name of every key of the broker begins with."""

FETCH, PROCESS, OUTPUT = "longline.fetch", "longline.process", "longline.core.output"
QUEUES = {"fetch": FETCH, "process": PROCESS, "output": OUTPUT}
"""The queues by the names that people use: each may have machines of its own."""

DISCOVER, COLLECT, FINISH = "longline.discover", "longline.collect", "longline.finish"
EXPORT = "longline.export"
ROUTES = {DISCOVER: FETCH, COLLECT: FETCH, FINISH: PROCESS, EXPORT: OUTPUT}

_CONNECT = 5.0  # seconds; a Redis that takes longer to answer is away
_HEALTH = 10  # seconds between looks at an idle connection: a cut one is dropped soon after


def make_app(settings: Settings) -> Celery:
    """Return the application; nobody is connected to yet.

    Raises:
        BadOption: no Redis is named, or what is named is something else.
    """
    app = Celery("longline", broker=broker_of(settings), set_as_current=False)
    app.conf.update(_configuration(settings))
    return app


def _configuration(settings: Settings) -> dict[str, Any]:
    return {**_messages(), **_delivery(settings), **_connections(), **_quiet()}


def _messages() -> dict[str, Any]:
    return {
        "task_serializer": "json",
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        "task_ignore_result": True,
        "result_backend": None,
        "task_queues": [_queue(name) for name in QUEUES.values()],
        "task_create_missing_queues": False,
        "task_default_queue": FETCH,
        "task_routes": {task: {"queue": queue} for task, queue in ROUTES.items()},
        # Without an exchange by name there is no table of bindings in Redis that it could forget.
        "task_default_exchange": "",
        "task_default_exchange_type": "direct",
    }


def _queue(name: str) -> Any:
    make: Any = Queue  # which has no types
    return make(name, routing_key=name)


def _delivery(settings: Settings) -> dict[str, Any]:
    return {
        # Of a worker that is killed the message comes back, at once when only a child was.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        # No time limits of Celery's: its soft one is raised inside whatever coroutine is on the CPU
        # and swallowed by any `except Exception` there, and its hard one counts from the message,
        # beside which a child does other things. Ours are kept by the engine, between items, and
        # by the supervisor, for a child that gives no sign of life (`supervisor.py`).
        "broker_transport_options": {
            "global_keyprefix": PREFIX,
            # A message that takes longer, as discovery may, comes twice: harmless, but in vain.
            "visibility_timeout": max(3600.0, 4 * settings.hard_limit),
            # Kombu's own would find the messages of a dead worker only after 100 s.
            "unacked_restore_interval": 2,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": _CONNECT,
            "socket_timeout": 2 * _CONNECT,
            "socket_keepalive": True,
            "health_check_interval": _HEALTH,
        },
        # The children go on when Redis is away: each of their items is leased in the database,
        # and a message that comes back meanwhile finds its chunk taken. To end them would count
        # as a death against items that have done nothing.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_enable_prefetch_count_reduction": False,
    }


def _connections() -> dict[str, Any]:
    return {
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,  # for ever
        "broker_connection_timeout": _CONNECT,
        "broker_pool_limit": 2,
        # Whoever sends wants to know at once; what was not sent, the sweeper sends.
        "task_publish_retry": False,
    }


def _quiet() -> dict[str, Any]:
    return {
        # Presence, progress and liveness are ours (`presence.py`), so no worker listens to or
        # talks about others, and no keys are made for it.
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_log_color": False,
        "worker_proc_alive_timeout": 30.0,  # seconds for a child to come up on a busy machine
    }


# ---------------- Messages to workers: wake-up calls that carry the id of a row, and no more

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
        self._address = redact_server_url(str(app.conf.broker_url))
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

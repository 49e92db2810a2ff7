"""What a cluster stores in Redis: the registry of workers, and the progress of jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.core.errors import BadOption, LonglineError
from longline.core.model import JobState
from longline.core.redaction import redact_server_url
from longline.engine.progress import SiteProgress, SiteStatus
from longline.limits.backends.redis import REDIS_URL, permanent_cause

WORKER = "longline:worker:"
"""Before the name of a worker: a hash with the fields of `Presence`."""
PROGRESS = "longline:progress:"
"""Before the id of a job: a hash with the fields of `SiteProgress`."""
ENDED = "longline:ended"
"""The channel on which the id of each job is published when it ends."""
PROGRESS_LIFETIME = 3600
"""Seconds until the last snapshot of an ended job expires."""
_FRESHNESS = 15  # seconds until the snapshot of a running job expires
_LIFETIME = 15  # seconds until a worker without a heartbeat expires
_CHECK = "longline:check"  # a key that is written to check Redis
_OLDEST = 6  # the first supported version of Redis
_TIMEOUT = 3.0  # seconds for a response
_BAD_ADDRESS = "must be a Redis URL, such as redis://127.0.0.1:6379/0"


class NoRedis(BadOption):
    """No Redis is named; `option` is the setting for it, `problem` says what to do."""

    message = "a cluster needs Redis: {problem}"


class BrokerUnreachable(LonglineError):
    """No message can be sent to workers; the work itself is in the database."""

    exit_code = 2
    address: str
    problem: str
    setting: str = "LONGLINE_REDIS_URL"
    message = "Redis at {address} cannot be used ({problem})"
    hint = "Start it with `longline up`, or check {setting}, for example redis://127.0.0.1:6379/0."


class BrokerUnusable(BrokerUnreachable):
    """Redis responds, but cannot be used as it is; `problem` says what to change."""

    message = "Redis at {address} cannot be used: {problem}"
    hint = ""


def broker_of(settings: Settings) -> str:
    """Return the address of the Redis that carries messages.

    Raises:
        BadOption: there is none, or it is something else.
    """
    address = settings.broker
    if address is None:
        raise NoRedis(REDIS_URL, f"set {REDIS_URL}, or run `longline up`")
    if urlsplit(address).scheme not in ("redis", "rediss"):
        raise BadOption(setting_of_broker(settings), _BAD_ADDRESS)
    return address


def setting_of_broker(settings: Settings) -> str:
    """Return the name of the setting for the Redis that carries messages."""
    return "LONGLINE_BROKER_URL" if settings.broker_url else REDIS_URL


def unreachable(address: str, error: BaseException, setting: str) -> BrokerUnreachable:
    """Return the error for a Redis that cannot be used."""
    cause = error if isinstance(error, RedisError) else error.__cause__
    problem = permanent_cause(cause, setting) if isinstance(cause, RedisError) else None
    if problem is not None:
        return BrokerUnusable(address, problem, setting)
    text = " ".join(str(error).split()).removesuffix(".")
    return BrokerUnreachable(address, text or type(error).__name__, setting)


# ---------------- Workers


@dataclass(frozen=True, slots=True)
class Presence:
    """A live worker; times are seconds since the epoch.

    `last_taken_at` is when one of its processes claimed a chunk last.
    """

    name: str
    host: str
    pid: int
    processes: int
    queues: tuple[str, ...]
    started_at: float
    chunks: int = 0
    last_taken_at: float | None = None


class Presences:
    """All workers on one Redis; each call ends within seconds.

    `setting` names where the address comes from. Every method raises BrokerUnreachable.
    """

    def __init__(self, redis: Redis, address: str, setting: str) -> None:
        self._redis = redis
        self._address = redact_server_url(address)
        self._setting = setting

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[Self]:
        """Prepare connections to the Redis that carries messages.

        Raises:
            BadOption: there is none, or its address is invalid.
        """
        address, setting = broker_of(settings), setting_of_broker(settings)
        try:
            redis = Redis.from_url(
                address,
                protocol=2,  # which an unsupported version understands, too
                decode_responses=True,
                socket_timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
            )
        except ValueError:  # whose text may contain the password
            raise BadOption(setting, _BAD_ADDRESS) from None
        try:
            yield cls(redis, address, setting)
        finally:
            await redis.aclose()

    async def check(self) -> None:
        """Check the version of Redis, and that it can be written."""
        with self._converting_errors():
            version = str((await self._redis.info("server"))["redis_version"])
        if int(version.partition(".")[0]) < _OLDEST:
            problem = (
                f"it has version {version}, and {_OLDEST} or newer is required; "
                f"set {self._setting} to a newer server"
            )
            raise BrokerUnusable(self._address, problem, self._setting) from RedisError(problem)
        with self._converting_errors():  # a replica or a full server refuses to write
            await self._redis.set(_CHECK, "", px=1)

    async def announce(self, presence: Presence) -> None:
        """Announce a worker, until it expires."""
        key = WORKER + presence.name
        fields: dict[Any, Any] = {**asdict(presence), "queues": ",".join(presence.queues)}
        values = {name: str(value) for name, value in fields.items() if value is not None}
        with self._converting_errors():
            async with self._redis.pipeline() as pipe:
                pipe.hset(key, mapping=values)
                pipe.expire(key, _LIFETIME)
                await pipe.execute()

    async def withdraw(self, name: str) -> None:
        """Remove a worker."""
        with self._converting_errors():
            await self._redis.delete(WORKER + name)

    async def all(self) -> list[Presence]:
        """Return the workers by name."""
        with self._converting_errors():
            keys = [key async for key in self._redis.scan_iter(WORKER + "*", count=1000)]
            async with self._redis.pipeline(transaction=False) as pipe:
                for key in sorted(set(keys)):
                    pipe.hgetall(key)
                found = await pipe.execute()
        return [
            Presence(
                name=fields["name"],
                host=fields["host"],
                pid=int(fields["pid"]),
                processes=int(fields["processes"]),
                queues=tuple(fields["queues"].split(",")),
                started_at=float(fields["started_at"]),
                chunks=int(fields["chunks"]),
                last_taken_at=_optional_time(fields.get("last_taken_at")),
            )
            for fields in found
            if fields
        ]

    @contextmanager
    def _converting_errors(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise unreachable(self._address, error, self._setting) from error


# ---------------- Progress


@asynccontextmanager
async def open_progress_redis(settings: Settings) -> AsyncIterator[Redis]:
    """Prepare connections to the Redis that has the progress of jobs."""
    redis: Redis = Redis.from_url(
        settings.redis or broker_of(settings),
        socket_timeout=_TIMEOUT,
        socket_connect_timeout=_TIMEOUT,
    )
    try:
        yield redis
    finally:
        await redis.aclose()


class Mirror:
    """Snapshots of the progress of jobs in Redis; they expire."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def write(self, progress: SiteProgress) -> None:
        """Replace the snapshot of a job; publish the end of a job."""
        key = PROGRESS + progress.job
        fields: dict[Any, Any] = {
            name: "" if value is None else str(value) for name, value in progress.as_dict().items()
        }
        async with self._redis.pipeline() as pipe:
            pipe.hset(key, mapping=fields)
            pipe.expire(key, PROGRESS_LIFETIME if progress.is_over else _FRESHNESS)
            if progress.is_over:
                pipe.publish(ENDED, progress.job)
            await pipe.execute()

    async def read(self, job: str) -> SiteProgress | None:
        """Return the snapshot of a job; None when there is none."""
        found: Mapping[Any, Any] = await self._redis.hgetall(PROGRESS + job)
        fields = {key.decode(): value.decode() for key, value in found.items()}
        if not fields:
            return None
        numbers = (
            *("total_chunks", "completed_chunks", "total_items", "completed_items"),
            *("failed_items", "result_count"),
        )
        return SiteProgress(
            job=fields["job"],
            source=fields["source"],
            status=SiteStatus(fields["status"]),
            state=JobState(fields["state"]),
            started_at=_optional_time(fields["started_at"]),
            completed_at=_optional_time(fields["completed_at"]),
            reason=fields["reason"] or None,
            **{name: int(fields[name]) for name in numbers},
        )


def _optional_time(text: str | None) -> float | None:
    return float(text) if text else None

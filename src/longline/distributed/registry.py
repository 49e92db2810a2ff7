"""Which workers are there: each says so in Redis, and is forgotten when it says nothing more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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

# ---------------- Errors of the broker that workers share


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
    """Redis answers, but cannot be used as it is; `problem` says what to change."""

    message = "Redis at {address} cannot be used: {problem}"
    hint = ""


WORKER = "longline:worker:"
"""Before the name of a worker: a hash with the fields of `Presence`."""
CHECK = "longline:check"
"""A key that is written to see whether Redis lets us, and gone at once."""
LIFETIME = 15
"""Seconds after which a worker that says nothing more is gone."""
OLDEST = 6
"""The first version of Redis that will do."""

_PATIENCE = 3.0  # seconds for an answer


@dataclass(frozen=True, slots=True)
class Presence:
    """What a worker says of itself; moments are seconds since the epoch.

    `last_taken_at` is when one of its processes took a chunk last; None: none has yet.
    """

    name: str
    host: str
    pid: int
    processes: int
    queues: tuple[str, ...]
    started_at: float
    chunks: int = 0
    last_taken_at: float | None = None

    def as_fields(self) -> dict[Any, Any]:
        """Return the fields as Redis keeps them; what is None is left out."""
        fields = {**asdict(self), "queues": ",".join(self.queues)}
        return {name: str(value) for name, value in fields.items() if value is not None}


class Presences:
    """All workers on one Redis; each call ends within seconds."""

    def __init__(self, redis: Redis, address: str, setting: str) -> None:
        """Take a connection; `setting` is where a person wrote its address."""
        self._redis = redis
        self._address = redact_server_url(address)
        self._setting = setting

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[Self]:
        """Open the way to the Redis that carries messages; nobody is asked yet.

        Raises:
            BadOption: there is none, or its address makes no sense.
        """
        address, setting = broker_of(settings), setting_of_broker(settings)
        try:
            redis = Redis.from_url(
                address,
                protocol=2,  # one too old for us must be able to say its version
                decode_responses=True,
                socket_timeout=_PATIENCE,
                socket_connect_timeout=_PATIENCE,
            )
        except ValueError:  # whose text may repeat the password
            problem = "must be an address of Redis, such as redis://127.0.0.1:6379/0"
            raise BadOption(setting, problem) from None
        try:
            yield cls(redis, address, setting)
        finally:
            await redis.aclose()

    async def check(self) -> None:
        """See that Redis is there and will do.

        Raises:
            BrokerUnreachable: it is not, or does not.
        """
        try:
            version = str((await self._redis.info("server"))["redis_version"])
        except (RedisError, OSError) as error:
            raise self._unreachable(error) from error
        if int(version.partition(".")[0]) < OLDEST:
            problem = (
                f"it is version {version}, and {OLDEST} is the oldest that will do; "
                f"name a newer one in {self._setting}"
            )
            raise BrokerUnusable(self._address, problem, self._setting) from RedisError(problem)
        await self._check_writing()

    async def _check_writing(self) -> None:
        """See that it takes what it is given: a replica does not, nor one whose memory is full."""
        try:
            await self._redis.set(CHECK, "", px=1)
        except (RedisError, OSError) as error:
            raise self._unreachable(error) from error

    async def announce(self, presence: Presence) -> None:
        """Say that a worker is there.

        Raises:
            BrokerUnreachable: nobody heard.
        """
        key = WORKER + presence.name
        try:
            async with self._redis.pipeline() as pipe:
                pipe.hset(key, mapping=presence.as_fields())
                pipe.expire(key, LIFETIME)
                await pipe.execute()
        except (RedisError, OSError) as error:
            raise self._unreachable(error) from error

    async def withdraw(self, name: str) -> None:
        """Say that a worker is gone.

        Raises:
            BrokerUnreachable: nobody heard; it is forgotten soon in any case.
        """
        try:
            await self._redis.delete(WORKER + name)
        except (RedisError, OSError) as error:
            raise self._unreachable(error) from error

    async def all(self) -> list[Presence]:
        """Return the workers that are there, by name.

        Raises:
            BrokerUnreachable: Redis does not say.
        """
        try:
            keys = [key async for key in self._redis.scan_iter(f"{WORKER}*", count=1000)]
            async with self._redis.pipeline(transaction=False) as pipe:
                for key in sorted(set(keys)):
                    pipe.hgetall(key)
                found = await pipe.execute()
        except (RedisError, OSError) as error:
            raise self._unreachable(error) from error
        return [_presence(fields) for fields in found if fields]

    def _unreachable(self, error: Exception) -> BrokerUnreachable:
        return unreachable(self._address, error, self._setting)


def _presence(fields: Mapping[str, Any]) -> Presence:
    taken = fields.get("last_taken_at")
    return Presence(
        name=fields["name"],
        host=fields["host"],
        pid=int(fields["pid"]),
        processes=int(fields["processes"]),
        queues=tuple(fields["queues"].split(",")),
        started_at=float(fields["started_at"]),
        chunks=int(fields["chunks"]),
        last_taken_at=None if taken is None else float(taken),
    )


# ---------------- How far the jobs of a cluster are, mirrored from the database to Redis for

PROGRESS = "longline:progress:"
"""Before the id of a job: a hash with the fields of `SiteProgress`."""
ENDED = "longline:ended"
"""The channel on which the id of each job is told when it ends."""
PROGRESS_LIFETIME = 3600
"""Seconds that the last picture of a job stays."""
FRESHNESS = 15
"""Seconds that one of a job that goes on does: an old one would be believed."""


class Mirror:
    """The pictures in Redis; they expire by themselves."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def show(self, progress: SiteProgress) -> None:
        """Renew the picture of a job; one that is over is told of on the channel."""
        key = PROGRESS + progress.job
        fields: dict[Any, Any] = {
            name: "" if value is None else str(value) for name, value in progress.as_dict().items()
        }
        async with self._redis.pipeline() as pipe:
            pipe.hset(key, mapping=fields)
            pipe.expire(key, PROGRESS_LIFETIME if progress.is_over else FRESHNESS)
            if progress.is_over:
                pipe.publish(ENDED, progress.job)
            await pipe.execute()

    async def look(self, job: str) -> SiteProgress | None:
        """Return the last picture of a job; None when there is none."""
        found: dict[Any, Any] = await self._redis.hgetall(PROGRESS + job)
        return _from({key.decode(): value.decode() for key, value in found.items()})


def _from(fields: Mapping[str, str]) -> SiteProgress | None:
    if not fields:
        return None
    return SiteProgress(
        job=fields["job"],
        source=fields["source"],
        status=SiteStatus(fields["status"]),
        state=JobState(fields["state"]),
        started_at=_moment(fields["started_at"]),
        completed_at=_moment(fields["completed_at"]),
        reason=fields["reason"] or None,
        **{name: int(fields[name]) for name in _NUMBERS},
    )


_NUMBERS = (
    *("total_chunks", "completed_chunks", "total_items", "completed_items"),
    *("failed_items", "result_count"),
)


def _moment(text: str) -> float | None:
    return float(text) if text else None


def broker_of(settings: Settings) -> str:
    """Return the address of the Redis that carries messages.

    Raises:
        BadOption: there is none, or it is something else.
    """
    address = settings.broker
    if address is None:
        raise NoRedis(REDIS_URL, f"set {REDIS_URL}, or run `longline up`")
    if urlsplit(address).scheme not in ("redis", "rediss"):
        problem = "must be an address of Redis, such as redis://127.0.0.1:6379/0"
        raise BadOption(setting_of_broker(settings), problem)
    return address


def setting_of_broker(settings: Settings) -> str:
    """Return the name of the setting that the address of that Redis comes from."""
    return "LONGLINE_BROKER_URL" if settings.broker_url else REDIS_URL


def unreachable(address: str, error: BaseException, setting: str) -> BrokerUnreachable:
    """Return what is wrong with a Redis that cannot be used, in one line; `setting` names it."""
    cause = error if isinstance(error, RedisError) else error.__cause__
    problem = permanent_cause(cause, setting) if isinstance(cause, RedisError) else None
    if problem is not None:
        return BrokerUnusable(address, problem, setting)
    told = " ".join(str(error).split()).removesuffix(".")
    return BrokerUnreachable(address, told or type(error).__name__, setting)

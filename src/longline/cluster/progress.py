"""How far the jobs of a cluster are, mirrored from the database to Redis for onlookers.

The mirror is a picture that may be some seconds old and is gone after a while; whoever misses it
there asks the database. A message on a channel tells of each job's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

from longline.jobs.sites import SiteProgress, SiteStatus
from longline.model import JobState

PROGRESS = "longline:progress:"
"""Before the id of a job: a hash with the fields of `SiteProgress`."""
ENDED = "longline:ended"
"""The channel on which the id of each job is told when it ends."""
LIFETIME = 3600
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
            pipe.expire(key, LIFETIME if progress.is_over else FRESHNESS)
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

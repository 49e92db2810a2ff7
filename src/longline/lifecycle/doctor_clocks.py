"""Checks of clocks: those of this machine, the database and Redis have to agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from longline.lifecycle.doctor_base import Finding, Ground, ok, problem, warning
from longline.lifecycle.doctor_database import database_time
from longline.lifecycle.doctor_redis import redis_time

_ODD = 1.0  # seconds
_WRONG = 30.0
_COUNTS = {
    "database": "leases go by the database's clock",
    "Redis": "limits go by Redis's clock",
}


def clocks(ground: Ground) -> Iterator[Finding]:
    """See by how much the clocks of a cluster differ."""
    others: dict[str, Callable[[Ground], float | None]] = {
        "database": database_time,
        "Redis": redis_time,
    }
    for name, time_of in others.items():
        ahead = _ahead(ground, time_of)
        if ahead is not None:
            yield _judged(name, ahead)
    if ground.settings.redis is None and ground.settings.database.startswith("sqlite"):
        yield ok("clocks", "all is on this machine, which has one clock")


def _ahead(ground: Ground, time_of: Callable[[Ground], float | None]) -> float | None:
    """Return by how many seconds this machine is ahead; None when there is nothing to compare."""
    before = ground.now()
    there = time_of(ground)
    return None if there is None else (before + ground.now()) / 2 - there


def _judged(name: str, ahead: float) -> Finding:
    direction = "ahead of" if ahead > 0 else "behind"
    sentence = f"this machine's clock is {abs(ahead):.1f} s {direction} that of the {name}"
    sentence = sentence.replace("the Redis", "Redis")
    remedy = f"set both by NTP; {_COUNTS[name]}, times in logs and records by this machine's"
    if abs(ahead) >= _WRONG:
        return problem("clocks", sentence, remedy)
    if abs(ahead) >= _ODD:
        return warning("clocks", sentence, remedy)
    of = "Redis" if name == "Redis" else f"the {name}"
    return ok("clocks", f"this machine's clock and that of {of} agree; {_COUNTS[name]}")

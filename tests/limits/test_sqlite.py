"""What a file adds to the contract: other processes, crashes, and files that are not ours."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from longline.core.clock import SystemClock
from longline.core.errors import ConnectFailed, StoreDamaged, StoreTooNew, StoreUnreachable
from longline.limits.breaker import BreakerPolicy, BreakerState, CircuitBreaker
from longline.limits.limiter import RateLimiter
from longline.limits.rate_limit import RateLimit
from tests.limit_backends import SqliteRateLimitBackend, SqliteStates
from tests.virtual import VirtualClock

RATE_LIMIT = RateLimit(rate=0.1, capacity=5)  # as in sqlite_process.py
POLICY = BreakerPolicy(threshold=1, recovery=60.0)  # the same
PROGRAM = Path(__file__).with_name("sqlite_process.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limits.sqlite"


@pytest.fixture
async def backend(path: Path) -> AsyncIterator[SqliteRateLimitBackend]:
    backend = SqliteRateLimitBackend(path, SystemClock())
    yield backend
    await backend.close()


def start(task: str, path: Path, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), task, str(path), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Return the lines that all of them printed."""
    return [line for process in processes for line in process.communicate()[0].splitlines()]


def test_ten_processes_are_never_given_the_same_slot(path: Path) -> None:
    lines = finish([start("reserve", path, 30) for _ in range(10)])

    slots = sorted(float(line) for line in lines)

    assert len(slots) == 300
    # The first five are the burst; behind it, one slot every ten seconds and none twice.
    gaps = [later - earlier for earlier, later in pairwise(slots[5:])]
    assert gaps == pytest.approx([10.0] * 294, abs=1e-5)


@pytest.mark.real_time
async def test_of_many_processes_one_becomes_the_probe(path: Path) -> None:
    earlier = LateClock(-POLICY.recovery)
    states = SqliteStates(path, "breaker", BreakerState, earlier)
    breaker = CircuitBreaker(policy=POLICY, clock=earlier, backend=states)
    await breaker.record("a.test", ConnectFailed("http://a.test/", "reset"))
    await states.close()

    lines = await asyncio.to_thread(lambda: finish([start("probe", path, 20) for _ in range(5)]))

    assert len(lines) == 100
    assert lines.count("1") == 1


@pytest.mark.real_time
async def test_a_killed_process_leaves_its_burst_spent(
    path: Path, backend: SqliteRateLimitBackend
) -> None:
    process = start("reserve", path, 5)
    assert process.stdout is not None
    burst = [process.stdout.readline() for _ in range(5)]

    process.kill()
    process.communicate()

    assert len(burst) == 5
    assert (await backend.reserve("a.test", RATE_LIMIT)).wait > 5


@pytest.mark.real_time
async def test_the_event_loop_goes_on_while_another_process_holds_the_lock(
    path: Path, backend: SqliteRateLimitBackend
) -> None:
    await backend.reserve("a.test", RATE_LIMIT)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    waiting = asyncio.create_task(backend.reserve("a.test", RATE_LIMIT))
    started = time.monotonic()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    blocked_for = time.monotonic() - started
    other.execute("COMMIT")
    other.close()

    assert blocked_for < 0.5
    assert (await waiting).wait == 0


@pytest.mark.real_time
async def test_the_time_is_read_when_the_lock_is_held(
    path: Path, backend: SqliteRateLimitBackend
) -> None:
    await backend.reserve("a.test", RATE_LIMIT)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    released: list[float] = []

    def release() -> None:
        released.append(time.time())
        other.execute("COMMIT")
        other.close()

    timer = threading.Timer(0.05, release)
    timer.start()
    slot = await backend.reserve("a.test", RATE_LIMIT)
    timer.join()

    assert slot.at >= released[0] - 0.001


async def test_limiters_on_one_file_share_a_limit(path: Path, clock: VirtualClock) -> None:
    backends = [SqliteRateLimitBackend(path, clock) for _ in range(2)]
    limiters = [RateLimiter(clock=clock, backend=backend) for backend in backends]
    started = clock.now()

    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(limiters[number % 2].acquire("a.test"))

    assert clock.now() - started == pytest.approx(17.6, abs=1e-4)
    for backend in backends:
        await backend.close()


async def test_a_restart_finds_the_bucket_as_it_was(path: Path, clock: VirtualClock) -> None:
    before = SqliteRateLimitBackend(path, clock)
    slot = await before.reserve("a.test", RATE_LIMIT)
    await before.close()

    after = SqliteRateLimitBackend(path, clock)

    assert await after.state("a.test") == slot.after
    await after.close()


async def test_several_groups_may_share_a_file(path: Path, clock: VirtualClock) -> None:
    buckets = SqliteRateLimitBackend(path, clock)
    states = SqliteStates(path, "breaker", BreakerState, clock)

    slot = await buckets.reserve("a.test", RATE_LIMIT)
    await states.change("a.test", lambda _state, _now: (BreakerState(failures=1), None))

    assert await buckets.state("a.test") == slot.after
    assert (await states.read("a.test"))[0] == BreakerState(failures=1)
    await buckets.close()
    await states.close()


async def test_closing_twice_does_no_harm(backend: SqliteRateLimitBackend) -> None:
    await backend.close()
    await backend.close()


async def test_a_file_that_is_no_database_is_refused(
    path: Path, backend: SqliteRateLimitBackend
) -> None:
    path.write_text("these are my notes, not a database. " * 100)

    with pytest.raises(StoreUnreachable, match="not a database"):  # SQLite's own words
        await backend.reserve("a.test", RATE_LIMIT)

    assert path.read_text().startswith("these are my notes")


async def test_a_database_of_another_program_is_left_as_it_is(
    path: Path, backend: SqliteRateLimitBackend
) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    content = path.read_bytes()

    with pytest.raises(StoreUnreachable) as refused:
        await backend.reserve("a.test", RATE_LIMIT)

    assert str(path) in refused.value.address
    assert path.read_bytes() == content


async def test_a_file_of_a_newer_longline_is_not_changed(
    path: Path, backend: SqliteRateLimitBackend
) -> None:
    await backend.reserve("a.test", RATE_LIMIT)
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 2")
    other.close()
    late = SqliteRateLimitBackend(path, SystemClock())

    with pytest.raises(StoreTooNew) as refused:
        await late.reserve("a.test", RATE_LIMIT)

    assert (refused.value.found, refused.value.known) == ("2", "1")
    await late.close()


async def test_an_unreadable_value_is_reported(path: Path, backend: SqliteRateLimitBackend) -> None:
    await backend.reserve("a.test", RATE_LIMIT)
    other = sqlite3.connect(path)
    with other:
        other.execute("""UPDATE cells SET state = '{"speed": 3}'""")
    other.close()

    with pytest.raises(StoreDamaged):
        await backend.reserve("a.test", RATE_LIMIT)


async def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    backend = SqliteRateLimitBackend(tmp_path / "nowhere" / "limits.sqlite", SystemClock())

    with pytest.raises(StoreUnreachable):
        await backend.reserve("a.test", RATE_LIMIT)

    await backend.close()


class LateClock(SystemClock):
    """The clock of this machine, off by some seconds."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    def now(self) -> float:
        return super().now() + self._offset

"""Connections: hosts that hang hold up only themselves, and a wait is not part of a deadline."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.rate_limit import RateLimitMiddleware
from longline.http.transport import ConnectionLimit, HttpOptions, HttpTransport
from longline.limits.limiter import RateLimiter
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


def fill(limit: ConnectionLimit, host: str) -> int:
    taken = 0
    while limit.try_acquire(host):
        taken += 1
    return taken


def test_a_host_has_half_of_all_connections_at_most() -> None:
    limit = ConnectionLimit(100)

    assert fill(limit, "a") == 50


def test_hosts_without_a_connection_get_one_when_others_hold_nearly_all() -> None:
    limit = ConnectionLimit(100)
    busy = [fill(limit, f"busy{number}") for number in range(4)]

    assert busy == [50, 25, 1, 1]
    assert fill(limit, "healthy") == 1


def test_the_total_is_never_exceeded() -> None:
    limit = ConnectionLimit(8)

    assert sum(fill(limit, f"host{number}") for number in range(50)) == 8


async def test_a_release_serves_the_host_with_the_fewest_connections() -> None:
    limit = ConnectionLimit(8)
    served: list[str] = []

    async def wait(host: str) -> None:
        await limit.acquire(host)
        served.append(host)

    assert [fill(limit, host) for host in "abcd"] == [4, 2, 1, 1]
    waiting = [asyncio.create_task(wait(host)) for host in ("a", "b", "new")]
    await asyncio.sleep(0)
    for host in "aaab":
        limit.release(host)
    await asyncio.sleep(0)

    assert served == ["new", "a"]
    for task in waiting:
        task.cancel()


async def test_a_cancelled_wait_costs_no_connection() -> None:
    limit = ConnectionLimit(4)
    assert fill(limit, "a") == 2
    waiting = [asyncio.create_task(limit.acquire("a")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # before it is served
    limit.release("a")
    waiting[1].cancel()  # served in the meantime
    await asyncio.gather(*waiting, return_exceptions=True)

    assert not waiting[2].cancelled()
    limit.release("a")
    limit.release("a")
    assert fill(limit, "a") == 2


async def test_a_low_limit_of_file_descriptors_lowers_the_total(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _kind: (256, 256))

    assert fill(ConnectionLimit(), "a") == 64


class Hanging(Middleware):
    """Answers after a while, and notes when it was asked."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.times: list[float] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        self.times.append(self._clock.now())
        await self._clock.sleep(self._seconds)
        return Page(request.url, 200, {}, b"", self._seconds)


async def test_requests_that_waited_for_a_connection_keep_the_rate(clock: VirtualClock) -> None:
    inner = Hanging(clock, 20.0)
    limiter = RateLimiter(2.0, 1, margin=0.0, clock=clock)
    pacing = RateLimitMiddleware(inner, limiter, clock, ConnectionLimit(8))
    usages = [Usage() for _ in range(12)]

    await asyncio.gather(
        *(pacing(Request(f"http://host/{n}"), one) for n, one in enumerate(usages))
    )

    gaps = [after - before for before, after in zip(inner.times, inner.times[1:], strict=False)]
    assert min(gaps) >= 0.499
    assert sum(usage.waited >= 15 for usage in usages) == 8


@pytest.mark.real_time
async def test_slow_name_lookups_do_not_hold_up_others(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Any] = socket.getaddrinfo
    over = threading.Event()

    def lookup(host: str, *rest: Any, **more: Any) -> Any:
        if host.startswith("slow"):
            over.wait(60)
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    transport = HttpTransport(HttpOptions(timeout=30), clock)
    async with ScriptedSite() as site:
        site.says("/quick", "here")
        port = site.url.rpartition(":")[2]
        slow = [
            asyncio.create_task(transport(Request(f"http://slow{n}.test:{port}/"), Usage()))
            for n in range(40)
        ]
        await asyncio.sleep(0)
        page = await transport(Request(f"http://quick.test:{port}/quick"), Usage())
        blocking = await asyncio.to_thread(lambda: "ran")
        are_waiting = not any(task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        await transport.close()
        over.set()

    assert (page.status, blocking, are_waiting) == (200, "ran", True)

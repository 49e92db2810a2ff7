"""What happens to a host whose robots.txt cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from longline.core.errors import (
    CircuitOpen,
    ConnectFailed,
    Deferred,
    FailureKind,
    RobotsUnreachable,
)
from longline.core.model import Usage
from longline.http.errors import RobotsDisallowed
from longline.http.messages import Middleware, Page, Request
from longline.http.robots import pause_after
from longline.http.transport import HttpOptions, HttpTransport
from tests.http.robots_bench import CLOSED, DAY, Bench, Calendar
from tests.scripted_site import ScriptedSite, drop


@pytest.fixture
async def bench(site: ScriptedSite) -> AsyncIterator[Bench]:
    clock = Calendar()
    transport = HttpTransport(HttpOptions(), clock)
    yield Bench(site, clock, transport)
    await transport.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, FailureKind.OVERLOAD),
        (500, FailureKind.SERVER),
        (502, FailureKind.SERVER),
        (503, FailureKind.OVERLOAD),
        (599, FailureKind.SERVER),
    ],
)
async def test_a_server_error_puts_the_host_off(
    bench: Bench, status: int, kind: FailureKind
) -> None:
    bench.site.says("/robots.txt", status=status)

    with pytest.raises(Deferred) as caught:
        await bench.get(bench.middleware(), "/a")

    assert caught.value.until == pytest.approx(bench.clock.now() + 60)
    assert (caught.value.kind, caught.value.is_for_domain) == (kind, True)
    assert f"{bench.site.url}/robots.txt" in caught.value.problem
    assert str(status) in caught.value.problem
    assert bench.site.hits["/a"] == 0


async def test_no_connection_puts_the_host_off(bench: Bench) -> None:
    bench.site.answers["/robots.txt"] = drop

    with pytest.raises(Deferred) as caught:
        await bench.get(bench.middleware(), "/a")

    assert caught.value.kind is FailureKind.NETWORK
    assert bench.site.hits["/a"] == 0


async def test_a_short_failure_is_retried(bench: Bench) -> None:
    bench.site.says_in_turn("/robots.txt", 500, 503, 200)

    await bench.get(bench.middleware(), "/a")

    assert bench.site.hits == {"/robots.txt": 3, "/a": 1}
    assert bench.usage.retries == 2


async def test_no_request_is_sent_to_a_deferred_host(bench: Bench) -> None:
    bench.site.says("/robots.txt", status=500)
    robots = bench.middleware()
    with pytest.raises(Deferred) as first:
        await bench.get(robots, "/a")

    with pytest.raises(Deferred) as second:
        await bench.get(robots, "/b")

    assert first.value.until == second.value.until
    assert bench.site.hits == {"/robots.txt": 3}


async def test_the_pause_doubles_while_a_host_stays_unreachable(bench: Bench) -> None:
    bench.site.says("/robots.txt", status=500)
    robots = bench.middleware()
    pauses = []

    for _ in range(3):
        with pytest.raises(Deferred) as caught:
            await bench.get(robots, "/a")
        pauses.append(caught.value.until - bench.clock.now())
        await bench.clock.sleep(pauses[-1])

    assert pauses == pytest.approx([60, 120, 240])


def test_the_pause_never_grows_past_an_hour() -> None:
    assert [pause_after(number) for number in (1, 2, 6, 7, 5000)] == [60, 120, 1920, 3600, 3600]


async def test_a_host_that_recovers_gets_requests_immediately(bench: Bench) -> None:
    bench.site.says_in_turn("/robots.txt", 500, 500, 500, 200)
    bench.site.says("/a", "back")
    robots = bench.middleware()
    with pytest.raises(Deferred):
        await bench.get(robots, "/a")

    await bench.clock.sleep(60)

    assert (await bench.get(robots, "/a")).text == "back"


async def test_a_pause_that_the_site_asks_for_is_kept(bench: Bench) -> None:
    bench.site.says("/robots.txt", status=503, headers={"Retry-After": "900"})
    robots = bench.middleware()

    with pytest.raises(Deferred) as caught:
        await bench.get(robots, "/a")

    assert caught.value.until == pytest.approx(bench.clock.now() + 900)
    assert bench.site.hits == {"/robots.txt": 1}


async def test_an_old_copy_goes_on_to_count_while_the_site_is_unreachable(bench: Bench) -> None:
    bench.site.says("/robots.txt", CLOSED)
    bench.site.says("/a", "x")
    await bench.get(bench.middleware(), "/a")
    bench.clock.skipped += 3 * DAY
    bench.site.says("/robots.txt", status=500)
    robots = bench.middleware()

    assert (await bench.get(robots, "/a")).text == "x"
    with pytest.raises(RobotsDisallowed):
        await bench.get(robots, "/closed")

    assert bench.site.hits["/robots.txt"] == 4
    assert [one["host"] for one in bench.events_of("robots.unreachable")] == [bench.host]


async def test_an_open_breaker_is_passed_on_as_it_is(bench: Bench) -> None:
    class Open(Middleware):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del usage
            raise CircuitOpen(request.url, bench.clock.now() + 5)

    robots = bench.middleware(inner=Open())

    with pytest.raises(CircuitOpen):
        await bench.get(robots, "/a")


class Dead(Middleware):
    """A host that refuses every connection, through a breaker from the given attempt on."""

    def __init__(self, clock: Calendar, opens_after: int | None = None) -> None:
        self._clock = clock
        self._opens_after = opens_after
        self.attempts = 0

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        self.attempts += 1
        if self._opens_after is not None and self.attempts > self._opens_after:
            raise CircuitOpen(request.url, self._clock.now() + 100, "it failed too often")
        raise ConnectFailed(request.url, "connection refused")


async def waits_until_given_up(bench: Bench, robots: Middleware) -> tuple[int, RobotsUnreachable]:
    for waits in range(100):
        try:
            await bench.get(robots, "/a")
        except (Deferred, CircuitOpen) as error:
            bench.clock.skipped += max(0.0, error.until - bench.clock.now())
        except RobotsUnreachable as error:
            return waits, error
    raise AssertionError


@pytest.mark.parametrize("opens_after", [None, 4, 1, 0])
async def test_a_host_that_never_answers_is_given_up(bench: Bench, opens_after: int | None) -> None:
    robots = bench.middleware(inner=Dead(bench.clock, opens_after))

    waits, error = await waits_until_given_up(bench, robots)

    assert waits == 2
    assert error.kind is FailureKind.NETWORK
    assert error.__cause__ is not None


async def test_a_host_that_was_given_up_costs_no_further_attempts(bench: Bench) -> None:
    inner = Dead(bench.clock)
    robots = bench.middleware(inner=inner)
    for _ in range(3):
        with pytest.raises((Deferred, RobotsUnreachable)):
            await bench.get(robots, "/a")
        bench.clock.skipped += 200
    bench.clock.skipped -= 200
    attempts = inner.attempts

    for path in ("/a", "/b"):
        with pytest.raises(RobotsUnreachable):
            await bench.get(robots, path)

    assert inner.attempts == attempts


async def test_a_host_that_answers_with_errors_is_given_up_much_later(bench: Bench) -> None:
    bench.site.says("/robots.txt", status=500)
    robots = bench.middleware()

    waits, error = await waits_until_given_up(bench, robots)

    assert waits == 7
    assert error.kind is FailureKind.SERVER


async def test_a_ban_is_never_taken_for_a_dead_host(bench: Bench) -> None:
    class Banned(Middleware):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del usage
            until = bench.clock.now() + 100
            raise CircuitOpen(request.url, until, "a ban", FailureKind.BLOCKED)

    robots = bench.middleware(inner=Banned())
    for _ in range(10):
        with pytest.raises(CircuitOpen):
            await bench.get(robots, "/a")
        bench.clock.skipped += 100

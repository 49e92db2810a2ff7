from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from longline.core.errors import Deferred
from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.rate_limit import RateLimitMiddleware
from longline.limits.limiter import AcquiredSlot, RateLimiter
from longline.sandbox.limits import TokenBucket
from tests.virtual import VirtualClock, VirtualLoop

DOMAIN = "a.test"
URL = f"http://{DOMAIN}/"


class Script(Middleware):
    """A site that gives these answers in turn, and then plain ones; keeps what it was asked."""

    def __init__(self, clock: VirtualClock, *answers: tuple[int, Mapping[str, str]]) -> None:
        self._clock = clock
        self._answers = list(answers)
        self.requests: list[Request] = []
        self.moments: list[float] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        usage.requests += 1
        self.requests.append(request)
        self.moments.append(self._clock.now())
        status, headers = self._answers.pop(0) if self._answers else (200, {})
        return Page(request.url, status, headers, b"")


async def gap(script: Script, limiter: RateLimiter, clock: VirtualClock) -> float:
    """Return the seconds between the first answer and the second request."""
    pacing = RateLimitMiddleware(script, limiter, clock)
    await pacing(Request(URL), Usage())
    await pacing(Request(URL), Usage())
    return script.moments[1] - script.moments[0]


@pytest.mark.parametrize("rate", [100.0, None, "auto"])
@pytest.mark.parametrize(
    ("status", "headers", "pause"),
    [
        (429, {"retry-after": "7"}, 7),
        (429, {}, 5),
        (503, {"retry-after": "7"}, 7),
        (503, {}, 1),
        (200, {"retry-after": "7"}, 7),
        (301, {"retry-after": "Fri, 15 Jan 2027 08:00:07 GMT"}, 7),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9),
        (200, {"ratelimit": '"default";r=0;t=9'}, 9),
        (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9),
        (429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9", "retry-after": "3"}, 3),
    ],
)
async def test_an_answer_can_stop_the_domain_whatever_its_pace_is(
    clock: VirtualClock,
    rate: float | None,
    status: int,
    headers: dict[str, str],
    pause: float,
) -> None:
    script = Script(clock, (status, headers))

    waited = await gap(script, RateLimiter(rate, clock=clock), clock)

    assert waited == pytest.approx(pause, abs=0.6)  # a learner's own pace is half a second
    assert waited >= pause - 1e-6


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {}),
        (404, {}),
        (500, {}),
        (200, {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "9"}),
        (200, {"x-ratelimit-remaining": "0"}),
        (200, {"retry-after": "soon"}),
        (200, {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "59"}),
        (200, {"ratelimit-policy": '"day";q=1000;w=86400'}),
    ],
)
async def test_other_answers_do_not(
    clock: VirtualClock, status: int, headers: dict[str, str]
) -> None:
    script = Script(clock, (status, headers))

    assert await gap(script, RateLimiter(None, clock=clock), clock) == 0


async def test_a_pause_of_a_month_is_obeyed_for_a_day_and_parks_the_item(
    clock: VirtualClock,
) -> None:
    pacing = RateLimitMiddleware(
        Script(clock, (429, {"retry-after": "2592000"})), RateLimiter(clock=clock), clock
    )
    await pacing(Request(URL), Usage())

    with pytest.raises(Deferred) as caught:
        await pacing(Request(URL), Usage())

    assert caught.value.until == pytest.approx(clock.now() + 86_400)


async def test_without_a_limit_the_request_passes_as_it_is(clock: VirtualClock) -> None:
    limiter, script = RateLimiter(None, clock=clock), Script(clock)
    request = Request(URL)

    await RateLimitMiddleware(script, limiter, clock)(request, Usage())

    assert script.requests[0] is request
    assert limiter.get_statistics().domains[DOMAIN].requests == 1


class ExactSite(Middleware):
    """A site with a bucket of its own; requests take a while to get a connection."""

    def __init__(self, clock: VirtualClock, rate: float, burst: int, connecting: float) -> None:
        self._clock = clock
        self._bucket = TokenBucket(rate, burst, clock.now())
        self._connecting = connecting
        self.refused = 0

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        await self._clock.sleep(self._connecting)
        if request.before_write is not None:
            await request.before_write()
        is_refused = self._bucket.take(self._clock.now()) > 0
        self.refused += is_refused
        return Page(request.url, 429 if is_refused else 200, {}, b"")


@pytest.mark.parametrize("stall", [0.0, 0.05, 0.3, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("connecting", [0.0, 0.1, 0.4])
async def test_requests_that_a_stall_held_up_do_not_leave_with_the_next_burst(
    clock: VirtualClock, stall: float, connecting: float
) -> None:
    rate, burst, count = 20.0, 5, 100
    site = ExactSite(clock, rate, burst, connecting)
    pacing = RateLimitMiddleware(site, RateLimiter(rate, burst, clock=clock), clock)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    stalls = [loop.call_later(at, loop.jump, stall) for at in (1.02, 2.53, 3.91)]
    started = clock.now()

    await asyncio.gather(*(pacing(Request(URL), Usage()) for _ in range(count)))

    assert stalls[-1].when() < loop.time()
    assert site.refused == 0
    shortest = (count - burst) / rate
    lost = stall + max(burst / rate, connecting)
    assert clock.now() - started <= shortest + len(stalls) * lost + connecting + 0.5


async def test_a_published_limit_is_kept_and_reported_once(clock: VirtualClock) -> None:
    policy = {"ratelimit-policy": '"second";q=5;w=1, "minute";q=60;w=60'}
    limiter, usage = RateLimiter(None, clock=clock), Usage()
    pacing = RateLimitMiddleware(Script(clock, (200, policy), (200, policy)), limiter, clock)

    await pacing(Request(URL), usage)
    await pacing(Request(URL), usage)

    assert limiter.rate(DOMAIN) == pytest.approx(0.95)
    assert [(one.type, dict(one.data)) for one in usage.events] == [
        ("limit.published", {"domain": DOMAIN, "limit": 60, "window": 60})
    ]


async def test_what_is_left_may_be_spoken_for_by_requests_under_way(clock: VirtualClock) -> None:
    # The first answer says that one request is left; another is on its way to have it.
    limiter = RateLimiter(None, clock=clock)
    quota = (200, {"x-ratelimit-remaining": "1", "x-ratelimit-reset": "9"})
    script = Script(clock, quota)
    inner = RateLimitMiddleware(script, limiter, clock)

    async def meanwhile(request: Request, usage: Usage) -> Page:
        if request.url == URL:
            return await script(request, usage)
        await pacing(Request(URL), usage)
        return await script(request, usage)

    pacing = RateLimitMiddleware(meanwhile, limiter, clock)
    await pacing(Request(f"{URL}slow"), Usage())
    await inner(Request(URL), Usage())

    assert script.moments[-1] - script.moments[0] >= 9


async def test_a_request_s_priority_is_passed_on(clock: VirtualClock) -> None:
    limiter = Urgency(clock)

    await RateLimitMiddleware(Script(clock), limiter, clock)(Request(URL, priority=7), Usage())

    assert limiter.priorities == [7]


class Urgency(RateLimiter):
    """A limiter that keeps the priorities it was asked with."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(None, clock=clock)
        self.priorities: list[int] = []

    async def acquire(
        self, domain: str, url: str | None = None, *, priority: int = 0
    ) -> AcquiredSlot:
        self.priorities.append(priority)
        return await super().acquire(domain, url, priority=priority)


async def test_an_overloaded_site_says_nothing_about_its_limit(clock: VirtualClock) -> None:
    limiter = RateLimiter("auto", clock=clock)
    pacing = RateLimitMiddleware(Script(clock, *[(503, {})] * 20), limiter, clock)
    usage = Usage()

    for _ in range(20):
        await pacing(Request(URL), usage)

    assert limiter.rate(DOMAIN) == 2.0
    assert not usage.events

from __future__ import annotations

import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed, Refused, ServerFailed
from longline.core.model import ItemState, JobState
from longline.http.errors import TimedOut
from longline.limits.retry import RetryHandler
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite, drop
from tests.virtual import VirtualClock


@pytest.fixture
def handler(clock: VirtualClock) -> RetryHandler:
    return RetryHandler(
        max_attempts=3,
        base_delay=1.0,
        max_delay=60.0,
        circuit_breaker_threshold=10,
        jitter=0.0,
        clock=clock,
    )


class Flaky:
    """An operation that fails with each of these errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_a_network_error_is_retried(handler: RetryHandler) -> None:
    operation = Flaky(ConnectFailed("http://x/", "reset"))

    assert await handler.execute(operation) == "done"
    assert handler.get_statistics().successful_retries == 1


async def test_waits_grow_by_two_until_the_cap(clock: VirtualClock) -> None:
    handler = RetryHandler(max_attempts=9, max_delay=8, clock=clock, jitter=0.0)
    started = clock.now()

    await handler.execute(Flaky(*(TimedOut("http://x/", 1) for _ in range(6))))

    assert clock.now() - started == pytest.approx(1 + 2 + 4 + 8 + 8 + 8)


async def test_the_last_attempt_s_error_is_raised_and_counted(handler: RetryHandler) -> None:
    operation = Flaky(*(ServerFailed("http://x/", 500) for _ in range(5)))

    with pytest.raises(ServerFailed):
        await handler.execute(operation)

    statistics = handler.get_statistics()
    assert (operation.calls, statistics.retries, statistics.exhausted) == (3, 2, 1)


async def test_a_refusal_is_never_retried(handler: RetryHandler) -> None:
    operation = Flaky(Refused("http://x/", 403))

    with pytest.raises(Refused):
        await handler.execute(operation)

    assert operation.calls == 1


@pytest.mark.parametrize(
    ("status", "state", "asked"),
    [
        (401, ItemState.FAILED, 1),
        (403, ItemState.FAILED, 1),
        (404, ItemState.SKIPPED, 1),
        (500, ItemState.FAILED, 3),
        (503, ItemState.FAILED, 3),
    ],
)
async def test_each_status_ends_its_item_as_its_kind_says(
    site: ScriptedSite, orchestrator: Orchestrator, status: int, state: ItemState, asked: int
) -> None:
    site.says("/item/1", status=status)

    report = await orchestrator.execute()

    assert report.progress.counts[state] == 1
    assert site.hits["/item/1"] == asked
    assert report.progress.successful == 9


async def test_a_timeout_is_retried_and_then_fails_the_item(
    site: ScriptedSite, orchestrator: Orchestrator, clock: VirtualClock
) -> None:
    async def never(_request: web.Request) -> web.StreamResponse:
        await clock.sleep(1000)
        return web.Response()

    site.answers["/item/1"] = never

    report = await orchestrator.execute()

    rows = await orchestrator.store.queue.finished(report.job)
    assert [row["kind"] for row in rows if row["state"] == ItemState.FAILED] == ["timeout"]
    assert site.hits["/item/1"] == 3


async def test_a_connection_that_always_drops_fails_the_item_as_network(
    site: ScriptedSite, orchestrator: Orchestrator
) -> None:
    site.answers["/item/1"] = drop

    report = await orchestrator.execute()

    rows = await orchestrator.store.queue.finished(report.job)
    assert [row["kind"] for row in rows if row["state"] == ItemState.FAILED] == ["network"]


async def test_a_long_pause_puts_the_item_back_with_a_due_time(
    site: ScriptedSite, orchestrator: Orchestrator, clock: VirtualClock
) -> None:
    asked: list[float] = []

    async def busy(_request: web.Request) -> web.StreamResponse:
        asked.append(clock.now())
        first = len(asked) == 1
        return web.Response(
            status=503 if first else 200, headers={"Retry-After": "300"} if first else {}
        )

    site.answers["/item/1"] = busy

    report = await orchestrator.execute()

    assert report.state is JobState.COMPLETE
    assert len(asked) == 2
    assert asked[1] - asked[0] >= 300
    assert len(await orchestrator.store.events.list(report.job, types=["item.deferred"])) >= 1


async def test_counts_of_requests_and_retries_agree_with_the_site(
    site: ScriptedSite, orchestrator: Orchestrator
) -> None:
    site.says_in_turn("/item/1", 500, 502, 200)
    site.says_in_turn("/item/2", 429, 200)

    report = await orchestrator.execute()

    values = report.as_dict()
    assert values["requests"] == sum(site.hits.values())
    assert (values["retries"], values["rate_limited"]) == (3, 1)
    assert values["stored"] == 10
